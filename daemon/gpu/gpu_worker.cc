#include <chrono>
#include <condition_variable>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/gpu/device_regions.h"
#include "daemon/gpu/gpu_worker_state.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"

namespace shunt::daemon {
namespace {

// A new worker may have thousands of regions to import.
constexpr auto kAddressMax = std::chrono::seconds(10);
// Requests that the socket holds without anybody reading.
constexpr size_t kSentMax = 64;

// Waits for a callback, which may come later than that.
class Waiter {
 public:
  std::function<void(const absl::Status&)> Callback() {
    return [state = state_](const absl::Status& status) {
      const std::lock_guard lock(state->mutex);
      state->status = status;
      state->done = true;
      state->changed.notify_one();
    };
  }
  absl::Status Wait(const std::string& label) {
    std::unique_lock lock(state_->mutex);
    if (state_->changed.wait_for(lock, kAddressMax, [this] { return state_->done; })) {
      return state_->status;
    }
    return absl::DeadlineExceededError(
        absl::StrCat(label, ": its worker did not open memory within ", kAddressMax.count(), " s"));
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    absl::Status status;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

GpuWorker::State::State(GpuWorkers::Options options, GpuListing gpu,
                        std::shared_ptr<EventLoop> loop, GpuCompletions* completions)
    : options(std::move(options)),
      gpu(std::move(gpu)),
      label(absl::StrCat("GPU ", this->gpu.ordinal, " (", this->gpu.name, ", ",
                         gpu::UuidText(this->gpu.uuid), ")")),
      loop(std::move(loop)),
      completions(completions) {}

GpuWorker::GpuWorker(std::shared_ptr<State> state) : state_(std::move(state)) {}
GpuWorker::~GpuWorker() = default;

const GpuListing& GpuWorker::gpu() const { return state_->gpu; }
const std::string& GpuWorker::label() const { return state_->label; }

uint64_t GpuWorker::incarnation() const {
  const std::lock_guard lock(state_->mutex);
  return state_->incarnation;
}

GpuWorker::State::Memory GpuWorker::State::Of(const DeviceRegion& region) {
  Memory memory;
  memory.device = &region;
  return memory;
}

void GpuWorker::Import(const std::shared_ptr<DeviceRegion>& region, Imported done) {
  State* const state = state_.get();
  // The region is held until it is known.
  state->Import(
      region->id, [&region] { return State::Of(*region); },
      [state, region, done = std::move(done)](const absl::Status& status) {
        if (!status.ok()) return done(status);
        uint64_t address;
        {
          const std::lock_guard lock(state->mutex);
          address = state->memory.at(region->id).address;
        }
        done(address);
      });
}

absl::StatusOr<uint64_t> GpuWorker::AddressOf(const std::shared_ptr<DeviceRegion>& region) {
  Waiter waiter;
  state_->Import(
      region->id, [&region] { return State::Of(*region); }, waiter.Callback());
  SHUNT_RETURN_IF_ERROR(waiter.Wait(label()));
  const std::lock_guard lock(state_->mutex);
  return state_->memory.at(region->id).address;
}

absl::StatusOr<HostAddress> GpuWorker::AddressOf(const std::shared_ptr<memory::Region>& region) {
  Waiter waiter;
  const auto make = [this, &region] {
    region->OnGone([state = state_, id = region->id()] { state->Forget(id); });
    State::Memory memory;
    memory.host = region.get();
    memory.weak_host = region;
    return memory;
  };
  state_->Import(region->id(), make, waiter.Callback());
  SHUNT_RETURN_IF_ERROR(waiter.Wait(label()));
  const std::lock_guard lock(state_->mutex);
  const State::Memory& memory = state_->memory.at(region->id());
  return HostAddress{memory.address, memory.host_address};
}

absl::StatusOr<uint64_t> GpuWorker::Submit(uint64_t incarnation,
                                           absl::FunctionRef<void(gpu::Command&)> fill,
                                           Ended ended) {
  std::shared_ptr<WorkerLink> link;
  bool look;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->phase != State::Phase::kReady || state_->incarnation != incarnation) {
      SHUNT_RETURN_IF_ERROR(state_->WhyNotLocked());
      return absl::UnavailableError(absl::StrCat(label(), ": its worker was replaced"));
    }
    link = state_->link;
    look = !std::exchange(state_->looking, true);
  }
  absl::StatusOr<uint64_t> id = link->Submit(fill, std::move(ended));
  if (look) state_->KeepLooking();
  return id;
}

void GpuWorker::Cancel(uint64_t id) {
  std::shared_ptr<WorkerLink> link;
  {
    const std::lock_guard lock(state_->mutex);
    link = state_->link;
  }
  if (link != nullptr) link->Cancel(id);
}

RunBatch GpuWorker::TakeBatch(std::function<void()> when_free) {
  std::shared_ptr<WorkerLink> link;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->phase == State::Phase::kReady) {
      link = state_->link;
    } else if (when_free && state_->WhyNotLocked().ok()) {
      state_->batch_waiters.push_back(std::move(when_free));
      return {};
    }
  }
  if (link == nullptr) {
    if (when_free) when_free();
    return {};
  }
  return link->TakeBatch(std::move(when_free));
}

void GpuWorker::Forget(uint64_t id) { state_->Forget(id); }

GpuView GpuWorker::View() const {
  static constexpr const char* kStates[] = {"idle",       "starting", "ready",
                                            "restarting", "given up", "stopped"};
  const std::lock_guard lock(state_->mutex);
  GpuView view;
  view.gpu = state_->gpu;
  view.state = kStates[static_cast<size_t>(state_->phase)];
  view.why = state_->why;
  view.pid = state_->pid;
  view.restarts = state_->restarts;
  for (const auto& [id, memory] : state_->memory) {
    if (memory.device == nullptr) continue;
    ++view.regions;
    view.region_bytes += memory.device->bytes;
  }
  view.commands = state_->link == nullptr ? 0 : state_->link->under_way();
  return view;
}

absl::Status GpuWorker::State::WhyNotLocked() const {
  if (phase == Phase::kStopped) return absl::UnavailableError("shuntd is stopping");
  if (phase == Phase::kGivenUp) {
    return absl::UnavailableError(absl::StrCat(label, " is served no more: its worker ended ",
                                               deaths, " times, the last time as it ", why));
  }
  return absl::OkStatus();
}

void GpuWorker::State::Import(uint64_t id, const std::function<Memory()>& make,
                              std::function<void(const absl::Status&)> done) {
  absl::Status at_once;
  bool start = false;
  {
    const std::lock_guard lock(mutex);
    at_once = WhyNotLocked();
    if (at_once.ok()) {
      auto found = memory.find(id);
      if (found == memory.end()) found = memory.emplace(id, make()).first;
      Memory& entry = found->second;
      if (entry.at != Memory::At::kThere) {
        entry.waiters.push_back(std::move(done));
        done = nullptr;
        if (entry.at == Memory::At::kNowhere && control.valid()) AskLocked(id, &entry);
        start = phase == Phase::kIdle;
        if (start) phase = Phase::kStarting;
      }
    }
  }
  if (start) {
    loop->Post([self = shared_from_this()] { self->StartProcess(); });
  }
  if (done) done(at_once);
}

void GpuWorker::State::AskLocked(uint64_t id, Memory* entry) {
  gpu::Request request{};
  request.kind = gpu::RequestKind::kImport;
  request.memory = id;
  if (entry->host != nullptr) {
    request.memory_kind = gpu::MemoryKind::kHost;
    request.bytes = entry->host->bytes();
  } else {
    request.memory_kind = entry->device->is_ipc() ? gpu::MemoryKind::kIpc : gpu::MemoryKind::kVmm;
    request.bytes = entry->device->bytes;
    static_assert(sizeof(request.handle) == sizeof(entry->device->handle));
    std::memcpy(request.handle, entry->device->handle.data(), sizeof(request.handle));
  }
  entry->at = Memory::At::kAsked;
  entry->asked = next_request;
  SendLocked({request, [this, id, asked = next_request](const absl::StatusOr<gpu::Reply>& reply) {
                OnImported(id, asked, reply);
              }});
}

void GpuWorker::State::SendLocked(Call call) {
  call.request.id = next_request++;
  waiting.push_back(std::move(call));
  FlushLocked();
}

void GpuWorker::State::FlushLocked() {
  while (!waiting.empty() && sent.size() < kSentMax && control.valid()) {
    const gpu::Request& request = waiting.front().request;
    int fd = -1;
    if (request.kind == gpu::RequestKind::kImport) {
      const auto entry = memory.find(request.memory);
      if (entry == memory.end()) {  // forgotten meanwhile, and so is whoever waited
        waiting.pop_front();
        continue;
      }
      fd = entry->second.host != nullptr ? entry->second.host->fd()
                                         : entry->second.device->descriptor.get();
    }
    const absl::Status status =
        SendWithFds(control.get(), std::as_bytes(std::span(&request, 1)),
                    fd >= 0 ? std::span<const int>(&fd, 1) : std::span<const int>());
    if (!status.ok()) return;  // full: with the next reply; or broken: the process has ended
    sent.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
  if (!sent.empty() && !std::exchange(looking, true)) {
    loop->Post([self = shared_from_this()] { self->KeepLooking(); });
  }
}

void GpuWorker::State::OnImported(uint64_t id, uint64_t asked,
                                  const absl::StatusOr<gpu::Reply>& reply) {
  std::vector<std::function<void(const absl::Status&)>> waiters;
  absl::Status status = reply.status();
  {
    const std::lock_guard lock(mutex);
    const auto found = memory.find(id);
    if (found == memory.end() || found->second.asked != asked) return;
    Memory& entry = found->second;
    entry.at = status.ok() ? Memory::At::kThere : Memory::At::kNowhere;
    if (status.ok()) {
      entry.deaths = 0;
      entry.address = reply->address;
      entry.host_address = reply->host_address;
      if (entry.host != nullptr) link->AddHost(entry.host_address, entry.weak_host);
    }
    waiters.swap(entry.waiters);
  }
  for (const auto& waiter : waiters) waiter(status);
}

void GpuWorker::State::Forget(uint64_t id) {
  std::unordered_map<uint64_t, Memory>::node_type gone;  // destroyed after the lock
  const std::lock_guard lock(mutex);
  gone = memory.extract(id);
  if (gone.empty()) return;
  const Memory& entry = gone.mapped();
  if (entry.at == Memory::At::kNowhere || !control.valid()) return;
  if (entry.host_address != 0) link->RemoveHost(entry.host_address);
  gpu::Request request{};
  request.kind = gpu::RequestKind::kRelease;
  request.memory = id;
  SendLocked({request, nullptr});
}

}  // namespace shunt::daemon
