// The memory-bandwidth bound of a collective on one node: the fastest plain loop that reads every
// rank's input once and writes every rank's output once, on shared memory as ranks have it, with
// all cores and no library in between.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/bounds/kernels.h"
#include "bench/harness/operation.h"
#include "runtime/core/fd.h"

namespace shunt::bench {

struct Bound {
  double time_us = 0;          // of the faster loop
  double temporal_us = 0;      // ordinary stores
  double non_temporal_us = 0;  // stores around the cache
  uint64_t traffic_bytes = 0;  // read plus written in one pass
};

// True for all_reduce, all_gather, reduce_scatter and all_to_all.
bool HasOnePassBound(Operation op);

// The buffers of all ranks for one operation, float32. Not thread-safe.
class OnePass {
 public:
  // `bytes` is the size S as in operation.h, rounded down to what splits evenly among the ranks in
  // whole cache lines; at least 256 bytes a rank. `workers` threads share the pass in fixed slices.
  static absl::StatusOr<std::unique_ptr<OnePass>> Create(Operation op, int ranks, uint64_t bytes,
                                                         bool in_place, int workers);
  // Plain copy of `bytes` from one buffer to another.
  static absl::StatusOr<std::unique_ptr<OnePass>> CreateCopy(uint64_t bytes, int workers);

  // Median over `blocks` blocks of about `block_ns` each, for both loops.
  Bound Measure(int blocks, int64_t block_ns);

  // Runs the pass once, for tests. Buffers are filled and read through input() and output().
  void RunOnce(bool non_temporal);
  float* input(int rank) const { return inputs_[rank]; }
  float* output(int rank) const { return outputs_[rank]; }

 private:
  // A loop over part of the memory: the k-th worker takes the k-th slice of each step.
  struct Step {
    std::vector<const float*> inputs;
    std::vector<float*> outputs;
    size_t elements = 0;
  };

  explicit OnePass(int workers) : workers_(workers) {}
  absl::Status Allocate(int buffers, uint64_t bytes, std::vector<float*>* out);
  void AddStep(std::vector<const float*> inputs, std::vector<float*> outputs, size_t elements);
  void RunSlice(int worker, StreamLoop loop) const;
  // Nanoseconds of each block.
  std::vector<double> Time(StreamLoop loop, int blocks, int64_t block_ns);

  int workers_;
  uint64_t traffic_bytes_ = 0;
  std::vector<Mapping> mappings_;
  std::vector<float*> inputs_;
  std::vector<float*> outputs_;
  std::vector<Step> steps_;
};

}  // namespace shunt::bench
