// How a communicator dies: one record, written once by whoever first finds that an operation cannot
// succeed, read by everybody.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/board/layout.h"

namespace shunt::board {

inline bool HasFailed(const Board& board) {
  return board.header().failure.state.load(std::memory_order_acquire) != 0;
}

// Writes the record unless there is one, and rings every rank. The first caller's words stand.
void RecordFailure(const Board& board, FailureReason reason, int rank, std::string_view text);

// A writer of the record needs microseconds; one that died in the middle must not hold the readers.
inline constexpr int64_t kWriterPatienceNs = 50'000'000;

// The failure as a status; OK if there is none. What it reads is hostile: bounded and made
// printable.
absl::Status FailureStatus(const Board& board);
// The same for somebody who knows that it has failed: waits for the record, whose writer may be
// about to write it.
absl::Status AwaitFailure(const Board& board, int64_t patience_ns = kWriterPatienceNs);
// A reason whose status has that code, for a failure that another node has found.
FailureReason ReasonOf(absl::StatusCode code);
// What a call gets that comes after the failure: its code and its words, so that whoever calls a
// moment later handles it as those who waited.
absl::Status DeadCommunicator(const Board& board, const absl::Status& failure);
inline absl::Status DeadCommunicator(const Board& board) {
  return DeadCommunicator(board, FailureStatus(board));
}

// "rank 3 (pid 4242)".
std::string RankText(const Board& board, int rank);
// "all_reduce #12 float32 sum count 1024"; `channel` tells sends and receives their peer.
std::string CallText(const Board& board, uint32_t channel, uint64_t seq, const PostBody& body);
// The rank's last call, to be put into words when it is needed.
struct CallRecord {
  uint64_t sequence = 0, words = 0, count = 0;
};
CallRecord LastCallRecord(const Board& board, int rank);
// In the same form; "" if it never called.
std::string Text(const CallRecord& call);
std::string LastCallText(const Board& board, int rank);
// "'name'"; bounded and printable.
std::string NameText(const Board& board);

}  // namespace shunt::board
