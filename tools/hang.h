// `shuntctl hang`: what is stuck, who holds it up, and why. A pure function of the records, so that
// it is tested without a hang.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shunt/v1/records.pb.h"

namespace shunt::tools {

// Names in --json, which stay.
namespace cause {
inline constexpr char kMissingRank[] = "missing_rank";
inline constexpr char kWrongOrder[] = "wrong_order";
inline constexpr char kDifferentCalls[] = "different_calls";
inline constexpr char kSendWithoutReceive[] = "send_without_receive";
inline constexpr char kReceiveWithoutSend[] = "receive_without_send";
inline constexpr char kStoppedProcess[] = "stopped_process";
inline constexpr char kDeadProcess[] = "dead_process";
inline constexpr char kWaitingOnFile[] = "waiting_on_file";
inline constexpr char kDeadPeer[] = "dead_peer";
inline constexpr char kStuckLink[] = "stuck_link";
inline constexpr char kWorldIncomplete[] = "world_incomplete";
inline constexpr char kGrantsExhausted[] = "grants_exhausted";
// It moves, or may: nothing that was seen explains it.
inline constexpr char kSlow[] = "slow";
}  // namespace cause

struct StuckRank {
  int rank = -1;
  std::string node;
  int32_t pid = 0;
  std::string session, last_call;
  uint64_t collectives = 0;
  std::string process_state, file;
};

struct Stuck {
  std::string cause;
  std::string what;    // "all_reduce #12 float32 sum count 1024 on 'train'"
  std::string reason;  // a sentence or more
  std::string communicator, job;
  uint64_t sequence = 0;
  uint64_t transfer = 0;
  std::string node;        // of a transfer or link: where it was seen
  int64_t waited_ns = -1;  // -1: not known, for the recorder is off
  std::vector<StuckRank> waiting, missing;
};

// What waits for longer than `older_than_ns`, longest first.
std::vector<Stuck> FindStuck(const v1::GetRecordsResponse& records, int64_t older_than_ns);

}  // namespace shunt::tools
