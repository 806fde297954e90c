// What the daemon itself keeps of the last transfers, of the last exchanges of each communicator
// with other nodes, and of communicators that have ended. (The calls of one that is joined lie on
// its board.) All of it within a number and within bytes: what comes pushes out the oldest.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "runtime/recorder/call_ring.h"
#include "runtime/recorder/kept.h"

namespace shunt::daemon {

// One operation among nodes, as this node takes part in it. The engine's thread writes what is
// atomic.
struct ExchangeNote {
  uint64_t communicator = 0;          // this daemon's number
  int source = -1, destination = -1;  // of a pair; else -1
  uint64_t sequence = 0;
  const char* kind = "";
  uint64_t bytes = 0;
  int64_t arrived_ns = 0;
  std::atomic<const char*> algorithm = "";
  std::atomic<uint32_t> slices = 0;
  std::atomic<int64_t> began_ns = 0;
  std::atomic<int64_t> ended_ns = 0;
  std::atomic<bool> failed = false;
};

// By the engine; `note` may be null, `algorithm` lives for ever.
inline void NoteBegun(ExchangeNote* note, int64_t began_ns, const char* algorithm,
                      uint32_t slices) {
  if (note == nullptr) return;
  note->algorithm.store(algorithm, std::memory_order_relaxed);
  note->slices.store(slices, std::memory_order_relaxed);
  note->began_ns.store(began_ns, std::memory_order_release);
}

// A transfer that has ended.
struct TransferNote {
  uint64_t id = 0;
  uint64_t session = 0;
  int32_t pid = 0;
  uint32_t uid = 0;
  const char* route = "";
  std::string with, node;
  uint64_t bytes = 0;
  int64_t posted_ns = 0, began_ns = 0, ended_ns = 0;
  absl::Status outcome;
};

// A communicator that has ended.
struct PastCommunicator {
  uint64_t id = 0, wire_id = 0, epoch = 0;
  uint32_t uid = 0;
  int world = 0;
  std::string name, job, failure;
  struct Rank {
    int number = 0;
    int32_t pid = 0;
    uint64_t session = 0;
    std::string name, last_call;
    uint64_t collectives = 0;
    std::vector<recorder::Call> calls;
  };
  std::vector<Rank> ranks;
  std::vector<std::string> nodes;  // by number; empty on one node
  std::vector<std::shared_ptr<const ExchangeNote>> exchanges;
};

// Thread-safe.
class Recorder {
 public:
  struct Options {
    uint32_t calls = 128;  // of each rank, and exchanges of each communicator
    size_t transfers = 1024;
    size_t memory_bytes = 8 << 20;  // a quarter transfers, a quarter exchanges, half communicators
  };
  explicit Recorder(const Options& options);

  uint32_t calls() const { return options_.calls; }

  // Begun; its writer goes on writing it. Null: none are kept.
  std::shared_ptr<ExchangeNote> Add(std::unique_ptr<ExchangeNote> note);
  void Add(TransferNote note);
  // Its exchanges move into it.
  void Close(PastCommunicator communicator);

  // Oldest first.
  std::vector<std::shared_ptr<const ExchangeNote>> ExchangesOf(uint64_t communicator) const;
  std::vector<TransferNote> Transfers() const;
  std::vector<std::shared_ptr<const PastCommunicator>> Past() const;
  // What it takes at present, as it counts.
  size_t bytes() const;

 private:
  using Exchanges = std::list<std::shared_ptr<ExchangeNote>>;

  const Options options_;
  mutable std::mutex mutex_;
  recorder::Kept<TransferNote> transfers_;
  Exchanges exchanges_;  // of all, oldest first
  std::unordered_map<uint64_t, std::deque<Exchanges::iterator>> of_communicator_;
  recorder::Kept<std::shared_ptr<const PastCommunicator>> past_;
};

}  // namespace shunt::daemon
