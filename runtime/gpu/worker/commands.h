// The commands that a worker has taken and not ended yet.
//
//   queued ──► armed ──► running ──► ended        queued: behind another of its lane
//                ▲          │                     armed: its gates are looked at
//                └──────────┘ one that repeats    running: its completion word is looked at
//
// Nothing here waits, allocates (but for more repeating ones than ever before) or calls the system:
// between a trigger that is seen and its launch there is the executor alone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "runtime/gpu/worker/ring_ends.h"
#include "runtime/gpu/worker/worker.h"

namespace shunt::gpu {

// Words in host memory that kernels write: as the CPU reads them, and as kernels reach them.
struct CompletionWords {
  uint64_t* cpu = nullptr;
  uint64_t* device = nullptr;
  uint32_t count = 0;  // so many commands run at once, at most
};

// Of one thread. Owns none of what it is made with.
class Commands {
 public:
  Commands(Executor* executor, RingWorker* ring, CompletionWords words);
  ~Commands();
  Commands(const Commands&) = delete;

  // Takes what is in the ring, looks at all gates and completions, begins and ends. True if
  // anything happened. DATA_LOSS: the context is lost; call LoseAll, and nothing else.
  absl::StatusOr<bool> Turn();

  // Releases the gates of everything under way, and says that it has ended so.
  void LoseAll(const absl::Status& why);

  bool running() const { return !running_.empty(); }
  bool armed() const { return !armed_.empty(); }
  // Ends that shuntd has no room for yet.
  bool unsaid() const { return !unsaid_.empty(); }

 private:
  struct UnderWay;
  // Those of a lane, the one that is at it first.
  struct Lane {
    UnderWay* first;
    UnderWay* last;
  };

  void Take(const Command& command);
  void Cancel(uint64_t id);
  absl::Status Begin(UnderWay* one);
  void Release(const UnderWay& one);
  void End(UnderWay* one, absl::StatusCode code);
  void LeaveLane(UnderWay* one);
  void Say(const Done& done);
  UnderWay* Fresh();

  Executor* const executor_;
  RingWorker* const ring_;
  const CompletionWords words_;
  uint64_t last_value_ = 0;
  std::vector<uint32_t> free_words_;
  std::vector<std::unique_ptr<UnderWay>> all_;
  std::vector<UnderWay*> free_;
  std::vector<UnderWay*> armed_;
  std::vector<UnderWay*> running_;
  absl::flat_hash_map<uint64_t, UnderWay*> by_id_;
  absl::flat_hash_map<uint64_t, Lane> lanes_;
  std::deque<Done> unsaid_;
};

}  // namespace shunt::gpu
