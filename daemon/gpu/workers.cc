#include "daemon/gpu/workers.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/gpu/gpu_completions.h"
#include "daemon/gpu/gpu_worker_state.h"
#include "daemon/gpu/worker_process.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr const char* kProgram = "shunt-gpu-worker";
constexpr int64_t kSpinNs = 50'000;
// The driver's first start on a machine with many GPUs takes seconds.
constexpr int64_t kListingMaxNs = 60'000'000'000;

bool HasDriver() {
  return std::getenv("SHUNT_CUDA_LIBRARY") != nullptr || ::access("/dev/nvidiactl", F_OK) == 0;
}

}  // namespace

struct GpuWorkers::Impl {
  Options options;
  std::shared_ptr<EventLoop> loop;
  std::unique_ptr<GpuCompletions> completions;
  std::thread thread;

  mutable std::mutex mutex;
  bool listed = false;
  bool stopped = false;
  std::string none_because;  // of no GPU at all
  std::vector<std::function<void()>> waiting;
  std::vector<std::shared_ptr<GpuWorker>> workers;

  // The loop's.
  std::unique_ptr<WorkerProcess> lister;
  EventLoop::TimerId lister_timer = 0;
  bool lister_late = false;

  absl::Status Start();
  void StartLister();
  void OnListed(const std::string& how);
  void Found(const absl::StatusOr<std::vector<GpuListing>>& chosen);
  void Stop();
};

absl::Status GpuWorkers::Impl::Start() {
  using Enabled = GpuChoice::Enabled;
  const Enabled enabled = options.choice.enabled;
  if (enabled == Enabled::kOff || (enabled == Enabled::kAuto && !HasDriver())) {
    listed = true;
    none_because = enabled == Enabled::kOff ? "gpu.enabled is \"off\""
                                            : "there is no /dev/nvidiactl on this machine";
    return absl::OkStatus();
  }
  SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> made, EventLoop::Make());
  loop = std::move(made);
  SHUNT_ASSIGN_OR_RETURN(completions, GpuCompletions::Start(kSpinNs));
  thread = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "shunt-gpu");
    loop->Run();
  });
  loop->Post([this] { StartLister(); });
  return absl::OkStatus();
}

void GpuWorkers::Impl::StartLister() {
  WorkerProcess::Options process;
  process.program =
      options.choice.worker.empty() ? ProgramBesideThis(kProgram) : options.choice.worker;
  process.arguments = {"--list"};
  process.use_mps = options.choice.use_mps;
  auto started = WorkerProcess::Start(loop.get(), process, /*line=*/nullptr,
                                      [this](const std::string& how) { OnListed(how); });
  if (!started.ok()) return Found(started.status());
  lister = *std::move(started);
  lister_timer = loop->At(NowNs() + kListingMaxNs, [this] {
    lister_late = true;
    if (lister != nullptr) lister->Kill();
  });
}

void GpuWorkers::Impl::OnListed(const std::string& how) {
  loop->Cancel(lister_timer);
  const std::shared_ptr<WorkerProcess> gone = std::move(lister);
  loop->Post([gone] {});  // it is on its stack
  if (how != "ended with exit status 0") {
    return Found(absl::UnavailableError(
        gone->last_line().empty()
            ? absl::StrCat(kProgram, " --list ", how, lister_late ? " for being late" : "")
            : gone->last_line()));
  }
  const absl::StatusOr<std::vector<GpuListing>> found = ParseListing(gone->output());
  if (!found.ok()) return Found(found.status());
  Found(Choose(*found, options.choice.devices));
}

void GpuWorkers::Impl::Found(const absl::StatusOr<std::vector<GpuListing>>& chosen) {
  std::vector<std::function<void()>> closures;
  std::vector<std::string> labels;
  {
    const std::lock_guard lock(mutex);
    if (chosen.ok()) {
      for (const GpuListing& gpu : *chosen) {
        workers.push_back(std::shared_ptr<GpuWorker>(new GpuWorker(
            std::make_shared<GpuWorker::State>(options, gpu, loop, completions.get()))));
        labels.push_back(workers.back()->label());
      }
      if (chosen->empty()) none_because = "the driver knows no GPU";
    } else {
      none_because = std::string(chosen.status().message());
    }
    listed = true;
    closures.swap(waiting);
  }
  if (!labels.empty()) {
    LogInfo("GPUs are served", {{"gpus", absl::StrJoin(labels, ", ")}});
  } else if (options.choice.enabled == GpuChoice::Enabled::kOn) {
    LogError("no GPU is served, though gpu.enabled is \"on\"", {{"cause", none_because}});
  } else {
    LogWarn("no GPU is served", {{"cause", none_because}});
  }
  for (const auto& closure : closures) closure();
}

void GpuWorkers::Impl::Stop() {
  std::vector<std::function<void()>> closures;
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(stopped, true)) return;
    listed = true;
    if (workers.empty() && none_because.empty()) none_because = "shuntd is stopping";
    closures.swap(waiting);
  }
  for (const auto& closure : closures) closure();
  if (loop == nullptr) return;
  loop->Post([this] {
    lister = nullptr;
    std::vector<std::shared_ptr<GpuWorker>> all;
    {
      const std::lock_guard lock(mutex);
      all = workers;
    }
    for (const auto& worker : all) worker->state_->Stop();
  });
  loop->Stop();
  thread.join();
  completions->Stop();
}

GpuWorkers::GpuWorkers(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GpuWorkers::~GpuWorkers() { Stop(); }

absl::StatusOr<std::unique_ptr<GpuWorkers>> GpuWorkers::Start(Options options) {
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  SHUNT_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<GpuWorkers>(new GpuWorkers(std::move(impl)));
}

void GpuWorkers::WhenListed(std::function<void()> closure) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->listed) {
      impl_->waiting.push_back(std::move(closure));
      return;
    }
  }
  closure();
}

absl::StatusOr<std::shared_ptr<GpuWorker>> GpuWorkers::Find(const gpu::Uuid& uuid) const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> served;
  for (const auto& worker : impl_->workers) {
    if (worker->gpu().uuid == uuid) return worker;
    served.push_back(gpu::UuidText(worker->gpu().uuid));
  }
  return absl::UnimplementedError(
      absl::StrCat(gpu::UuidText(uuid), ": this daemon does not serve that GPU; it serves ",
                   !served.empty()  ? absl::StrJoin(served, ", ")
                   : !impl_->listed ? "none yet"
                                    : absl::StrCat("none: ", impl_->none_because)));
}

std::vector<std::shared_ptr<GpuWorker>> GpuWorkers::List() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->workers;
}

void GpuWorkers::Stop() { impl_->Stop(); }

}  // namespace shunt::daemon
