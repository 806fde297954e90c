#include "daemon/gpu/device_mover.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shunt::daemon {
namespace {

// Where it is posted: about what a poller may be held up by.
constexpr uint32_t kFirstRuns = 512;
// Then short at first, so that the GPU begins while the rest is walked.
constexpr uint32_t kSecondRuns = 2048;
constexpr size_t kUnderWayMax = 4;
// A contiguous piece that is worth a copy engine's while, and how many of them.
constexpr uint64_t kCopyBytes = 1 << 20;
constexpr uint32_t kCopiesMax = 64;

}  // namespace

DeviceMover::DeviceMover(Setup setup)
    : setup_(std::move(setup)),
      sources_(setup_.plan->source().regions().size()),
      cursor_(*setup_.plan, 0, setup_.plan->bytes()) {}

std::function<void()> DeviceMover::Again() {
  return [self = shared_from_this()] { self->RunSoon(); };
}

void DeviceMover::RunSoon() {
  setup_.pool->Add(p2p::OneChunk([self = shared_from_this()] {
                     self->Run(self->batches_ < 2 ? kSecondRuns : gpu::kRunsPerBatch);
                   }),
                   setup_.priority, 1);
}

void DeviceMover::Start(Ended ended) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = std::move(ended);
    begun_ = true;
    running_ = true;
  }
  Run(kFirstRuns);
}

void DeviceMover::Run(uint32_t runs_max) {
  bool over;
  {
    std::unique_lock lock(mutex_);
    const Step step = One(runs_max, lock);
    // Other transfers have their turns between.
    if (step == Step::kMore) RunSoon();
    if (step == Step::kNoMore) running_ = false;
    over = OverLocked();
  }
  if (over) End();
}

// One batch, or one long piece. kNoMore: nothing to do until a command ends, or at all.
DeviceMover::Step DeviceMover::One(uint32_t runs_max, std::unique_lock<std::mutex>& lock) {
  if (!status_.ok()) {
    next_ = Next();
    return Step::kNoMore;
  }
  if (under_way_.size() >= kUnderWayMax) return Step::kNoMore;
  if (!located_) {
    if (!setup_.engine->Locate(*setup_.worker, setup_.memory, &addresses_)) return ImportLocked();
    located_ = true;
  }
  if (next_.bytes == 0) {
    // Whoever tells of the end of a command is not kept waiting.
    lock.unlock();
    const Step filled = Fill(runs_max);
    lock.lock();
    if (filled != Step::kMore) return filled;
    if (!status_.ok()) {
      next_ = Next();
      return Step::kNoMore;
    }
  }
  return SubmitLocked();
}

// Sets next_. kLater: there is no batch now, and whoever gives one back has this called again.
DeviceMover::Step DeviceMover::Fill(uint32_t runs_max) {
  if (rest_.bytes == 0 && !(more_ = cursor_.Next(&rest_))) return Step::kNoMore;
  if (rest_.bytes >= kCopyBytes && copies_ < kCopiesMax) {
    ++copies_;
    next_.piece = rest_;
    next_.bytes = rest_.bytes;
    rest_.bytes = 0;
    return Step::kMore;
  }
  // By way of an import, which tells a worker that is served no more from a busy one.
  next_.batch = setup_.worker->TakeBatch([self = shared_from_this()] { self->Import(); });
  if (!next_.batch) return Step::kLater;
  gpu::Run* const runs = next_.batch.runs();
  uint32_t count = 0;
  uint64_t bytes = 0;
  const HostAddress* const sources = addresses_.at.data();
  const HostAddress* const destinations = sources + sources_;
  while (count < runs_max) {
    if (rest_.bytes == 0) {
      if (!(more_ = cursor_.Next(&rest_))) break;
      // Left for a copy engine.
      if (rest_.bytes >= kCopyBytes && copies_ < kCopiesMax) break;
    }
    const uint64_t piece = std::min<uint64_t>(rest_.bytes, gpu::kRunBytesMax);
    runs[count++] = {sources[rest_.source_region].device + rest_.source_offset,
                     destinations[rest_.destination_region].device + rest_.destination_offset,
                     piece};
    rest_.source_offset += piece;
    rest_.destination_offset += piece;
    rest_.bytes -= piece;
    bytes += piece;
  }
  next_.runs = count;
  next_.bytes = bytes;
  return Step::kMore;
}

DeviceMover::Step DeviceMover::SubmitLocked() {
  const uint64_t number = next_number_++;
  const auto fill = [&](gpu::Command& command) {
    command.bytes = next_.bytes;
    if (next_.runs > 0) {
      command.kind = gpu::CommandKind::kMove;
      command.batch = next_.batch.index();
      command.runs = next_.runs;
      return;
    }
    const p2p::CopyRun& piece = next_.piece;
    command.kind = gpu::CommandKind::kCopy;
    command.places = 1;
    command.place[0].in = addresses_.at[piece.source_region].device + piece.source_offset;
    command.place[0].out =
        addresses_.at[sources_ + piece.destination_region].device + piece.destination_offset;
  };
  absl::StatusOr<uint64_t> command = absl::UnavailableError("the GPU's process is another");
  if (next_.runs == 0 || next_.batch.incarnation() == addresses_.incarnation) {
    // The batch is given back when its command has ended.
    auto batch = std::make_shared<RunBatch>(std::move(next_.batch));
    next_.batch = RunBatch();
    const uint32_t index = batch->index();
    const auto fill_batch = [&](gpu::Command& c) {
      fill(c);
      c.batch = index;
    };
    command = setup_.engine->Submit(
        *setup_.worker, addresses_.incarnation, fill_batch,
        [self = shared_from_this(), number, batch](const absl::Status& outcome) {
          *batch = RunBatch();
          self->CommandEnded(number, outcome);
        },
        Again());
    if (!command.ok()) next_.batch = std::move(*batch);
  }
  if (command.ok()) {
    touched_ = true;
    ++batches_;
    next_ = Next();
    under_way_.emplace_back(number, *command);
    return more_ || rest_.bytes > 0 ? Step::kMore : Step::kNoMore;
  }
  if (absl::IsResourceExhausted(command.status())) return Step::kLater;
  if (absl::IsUnavailable(command.status()) && !touched_) {
    // It died while it had nothing of this: the next one may begin anew.
    setup_.engine->Forget(*setup_.worker, addresses_.incarnation);
    next_ = Next();
    rest_ = {};
    more_ = true;
    copies_ = 0;
    cursor_ = p2p::PlanCursor(*setup_.plan, 0, setup_.plan->bytes());
    return ImportLocked();
  }
  StopLocked(command.status());
  next_ = Next();
  return Step::kNoMore;
}

DeviceMover::Step DeviceMover::ImportLocked() {
  located_ = false;
  if (imports_left_-- == 0) {
    StopLocked(absl::UnavailableError(
        absl::StrCat(setup_.worker->label(), ": its process ends again and again")));
    return Step::kNoMore;
  }
  Import();
  return Step::kLater;
}

// By who walks, or waits to.
void DeviceMover::Import() {
  setup_.engine->Import(setup_.worker, setup_.memory,
                        [self = shared_from_this()](const absl::Status& status) {
                          if (!status.ok()) {
                            const std::lock_guard lock(self->mutex_);
                            self->StopLocked(status);
                          }
                          self->RunSoon();
                        });
}

void DeviceMover::CommandEnded(uint64_t number, const absl::Status& outcome) {
  bool over;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [number](const auto& one) { return one.first == number; });
    if (!outcome.ok()) StopLocked(outcome);
    if (!running_ && status_.ok() && (more_ || rest_.bytes > 0 || next_.bytes > 0)) {
      running_ = true;
      RunSoon();
    }
    over = OverLocked();
  }
  if (over) End();
}

void DeviceMover::StopLocked(const absl::Status& why) {
  if (!status_.ok()) return;
  status_ = why;
  for (const auto& [number, command] : under_way_) setup_.worker->Cancel(command);
}

void DeviceMover::Cancel(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  StopLocked(why);
}

void DeviceMover::End() {
  Ended ended;
  std::vector<GpuMemory> held;
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(ended_, nullptr);
    held.swap(setup_.memory);
    status = status_;
  }
  if (ended == nullptr) return;
  held.clear();  // its owner may free it as soon as it knows
  ended(status);
}

}  // namespace shunt::daemon
