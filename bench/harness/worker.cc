#include "bench/harness/worker.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness/pattern.h"
#include "runtime/core/clock.h"
#include "runtime/core/futex.h"

namespace shunt::bench {

absl::StatusOr<void*> Backend::Allocate(Memory, size_t bytes) {
  void* buffer = std::malloc(bytes);
  if (buffer == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("malloc of ", bytes, " bytes failed"));
  }
  return buffer;
}

void Backend::Free(Memory, void* buffer) { std::free(buffer); }

absl::Status Backend::Copy(void* destination, const void* source, size_t bytes) {
  if (bytes != 0) std::memcpy(destination, source, bytes);
  return absl::OkStatus();
}

int64_t Backend::RunMany(int64_t times) {
  const int64_t start = NowNs();
  for (int64_t i = 0; i < times; ++i) {
    if (!Run()) return -1;
  }
  return NowNs() - start;
}

namespace {

constexpr size_t kGuardBytes = 64;  // behind each buffer; must survive
constexpr unsigned char kGuard = 0xa5;
constexpr size_t kLeastBytes = size_t{1} << 20;
constexpr int64_t kWarmupNs = 3'000'000;

// One of a rank's two buffers, kept from command to command. Where the host does not reach it, the
// host has a copy, which Push and Pull carry over.
class Buffer {
 public:
  explicit Buffer(Backend& backend) : backend_(backend) {}
  ~Buffer() { Drop(); }

  absl::Status Ensure(Memory memory, size_t bytes) {
    if (data_ != nullptr && memory == memory_ && bytes <= bytes_) return absl::OkStatus();
    Drop();
    // Large enough that malloc maps pages for it, and that a sweep over small sizes keeps it.
    bytes = std::max(std::bit_ceil(bytes), kLeastBytes);
    auto data = backend_.Allocate(memory, bytes + kGuardBytes);
    if (!data.ok()) return data.status();
    data_ = static_cast<char*>(*data);
    memory_ = memory;
    bytes_ = bytes;
    copy_.assign(backend_.HostReaches(memory) ? 0 : bytes + kGuardBytes, 0);
    std::memset(host(), 0, bytes + kGuardBytes);
    return Push(bytes);
  }
  void Guard(size_t used) { std::memset(host() + used, kGuard, kGuardBytes); }
  bool GuardHolds(size_t used) {
    return std::all_of(host() + used, host() + used + kGuardBytes,
                       [](char c) { return static_cast<unsigned char>(c) == kGuard; });
  }
  // The first bytes, and as many more as a guard has.
  absl::Status Push(size_t used) {
    return copy_.empty() ? absl::OkStatus()
                         : backend_.Copy(data_, copy_.data(), used + kGuardBytes);
  }
  absl::Status Pull(size_t used) {
    return copy_.empty() ? absl::OkStatus()
                         : backend_.Copy(copy_.data(), data_, used + kGuardBytes);
  }
  char* data() const { return data_; }
  char* host() { return copy_.empty() ? data_ : copy_.data(); }
  // What the host has of a place in the buffer; the place itself, if it is elsewhere.
  void* HostOf(void* place) {
    const auto offset = reinterpret_cast<uintptr_t>(place) - reinterpret_cast<uintptr_t>(data_);
    return data_ != nullptr && offset < bytes_ + kGuardBytes ? host() + offset : place;
  }

 private:
  void Drop() {
    if (data_ != nullptr) backend_.Free(memory_, data_);
    data_ = nullptr;
  }

  Backend& backend_;
  Memory memory_ = Memory::kMalloc;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  std::vector<char> copy_;
};

class Rank {
 public:
  Rank(Control* control, Backend& backend)
      : control_(*control), backend_(backend), input_(backend), output_(backend) {}

  // False when the rank must end.
  bool Execute(const Command& command) {
    control_.wrong[backend_.rank()] = 0;
    operations_ = 0;
    if (!Place(command)) return false;
    if (!RankBarrier(&control_)) return false;
    if (command.check && !Check(command)) return false;
    if (command.blocks > 0 && !Measure(command)) return false;
    if (command.check && !Check(command)) return false;
    if (backend_.rank() == 0) control_.operations.store(operations_);
    return RankBarrier(&control_);
  }

 private:
  bool Fail(const std::string& words, bool unsupported = false) {
    control_.Fail(absl::StrCat("rank ", backend_.rank(), ": ", words), unsupported);
    return false;
  }

  bool Place(const Command& command) {
    const Problem& p = command.problem;
    const size_t element = SizeOf(p.dtype);
    input_used_ = InputElements(p, backend_.rank()) * element;
    output_used_ = OutputElements(p, backend_.rank()) * element;
    // Buffers of the same size on every rank: a region's first use is then alike everywhere.
    const size_t whole = std::max<size_t>(SizeBytes(p), element);
    call_ = Call{};
    call_.problem = p;
    call_.variant = command.variant;
    call_.in_place = command.in_place;
    absl::Status status = output_.Ensure(command.memory, whole);
    if (status.ok() && !command.in_place) status = input_.Ensure(command.memory, whole);
    if (!status.ok()) return Fail(std::string(status.message()));
    if (command.in_place) {
      const size_t offset = InPlaceOffset(p, backend_.rank()) * element;
      const bool inner_output = OutputInsideInput(p.op);
      call_.input = output_.data() + (inner_output ? 0 : offset);
      call_.output = output_.data() + (inner_output ? offset : 0);
      output_used_ = std::max(output_used_, input_used_);
    } else {
      call_.input = input_.data();
      call_.output = output_.data();
    }
    call_.graph_calls = command.graph_calls;
    call_.after_kernel_us = command.after_kernel_us;
    call_.memory = command.memory;
    status = backend_.Prepare(call_);
    if (!status.ok()) return Fail(std::string(status.message()), absl::IsUnimplemented(status));
    return true;
  }

  bool RunOnce() {
    if (!backend_.Run()) return FailRun();
    ++operations_;
    return true;
  }

  bool FailRun() {
    return Fail(absl::StrCat(std::string(Name(call_.problem.op)), " of ", SizeBytes(call_.problem),
                             " bytes failed: ", backend_.LastError()));
  }

  bool Check(const Command& command) {
    Problem p = command.problem;
    const int rank = backend_.rank();
    Buffer& in_buffer = command.in_place ? output_ : input_;
    void* const input = in_buffer.HostOf(call_.input);
    if (!command.in_place) {
      std::memset(output_.host(), 0x5a, output_used_);
      input_.Guard(input_used_);
    }
    output_.Guard(output_used_);
    FillInput(p, rank, input);
    absl::Status copied = output_.Push(output_used_);
    if (!command.in_place) copied.Update(input_.Push(input_used_));
    if (!copied.ok()) return Fail(std::string(copied.message()));
    if (!RankBarrier(&control_)) return false;
    if (!RunOnce()) return false;
    copied = output_.Pull(output_used_);
    if (!command.in_place) copied.Update(input_.Pull(input_used_));
    if (!copied.ok()) return Fail(std::string(copied.message()));
    uint64_t wrong = CountWrong(p, rank, output_.HostOf(const_cast<void*>(backend_.Result(call_))));
    if (!command.in_place) {
      wrong += CountChangedInput(p, rank, input);
      wrong += !input_.GuardHolds(input_used_);
    }
    wrong += !output_.GuardHolds(output_used_);
    control_.wrong[rank] += wrong;
    return RankBarrier(&control_);
  }

  int64_t TimedLoop(int64_t iterations) {
    const int64_t elapsed = backend_.RunMany(iterations);
    if (elapsed < 0) FailRun();
    operations_ += iterations;
    return elapsed;
  }

  // Rank 0's clock decides, so that all ranks run the same number of iterations.
  bool Agree(int64_t iterations) {
    if (backend_.rank() == 0) control_.iterations.store(iterations);
    return RankBarrier(&control_);
  }

  bool WarmUp(const Command& command) {
    int64_t iterations = command.warmup > 0 ? command.warmup : 1;
    while (true) {
      if (!RankBarrier(&control_)) return false;
      const int64_t elapsed = TimedLoop(iterations);
      if (elapsed < 0) return false;
      const bool enough = elapsed >= kWarmupNs || iterations >= 1'000'000;
      const double each = std::max(1.0, static_cast<double>(elapsed) / iterations);
      const int64_t next =
          enough ? -std::max<int64_t>(1, static_cast<int64_t>(command.block_ns / each))
                 : iterations * 4;
      if (!Agree(next)) return false;
      iterations = control_.iterations.load();
      if (!RankBarrier(&control_)) return false;
      if (iterations < 0) break;
    }
    return Agree(command.iterations > 0 ? command.iterations : -iterations);
  }

  bool Measure(const Command& command) {
    if (!WarmUp(command)) return false;
    const int64_t iterations = control_.iterations.load();
    for (int block = 0; block < command.blocks; ++block) {
      if (!RankBarrier(&control_)) return false;
      const int64_t elapsed = TimedLoop(iterations);
      if (elapsed < 0) return false;
      control_.elapsed_ns[block][backend_.rank()] = elapsed;
    }
    return RankBarrier(&control_);
  }

  Control& control_;
  Backend& backend_;
  Buffer input_;
  Buffer output_;
  size_t input_used_ = 0;
  size_t output_used_ = 0;
  int64_t operations_ = 0;
  Call call_;
};

}  // namespace

int ServeBenchmark(Control* control, Backend& backend) {
  if (backend.ranks() != control->ranks) {
    control->Fail(absl::StrCat("started as one of ", backend.ranks(), " ranks, the driver wants ",
                               control->ranks));
    return 1;
  }
  Rank rank(control, backend);
  return ServeCommands(control, backend.rank(),
                       [&](const Command& command) { return rank.Execute(command); });
}

int ServeCommands(Control* control, int rank, const std::function<bool(const Command&)>& execute) {
  uint32_t seen = 0;
  control->attached.fetch_add(1);
  FutexWake(&control->attached);
  while (true) {
    while (control->issued.load() == seen) {
      if (control->Doomed()) return 1;
      FutexWait(&control->issued, seen, std::chrono::milliseconds(200));
    }
    ++seen;
    const Command command = control->command;
    if (command.kind == Command::Kind::kExit || !execute(command)) break;
    if (rank == 0) {
      control->finished.store(seen);
      FutexWake(&control->finished);
    }
  }
  return control->failed.load() == 0 ? 0 : 1;
}

}  // namespace shunt::bench
