// What the daemon counts of its own work, for whoever asks (metrics). The parts call the verbs
// where things end; nothing here locks, waits or knows who reads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "daemon/transfer/transfer.h"
#include "runtime/board/tally.h"
#include "runtime/collectives/plan/local_plan.h"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/core/counters.h"
#include "runtime/core/types.h"
#include "runtime/p2p/work_pool.h"

namespace shunt::daemon {

inline constexpr size_t kCodes = 17;  // of absl::StatusCode, which are gRPC's
inline constexpr size_t kPriorities = 3;

// Operations that the daemon sees through: on this node's board, or with other nodes.
class OperationProbe {
 public:
  // In place of an algorithm: ranks of this node only.
  static constexpr size_t kBoard = kAlgorithmCount;
  static constexpr size_t kAlgorithms = kAlgorithmCount + 1;

  // `bus_bytes`: that a wire of the ideal algorithm carries, as nccl-tests counts; 0: unknown.
  void Ended(OpKind kind, size_t algorithm, int64_t took_ns, uint64_t bus_bytes);
  void Failed() { failed.Add(); }
  // A board has gone, with so much on it.
  void Keep(const board::Totals& totals);
  board::Totals kept() const;

  std::array<std::array<Durations, kAlgorithms>, kOpKindCount> durations;
  // Bytes a second of the last one that was large enough to tell; 0: none was.
  std::array<Level, kOpKindCount> busbw;
  Count failed;

 private:
  struct Kept {
    Count succeeded, failed, bytes;
  };
  std::array<Kept, kOpKindCount> kept_;
};

class TransferProbe {
 public:
  void Ended(const TransferReport& report, p2p::Priority priority);

  struct OfRoute {
    Count succeeded, failed;
    std::array<Count, kPriorities> bytes;
    Durations durations;  // of those that succeeded
  };
  std::array<OfRoute, kRoutes> routes;
};

// Errors that clients were answered, by code.
class AnswerProbe {
 public:
  void Answered(absl::StatusCode code) {
    const auto index = static_cast<size_t>(code);
    if (index != 0 && index < kCodes) errors[index].Add();
  }
  std::array<Count, kCodes> errors;
};

// What nccl-tests calls the bytes of busbw, of one call; 0 for kinds whose bytes no node knows.
// `count` is a block's where ranks have blocks, as in CollectiveSpec.
uint64_t BusBytes(const CollectiveSpec& spec, int world);

struct Probe {
  OperationProbe operations;
  TransferProbe transfers;
  AnswerProbe answers;
  Count aggregators_lost;  // communicators that go round the nodes instead
};

}  // namespace shunt::daemon
