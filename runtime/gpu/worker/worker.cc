#include "runtime/gpu/worker/worker.h"

#include <poll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/gpu/worker/commands.h"
#include "runtime/gpu/worker/control.h"
#include "runtime/gpu/worker/ring_ends.h"

namespace shunt::gpu {
namespace {

// Commands that run at once, at most; more wait, armed.
constexpr uint32_t kRunningMax = 4096;
// While it spins it looks at the control socket so often.
constexpr int64_t kControlNs = 20'000;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Loop {
 public:
  Loop(const WorkerOptions& options, Executor* executor, Control* control, Ring* ring,
       const WorkerFds& fds, CompletionWords words)
      : options_(options),
        executor_(executor),
        control_(control),
        ring_(ring, fds.shuntd_doorbell.get()),
        doorbell_(fds.worker_doorbell.get()),
        commands_(executor, &ring_, words) {}

  absl::Status Run() {
    absl::Status end = Turns();
    if (absl::IsDataLoss(end)) commands_.LoseAll(end);
    return end;
  }

 private:
  // OK: shuntd has closed the control socket.
  absl::Status Turns() {
    int64_t worked_ns = NowNs(), controlled_ns = worked_ns, healthy_ns = worked_ns;
    for (;;) {
      ring_.Turn();
      SHUNT_ASSIGN_OR_RETURN(bool worked, commands_.Turn());
      const int64_t now = NowNs();
      if (now - controlled_ns >= kControlNs) {
        controlled_ns = now;
        SHUNT_ASSIGN_OR_RETURN(const Control::Served served, control_->Serve());
        if (served == Control::Served::kClosed) return absl::OkStatus();
        worked |= served == Control::Served::kOne;
      }
      if (worked) {
        worked_ns = now;
        continue;
      }
      if (commands_.running()) {
        if (now - healthy_ns >= options_.health_ns) {
          healthy_ns = now;
          SHUNT_RETURN_IF_ERROR(executor_->Health());
        }
      } else if (now - worked_ns >=
                 (commands_.armed() ? options_.armed_spin_ns : options_.spin_ns)) {
        controlled_ns = Sleep(commands_.armed() || commands_.unsaid()) ? 0 : now;
        continue;
      }
      Relax();
    }
  }

  // True if there is something on the control socket.
  bool Sleep(bool briefly) {
    if (ring_.MayNotSleep()) {
      ring_.Awake();
      return false;
    }
    pollfd ready[] = {{control_->fd(), POLLIN, 0}, {doorbell_, POLLIN, 0}};
    const timespec pause{0, options_.armed_sleep_ns};
    const int count = ::ppoll(ready, std::size(ready), briefly ? &pause : nullptr, nullptr);
    ring_.Awake();
    if (count <= 0) return false;
    if (ready[1].revents != 0) DrainEventFd(doorbell_);
    return ready[0].revents != 0;
  }

  const WorkerOptions& options_;
  Executor* const executor_;
  Control* const control_;
  RingWorker ring_;
  const int doorbell_;
  Commands commands_;
};

// Host memory that kernels reach, as long as this is there.
class Pinned {
 public:
  static absl::StatusOr<Pinned> Map(Driver* driver, int fd, size_t bytes) {
    Pinned pinned;
    SHUNT_ASSIGN_OR_RETURN(pinned.memory_, Mapping::Map(fd, bytes));
    SHUNT_ASSIGN_OR_RETURN(pinned.address_, driver->RegisterHost(pinned.memory_.data(), bytes));
    pinned.driver_ = driver;
    return pinned;
  }
  // Leaves it to the end of the process.
  void Abandon() { driver_ = nullptr; }
  Pinned(Pinned&& other) noexcept = default;
  Pinned& operator=(Pinned&&) = delete;
  ~Pinned() {
    if (memory_.valid() && driver_ != nullptr) {
      driver_->UnregisterHost(memory_.data()).IgnoreError();
    }
  }

  std::byte* data() const { return memory_.data(); }
  DevicePtr address() const { return address_; }

 private:
  Pinned() = default;
  Driver* driver_ = nullptr;
  Mapping memory_;
  DevicePtr address_ = 0;
};

absl::StatusOr<DeviceFacts> FindDevice(Driver* driver, const WorkerOptions& options) {
  SHUNT_ASSIGN_OR_RETURN(DeviceFacts device, driver->Describe(options.device));
  if (options.uuid != Uuid{} && options.uuid != device.uuid) {
    return absl::NotFoundError(absl::StrCat("GPU ", options.device,
                                            " is another than it was: the driver's numbers have "
                                            "changed"));
  }
  return device;
}

}  // namespace

absl::Status RunWorker(Driver* driver, const WorkerOptions& options, WorkerFds fds,
                       const MakeExecutor& make) {
  // Else a sleep of 20 us takes 70.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  SHUNT_ASSIGN_OR_RETURN(const DeviceFacts device, FindDevice(driver, options));
  SHUNT_ASSIGN_OR_RETURN(const Context context, driver->RetainPrimary(options.device));
  SHUNT_RETURN_IF_ERROR(driver->SetCurrent(context));

  // Kernels read the runs there. The executor is given them where the CPU reads them.
  SHUNT_ASSIGN_OR_RETURN(Pinned ring, Pinned::Map(driver, fds.ring.get(), sizeof(Ring)));
  if (ring.address() != reinterpret_cast<uint64_t>(ring.data())) {
    return absl::FailedPreconditionError(
        "this GPU reaches pinned host memory at other addresses than the CPU");
  }
  constexpr size_t kWordBytes = kRunningMax * sizeof(uint64_t);
  SHUNT_ASSIGN_OR_RETURN(const UniqueFd words_fd, MakeSealedMemfd("shunt-gpu-words", kWordBytes));
  SHUNT_ASSIGN_OR_RETURN(Pinned words, Pinned::Map(driver, words_fd.get(), kWordBytes));

  SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, make(driver, device));
  Control control(driver, device, std::move(fds.control));
  Loop loop(options, executor.get(), &control, reinterpret_cast<Ring*>(ring.data()), fds,
            {.cpu = reinterpret_cast<uint64_t*>(words.data()),
             .device = reinterpret_cast<uint64_t*>(words.address()),  // NOLINT
             .count = kRunningMax});
  absl::Status end = loop.Run();
  if (!absl::IsDataLoss(end)) return end;
  // A lost context may keep whoever cleans up waiting.
  static_cast<void>(executor.release());
  control.Abandon();
  ring.Abandon();
  words.Abandon();
  return end;
}

}  // namespace shunt::gpu
