#include "bench/bounds/one_pass.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "bench/harness/record.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

constexpr size_t kGrain = 64;  // elements; the loops' step is a divisor

// All workers spin: there is a core for each. It yields now and then in case there is not.
class SpinBarrier {
 public:
  explicit SpinBarrier(int count) : count_(count) {}
  void Wait() {
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      return;
    }
    for (int spins = 1; generation_.load(std::memory_order_acquire) == generation; ++spins) {
      __builtin_ia32_pause();
      if (spins % 20'000 == 0) std::this_thread::yield();
    }
  }

 private:
  const int count_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

}  // namespace

const StreamKernels& BestStreamKernels() {
  if (__builtin_cpu_supports("avx512f")) return kAvx512StreamKernels;
  if (__builtin_cpu_supports("avx2")) return kAvx2StreamKernels;
  return kSse2StreamKernels;
}

bool HasOnePassBound(Operation op) {
  return op == Operation::kAllReduce || op == Operation::kAllGather ||
         op == Operation::kReduceScatter || op == Operation::kAllToAll;
}

absl::Status OnePass::Allocate(int buffers, uint64_t bytes, std::vector<float*>* out) {
  for (int i = 0; i < buffers; ++i) {
    SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, MakeSealedMemfd("shunt-bound", bytes));
    SHUNT_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd.get(), bytes));
    // Whole numbers: sums stay normal numbers for as long as a benchmark runs in place.
    float* data = reinterpret_cast<float*>(mapping.data());
    std::fill(data, data + bytes / sizeof(float), 0.0f);
    out->push_back(data);
    mappings_.push_back(std::move(mapping));
  }
  return absl::OkStatus();
}

void OnePass::AddStep(std::vector<const float*> inputs, std::vector<float*> outputs,
                      size_t elements) {
  if (inputs.empty() || outputs.empty()) return;
  traffic_bytes_ += (inputs.size() + outputs.size()) * elements * sizeof(float);
  steps_.push_back({std::move(inputs), std::move(outputs), elements});
}

absl::StatusOr<std::unique_ptr<OnePass>> OnePass::CreateCopy(uint64_t bytes, int workers) {
  std::unique_ptr<OnePass> pass(new OnePass(workers));
  bytes = std::max<uint64_t>(kGrain, bytes / sizeof(float) / kGrain * kGrain) * sizeof(float);
  SHUNT_RETURN_IF_ERROR(pass->Allocate(1, bytes, &pass->inputs_));
  SHUNT_RETURN_IF_ERROR(pass->Allocate(1, bytes, &pass->outputs_));
  pass->AddStep({pass->inputs_[0]}, {pass->outputs_[0]}, bytes / sizeof(float));
  return pass;
}

absl::StatusOr<std::unique_ptr<OnePass>> OnePass::Create(Operation op, int ranks, uint64_t bytes,
                                                         bool in_place, int workers) {
  if (!HasOnePassBound(op)) {
    return absl::InvalidArgumentError(std::string(Name(op)) + " has no one-pass bound");
  }
  std::unique_ptr<OnePass> pass(new OnePass(workers));
  const size_t n = static_cast<size_t>(ranks);
  const size_t parts = op == Operation::kAllReduce ? 1 : n;
  // Elements of a part: of a rank's block, or of the whole for all_reduce.
  const size_t part = std::max(kGrain, bytes / parts / sizeof(float) / kGrain * kGrain);
  const size_t whole_bytes = part * parts * sizeof(float);
  const size_t part_bytes = part * sizeof(float);
  const size_t input_bytes = op == Operation::kAllGather ? part_bytes : whole_bytes;
  const size_t output_bytes = op == Operation::kReduceScatter ? part_bytes : whole_bytes;
  auto& inputs = pass->inputs_;
  auto& outputs = pass->outputs_;
  if (in_place && op != Operation::kAllToAll) {
    std::vector<float*> buffers;
    SHUNT_RETURN_IF_ERROR(pass->Allocate(ranks, whole_bytes, &buffers));
    for (size_t r = 0; r < n; ++r) {
      inputs.push_back(buffers[r] + (op == Operation::kAllGather ? r * part : 0));
      outputs.push_back(buffers[r] + (op == Operation::kReduceScatter ? r * part : 0));
    }
  } else {
    SHUNT_RETURN_IF_ERROR(pass->Allocate(ranks, input_bytes, &inputs));
    SHUNT_RETURN_IF_ERROR(pass->Allocate(ranks, output_bytes, &outputs));
  }

  switch (op) {
    case Operation::kAllReduce:
      pass->AddStep({inputs.begin(), inputs.end()}, outputs, part);
      break;
    case Operation::kReduceScatter:
      for (size_t r = 0; r < n; ++r) {
        std::vector<const float*> blocks;
        for (float* input : inputs) blocks.push_back(input + r * part);
        pass->AddStep(blocks, {outputs[r]}, part);
      }
      break;
    case Operation::kAllGather:
      for (size_t r = 0; r < n; ++r) {
        std::vector<float*> blocks;
        for (size_t to = 0; to < n; ++to) {
          // In place a rank's own block is there already.
          if (outputs[to] + r * part != inputs[r]) blocks.push_back(outputs[to] + r * part);
        }
        pass->AddStep({inputs[r]}, blocks, part);
      }
      break;
    default:
      for (size_t to = 0; to < n; ++to) {
        for (size_t r = 0; r < n; ++r) {
          pass->AddStep({inputs[r] + to * part}, {outputs[to] + r * part}, part);
        }
      }
  }
  return pass;
}

void OnePass::RunSlice(int worker, StreamLoop loop) const {
  for (const Step& step : steps_) {
    const size_t grains = step.elements / kGrain;
    const size_t begin = grains * worker / workers_ * kGrain;
    const size_t end = grains * (worker + 1) / workers_ * kGrain;
    loop({step.inputs.data(), static_cast<int>(step.inputs.size()), step.outputs.data(),
          static_cast<int>(step.outputs.size()), begin, end});
  }
}

void OnePass::RunOnce(bool non_temporal) {
  const StreamKernels& kernels = BestStreamKernels();
  for (int w = 0; w < workers_; ++w) {
    RunSlice(w, non_temporal ? kernels.non_temporal : kernels.temporal);
  }
}

std::vector<double> OnePass::Time(StreamLoop loop, int blocks, int64_t block_ns) {
  SpinBarrier barrier(workers_);
  std::atomic<int64_t> iterations{1};
  std::vector<double> each;
  const auto pass = [&](int worker, int64_t count) {
    barrier.Wait();
    const int64_t start = NowNs();
    for (int64_t i = 0; i < count; ++i) {
      RunSlice(worker, loop);
      barrier.Wait();
    }
    return NowNs() - start;
  };
  const auto main = [&](int worker) {
    // Warm up by doubling until a tenth of a block's time is reached; worker 0 decides for all.
    for (bool more = true; more;) {
      const int64_t count = iterations.load();
      const int64_t elapsed = pass(worker, count);
      barrier.Wait();
      if (worker == 0) {
        const double one = std::max(1.0, static_cast<double>(elapsed) / static_cast<double>(count));
        const bool enough = elapsed * 10 >= block_ns;
        iterations.store(enough ? -std::max<int64_t>(1, static_cast<int64_t>(block_ns / one))
                                : count * 2);
      }
      barrier.Wait();
      more = iterations.load() > 0;
    }
    for (int b = 0; b < blocks; ++b) {
      const int64_t count = -iterations.load();
      const int64_t elapsed = pass(worker, count);
      if (worker == 0) each.push_back(static_cast<double>(elapsed) / static_cast<double>(count));
    }
  };
  std::vector<std::thread> threads;
  for (int w = 1; w < workers_; ++w) threads.emplace_back(main, w);
  main(0);
  for (std::thread& thread : threads) thread.join();
  return each;
}

Bound OnePass::Measure(int blocks, int64_t block_ns) {
  const StreamKernels& kernels = BestStreamKernels();
  Bound bound;
  bound.traffic_bytes = traffic_bytes_;
  bound.temporal_us = Median(Time(kernels.temporal, blocks, block_ns)) / 1e3;
  bound.non_temporal_us = Median(Time(kernels.non_temporal, blocks, block_ns)) / 1e3;
  bound.time_us = std::min(bound.temporal_us, bound.non_temporal_us);
  return bound;
}

}  // namespace shunt::bench
