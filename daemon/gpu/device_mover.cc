#include "daemon/gpu/device_mover.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shunt::daemon {
namespace {

// Runs of a part: where it is posted, about what a poller may be held up by; then short for some,
// so that the GPU begins while the rest is walked.
constexpr uint32_t kFirstRuns = 512;
constexpr uint32_t kEarlyRuns = 1024;
constexpr uint32_t kEarlyParts = 8;
constexpr uint32_t kLaterRuns = 4096;
// So many parts at least are made of what is left, so that threads end together.
constexpr uint64_t kLastParts = 8;
// Of a transfer, in the works or with the worker. A batch each, of gpu::kRunBatches.
constexpr size_t kHeldMax = 12;
// A contiguous piece that is worth a copy engine's while, and how many of them.
constexpr uint64_t kCopyBytes = 1 << 20;
constexpr uint32_t kCopiesMax = 64;

// Of a piece, about.
uint64_t PieceBytes(const p2p::Selection& side) {
  const p2p::PreparedList* const list = side.list().get();
  return list != nullptr ? list->bytes() / list->pieces()
                         : side.payload_bytes() / side.raw_pieces();
}

}  // namespace

// Its being in the pool.
class DeviceMover::Walk : public p2p::Work {
 public:
  explicit Walk(std::shared_ptr<DeviceMover> mover) : mover_(std::move(mover)) {}
  bool Step() override { return mover_->Step(this); }

 private:
  const std::shared_ptr<DeviceMover> mover_;
};

DeviceMover::DeviceMover(Setup setup)
    : setup_(std::move(setup)),
      sources_(setup_.plan->source().regions().size()),
      todo_({{0, setup_.plan->bytes()}}),
      left_(setup_.plan->bytes()),
      run_bytes_(std::clamp<uint64_t>(
          std::min(PieceBytes(setup_.plan->source()), PieceBytes(setup_.plan->destination())), 1,
          gpu::kRunBytesMax)) {}

void DeviceMover::Start(Ended ended) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = std::move(ended);
    begun_ = true;
  }
  Step(nullptr);
}

// True: the pool calls again.
bool DeviceMover::Step(const Walk* walk) {
  bool over, again;
  {
    std::unique_lock lock(mutex_);
    One(lock);
    if (walk_ == walk && !MayGoOnLocked()) walk_ = nullptr;
    KeepWalkingLocked();
    again = walk_ == walk;
    over = OverLocked();
  }
  if (over) End();
  return again;
}

bool DeviceMover::MayGoOnLocked() const {
  if (!status_.ok() || waits_ > 0) return false;
  return !ready_.empty() || (!todo_.empty() && !starved_ && HeldLocked() < kHeldMax);
}

// After whatever may have changed that.
void DeviceMover::KeepWalkingLocked() {
  if (walk_ != nullptr || !MayGoOnLocked()) return;
  auto walk = std::make_shared<Walk>(shared_from_this());
  walk_ = walk.get();
  const uint64_t parts = ready_.size() + left_ / run_bytes_ / kEarlyRuns + 1;
  const uint64_t room = std::max(kHeldMax, HeldLocked() + 1) - HeldLocked();
  setup_.pool->Add(std::move(walk), setup_.priority, std::min(parts, room));
}

void DeviceMover::One(std::unique_lock<std::mutex>& lock) {
  if (!status_.ok()) {
    ready_.clear();
    return;
  }
  if (!MayGoOnLocked()) return;
  if (addresses_ == nullptr) {
    auto addresses = std::make_shared<GpuEngine::Addresses>();
    if (!setup_.engine->Locate(*setup_.worker, setup_.memory, addresses.get())) {
      return ImportLocked();
    }
    addresses_ = std::move(addresses);
  }
  if (!ready_.empty()) {
    Part part = std::move(ready_.back());
    ready_.pop_back();
    return SubmitLocked(std::move(part));
  }
  Part part;
  part.addresses = addresses_;
  // Who has none waits in the order of coming; who has some goes on when one of them comes back.
  if (HeldLocked() > 0) {
    part.batch = setup_.worker->TakeBatch(nullptr);
    starved_ = !part.batch;
  } else {
    // By way of an import, which tells a worker that is served no more from a busy one.
    part.batch = setup_.worker->TakeBatch([self = shared_from_this()] { self->Import(); });
    waits_ += part.batch ? 0 : 1;
  }
  if (!part.batch) return;
  uint32_t runs_max;
  const Range range = ClaimLocked(&runs_max);
  ++walking_;
  lock.unlock();
  Fill(range, runs_max, &part);
  lock.lock();
  --walking_;
  FilledLocked(range, std::move(part));
}

// There is some, and *runs of it at most are for one part.
DeviceMover::Range DeviceMover::ClaimLocked(uint32_t* runs) {
  const uint32_t claim = claims_++;
  const uint64_t most = claim == 0 ? kFirstRuns : claim <= kEarlyParts ? kEarlyRuns : kLaterRuns;
  const uint64_t wanted = std::clamp<uint64_t>(left_ / run_bytes_ / kLastParts,
                                               std::min<uint64_t>(kFirstRuns, most), most);
  *runs = static_cast<uint32_t>(std::min<uint64_t>(2 * wanted, gpu::kRunsPerBatch));
  Range& from = todo_.back();
  Range range = from;
  // No crumbs: a part of half as many again is walked in one.
  if (from.bytes() / run_bytes_ > wanted + wanted / 2) range.end = from.begin + wanted * run_bytes_;
  left_ -= range.bytes();
  from.begin = range.end;
  if (from.bytes() == 0) todo_.pop_back();
  return range;
}

// By any number of threads, without the lock.
void DeviceMover::Fill(const Range& range, uint32_t runs_max, Part* part) const {
  p2p::PlanCursor cursor(*setup_.plan, range.begin, range.bytes());
  gpu::Run* const runs = part->batch.runs();
  const HostAddress* const sources = part->addresses->at.data();
  const HostAddress* const destinations = sources + sources_;
  uint32_t count = 0;
  uint64_t bytes = 0;
  for (p2p::CopyRun run; count < runs_max && cursor.Next(&run);) {
    if (run.bytes >= kCopyBytes && copies_.load(std::memory_order_relaxed) < kCopiesMax) {
      if (count > 0) break;  // it begins the next part
      part->piece = run;
      part->bytes = run.bytes;
      return;
    }
    uint64_t source = sources[run.source_region].device + run.source_offset;
    uint64_t destination = destinations[run.destination_region].device + run.destination_offset;
    while (run.bytes > 0 && count < runs_max) {
      const uint64_t piece = std::min<uint64_t>(run.bytes, gpu::kRunBytesMax);
      runs[count++] = {source, destination, piece};
      source += piece;
      destination += piece;
      run.bytes -= piece;
      bytes += piece;
    }
  }
  part->runs = count;
  part->bytes = bytes;
}

void DeviceMover::FilledLocked(const Range& range, Part part) {
  if (part.addresses != addresses_) {  // all was begun anew
    starved_ = false;
    return;
  }
  if (part.bytes < range.bytes()) {
    todo_.push_back({range.begin + part.bytes, range.end});
    left_ += todo_.back().bytes();
  }
  if (!status_.ok()) return;
  if (part.runs > 0) {
    run_bytes_ = std::max<uint64_t>(part.bytes / part.runs, 1);
  } else {
    // What is contiguous is not cut, whatever it was thought to be.
    run_bytes_ = std::max<uint64_t>(run_bytes_, part.bytes);
    part.batch = RunBatch();
    copies_.fetch_add(1, std::memory_order_relaxed);
  }
  SubmitLocked(std::move(part));
}

void DeviceMover::FillCommand(const Part& part, uint32_t batch, gpu::Command* command) const {
  command->bytes = part.bytes;
  if (part.runs > 0) {
    command->kind = gpu::CommandKind::kMove;
    command->batch = batch;
    command->runs = part.runs;
    return;
  }
  const p2p::CopyRun& piece = part.piece;
  const auto& at = part.addresses->at;
  command->kind = gpu::CommandKind::kCopy;
  command->places = 1;
  command->place[0].in = at[piece.source_region].device + piece.source_offset;
  command->place[0].out = at[sources_ + piece.destination_region].device + piece.destination_offset;
}

// The batch is the command's if that is taken, and given back when it has ended.
absl::StatusOr<uint64_t> DeviceMover::SendLocked(Part* part, uint64_t number) {
  const uint64_t incarnation = part->addresses->incarnation;
  if (part->runs > 0 && part->batch.incarnation() != incarnation) {
    return absl::UnavailableError("the GPU's process is another");
  }
  auto batch = std::make_shared<RunBatch>(std::move(part->batch));
  const auto fill = [&](gpu::Command& command) { FillCommand(*part, batch->index(), &command); };
  absl::StatusOr<uint64_t> command = setup_.engine->Submit(
      *setup_.worker, incarnation, fill,
      [self = shared_from_this(), number, batch](const absl::Status& outcome) {
        *batch = RunBatch();
        self->CommandEnded(number, outcome);
      },
      [self = shared_from_this()] { self->WaitEnded(absl::OkStatus()); });
  if (!command.ok()) part->batch = std::move(*batch);
  return command;
}

void DeviceMover::SubmitLocked(Part part) {
  const uint64_t number = next_number_++;
  const absl::StatusOr<uint64_t> command = SendLocked(&part, number);
  if (command.ok()) {
    touched_ = true;
    under_way_.emplace_back(number, *command);
  } else if (absl::IsResourceExhausted(command.status())) {
    ready_.push_back(std::move(part));
    ++waits_;
  } else if (absl::IsUnavailable(command.status()) && !touched_) {
    // It died while it had nothing of this: the next one may begin anew.
    setup_.engine->Forget(*setup_.worker, part.addresses->incarnation);
    RestartLocked();
    ImportLocked();
  } else {
    StopLocked(command.status());
  }
}

void DeviceMover::RestartLocked() {
  addresses_ = nullptr;  // who walks finds out by that
  ready_.clear();
  todo_ = {{0, setup_.plan->bytes()}};
  left_ = setup_.plan->bytes();
  claims_ = 0;
  copies_.store(0, std::memory_order_relaxed);
  starved_ = false;
}

void DeviceMover::ImportLocked() {
  if (imports_left_-- == 0) {
    return StopLocked(absl::UnavailableError(
        absl::StrCat(setup_.worker->label(), ": its process ends again and again")));
  }
  ++waits_;
  Import();
}

// What waits_ counts.
void DeviceMover::Import() {
  setup_.engine->Import(
      setup_.worker, setup_.memory,
      [self = shared_from_this()](const absl::Status& status) { self->WaitEnded(status); });
}

void DeviceMover::WaitEnded(const absl::Status& status) {
  bool over;
  {
    const std::lock_guard lock(mutex_);
    --waits_;
    if (!status.ok()) StopLocked(status);
    KeepWalkingLocked();
    over = OverLocked();
  }
  if (over) End();
}

void DeviceMover::CommandEnded(uint64_t number, const absl::Status& outcome) {
  bool over;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [number](const auto& one) { return one.first == number; });
    starved_ = false;
    if (!outcome.ok()) StopLocked(outcome);
    KeepWalkingLocked();
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

bool DeviceMover::OverLocked() const {
  if (!begun_ || walking_ > 0 || waits_ > 0 || !under_way_.empty()) return false;
  return !status_.ok() || (todo_.empty() && ready_.empty());
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
    ready_.clear();
  }
  if (ended == nullptr) return;
  held.clear();  // its owner may free it as soon as it knows
  ended(status);
}

}  // namespace shunt::daemon
