#include "runtime/board/operation.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/board/bell.h"
#include "runtime/board/failure.h"
#include "runtime/board/post.h"
#include "runtime/board/tally.h"
#include "runtime/core/clock.h"

namespace shunt::board {
namespace {

// Between two looks at this rank's own staging copies, which the others wait for.
constexpr uint32_t kStagedChunks = 4;

std::string StuckText(const Board& board, const Channel& channel, uint64_t seq, int waiter,
                      const PostBody& body, int64_t waited_ns, int* culprit) {
  std::string text = absl::StrCat(CallText(board, channel.id(), seq, body), " on communicator ",
                                  NameText(board), ": all ranks called, but it did not end within ",
                                  waited_ns / 1'000'000, " ms: ");
  *culprit = -1;
  for (int p = 0; p < channel.participants(); ++p) {
    if (p == waiter || channel.progress(seq, p).working.load(std::memory_order_acquire) != seq)
      continue;
    const int rank = board.RankOf(channel.id(), p);
    absl::StrAppend(&text, *culprit < 0 ? "" : ", ", RankText(board, rank));
    if (*culprit < 0) *culprit = rank;
  }
  absl::StrAppend(&text, *culprit < 0
                             ? "a rank is busy with an earlier operation, or stopped"
                             : " holds a part of the work and does not go on (is it stopped?)");
  return text;
}

}  // namespace

bool Operation::Post(uint64_t seq, uint8_t flags) {
  seq_ = seq;
  body.flags = flags;
  if (body.in_place_kind == static_cast<uint8_t>(Place::kSlot)) {
    const uint64_t bytes = ExtentsOf(board_, call_, body, channel_, me_).in_bytes;
    std::memcpy(InputInLine(body, bytes) ? body.bytes : channel_.payload_in(seq, me_), call_.in,
                bytes);
  }
  WriteTable(call_, channel_, seq, me_);
  waits_ = owner_driven;
  const bool posted = WritePost(board_, channel_, seq, me_, body, started_ns, owner_driven, &note_);
  if (!posted) NoteEnd(false);
  // After the post: others wait for that alone.
  if (posted && counts && channel_.id() == 0) NoteArrival(board_, rank_, seq, started_ns);
  return posted;
}

void Operation::NoteEnd(bool succeeded) {
  if (note_ != 0) board_.calls(rank_).End(note_, NowNs(), succeeded);
}

Operation::Step Operation::Drive(MemberHost& host, uint32_t max_chunks) {
  if (ended()) return Step::kEnded;
  // The first phases take no time: one look sees the end of what others have finished.
  Step step = Step::kMoved;
  while (step == Step::kMoved && phase_ != Phase::kRunning) {
    step = phase_ == Phase::kArriving ? Arriving(host) : Ready(host);
  }
  return step == Step::kMoved ? Running(host, max_chunks) : step;
}

Operation::Step Operation::Arriving(MemberHost& host) {
  const Arrival arrival = scan_.Check(channel_, seq_, me_, body);
  const bool last_to_come = first_look_ && arrival == Arrival::kComplete;
  first_look_ = false;
  switch (arrival) {
    case Arrival::kWaiting:
      if (!HasFailed(board_)) {
        const int rank = board_.RankOf(channel_.id(), scan_.missing());
        if (!Gone(board_, rank)) return Step::kStalled;
        return Fail(host, FailureReason::kRankLeft, rank,
                    LeftText(board_, channel_, seq_, body, rank));
      }
      // The communicator is dead; so is this operation, unless the others have come meanwhile.
      if (!SealAbsent(channel_, seq_) &&
          scan_.Check(channel_, seq_, me_, body) == Arrival::kComplete) {
        return Step::kMoved;
      }
      // Sealed, or a post that tells of another operation, which only a hostile rank writes.
      return Failed(FailureStatus(board_));
    case Arrival::kSealed:
      return Failed(AwaitFailure(board_));
    case Arrival::kMismatch:
      return Fail(host, FailureReason::kMismatch, -1,
                  MismatchText(board_, channel_, seq_, me_, body, scan_.culprit()));
    case Arrival::kComplete:
      break;
  }
  const bool remote = board_.Remote(channel_.id());
  const bool from_board = !remote && !scan_.off_board() && !ArrivalScan::OffBoard(body);
  if (!from_board) phase_ = Phase::kReady;
  if (last_to_come) {
    // Everybody else may be asleep, and the daemon waits for news of what it serves.
    // (A pair may be one rank's two threads.)
    RingChannel(board_, channel_, channel_.id() == 0 ? rank_ : -1);
    if (remote || AnyServed()) (void)host.Notify(channel_.id(), seq_, false, call_.deadline_ns);
  }
  return from_board ? FinishFromBoard(host) : Step::kMoved;
}

Operation::Step Operation::FinishFromBoard(MemberHost&) {
  const CollectiveSpec plan = SpecOf(channel_.id(), body);
  const int n = channel_.participants();
  const size_t element = SizeOf(plan.dtype);
  if (plan.count == 0) return Succeed();
  const auto input = [&](int p) -> const std::byte* {
    const PostBody& theirs = p == me_ ? body : channel_.post(seq_, p).body;
    const uint64_t bytes = InputBlocks(plan, n, p) * plan.count * element;
    if (InputInLine(theirs, bytes)) return theirs.bytes;
    return channel_.payload_in(seq_, p);
  };
  const uint32_t steps = StepCount(plan, n);
  for (uint32_t i = 0; i < steps; ++i) {
    const LocalStep step = StepAt(plan, n, i);
    if (me_ < step.dst_first || me_ >= step.dst_first + step.dst_count) continue;
    std::byte* out = call_.out + step.dst_block * plan.count * element;
    const uint64_t at = step.src_block * plan.count * element;
    if (!Reduces(plan.kind)) {
      std::memcpy(out, input(step.src_first) + at, plan.count * element);
      continue;
    }
    const std::byte* srcs[kMaxLocalRanks];
    Scalar scalars[kMaxLocalRanks];
    const bool premul = plan.redop == Redop::kPremulSum;
    for (int p = 0; p < n; ++p) {
      srcs[p] = input(p) + at;
      if (premul)
        std::memcpy(scalars[p].bytes, p == me_ ? &body.scalar : &channel_.post(seq_, p).body.scalar,
                    8);
    }
    ReduceInto({plan.dtype, plan.redop, n, StorePolicy::kTemporal}, absl::MakeConstSpan(srcs, n),
               absl::MakeConstSpan(scalars, premul ? n : 0), absl::MakeConstSpan(&out, 1),
               plan.count);
  }
  return Succeed();
}

bool Operation::PriorOperationsDone() const {
  if ((scan_.flags_all() & body.flags & kPriorComplete) != 0) return true;
  const uint64_t prior = seq_ - 1;
  const bool prior_succeeded =
      channel_.fate(prior).outcome.load(std::memory_order_acquire) == (prior << 2 | kSucceeded);
  for (int p = 0; p < channel_.participants(); ++p) {
    const PostBody& post = p == me_ ? body : channel_.post(seq_, p).body;
    if ((post.flags & kPriorComplete) != 0) continue;
    if (channel_.retired(p).sequence.load(std::memory_order_acquire) >= prior) continue;
    // Meanwhile all may have retired it, and its slot be written to: then the next look finds them
    // retired.
    const auto out = static_cast<Place>(ReadBody(channel_.post(prior, p)).out_place_kind);
    if (!prior_succeeded || (out != Place::kRegion && out != Place::kNone)) return false;
  }
  return true;
}

Operation::Step Operation::Ready(MemberHost& host) {
  const uint64_t outcome = OutcomeSeen();
  if (outcome == kFailed) return Failed(AwaitFailure(board_));
  if (board_.Remote(channel_.id())) {
    // The daemon moves it and decides.
    if (outcome == kSucceeded) return TakeFromSlot();
    return HasFailed(board_) && DecideFailed() ? Failed(AwaitFailure(board_)) : Step::kStalled;
  }
  if (outcome == 0 && !PriorOperationsDone()) {
    return HasFailed(board_) && DecideFailed() ? Failed(AwaitFailure(board_)) : Step::kStalled;
  }
  const bool over = outcome == kSucceeded;
  if (over && !Staged(body.out_place_kind)) return TakeFromSlot();
  pass_.emplace();
  // Once it is over, the others may have freed what they read from; this rank only takes its
  // output.
  if (absl::Status s =
          pass_->Build(board_, channel_, seq_, host, /*only_output_of=*/over ? me_ : -1);
      !s.ok()) {
    if (over) return Failed(s);
    if (!DecideFailed()) return Step::kMoved;
    const auto reason =
        absl::IsFailedPrecondition(s) ? FailureReason::kMismatch : FailureReason::kBadMemory;
    return Fail(host, reason, -1, std::string_view(s.message().data(), s.message().size()));
  }
  phase_ = Phase::kRunning;
  if (note_ != 0) board_.calls(rank_).Move(note_, NowNs());
  return Step::kMoved;
}

// Succeeds; the output may have to be taken from the board's slot first.
Operation::Step Operation::TakeFromSlot() {
  if (body.out_place_kind == static_cast<uint8_t>(Place::kSlot)) {
    const CollectiveSpec plan = SpecOf(channel_.id(), body);
    const uint64_t blocks =
        OutputBlocks(plan, board_.PlanWorld(channel_.id()), board_.RoleOf(channel_.id(), me_));
    std::memcpy(call_.out, channel_.payload_out(seq_, me_),
                blocks * plan.count * SizeOf(plan.dtype));
  }
  if (copy_out != nullptr) std::memcpy(call_.out, copy_out, copy_out_bytes);
  return Succeed();
}

bool Operation::LacksLocalRank() const {
  for (int p = 0; p < channel_.participants(); ++p) {
    if (channel_.post(seq_, p).word.load(std::memory_order_acquire) != PostedWord(seq_))
      return true;
  }
  return false;
}

uint64_t Operation::OutcomeSeen() const {
  const uint64_t word = channel_.fate(seq_).outcome.load(std::memory_order_acquire);
  return OutcomeIn(word, seq_);
}

Operation::Step Operation::Running(MemberHost& host, uint32_t max_chunks) {
  std::atomic<uint64_t>& working = channel_.progress(seq_, me_).working;
  bool moved = false;
  uint64_t outcome = OutcomeSeen();
  if (outcome == 0) {
    moved |= StageIn();
    working.store(seq_, std::memory_order_relaxed);
    const int first_lane = me_ * channel_.lanes() / channel_.participants();
    moved |=
        pass_->Work(first_lane, pass_->staged() ? std::min(max_chunks, kStagedChunks) : max_chunks);
    working.store(0, std::memory_order_release);
    if (pass_->AllDone()) {
      if (Settle(channel_, seq_, kSucceeded)) {
        // Another thread of this rank may wait with the channel's next operation.
        RingChannel(board_, channel_, -1);
        if (AnyServed()) (void)host.Notify(channel_.id(), seq_, false, 0);
      }
    } else if (HasFailed(board_) && DecideFailed()) {
      return Failed(FailureStatus(board_));
    }
    outcome = OutcomeSeen();
  }
  if (outcome == kFailed) return Failed(AwaitFailure(board_));
  moved |= StageOut();
  if (pass_->staged() && moved) RingChannel(board_, channel_, rank_);
  if (outcome != kSucceeded) return moved ? Step::kMoved : Step::kStalled;
  if (Staged(body.out_place_kind) && windows_out_ < pass_->windows())
    return moved ? Step::kMoved : Step::kStalled;
  // Others may still copy from this rank's buffer, which goes with its communicator.
  if (!pass_->OutputTakenFrom(me_) && !HasFailed(board_))
    return moved ? Step::kMoved : Step::kStalled;
  return TakeFromSlot();
}

bool Operation::StageIn() {
  if (!Staged(body.in_place_kind) || windows_in_ >= pass_->windows()) return false;
  // A window's buffer is free once the window two before it has been reduced.
  if (windows_in_ >= 2 && !pass_->WindowDone(windows_in_ - 2)) return false;
  CopyWindowIn(*pass_, me_, windows_in_, call_.in, staging_in);
  ++windows_in_;
  channel_.progress(seq_, me_).staged_in.store(seq_ << 32 | windows_in_, std::memory_order_seq_cst);
  return true;
}

bool Operation::StageOut() {
  if (!Staged(body.out_place_kind) || windows_out_ >= pass_->windows()) return false;
  if (!pass_->WindowDone(windows_out_)) return false;
  CopyWindowOut(*pass_, me_, windows_out_, pass_->StagedOutput(me_), call_.out);
  ++windows_out_;
  channel_.progress(seq_, me_).taken_out.store(seq_ << 32 | windows_out_,
                                               std::memory_order_seq_cst);
  return true;
}

bool Operation::DecideFailed() {
  if (SealAbsent(channel_, seq_)) return true;
  if (FindMismatch(channel_, seq_, me_, body) >= 0) return true;
  if (phase_ == Phase::kArriving) {
    // All have come with the same call: from the board, that is success.
    if (scan_.Check(channel_, seq_, me_, body) != Arrival::kComplete) return true;
    const bool remote = board_.Remote(channel_.id());
    if (!remote && !scan_.off_board() && !ArrivalScan::OffBoard(body)) return false;
  }
  // A word that tells of another operation is nonsense by some rank: no reason to wait for ever.
  return Settle(channel_, seq_, kFailed) || OutcomeSeen() != kSucceeded;
}

Operation::Step Operation::Fail(MemberHost& host, FailureReason reason, int rank,
                                std::string_view text) {
  if (!DecideFailed()) return Step::kMoved;
  RecordFailure(board_, reason, rank, text);
  (void)host.Notify(channel_.id(), seq_, false, 0);
  return Failed(FailureStatus(board_));
}

Operation::Step Operation::Expire(MemberHost& host) {
  // The last chance: it may have ended while nobody looked.
  if (const Step step = Drive(host); step == Step::kEnded) return step;
  // It has succeeded, and only waits until the others have copied their results out of this rank's
  // buffer.
  if (phase_ == Phase::kRunning && OutcomeSeen() == kSucceeded &&
      !(Staged(body.out_place_kind) && windows_out_ < pass_->windows())) {
    return TakeFromSlot();
  }
  const int64_t waited = NowNs() - started_ns;
  const int mismatch = FindMismatch(channel_, seq_, me_, body);
  if (mismatch >= 0)
    return Fail(host, FailureReason::kMismatch, -1,
                MismatchText(board_, channel_, seq_, me_, body, mismatch));
  int culprit = -1;
  if (SealAbsent(channel_, seq_)) {
    const std::string text = AbsentText(board_, channel_, seq_, me_, body, waited, &culprit);
    return Fail(host, FailureReason::kAbsent, culprit, text);
  }
  const std::string text = StuckText(board_, channel_, seq_, me_, body, waited, &culprit);
  return Fail(host, FailureReason::kStuck, culprit, text);
}

Operation::Step Operation::Succeed() {
  NoteEnd(outcome_.ok());
  ended_.store(true, std::memory_order_release);
  return Step::kEnded;
}

Operation::Step Operation::Failed(absl::Status status) {
  outcome_ = std::move(status);
  return Succeed();
}

bool Operation::UsesRegion(uint64_t region) const {
  return (body.in_place_kind == static_cast<uint8_t>(Place::kRegion) &&
          body.ref.in_region == region) ||
         (body.out_place_kind == static_cast<uint8_t>(Place::kRegion) &&
          body.ref.out_region == region);
}

std::string Operation::PendingText() const {
  const int64_t waited_ns = NowNs() - started_ns;
  int rank = -1;
  const std::string absent = AbsentText(board_, channel_, seq_, me_, body, waited_ns, &rank);
  return rank >= 0 ? absent : StuckText(board_, channel_, seq_, me_, body, waited_ns, &rank);
}

std::string Operation::Text() const {
  return absl::StrCat(CallText(board_, channel_.id(), seq_, body), " on communicator ",
                      NameText(board_));
}

}  // namespace shunt::board
