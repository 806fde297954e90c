#include "runtime/board/server.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/board/arrival.h"
#include "runtime/board/bell.h"
#include "runtime/board/failure.h"
#include "runtime/board/pass.h"
#include "runtime/board/post.h"
#include "runtime/board/records.h"
#include "runtime/board/tally.h"
#include "runtime/core/clock.h"

namespace shunt::board {
namespace {

// Words of the board hold a sequence and two bits of state.
constexpr uint64_t kSequenceMax = 1ull << 60;

uint64_t OutcomeOf(const Channel& channel, uint64_t seq) {
  const uint64_t word = channel.fate(seq).outcome.load(std::memory_order_acquire);
  if (word >> 2 > seq) return kSucceeded;  // long over: its slot serves a later operation
  return OutcomeIn(word, seq);
}

Service AsService(uint64_t outcome) {
  if (outcome == kSucceeded) return Service::kSucceeded;
  return outcome == kFailed ? Service::kFailed : Service::kPending;
}

enum class Posted { kAll, kSome, kSealed, kOver };

Posted LookAtPosts(const Channel& channel, uint64_t seq) {
  for (int p = 0; p < channel.participants(); ++p) {
    const uint64_t word = channel.post(seq, p).word.load(std::memory_order_acquire);
    if (word >> 2 > seq) return Posted::kOver;
    if (word == SealedWord(seq)) return Posted::kSealed;
    if (word != PostedWord(seq)) return Posted::kSome;
  }
  return Posted::kAll;
}

uint64_t AllRetired(const Channel& channel) {
  uint64_t least = ~0ull;
  for (int p = 0; p < channel.participants(); ++p) {
    least = std::min(least, channel.retired(p).sequence.load(std::memory_order_acquire));
  }
  return least;
}

// True if the operation was over before its posts were read: what was read may be a later one's,
// half written.
bool ReadTooLate(const Channel& channel, uint64_t seq) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return AllRetired(channel) >= seq || LookAtPosts(channel, seq) != Posted::kAll;
}

bool PriorDone(const Channel& channel, uint64_t seq) {
  const bool prior_succeeded = OutcomeOf(channel, seq - 1) == kSucceeded;
  for (int p = 0; p < channel.participants(); ++p) {
    if ((ReadBody(channel.post(seq, p)).flags & kPriorComplete) != 0) continue;
    if (channel.retired(p).sequence.load(std::memory_order_acquire) >= seq - 1) continue;
    const auto out = static_cast<Place>(ReadBody(channel.post(seq - 1, p)).out_place_kind);
    if (!prior_succeeded || (out != Place::kRegion && out != Place::kNone)) return false;
  }
  return true;
}

// Seen from the daemon, `p` being the participant whose deadline or wish it is.
std::string CallOf(const Board& board, const Channel& channel, uint64_t seq, int p) {
  return absl::StrCat(CallText(board, channel.id(), seq, ReadBody(channel.post(seq, p))),
                      " on communicator ", NameText(board));
}

// The participant that waits for `rank`; of the two of a rank that sends to itself, one that has
// posted.
int WaiterOf(const Board& board, const Channel& channel, uint64_t seq, int rank) {
  if (channel.id() == 0) return rank;
  if (channel.participants() == 1) return 0;
  const bool sends = board.RankOf(channel.id(), 0) == rank;
  const bool receives = board.RankOf(channel.id(), 1) == rank;
  if (sends && receives) {
    const uint64_t word = channel.post(seq, 0).word.load(std::memory_order_acquire);
    return word == PostedWord(seq) ? 0 : 1;
  }
  return sends ? 0 : 1;
}

}  // namespace

Board::Seat Server::SeatOf(int rank, const Call& call) const {
  const OpKind kind = call.spec.kind;
  if (kind != OpKind::kSend && kind != OpKind::kRecv) return {0, rank};
  return board_.SeatOf(rank, call.peer, kind == OpKind::kSend);
}

absl::StatusOr<Server::Ticket> Server::PostFor(int rank, const Call& call, RegionRef in,
                                               RegionRef out, uint64_t seq) {
  if (HasFailed(board_)) return DeadCommunicator(board_, AwaitRecord());
  const Board::Seat seat = SeatOf(rank, call);
  const uint32_t id = seat.channel;
  const int me = seat.participant;
  const Channel channel = board_.channel(id);
  if (seq > static_cast<uint64_t>(channel.slots()) && AllRetired(channel) < seq - channel.slots()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("communicator ", NameText(board_), ": ", channel.slots(),
                     " operations in flight, the most that a rank may have; wait for some"));
  }
  PostBody body{};
  FillSignature(call, &body);
  const Extents extents = ExtentsOf(board_, call, body, channel, me);
  const auto place = [&](RegionRef ref, uint64_t bytes, const char* what,
                         uint8_t* kind) -> absl::Status {
    *kind = static_cast<uint8_t>(Place::kNone);
    if (bytes == 0) return absl::OkStatus();
    if (bytes == ~0ull || resolver_->Resolve(rank, ref.region, ref.offset, bytes) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(CallText(board_, id, seq, body), ": the ", what, " buffer (region ",
                       ref.region, ", offset ", ref.offset, ", ", bytes,
                       " bytes) does not lie inside a region of this session"));
    }
    *kind = static_cast<uint8_t>(Place::kRegion);
    return absl::OkStatus();
  };
  if (absl::Status s = place(in, extents.in_bytes, "input", &body.in_place_kind); !s.ok()) return s;
  if (absl::Status s = place(out, extents.out_bytes, "output", &body.out_place_kind); !s.ok())
    return s;
  body.ref = {in.region, in.offset, out.region, out.offset};
  body.flags = kServed;
  if (channel.retired(me).sequence.load(std::memory_order_acquire) + 1 >= seq)
    body.flags |= kPriorComplete;
  WriteTable(call, channel, seq, me);
  const int64_t now_ns = NowNs();
  uint64_t note = 0;
  if (!WritePost(board_, channel, seq, me, body, now_ns, /*waits=*/false, &note)) {
    board_.calls(rank).End(note, NowNs(), false);
    return AwaitRecord();
  }
  if (id == 0) NoteArrival(board_, rank, seq, now_ns);
  if (LookAtPosts(channel, seq) == Posted::kAll) RingChannel(board_, channel, -1);
  return Ticket{channel.id(), seq};
}

// Ends an operation that waits for a rank which has left.
bool Server::FailIfGone(const Channel& channel, uint64_t seq) const {
  int posted = -1, gone = -1;
  for (int p = 0; p < channel.participants(); ++p) {
    if (channel.post(seq, p).word.load(std::memory_order_acquire) == PostedWord(seq)) {
      posted = p;
    } else if (Gone(board_, board_.RankOf(channel.id(), p))) {
      gone = board_.RankOf(channel.id(), p);
    }
  }
  if (posted < 0 || gone < 0 || !SealAbsent(channel, seq)) return false;
  RecordFailure(board_, FailureReason::kRankLeft, gone,
                LeftText(board_, channel, seq, ReadBody(channel.post(seq, posted)), gone));
  return true;
}

Service Server::Serve(uint32_t id, uint64_t seq, bool work) {
  if (id >= board_.channel_count() || seq == 0 || seq > kSequenceMax) return Service::kFailed;
  const Channel channel = board_.channel(id);
  if (const uint64_t outcome = OutcomeOf(channel, seq); outcome != 0) return AsService(outcome);
  switch (LookAtPosts(channel, seq)) {
    case Posted::kOver:
      return Service::kSucceeded;
    case Posted::kSealed:
      return Service::kFailed;
    case Posted::kSome:
      return FailIfGone(channel, seq) || (HasFailed(board_) && SealAbsent(channel, seq))
                 ? Service::kFailed
                 : Service::kPending;
    case Posted::kAll:
      break;
  }
  if (board_.Remote(id)) return Service::kPending;  // Finish or Fail decides
  const PostBody first = ReadBody(channel.post(seq, 0));
  bool off_board = ArrivalScan::OffBoard(first);
  int differs = -1;
  for (int p = 1; p < channel.participants(); ++p) {
    const PostBody body = ReadBody(channel.post(seq, p));
    off_board |= ArrivalScan::OffBoard(body);
    if (differs < 0 && !SameCall(id, first, body)) differs = p;
  }
  const auto over = [&] {
    const uint64_t outcome = OutcomeOf(channel, seq);
    if (outcome != 0) return AsService(outcome);
    return HasFailed(board_) ? Service::kFailed : Service::kSucceeded;
  };
  if (ReadTooLate(channel, seq)) return over();
  if (differs >= 0) {
    RecordFailure(board_, FailureReason::kMismatch, -1,
                  MismatchText(board_, channel, seq, 0, first, differs));
    return Service::kFailed;
  }
  if (!off_board) {
    // The next operation may wait for this one while no rank looks at it.
    if (PriorDone(channel, seq) && Settle(channel, seq, kSucceeded))
      RingChannel(board_, channel, -1);
    return Service::kSucceeded;
  }
  if (!PriorDone(channel, seq)) {
    return HasFailed(board_) && Settle(channel, seq, kFailed) ? Service::kFailed
                                                              : Service::kPending;
  }
  Pass pass;
  absl::Status built = pass.Build(board_, channel, seq, *resolver_);
  if (ReadTooLate(channel, seq)) return over();
  if (!built.ok()) {
    if (!Settle(channel, seq, kFailed)) return AsService(OutcomeOf(channel, seq));
    const auto reason =
        absl::IsFailedPrecondition(built) ? FailureReason::kMismatch : FailureReason::kBadMemory;
    RecordFailure(board_, reason, -1,
                  std::string_view(built.message().data(), built.message().size()));
    return Service::kFailed;
  }
  // Ranks that stage memory from outside regions move such an operation themselves.
  if (work && !pass.staged()) pass.Work(channel.lanes() - 1);
  if (pass.AllDone() && Settle(channel, seq, kSucceeded)) RingChannel(board_, channel, -1);
  if (OutcomeOf(channel, seq) == 0 && HasFailed(board_)) Settle(channel, seq, kFailed);
  return AsService(OutcomeOf(channel, seq));
}

Service Server::Gather(uint32_t id, uint64_t seq, Gathered* gathered) {
  if (id >= board_.channel_count() || seq == 0 || seq > kSequenceMax) return Service::kFailed;
  const Channel channel = board_.channel(id);
  if (OutcomeOf(channel, seq) != 0) return Service::kFailed;
  switch (LookAtPosts(channel, seq)) {
    case Posted::kOver:
    case Posted::kSealed:
      return Service::kFailed;
    case Posted::kSome:
      return FailIfGone(channel, seq) || (failed() && SealAbsent(channel, seq)) ? Service::kFailed
                                                                                : Service::kPending;
    case Posted::kAll:
      break;
  }
  const absl::Status status = board::Gather(board_, channel, seq, *resolver_, gathered);
  if (status.ok()) return Service::kSucceeded;
  Fail(id, seq,
       absl::IsFailedPrecondition(status) ? FailureReason::kMismatch : FailureReason::kBadMemory,
       -1, std::string_view(status.message().data(), status.message().size()));
  return Service::kFailed;
}

void Server::Finish(uint32_t id, uint64_t seq) {
  const Channel channel = board_.channel(id);
  if (Settle(channel, seq, kSucceeded)) RingChannel(board_, channel, -1);
}

void Server::Fail(uint32_t id, uint64_t seq, FailureReason reason, int rank,
                  std::string_view text) {
  const Channel channel = board_.channel(id);
  SealAbsent(channel, seq);
  Settle(channel, seq, kFailed);
  RecordFailure(board_, reason, rank, text);
}

void Server::CountFor(uint32_t id, uint64_t seq, int rank, bool succeeded) {
  const Channel channel = board_.channel(id);
  for (int p = 0; p < channel.participants(); ++p) {
    if (board_.RankOf(id, p) != rank) continue;
    const PostBody body = ReadBody(channel.post(seq, p));
    // Any member may have written there since.
    if (!IsValid(static_cast<OpKind>(body.kind)) || !IsValid(static_cast<DataType>(body.dtype)))
      return;
    const CollectiveSpec plan = SpecOf(id, body);
    const int role = board_.RoleOf(id, p), world = board_.PlanWorld(id);
    const uint64_t blocks =
        std::max(InputBlocks(plan, world, role), OutputBlocks(plan, world, role));
    NoteEnd(board_, rank, static_cast<OpKind>(body.kind), succeeded,
            blocks * plan.count * SizeOf(plan.dtype));
  }
}

void Server::Retire(uint32_t id, uint64_t seq, int rank) {
  const Channel channel = board_.channel(id);
  for (int p = 0; p < channel.participants(); ++p) {
    // Both, where a rank sends to itself.
    if (board_.RankOf(id, p) != rank) continue;
    std::atomic<uint64_t>& word = channel.retired(p).sequence;
    if (word.load(std::memory_order_relaxed) < seq) word.store(seq, std::memory_order_seq_cst);
  }
  NoteEnd(board_, id, seq, rank, OutcomeOf(channel, seq) != kFailed && !failed());
  RingChannel(board_, channel, -1);
}

Service Server::Expire(uint32_t id, uint64_t seq, int rank) {
  const Service now = Serve(id, seq, /*work=*/false);
  if (now != Service::kPending) return now;
  const Channel channel = board_.channel(id);
  const int me = WaiterOf(board_, channel, seq, rank);
  if (SealAbsent(channel, seq)) {
    const PostBody mine = ReadBody(channel.post(seq, me));
    if (const int differs = FindMismatch(channel, seq, me, mine); differs >= 0) {
      RecordFailure(board_, FailureReason::kMismatch, -1,
                    MismatchText(board_, channel, seq, me, mine, differs));
      return Service::kFailed;
    }
    int culprit = -1;
    const std::string text = AbsentText(board_, channel, seq, me, mine, /*waited_ns=*/-1, &culprit);
    RecordFailure(board_, FailureReason::kAbsent, culprit, text);
    return Service::kFailed;
  }
  // The last of them has come just now.
  if (const Service again = Serve(id, seq, /*work=*/false); again != Service::kPending)
    return again;
  if (Settle(channel, seq, kFailed)) {
    RecordFailure(
        board_, FailureReason::kStuck, -1,
        absl::StrCat(
            CallOf(board_, channel, seq, me),
            ": all ranks called, but it did not end before its deadline (is a rank stopped?)"));
  }
  return AsService(OutcomeOf(channel, seq));
}

void Server::RankGone(int rank, bool died) {
  if (died) {
    // First: who sees that it is gone and finds no record would say that it has left.
    const std::string last = LastCallText(board_, rank);
    RecordFailure(board_, FailureReason::kRankDied, rank,
                  absl::StrCat(RankText(board_, rank), " died (communicator ", NameText(board_),
                               last.empty() ? "; it had never called)"
                                            : absl::StrCat("; its last call was ", last, ")")));
  }
  board_.row(rank).dead.store(died ? 1 : 2, std::memory_order_seq_cst);
  // What the others do among themselves goes on; who waits for this rank looks again.
  RingAll(board_);
}

void Server::Abort(int rank, std::string_view reason) {
  RecordFailure(
      board_, FailureReason::kAborted, rank,
      absl::StrCat("communicator ", NameText(board_), " was aborted by ", RankText(board_, rank),
                   ": ", absl::string_view(reason.data(), reason.size())));
}

absl::Status Server::FailureStatus() const {
  return HasFailed(board_) ? AwaitFailure(board_, /*patience_ns=*/0) : absl::OkStatus();
}

// For the words of an outcome. A hostile rank can leave the record half written: the daemon waits
// for it once, and shortly.
absl::Status Server::AwaitRecord() const {
  constexpr int64_t kPatienceNs = 1'000'000;
  return AwaitFailure(board_, waited_for_record_.exchange(true) ? 0 : kPatienceNs);
}

uint64_t Server::Posted(int rank) const {
  const Channel channel = board_.channel(0);
  uint64_t most = channel.retired(rank).sequence.load(std::memory_order_acquire);
  for (int slot = 0; slot < channel.slots(); ++slot) {
    const uint64_t word =
        channel.post(static_cast<uint64_t>(slot), rank).word.load(std::memory_order_acquire);
    if ((word & 3) == kPosted) most = std::max(most, word >> 2);
  }
  return most;
}

std::string Server::LastCall(int rank) const { return LastCallText(board_, rank); }

}  // namespace shunt::board
