#include "runtime/board/member.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/board/bell.h"
#include "runtime/board/failure.h"
#include "runtime/board/operation.h"
#include "runtime/board/post.h"
#include "runtime/board/spread.h"
#include "runtime/board/tally.h"
#include "runtime/core/clock.h"

namespace shunt::board {
namespace {

// A sleeper looks up this often whether the daemon still lives.
constexpr int64_t kDaemonCheckNs = 50'000'000;
// Looking at the clock costs as much as several looks at a cache line.
constexpr int kLooksPerClock = 32;
constexpr uint32_t kChunksPerPoll = 1;
// Measured with two ranks: up to here, two copies through the board beat one pass and its
// hand-overs.
constexpr uint64_t kRegionSlotBytes = 4096;
// Where the daemon moves an operation it ends it at its deadline, for it can ask the other nodes
// who is missing, or see whose stream has not come. Members wait a little longer for its words.
constexpr int64_t kDaemonGraceNs = 2'000'000'000;
// Ranks that fall far behind free their slots silently: look again this often.
constexpr int64_t kRoomCheckNs = 100'000;

inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

// This rank's view of one channel; under the member's lock.
struct ChannelState {
  explicit ChannelState(const Channel& c) : channel(c) {}
  Channel channel;
  // Made on first use. Operations of a channel run one after another, so they can share it; those
  // of different channels run in any order, each rank in its own: buffers that they shared would
  // let them wait for each other.
  MemberHost::Staging staging_in, staging_out;
  uint64_t next_seq = 1;
  // Every participant has finished all operations up to here.
  uint64_t all_retired = 0;
  // Not yet retired, in sequence order; at most as many as the channel has slots. `op` is null once
  // it has ended.
  struct Entry {
    uint64_t seq;
    Operation* op;
    bool served;
  };
  std::vector<Entry> in_flight;
  Spread spread;
};

}  // namespace

// Memory that the daemon can reach, for whole buffers outside regions. Belongs to the session; kept
// for the next call.
struct Copy {
  MemberHost::Staging memory;
  size_t bytes = 0;
  bool used = false;
};

struct Member::Impl {
  Impl(Board b, int r, MemberHost* h, MemberOptions o)
      : board(b), rank(r), host(h), options(o), collectives(b.channel(0)) {}

  ChannelState& StateOf(const Call& call, int* participant);
  bool AllRetiredUpTo(ChannelState& state, uint64_t seq, uint64_t distance);
  absl::Status ChoosePlaces(ChannelState& state, Operation& op, bool served);
  absl::Status ChooseSide(MemberHost::Staging& staging, const Channel& channel, const void* buffer,
                          uint64_t bytes, bool slot_allowed, uint8_t* place, uint64_t* region,
                          uint64_t* offset);
  absl::Status ChooseRemotePlaces(ChannelState& state, Operation& op);
  absl::Status PlaceWhole(const void* buffer, uint64_t bytes, bool slot_allowed, uint8_t* place,
                          uint64_t* region, uint64_t* offset, std::byte** copy);
  void GiveBack(const std::byte* copy);
  int64_t EndOf(const Operation& op) const;
  absl::Status Post(Operation& op, ChannelState& state, bool served);
  void Retire(Operation& op, ChannelState& state);
  bool DriveOthers();
  bool WaitFor(Operation& op, int64_t give_up_ns);
  void FailIfDaemonGone();
  void RetireEnded();
  ChannelState& StateOf(const Operation& op);

  Board board;
  int rank;
  MemberHost* host;
  MemberOptions options;
  std::mutex mu;
  ChannelState collectives;
  std::unordered_map<uint32_t, std::unique_ptr<ChannelState>> pairs;
  std::vector<Copy> copies;                       // where the communicator spans nodes
  std::vector<std::shared_ptr<Operation>> async;  // in flight, any channel
  std::atomic<int> async_count{0};
};

ChannelState& Member::Impl::StateOf(const Call& call, int* participant) {
  if (call.spec.kind != OpKind::kSend && call.spec.kind != OpKind::kRecv) {
    *participant = rank;
    return collectives;
  }
  const bool sends = call.spec.kind == OpKind::kSend;
  const Board::Seat seat = board.SeatOf(rank, call.peer, sends);
  const uint32_t id = seat.channel;
  *participant = seat.participant;
  // A rank may send to itself: the two ends have states of their own.
  std::unique_ptr<ChannelState>& state = pairs[id * 2 + *participant];
  if (state == nullptr) state = std::make_unique<ChannelState>(board.channel(id));
  return *state;
}

ChannelState& Member::Impl::StateOf(const Operation& op) {
  return op.channel().id() == 0 ? collectives : *pairs[op.channel().id() * 2 + op.participant()];
}

// True if all have finished the operation `distance` before `seq`.
bool Member::Impl::AllRetiredUpTo(ChannelState& state, uint64_t seq, uint64_t distance) {
  if (seq <= distance || state.all_retired >= seq - distance) return true;
  uint64_t least = ~0ull;
  for (int p = 0; p < state.channel.participants(); ++p) {
    least = std::min(least, state.channel.retired(p).sequence.load(std::memory_order_acquire));
  }
  state.all_retired = std::max(state.all_retired, least);
  return state.all_retired >= seq - distance;
}

absl::Status Member::Impl::ChooseSide(MemberHost::Staging& staging, const Channel& channel,
                                      const void* buffer, uint64_t bytes, bool slot_allowed,
                                      uint8_t* place, uint64_t* region, uint64_t* offset) {
  *place = static_cast<uint8_t>(Place::kNone);
  if (bytes == 0) return absl::OkStatus();
  if (slot_allowed) {
    *place = static_cast<uint8_t>(Place::kSlot);
    return absl::OkStatus();
  }
  if (const RegionRef ref = host->Find(buffer, bytes); ref.region != 0) {
    *place = static_cast<uint8_t>(Place::kRegion);
    *region = ref.region;
    *offset = ref.offset;
    return absl::OkStatus();
  }
  if (staging.data == nullptr) {
    absl::StatusOr<MemberHost::Staging> made =
        host->AllocateStaging(2 * channel.staging_window_bytes());
    if (!made.ok()) return made.status();
    staging = *made;
  }
  *place = static_cast<uint8_t>(Place::kStaged);
  *region = staging.region;
  *offset = 0;
  return absl::OkStatus();
}

// Whether small payloads may use the board's slots, and where the buffers lie otherwise.
absl::Status Member::Impl::ChoosePlaces(ChannelState& state, Operation& op, bool served) {
  const Call& call = op.call();
  PostBody& body = op.body;
  FillSignature(call, &body);
  const auto [in_bytes, out_bytes] = ExtentsOf(board, call, body, state.channel, op.participant());
  op.bytes = std::max(in_bytes, out_bytes);
  // The same for all ranks: no kind has more than one block a rank on any rank.
  const OpKind kind = call.spec.kind;
  const bool one_block = kind == OpKind::kAllReduce || kind == OpKind::kReduce ||
                         kind == OpKind::kBroadcast || state.channel.id() != 0;
  const uint64_t most = body.count * SizeOf(call.spec.dtype) * (one_block ? 1 : board.world());
  const bool small = kind != OpKind::kAllToAllV && most <= state.channel.inline_bytes();
  // A slot takes its input at once, so everything before must be over. Calls on regions use one
  // only where the hand-over of a pass costs more than the copies; asynchronous ones never, for the
  // daemon can't reach this process's own memory.
  const auto on_region = [&](const void* buffer, uint64_t bytes) {
    return bytes == 0 || host->Find(buffer, bytes).region != 0;
  };
  // The slots' payloads are two: a rank that has started its calls and computes may not have given
  // the last one back.
  const bool slot = small && state.in_flight.empty() && AllRetiredUpTo(state, state.next_seq, 2) &&
                    ((!served && most <= kRegionSlotBytes) ||
                     !(on_region(call.in, in_bytes) && on_region(call.out, out_bytes)));
  if (absl::Status s = ChooseSide(state.staging_in, state.channel, call.in, in_bytes, slot,
                                  &body.in_place_kind, &body.ref.in_region, &body.ref.in_offset);
      !s.ok()) {
    return s;
  }
  op.staging_in = state.staging_in.data;
  return ChooseSide(state.staging_out, state.channel, call.out, out_bytes, slot,
                    &body.out_place_kind, &body.ref.out_region, &body.ref.out_offset);
}

// Another node's memory is no nearer for a window of this one's, nor is a GPU's: what lies outside
// regions is copied whole.
absl::Status Member::Impl::PlaceWhole(const void* buffer, uint64_t bytes, bool slot_allowed,
                                      uint8_t* place, uint64_t* region, uint64_t* offset,
                                      std::byte** copy) {
  *place = static_cast<uint8_t>(Place::kNone);
  if (bytes == 0) return absl::OkStatus();
  if (slot_allowed) {
    *place = static_cast<uint8_t>(Place::kSlot);
    return absl::OkStatus();
  }
  *place = static_cast<uint8_t>(Place::kRegion);
  if (const RegionRef ref = host->Find(buffer, bytes); ref.region != 0) {
    *region = ref.region;
    *offset = ref.offset;
    return absl::OkStatus();
  }
  Copy* best = nullptr;
  for (Copy& c : copies) {
    if (!c.used && c.bytes >= bytes && (best == nullptr || c.bytes < best->bytes)) best = &c;
  }
  if (best == nullptr) {
    const size_t size = std::max<size_t>(std::bit_ceil(bytes), kStagingWindowBytes);
    absl::StatusOr<MemberHost::Staging> made = host->AllocateStaging(size);
    if (!made.ok()) return made.status();
    copies.push_back({*made, size});
    best = &copies.back();
  }
  best->used = true;
  *copy = best->memory.data;
  *region = best->memory.region;
  *offset = 0;
  return absl::OkStatus();
}

void Member::Impl::GiveBack(const std::byte* copy) {
  for (Copy& c : copies) {
    if (c.memory.data == copy) c.used = false;
  }
}

absl::Status Member::Impl::ChooseRemotePlaces(ChannelState& state, Operation& op) {
  const Call& call = op.call();
  PostBody& body = op.body;
  FillSignature(call, &body);
  const auto [in_bytes, out_bytes] = ExtentsOf(board, call, body, state.channel, op.participant());
  op.bytes = std::max(in_bytes, out_bytes);
  // A slot takes its input at once, so everything before must be over. A GPU does not reach the
  // board.
  const bool idle = !board.shape().device && state.in_flight.empty() &&
                    AllRetiredUpTo(state, state.next_seq, 2) &&
                    call.spec.kind != OpKind::kAllToAllV;
  const uint64_t most = state.channel.inline_bytes();
  absl::Status status = PlaceWhole(call.in, in_bytes, idle && in_bytes <= most, &body.in_place_kind,
                                   &body.ref.in_region, &body.ref.in_offset, &op.copy_in);
  if (!status.ok()) return status;
  if (op.copy_in != nullptr) std::memcpy(op.copy_in, call.in, in_bytes);
  status = PlaceWhole(call.out, out_bytes, idle && out_bytes <= most, &body.out_place_kind,
                      &body.ref.out_region, &body.ref.out_offset, &op.copy_out);
  op.copy_out_bytes = out_bytes;
  if (!status.ok()) {
    GiveBack(op.copy_in);
  } else if (op.copy_out != nullptr && call.spec.kind == OpKind::kAllToAllV) {
    // What lies between its blocks is copied back with them.
    std::memcpy(op.copy_out, call.out, out_bytes);
  }
  return status;
}

// When this rank ends the operation by itself.
int64_t Member::Impl::EndOf(const Operation& op) const {
  const int64_t deadline = op.call().deadline_ns;
  if (!board.Remote(op.channel().id()) || deadline > kNeverNs - kDaemonGraceNs) return deadline;
  return op.LacksLocalRank() ? deadline : deadline + kDaemonGraceNs;
}

absl::Status Member::Impl::Post(Operation& op, ChannelState& state, bool served) {
  std::unique_lock<std::mutex> lock(mu);
  int64_t daemon_seen = 0;
  // A slot's record is free once all have retired its last operation.
  while (true) {
    if (HasFailed(board)) {
      // What ends the wait is the failure itself, not one of before the call.
      return daemon_seen == 0 ? DeadCommunicator(board) : AwaitFailure(board);
    }
    RetireEnded();
    const uint64_t seq = state.next_seq;
    const uint64_t slots = static_cast<uint64_t>(state.channel.slots());
    if (AllRetiredUpTo(state, seq, slots)) break;
    const int64_t now = NowNs();
    if (now > op.call().deadline_ns) {
      return absl::ResourceExhaustedError(
          absl::StrCat("communicator ", NameText(board), ": ", slots,
                       " operations in flight, the most that a rank may have, and the oldest did "
                       "not end before the deadline"));
    }
    lock.unlock();
    if (daemon_seen == 0) daemon_seen = now;
    if (now - daemon_seen >= kDaemonCheckNs) {
      FailIfDaemonGone();
      daemon_seen = now;
    }
    DriveOthers();
    Sleep(board, rank, PrepareToSleep(board, rank), kRoomCheckNs);
    lock.lock();
  }
  const bool remote = board.Remote(state.channel.id());
  if (absl::Status s = remote ? ChooseRemotePlaces(state, op) : ChoosePlaces(state, op, served);
      !s.ok()) {
    return s;
  }
  const auto on_region = [](uint8_t place) {
    return place == static_cast<uint8_t>(Place::kRegion) ||
           place == static_cast<uint8_t>(Place::kNone);
  };
  uint8_t flags = state.in_flight.empty() ? kPriorComplete : 0;
  const uint64_t seq = state.next_seq;
  if (served && on_region(op.body.in_place_kind) && on_region(op.body.out_place_kind)) {
    flags |= kServed;
    if (absl::Status s = host->Serve(state.channel.id(), seq, op.call()); !s.ok()) return s;
  }
  ++state.next_seq;
  state.in_flight.push_back({seq, &op, (flags & kServed) != 0});
  if (!op.Post(seq, flags)) {
    state.in_flight.pop_back();
    return AwaitFailure(board);
  }
  return absl::OkStatus();
}

void Member::Impl::Retire(Operation& op, ChannelState& state) {
  if (options.counts) NoteEnd(board, rank, op.call().spec.kind, op.outcome().ok(), op.bytes);
  if (op.copy_in != nullptr) GiveBack(op.copy_in);
  if (op.copy_out != nullptr) GiveBack(op.copy_out);
  if (op.outcome().ok() && op.all_were_done_before()) {
    state.all_retired = std::max(state.all_retired, op.seq() - 1);
  }
  auto& entries = state.in_flight;
  for (ChannelState::Entry& entry : entries) {
    if (entry.seq == op.seq()) entry.op = nullptr;
  }
  const auto first_alive = std::find_if(
      entries.begin(), entries.end(), [](const ChannelState::Entry& e) { return e.op != nullptr; });
  if (first_alive == entries.begin()) return;
  const uint64_t retired = std::prev(first_alive)->seq;
  entries.erase(entries.begin(), first_alive);
  const int me = op.participant();
  state.channel.retired(me).cpu.store(static_cast<uint32_t>(::sched_getcpu() + 1),
                                      std::memory_order_relaxed);
  if (entries.empty()) {
    state.channel.retired(me).sequence.store(retired, std::memory_order_release);
    return;
  }
  // Later operations may have waited for this: on other ranks, in this rank's other threads, and in
  // the daemon.
  state.channel.retired(me).sequence.store(retired, std::memory_order_seq_cst);
  RingChannel(board, state.channel, -1);
  if (entries.front().served) (void)host->Notify(state.channel.id(), entries.front().seq, false, 0);
}

// Retires asynchronous operations that have ended. Under the lock.
void Member::Impl::RetireEnded() {
  if (async_count.load(std::memory_order_relaxed) == 0) return;
  for (size_t i = 0; i < async.size();) {
    if (!async[i]->ended()) {
      ++i;
      continue;
    }
    const std::shared_ptr<Operation> op = std::move(async[i]);
    async.erase(async.begin() + static_cast<std::ptrdiff_t>(i));
    async_count.fetch_sub(1, std::memory_order_relaxed);
    Retire(*op, StateOf(*op));
  }
}

// Moves this rank's asynchronous operations, which others may be waiting for; false if none could
// move.
bool Member::Impl::DriveOthers() {
  if (async_count.load(std::memory_order_relaxed) == 0) return false;
  std::vector<std::shared_ptr<Operation>> all;
  {
    std::lock_guard<std::mutex> lock(mu);
    all = async;
  }
  bool moved = false, ended = false;
  for (const std::shared_ptr<Operation>& op : all) {
    if (op->ended() || !op->TryEnter()) continue;
    const Operation::Step step = op->Drive(*host);
    op->Leave();
    moved |= step != Operation::Step::kStalled;
    ended |= step == Operation::Step::kEnded;
  }
  if (!ended) return moved;
  std::lock_guard<std::mutex> lock(mu);
  RetireEnded();
  return true;
}

// Works and waits until the operation has ended (true) or `give_up_ns` has passed (false).
bool Member::Impl::WaitFor(Operation& op, int64_t give_up_ns) {
  const auto drive = [&] {
    if (op.owner_driven) return op.Drive(*host);
    if (op.ended()) return Operation::Step::kEnded;
    if (!op.TryEnter()) return Operation::Step::kStalled;
    const Operation::Step step = op.Drive(*host);
    op.Leave();
    return step;
  };
  // Other nodes take longer than a hand-over to a sleeper.
  const bool sleeps = board.Remote(op.channel().id()) && !options.remote_spin;
  const int64_t spin_ns = sleeps ? 0 : options.spin_ns;
  const int64_t yield_ns = sleeps ? 0 : options.yield_ns;
  int64_t wait_began = 0;
  int looks = spin_ns > 0 ? kLooksPerClock : 0;
  while (true) {
    Operation::Step step = drive();
    for (int i = 0; step == Operation::Step::kStalled && i < looks; ++i) {
      Relax();
      step = drive();
    }
    if (step == Operation::Step::kEnded) return true;
    if (step == Operation::Step::kMoved) {
      wait_began = 0;
      continue;
    }
    if (DriveOthers()) wait_began = 0;
    const int64_t now = NowNs();
    const int64_t deadline = EndOf(op);
    if (now >= deadline) {
      if (op.owner_driven || op.TryEnter()) {
        step = op.Expire(*host);
        if (!op.owner_driven) op.Leave();
        if (step == Operation::Step::kEnded) return true;
        continue;
      }
    }
    if (now >= give_up_ns) {
      op.NoteWaits(false);
      return false;
    }
    if (wait_began == 0) wait_began = now;
    if (now - wait_began < spin_ns) continue;
    if (now - wait_began < yield_ns) {
      // A pause is no rest for whoever waits for this CPU.
      looks = 0;
      ::sched_yield();
      continue;
    }

    op.NoteWaits(true);
    const uint32_t ticket = PrepareToSleep(board, rank);
    if (drive() != Operation::Step::kStalled || DriveOthers()) continue;
    if (HasFailed(board)) continue;
    Sleep(board, rank, ticket,
          std::min({kDaemonCheckNs, std::max<int64_t>(1, deadline - now),
                    std::max<int64_t>(1, give_up_ns - now)}));
    if (NowNs() - now >= kDaemonCheckNs) FailIfDaemonGone();
  }
}

void Member::Impl::FailIfDaemonGone() {
  if (!host->DaemonGone()) return;
  RecordFailure(board, FailureReason::kDaemonGone, -1,
                absl::StrCat("communicator ", NameText(board),
                             ": the daemon is gone; start shuntd and open a new session"));
}

absl::Status MemberHost::Serve(uint32_t channel, uint64_t seq, const Call& call) {
  return Notify(channel, seq, true, call.deadline_ns);
}

Member::Member(Board board, int rank, MemberHost* host, MemberOptions options)
    : impl_(std::make_unique<Impl>(board, rank, host, options)) {}

Member::~Member() = default;

int Member::rank() const { return impl_->rank; }
int Member::world() const { return impl_->board.world(); }

absl::Status Member::Run(const Call& call) {
  Impl& m = *impl_;
  int participant;
  ChannelState* state;
  {
    std::lock_guard<std::mutex> lock(m.mu);
    state = &m.StateOf(call, &participant);
  }
  Operation op(m.board, m.rank, call, state->channel, participant);
  op.owner_driven = true;
  op.counts = m.options.counts;
  op.started_ns = NowNs();
  if (absl::Status s = m.Post(op, *state, false); !s.ok()) return s;
  m.WaitFor(op, kNeverNs);
  int quieter_cpu;
  {
    std::lock_guard<std::mutex> lock(m.mu);
    m.Retire(op, *state);
    quieter_cpu = state->spread.Ended(state->channel, participant);
  }
  if (quieter_cpu >= 0) MoveTo(quieter_cpu);
  return op.outcome();
}

absl::StatusOr<std::shared_ptr<Operation>> Member::Start(const Call& call, bool served) {
  Impl& m = *impl_;
  int participant;
  ChannelState* state;
  {
    std::lock_guard<std::mutex> lock(m.mu);
    state = &m.StateOf(call, &participant);
  }
  auto op = std::make_shared<Operation>(m.board, m.rank, call, state->channel, participant);
  op->counts = m.options.counts;
  op->started_ns = NowNs();
  if (absl::Status s = m.Post(*op, *state, served); !s.ok()) return s;
  {
    std::lock_guard<std::mutex> lock(m.mu);
    m.async.push_back(op);
    m.async_count.fetch_add(1, std::memory_order_relaxed);
  }
  // The first look tells the others if this rank was the last to come.
  if (op->TryEnter()) {
    op->Drive(*m.host, 0);
    op->Leave();
  }
  return op;
}

bool Member::Poll(Operation& op, absl::Status* outcome) {
  Impl& m = *impl_;
  if (!op.ended() && op.TryEnter()) {
    if (op.Drive(*m.host, kChunksPerPoll) == Operation::Step::kStalled && NowNs() >= m.EndOf(op)) {
      op.Expire(*m.host);
    }
    op.Leave();
  }
  if (!op.ended()) return false;
  *outcome = op.outcome();
  std::lock_guard<std::mutex> lock(m.mu);
  m.RetireEnded();
  return true;
}

bool Member::Wait(Operation& op, int64_t deadline_ns, absl::Status* outcome) {
  if (!impl_->WaitFor(op, deadline_ns)) return false;
  return Poll(op, outcome);
}

bool Member::ServedBy(const Operation& op, uint32_t* channel, uint64_t* seq) {
  *channel = op.channel().id();
  *seq = op.seq();
  return op.served();
}

std::string Member::PendingText(const Operation& op) { return op.PendingText(); }

bool Member::Uses(uint64_t region, std::string* what) {
  Impl& m = *impl_;
  std::lock_guard<std::mutex> lock(m.mu);
  m.RetireEnded();
  const auto look = [&](const ChannelState& state) {
    for (const ChannelState::Entry& entry : state.in_flight) {
      if (entry.op == nullptr || entry.op->ended() || !entry.op->UsesRegion(region)) continue;
      *what = entry.op->Text();
      return true;
    }
    return false;
  };
  if (look(m.collectives)) return true;
  return std::any_of(m.pairs.begin(), m.pairs.end(),
                     [&](const auto& entry) { return look(*entry.second); });
}

void Member::Abort(std::string_view reason) {
  const Board& board = impl_->board;
  RecordFailure(board, FailureReason::kAborted, impl_->rank,
                absl::StrCat("communicator ", NameText(board), " was aborted by ",
                             RankText(board, impl_->rank), ": ",
                             absl::string_view(reason.data(), reason.size())));
  (void)impl_->host->Notify(0, 0, false, 0);
}

}  // namespace shunt::board
