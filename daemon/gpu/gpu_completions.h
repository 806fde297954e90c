// The thread on which commands of all GPUs end: it looks at their done rings for a while after
// work, then sleeps until a worker rings.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/gpu/worker_link.h"
#include "runtime/core/fd.h"

namespace shunt::daemon {

// Thread-safe.
class GpuCompletions {
 public:
  static absl::StatusOr<std::unique_ptr<GpuCompletions>> Start(int64_t spin_ns);
  ~GpuCompletions();

  void Add(std::shared_ptr<WorkerLink> link);
  // Its process is gone: what is under way there ends with `why`, on the thread.
  void Retire(std::shared_ptr<WorkerLink> link, absl::Status why);
  // After what was retired before. Nothing is called back afterwards.
  void Stop();

 private:
  using Links = std::vector<std::shared_ptr<WorkerLink>>;

  explicit GpuCompletions(int64_t spin_ns) : spin_ns_(spin_ns) {}
  void Run();
  // What has changed since the thread looked last; false: it stops.
  bool TakeNews(Links* links);
  void Sleep(const Links& links);

  const int64_t spin_ns_;
  UniqueFd wake_;
  std::thread thread_;
  std::atomic<bool> news_ = false;
  std::mutex mutex_;
  bool stop_ = false;
  Links links_;
  std::vector<std::pair<std::shared_ptr<WorkerLink>, absl::Status>> retired_;
};

}  // namespace shunt::daemon
