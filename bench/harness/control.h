// The shared page between a benchmark's driver and its ranks. All sides of a comparison use it
// alike: ranks are told what to run, synchronised and timed through it, whatever library they
// measure. While one side runs, the ranks of the others sleep in the kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/operation.h"
#include "runtime/core/fd.h"

namespace shunt::bench {

inline constexpr int kMaxRanks = 64;
inline constexpr int kMaxBlocks = 64;

enum class Memory : uint8_t {
  kHost,      // Shunt's regions; peers have none and take malloc
  kMalloc,    // malloc on every side
  kCuda,      // a GPU's; the ranks share the GPUs out among themselves
  kCudaHost,  // of transfers: a GPU's on the side that moves, Shunt's regions on the other
};

std::string_view Name(Memory memory);

// What the ranks do next. Plain data.
struct Command {
  enum class Kind : uint8_t { kRun, kExit };
  Kind kind = Kind::kRun;
  bool in_place = false;
  bool check = true;
  Memory memory = Memory::kHost;
  int32_t variant = 0;  // which of the backend's ways to do the operation
  Problem problem;
  int32_t blocks = 3;
  int64_t block_ns = 20'000'000;  // length of a timed block
  int64_t iterations = 0;         // per block; 0: as many as fill block_ns
  int64_t warmup = 0;             // iterations; 0: chosen by time
  // Of memory on a GPU; see shunt-perf's options.
  int64_t graph_calls = 0;
  double after_kernel_us = 0;
};

struct alignas(64) Control {
  static constexpr uint64_t kMagic = 0x73687562656e6334;  // changes with the layout

  uint64_t magic;
  int32_t ranks;
  int32_t driver_pid;

  // Bumped by the driver for each command; `finished` follows when all ranks are through.
  alignas(64) std::atomic<uint32_t> issued;
  alignas(64) std::atomic<uint32_t> finished;
  alignas(64) std::atomic<uint32_t> attached;

  // The ranks' barrier.
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;

  // The first failure wins; the words are there once `failed` is 2.
  alignas(64) std::atomic<uint32_t> failed;
  char error[1024];
  bool unsupported;  // the failure is that the backend cannot do this operation

  alignas(64) Command command;
  std::atomic<int64_t> iterations;  // per block, decided by rank 0
  std::atomic<int64_t> operations;  // of this command, counted by rank 0
  int64_t elapsed_ns[kMaxBlocks][kMaxRanks];
  uint64_t wrong[kMaxRanks];

  // Records what went wrong, for the driver to print. Any rank, any thread.
  void Fail(std::string_view words, bool cannot = false);
  // True for ranks that should stop waiting: something failed, or the driver is gone.
  bool Doomed() const;
};

// A mapped control page. The driver creates it; it has a name until all ranks have attached,
// because ranks started by mpirun inherit no descriptors.
class ControlPage {
 public:
  static absl::StatusOr<ControlPage> Create(int ranks);
  static absl::StatusOr<ControlPage> Attach(const std::string& path);

  Control* get() const { return reinterpret_cast<Control*>(mapping_.data()); }
  const std::string& path() const { return path_; }
  // Removes the name. Idempotent.
  void Unlink();

  ControlPage() = default;
  ControlPage(ControlPage&&) = default;
  ControlPage& operator=(ControlPage&&) = default;
  ~ControlPage() { Unlink(); }

 private:
  Mapping mapping_;
  std::string path_;
};

// Waits until every rank is here. Spins briefly, then sleeps: with more ranks than cores a spinning
// rank would keep the others from arriving. False if the benchmark is doomed.
bool RankBarrier(Control* control);

// The number of cores that this process may use.
int UsableCores();

}  // namespace shunt::bench
