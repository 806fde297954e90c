// The calls of one communicator that CUDA graphs have captured: executed whenever all ranks'
// streams have come to them, until a rank's graph is gone.
//
//   rank 0: Add 1, Add 2, …  ┐  the n-th of each rank    all there     trigger   ┌ released by a
//   rank, rank 1: Add 1, Add 2, …  ┘  are one entry         ──► command ──►  done  …   └ or its
//   end: cancelled
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/gpu/gpu_engine.h"
#include "runtime/board/failure.h"
#include "runtime/board/layout.h"

namespace shunt::daemon {

// Thread-safe. Held by its communicator, and by the commands that it has under way.
class Captures : public std::enable_shared_from_this<Captures> {
 public:
  // Of one session, in all its communicators: each costs the worker a look at its gates.
  static constexpr int kOfSessionMax = 65536;

  struct Setup {
    GpuEngine* engine = nullptr;
    board::Board board;
    std::shared_ptr<const Mapping> board_memory;
    // The communicator can't go on; on any thread, without locks of this.
    std::function<void(board::FailureReason, int rank, const std::string& text)> fail;
  };
  explicit Captures(Setup setup);

  struct Piece {
    GpuMemory memory;
    uint64_t offset = 0;
    bool given = false;
  };
  // One rank's side of a call.
  struct Part {
    Piece in, out, gate;
    Scalar scalar{};
    std::shared_ptr<void> count;  // it counts for its session
  };
  // `spec` is valid. INVALID_ARGUMENT if `sequence` is not the rank's next one. A call that differs
  // from another rank's fails the communicator.
  absl::Status Add(int rank, uint64_t sequence, const CollectiveSpec& spec, Part part);

  // The call is executed no more; `answer` is called once nobody looks at its gates any more,
  // perhaps at once. NOT_FOUND if there is no such call, also if it has been released and has
  // ended.
  using Answer = std::function<void(const absl::Status&)>;
  void Release(int rank, uint64_t sequence, Answer answer);

  // How many calls the rank has part in.
  size_t CountOf(int rank) const;
  // All of it ends.
  void End();

 private:
  struct Entry {
    CollectiveSpec spec{};
    int first = -1;  // the rank that came first
    size_t came = 0;
    std::vector<Part> parts;  // by rank; those that came have a gate
    std::shared_ptr<GpuEngine::Call> call;
    GpuEngine::Ticket ticket;
    bool released = false;
    std::vector<Answer> answers;
  };

  std::string CallWords(int rank, uint64_t sequence, const CollectiveSpec& spec) const;
  void Begin(uint64_t sequence);
  void Ended(uint64_t sequence, const absl::Status& outcome);
  std::shared_ptr<GpuEngine::Call> MakeCall(uint64_t sequence, Entry& entry);

  const Setup setup_;
  mutable std::mutex mutex_;
  bool ended_ = false;
  std::vector<uint64_t> next_;  // by rank
  std::map<uint64_t, Entry> entries_;
};

}  // namespace shunt::daemon
