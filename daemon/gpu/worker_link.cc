#include "daemon/gpu/worker_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/gpu/worker/gates.h"

namespace shunt::daemon {
namespace {

// Of an id the upper bits are the incarnation's: one of a process that is gone names nothing.
constexpr int kIncarnationShift = 40;

}  // namespace

RunBatch& RunBatch::operator=(RunBatch&& other) noexcept {
  if (this == &other) return *this;
  if (link_ != nullptr) link_->GiveBack(index_);
  link_ = std::move(other.link_);
  runs_ = other.runs_;
  index_ = other.index_;
  return *this;
}

RunBatch::~RunBatch() {
  if (link_ != nullptr) link_->GiveBack(index_);
}

uint64_t RunBatch::incarnation() const { return link_->incarnation(); }

absl::StatusOr<std::shared_ptr<WorkerLink>> WorkerLink::Make(uint64_t incarnation,
                                                             std::string label) {
  std::shared_ptr<WorkerLink> link(new WorkerLink(incarnation, std::move(label)));
  SHUNT_ASSIGN_OR_RETURN(link->ring_fd_, MakeSealedMemfd("shunt-gpu-ring", sizeof(gpu::Ring)));
  SHUNT_ASSIGN_OR_RETURN(link->memory_, Mapping::Map(link->ring_fd_.get(), sizeof(gpu::Ring)));
  SHUNT_ASSIGN_OR_RETURN(link->worker_doorbell_, MakeEventFd());
  SHUNT_ASSIGN_OR_RETURN(link->shuntd_doorbell_, MakeEventFd());
  link->ring_ = reinterpret_cast<gpu::Ring*>(link->memory_.data());
  link->owner_ = gpu::RingOwner(link->ring_, link->worker_doorbell_.get());
  link->last_id_ = incarnation << kIncarnationShift;
  for (uint32_t batch = gpu::kRunBatches; batch > 0; --batch) {
    link->free_batches_.push_back(batch - 1);
  }
  return link;
}

absl::StatusOr<uint64_t> WorkerLink::Submit(absl::FunctionRef<void(gpu::Command&)> fill,
                                            Ended ended) {
  const std::lock_guard lock(mutex_);
  if (ended_) return absl::UnavailableError(absl::StrCat(label_, ": its worker was replaced"));
  gpu::Command* const command = owner_.Slot();
  if (command == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        label_, ": its worker has ", gpu::kCommandSlots, " commands that it has not taken yet"));
  }
  fill(*command);
  const bool repeats = (command->flags & gpu::kRepeats) != 0;
  if (!repeats && passing_ >= gpu::kCommandSlots) {
    return absl::ResourceExhaustedError(
        absl::StrCat(label_, ": ", passing_, " commands are under way, the most"));
  }
  SHUNT_CHECK(command->gates <= gpu::kGatesMax && command->places <= gpu::kGatesMax);
  command->id = ++last_id_;
  passing_ += repeats ? 0 : 1;
  under_way_.emplace(last_id_,
                     UnderWay{std::move(ended), repeats,
                              std::vector(command->gate, command->gate + command->gates)});
  owner_.Push();
  return last_id_;
}

void WorkerLink::Cancel(uint64_t id) {
  if (id >> kIncarnationShift != incarnation_) return;
  const std::lock_guard lock(mutex_);
  if (ended_ || !under_way_.contains(id)) return;
  cancels_.push_back(id);
  PushCancelsLocked();
}

void WorkerLink::PushCancelsLocked() {
  while (!cancels_.empty()) {
    gpu::Command* const command = owner_.Slot();
    if (command == nullptr) {
      // The completion thread tries again: it must not sleep through this.
      SignalEventFd(shuntd_doorbell_.get());
      return;
    }
    command->id = ++last_id_;
    command->kind = gpu::CommandKind::kCancel;
    command->target = cancels_.back();
    cancels_.pop_back();
    owner_.Push();
  }
}

bool WorkerLink::owes_cancels() const {
  const std::lock_guard lock(mutex_);
  return !cancels_.empty();
}

RunBatch WorkerLink::TakeBatch(std::function<void()> when_free) {
  const std::lock_guard lock(mutex_);
  if (free_batches_.empty() || ended_) {
    if (when_free && !ended_) batch_waiters_.push_back(std::move(when_free));
    return {};
  }
  const uint32_t batch = free_batches_.back();
  free_batches_.pop_back();
  return {shared_from_this(), ring_->run[batch], batch};
}

void WorkerLink::GiveBack(uint32_t batch) {
  std::function<void()> waiter;
  {
    const std::lock_guard lock(mutex_);
    free_batches_.push_back(batch);
    if (!batch_waiters_.empty()) {
      waiter = std::move(batch_waiters_.front());
      batch_waiters_.erase(batch_waiters_.begin());
    }
  }
  if (waiter) waiter();
}

void WorkerLink::AddHost(uint64_t address, std::weak_ptr<memory::Region> region) {
  const std::lock_guard lock(mutex_);
  hosts_.insert_or_assign(address, std::move(region));
}

void WorkerLink::RemoveHost(uint64_t address) {
  const std::lock_guard lock(mutex_);
  hosts_.erase(address);
}

uint64_t WorkerLink::under_way() const {
  const std::lock_guard lock(mutex_);
  return under_way_.size();
}

absl::Status WorkerLink::StatusOf(int32_t code) const {
  if (code == 0) return absl::OkStatus();
  const auto status = static_cast<absl::StatusCode>(code);
  return {status, absl::StrCat(label_, ": ",
                               status == absl::StatusCode::kCancelled
                                   ? "the operation was cancelled"
                                   : "the worker could not begin the operation")};
}

bool WorkerLink::Drain() {
  bool any = false;
  gpu::Done done{};
  while (owner_.Pop(&done)) {
    any = true;
    // Its cause is known when the process has ended, soon; End tells it.
    if (done.code == static_cast<int32_t>(absl::StatusCode::kDataLoss)) {
      lost_.store(true, std::memory_order_relaxed);
      continue;
    }
    UnderWayMap::node_type one;
    {
      const std::lock_guard lock(mutex_);
      one = under_way_.extract(done.id);
      if (!one.empty() && !one.mapped().repeats) --passing_;
    }
    if (!one.empty()) one.mapped().ended(StatusOf(done.code));
  }
  if (owes_cancels()) {
    const std::lock_guard lock(mutex_);
    PushCancelsLocked();
  }
  return any;
}

void WorkerLink::ReleaseGates(const UnderWay& one) {
  for (const gpu::Gate& gate : one.gates) {
    std::shared_ptr<memory::Region> region;
    uint64_t offset = 0;
    {
      const std::lock_guard lock(mutex_);
      auto host = hosts_.upper_bound(gate.words);
      if (host == hosts_.begin()) continue;
      --host;
      region = host->second.lock();
      offset = gate.words - host->first;
    }
    if (region == nullptr) continue;  // nobody waits there any more
    const absl::StatusOr<std::byte*> words = region->At(offset, sizeof(gpu::GateWords));
    if (!words.ok()) continue;
    gpu::Gate here = gate;
    here.words = reinterpret_cast<uint64_t>(*words);
    gpu::Release(here, one.repeats);
  }
}

void WorkerLink::End(const absl::Status& why) {
  UnderWayMap under_way;
  std::vector<std::function<void()>> waiters;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    cancels_.clear();
  }
  Drain();
  {
    const std::lock_guard lock(mutex_);
    under_way.swap(under_way_);
    waiters.swap(batch_waiters_);
  }
  // First what clients' streams wait for.
  for (const auto& [id, one] : under_way) ReleaseGates(one);
  for (auto& [id, one] : under_way) one.ended(why);
  for (const auto& waiter : waiters) waiter();
}

}  // namespace shunt::daemon
