// A communicator with GPU memory: what its ranks have all called goes to the GPU engine, several
// operations at a time; what the engine says of them comes back to the board.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/communicator.h"
#include "daemon/gpu/gpu_engine.h"
#include "daemon/scheduler.h"
#include "runtime/board/failure.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/gpu/worker/gates.h"

namespace shunt::daemon {

// What the posts of an operation name, in the order in which Gather asks, which gets numbers in
// place of addresses. One for each thread; scopes never nest.
class NamedMemory {
 public:
  NamedMemory() { current = this; }
  ~NamedMemory() { current = nullptr; }
  NamedMemory(const NamedMemory&) = delete;
  NamedMemory& operator=(const NamedMemory&) = delete;

  struct Named {
    uint64_t session;
    GpuMemory memory;
    uint64_t offset;
  };
  inline static thread_local NamedMemory* current = nullptr;
  absl::InlinedVector<Named, 8> all;
};

namespace {

// Of one channel, with the worker at a time. Ranks on streams run far ahead of the GPU: what a
// worker has room for is for other communicators too, whose operations may have to come first.
constexpr size_t kFlightsMax = 16;
// Sequences for which a deadline is kept, from the next one on.
constexpr uint64_t kDeadlinesMax = 512;

std::string_view View(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

int AddMemory(GpuEngine::Call& call, const GpuMemory& memory) {
  for (size_t i = 0; i < call.memory.size(); ++i) {
    if (call.memory[i].id() == memory.id()) return static_cast<int>(i);
  }
  call.memory.push_back(memory);
  return static_cast<int>(call.memory.size()) - 1;
}

GpuEngine::Side SideOf(GpuEngine::Call& call, const NamedMemory& named, const std::byte* number) {
  if (number == nullptr) return {};
  const NamedMemory::Named& one = named.all[reinterpret_cast<uintptr_t>(number) - 1];
  return {AddMemory(call, one.memory), one.offset};
}

}  // namespace

std::byte* Communicator::ResolveDevice(int rank, uint64_t region, uint64_t offset, uint64_t bytes) {
  NamedMemory* const named = NamedMemory::current;
  const uint64_t session = members_[rank].session_id;
  NamedMemory::Named one{session, {}, offset};
  if (named != nullptr && !named->all.empty() && named->all.back().session == session &&
      named->all.back().memory.id() == region) {
    one.memory = named->all.back().memory;
  } else {
    auto memory = host_->gpus->Hold(session, region, use_words_);
    if (!memory.ok()) return nullptr;
    one.memory = *std::move(memory);
  }
  if (!one.memory.CheckRange(offset, bytes).ok()) return nullptr;
  if (named == nullptr) return reinterpret_cast<std::byte*>(1);  // only whether it is there
  named->all.push_back(std::move(one));
  return reinterpret_cast<std::byte*>(named->all.size());
}

// ---- Beginning

// False if some rank has posted, and what it has asked of the daemon is still on its way: with it
// comes the gate.
bool Communicator::FillRanksLocked(uint32_t channel, uint64_t seq, const ChannelQueue& queue,
                                   const board::Gathered& gathered, const NamedMemory& named,
                                   GpuEngine::Call* call) {
  const auto served = queue.pending.find(seq);
  const decltype(Served::askers) no_askers;
  size_t taken = 0;  // of a rank that sends to itself, which asks twice
  int taken_of = -1;
  for (size_t p = 0; p < gathered.ranks.size(); ++p) {
    const board::Gathered::Rank& from = gathered.ranks[p];
    GpuEngine::Rank& to = call->ranks.emplace_back();
    to.in = SideOf(*call, named, from.in);
    to.out = SideOf(*call, named, from.out);
    to.scalar = from.scalar;
    if ((from.flags & board::kServed) == 0) continue;
    const int rank = board_.RankOf(channel, static_cast<int>(p));
    if (rank != taken_of) taken = 0;
    size_t number = 0;
    const Asker* asker = nullptr;
    for (const Asker& one : served == queue.pending.end() ? no_askers : served->second.askers) {
      if (one.rank != rank || (one.session == nullptr && one.operation == nullptr)) continue;
      if (number++ != taken) continue;
      asker = &one;
      break;
    }
    if (asker == nullptr) {
      // Its stream would be asked for by nobody.
      if (members_[rank].gone) {
        server_.Fail(
            channel, seq, board::FailureReason::kRankLeft, rank,
            absl::StrCat(DeviceWords(channel, seq, call->spec.kind), ": ",
                         board::RankText(board_, rank), " has left, and had not waited for it"));
      }
      return false;
    }
    ++taken;
    taken_of = rank;
    if (asker->gate == nullptr) continue;
    GpuMemory gate;
    gate.host = asker->gate;
    to.gate = {AddMemory(*call, gate), asker->gate_offset, asker->gate_generation};
  }
  return true;
}

absl::Status Communicator::FillTables(uint64_t seq, const board::Gathered& gathered,
                                      GpuEngine::Call* call) const {
  const int n = board_.ranks();
  const auto at = [&](int rank, int peer) -> const board::VRow& {
    return gathered.tables[static_cast<size_t>(rank) * n + peer];
  };
  bool some = false;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      const uint64_t sent = at(i, j).send_count;
      if (sent != at(j, i).recv_count) {
        return absl::FailedPreconditionError(
            absl::StrCat("all_to_all_v #", seq, " on communicator ", board::NameText(board_), ": ",
                         board::RankText(board_, i), " sends ", sent, " elements to ",
                         board::RankText(board_, j), ", which expects ", at(j, i).recv_count));
      }
      some |= sent != 0;
    }
  }
  if (some) {
    call->tables.assign(gathered.tables.begin(), gathered.tables.end());
  } else {
    call->spec.kind = OpKind::kBarrier;
  }
  return absl::OkStatus();
}

std::string Communicator::DeviceWords(uint32_t channel, uint64_t seq, OpKind kind) const {
  const std::string_view name = Name(kind);
  return absl::StrCat(absl::string_view(name.data(), name.size()), " #", seq,
                      channel == 0 ? "" : " of a pair", " on communicator ",
                      board::NameText(board_));
}

// The next operation of the channel, as a call of the engine's; null if it is not complete.
std::shared_ptr<GpuEngine::Call> Communicator::GatherDeviceLocked(uint32_t channel, uint64_t seq,
                                                                  const ChannelQueue& queue) {
  board::Gathered gathered;
  NamedMemory named;
  const board::Service service = server_.Gather(channel, seq, &gathered);
  if (service != board::Service::kSucceeded) return nullptr;
  auto call = std::make_shared<GpuEngine::Call>();
  call->spec = gathered.spec;
  call->home = home_;
  if (!FillRanksLocked(channel, seq, queue, gathered, named, call.get())) return nullptr;
  if (call->spec.kind == OpKind::kAllToAllV) {
    if (const absl::Status status = FillTables(seq, gathered, call.get()); !status.ok()) {
      server_.Fail(channel, seq, board::FailureReason::kMismatch, -1, View(status));
      return nullptr;
    }
  }
  call->ended = [self = shared_from_this(), channel, seq](const absl::Status& outcome) {
    self->Moved(channel, seq, outcome);
  };
  return call;
}

// Operations without streams begin in the order of their calls, those with streams where the
// streams say. Where some ranks have one and others do not, the calls of the others are kept in
// order by waiting.
Communicator::Order Communicator::OrderOf(const GpuEngine::Call& call) {
  size_t gates = 0;
  for (const GpuEngine::Rank& rank : call.ranks) gates += rank.gate.memory >= 0 ? 1 : 0;
  return gates == 0 ? Order::kCalls : gates == call.ranks.size() ? Order::kStreams : Order::kMixed;
}

bool Communicator::InTurn(const DeviceChannel& state, Order order) {
  return std::none_of(state.flights.begin(), state.flights.end(), [order](const auto& entry) {
    const Order other = entry.second.order;
    return (order == Order::kMixed && other != Order::kStreams) ||
           (order == Order::kCalls && other == Order::kMixed);
  });
}

// True if another may follow.
bool Communicator::BeginNextLocked(uint32_t channel, const ChannelQueue& queue,
                                   std::unique_lock<std::mutex>& lock) {
  DeviceChannel& state = device_[channel];
  if (state.later || state.flights.size() >= kFlightsMax) return false;
  const uint64_t seq = state.next;
  if (state.call == nullptr) {
    state.call = GatherDeviceLocked(channel, seq, queue);
    if (state.call == nullptr) return server_.failed();
  }
  GpuEngine::Call& call = *state.call;
  const Order order = OrderOf(call);
  if (!InTurn(state, order)) return false;
  if (order == Order::kCalls) call.lane = id_ << 24 | (channel + 1);
  if (call.memory.empty()) {
    // Nothing to move and nobody to wait for.
    state.flights.emplace(seq, Flight{});
    state.call.reset();
    ++state.next;
    lock.unlock();
    Moved(channel, seq, absl::OkStatus());
    lock.lock();
    return true;
  }
  const OpKind kind = call.spec.kind;
  absl::StatusOr<GpuEngine::Ticket> ticket =
      host_->gpus->Begin(state.call, [weak = weak_from_this(), channel] {
        const std::shared_ptr<Communicator> self = weak.lock();
        if (self == nullptr) return;
        std::lock_guard lock(self->mutex_);
        self->device_[channel].later = false;
        self->ScheduleLocked(channel, self->queues_[channel]);
      });
  if (!ticket.ok()) {
    const absl::Status& status = ticket.status();
    server_.Fail(channel, seq, board::ReasonOf(status.code()), -1,
                 absl::StrCat(DeviceWords(channel, seq, kind), ": ", status.message()));
    return true;
  }
  if (ticket->id == 0) {
    state.later = true;
    return false;
  }
  if (home_ == nullptr && std::any_of(call.memory.begin(), call.memory.end(),
                                      [](const GpuMemory& memory) { return memory.on_gpu(); })) {
    home_ = ticket->worker;
  }
  state.flights.emplace(seq, Flight{*std::move(ticket), std::move(state.call), order});
  state.call.reset();
  ++state.next;
  return true;
}

void Communicator::RunDevice(uint32_t channel) {
  std::unique_lock lock(mutex_);
  ChannelQueue& queue = queues_[channel];  // stays: only this function erases it
  do {
    queue.again = false;
    if (server_.failed()) {
      EndDeviceLocked(channel, queue, lock);
      continue;
    }
    if (BeginNextLocked(channel, queue, lock)) queue.again = true;
  } while (queue.again);
  queue.scheduled = false;
  if (queue.pending.empty()) queues_.erase(channel);
}

// ---- Ending

// The communicator has failed. What is under way ends when its worker says so, after nobody
// touches its memory any more; all else ends now.
void Communicator::EndDeviceLocked(uint32_t channel, ChannelQueue& queue,
                                   std::unique_lock<std::mutex>& lock) {
  if (!failure_noticed_) {
    NoticeFailureLocked();
    ScheduleAllLocked();  // dead for every channel
  }
  DeviceChannel& state = device_[channel];
  state.call.reset();
  for (auto& [seq, flight] : state.flights) {
    if (!std::exchange(flight.cancelled, true)) GpuEngine::Cancel(flight.ticket);
  }
  std::vector<std::pair<uint64_t, Served>> over;
  for (auto it = queue.pending.begin(); it != queue.pending.end();) {
    if (state.flights.contains(it->first)) {
      ++it;
      continue;
    }
    over.emplace_back(it->first, std::move(it->second));
    it = queue.pending.erase(it);
  }
  lock.unlock();
  const absl::Status outcome = server_.OutcomeOfFailed();
  for (auto& [seq, served] : over) {
    // No worker has heard of their streams.
    for (const Asker& asker : served.askers) ReleaseGate(asker);
    Complete(channel, seq, std::move(served), outcome);
  }
  lock.lock();
}

// On the workers' completion thread.
void Communicator::Moved(uint32_t channel, uint64_t seq, const absl::Status& outcome) {
  std::shared_ptr<GpuEngine::Call> call;
  {
    std::lock_guard lock(mutex_);
    const auto found = device_[channel].flights.find(seq);
    if (found != device_[channel].flights.end()) call = std::move(found->second.call);
  }
  // First of all: a rank may free what it named as soon as it sees the outcome.
  if (call != nullptr) call->memory.clear();
  if (outcome.ok()) {
    server_.Finish(channel, seq);
  } else {
    // A cancelled one has its reason on the board.
    server_.Fail(channel, seq, board::ReasonOf(outcome.code()), -1,
                 absl::StrCat("an operation on communicator ", board::NameText(board_), ": ",
                              outcome.message()));
  }
  // Whatever the GPU did, its outcome is what all ranks see.
  const bool succeeded = server_.Serve(channel, seq, /*work=*/false) == board::Service::kSucceeded;
  std::unique_lock lock(mutex_);
  DeviceChannel& state = device_[channel];
  state.flights.erase(seq);
  state.deadlines.erase(seq);
  ChannelQueue& queue = queues_[channel];
  auto node = queue.pending.extract(seq);
  ScheduleLocked(channel, queue);
  if (server_.failed()) {
    NoticeFailureLocked();
    ScheduleAllLocked();
  }
  lock.unlock();
  if (node.empty()) return;
  Complete(channel, seq, std::move(node.mapped()),
           succeeded ? absl::OkStatus() : server_.OutcomeOfFailed());
}

void Communicator::ScheduleDeviceLocked() {
  for (const auto& [channel, state] : device_) {
    if (!state.flights.empty() || state.call != nullptr) {
      ScheduleLocked(channel, queues_[channel]);
    }
  }
}

// ---- Deadlines

void Communicator::KickDeviceLocked(uint32_t channel, uint64_t seq, int64_t deadline_ns) {
  DeviceChannel& state = device_[channel];
  // 0: news that tells of no call.
  if (deadline_ns > 0 && seq >= state.next && seq - state.next < kDeadlinesMax) {
    state.deadlines[seq] = deadline_ns;
    WatchDeadlineLocked(deadline_ns);
  }
  ScheduleLocked(channel, queues_[channel]);
}

// Ends an operation that a worker has, in words for what it waits for; false if none has it.
bool Communicator::ExpireDevice(uint32_t channel, uint64_t seq) {
  std::string absent;
  int culprit = -1;
  OpKind kind;
  {
    std::lock_guard lock(mutex_);
    const auto state = device_.find(channel);
    if (state == device_.end()) return false;
    const auto flight = state->second.flights.find(seq);
    if (flight == state->second.flights.end() || flight->second.call == nullptr) return false;
    const GpuEngine::Call& call = *flight->second.call;
    kind = call.spec.kind;
    for (size_t p = 0; p < call.ranks.size(); ++p) {
      const GpuEngine::Gate& gate = call.ranks[p].gate;
      if (gate.memory < 0) continue;
      const auto at = call.memory[gate.memory].host->At(gate.offset, sizeof(gpu::GateWords));
      if (!at.ok()) continue;
      const uint32_t trigger = reinterpret_cast<const gpu::GateWords*>(*at)->trigger.load();
      if (static_cast<int32_t>(trigger - gate.generation) >= 0) continue;
      const int rank = board_.RankOf(channel, static_cast<int>(p));
      absl::StrAppend(&absent, absent.empty() ? "" : ", ", board::RankText(board_, rank));
      if (culprit < 0) culprit = rank;
    }
  }
  server_.Fail(
      channel, seq, board::FailureReason::kStuck, culprit,
      absl::StrCat(DeviceWords(channel, seq, kind),
                   ": all ranks called, but it did not end before its deadline: ",
                   absent.empty() ? "the GPU has not finished it"
                                  : absl::StrCat("the stream of ", absent, " has not come to it")));
  return true;
}

// ---- Captured calls

void Communicator::MakeCaptures() {
  Captures::Setup setup;
  setup.engine = host_->gpus;
  // Its ranks are all here: board and communicator count alike.
  setup.board =
      board::Board(mapping_->data(),
                   board::BoardShape{.ranks = board_.ranks(), .world = world_, .device = true});
  setup.board_memory = mapping_;
  setup.fail = [weak = weak_from_this()](board::FailureReason reason, int rank,
                                         const std::string& text) {
    const std::shared_ptr<Communicator> self = weak.lock();
    if (self == nullptr) return;
    board::RecordFailure(self->board_, reason, rank, text);
    std::lock_guard lock(self->mutex_);
    self->NoticeFailureLocked();
    self->ScheduleAllLocked();
  };
  captures_ = std::make_shared<Captures>(std::move(setup));
}

absl::Status Communicator::FillPiece(uint64_t session, const board::RegionRef& ref, uint64_t bytes,
                                     uint64_t alignment, const char* what,
                                     Captures::Piece* piece) const {
  if (bytes == 0) return absl::OkStatus();
  absl::StatusOr<GpuMemory> memory = host_->gpus->Hold(session, ref.region, use_words_);
  absl::Status status = memory.status();
  if (status.ok()) status = memory->CheckRange(ref.offset, bytes);
  if (status.ok() && ref.offset % alignment != 0) {
    status = absl::InvalidArgumentError(absl::StrCat("expected a multiple of ", alignment));
  }
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " (region ", ref.region, ", offset ",
                                                   ref.offset, ", ", bytes,
                                                   " bytes): ", status.message()));
  }
  *piece = {*std::move(memory), ref.offset, true};
  return absl::OkStatus();
}

absl::Status Communicator::Capture(int rank, const std::shared_ptr<Session>& session,
                                   const CapturedCall& call) {
  if (!device()) {
    return absl::FailedPreconditionError(
        absl::StrCat("communicator ", id_,
                     " was joined without GPU memory (device): its calls are not captured"));
  }
  if (server_.failed()) return server_.FailureStatus();
  Captures::Part part;
  const uint64_t block = call.spec.count * SizeOf(call.spec.dtype);
  const uint64_t element = SizeOf(call.spec.dtype);
  SHUNT_RETURN_IF_ERROR(FillPiece(session->id, call.in,
                                  InputBlocks(call.spec, world_, rank) * block, element, "input",
                                  &part.in));
  SHUNT_RETURN_IF_ERROR(FillPiece(session->id, call.out,
                                  OutputBlocks(call.spec, world_, rank) * block, element, "output",
                                  &part.out));
  SHUNT_RETURN_IF_ERROR(FillPiece(session->id, call.gate, sizeof(gpu::GateWords),
                                  alignof(gpu::GateWords), "gate", &part.gate));
  if (part.gate.memory.on_gpu()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gate: region ", call.gate.region, " is GPU memory, expected host memory"));
  }
  part.scalar = call.scalar;
  if (session->captures.fetch_add(1, std::memory_order_relaxed) >= Captures::kOfSessionMax) {
    session->captures.fetch_sub(1, std::memory_order_relaxed);
    return absl::ResourceExhaustedError(
        absl::StrCat("session ", session->id, " has ", Captures::kOfSessionMax,
                     " captured calls already, the most it may; destroy some graphs"));
  }
  part.count = std::shared_ptr<void>(
      nullptr, [session](void*) { session->captures.fetch_sub(1, std::memory_order_relaxed); });
  {
    std::lock_guard lock(mutex_);
    if (members_[rank].gone) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " has left communicator ", id_));
    }
  }
  return captures_->Add(rank, call.sequence, call.spec, std::move(part));
}

void Communicator::ReleaseCapture(int rank, uint64_t sequence, Captures::Answer answer) {
  if (captures_ == nullptr) {
    return answer(absl::NotFoundError(
        absl::StrCat("communicator ", id_, " has no captured calls: it has no GPU memory")));
  }
  captures_->Release(rank, sequence, std::move(answer));
}

// ---- Gates

absl::Status Communicator::TakeGate(int rank, const ring::Submission& submission, Asker* asker) {
  if (submission.gate_region == 0) return absl::OkStatus();
  const auto region = host_->regions->Find(asker->session->id, submission.gate_region);
  absl::Status status = region.status();
  if (status.ok()) status = (*region)->CheckRange(submission.gate_offset, sizeof(gpu::GateWords));
  if (status.ok() && submission.gate_offset % alignof(gpu::GateWords) != 0) {
    status = absl::InvalidArgumentError(
        absl::StrCat("expected a multiple of ", alignof(gpu::GateWords)));
  }
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "operation #", submission.sequence, " on communicator ", board::NameText(board_), ": ",
        board::RankText(board_, rank), " gave no valid place for its stream's words: region ",
        submission.gate_region, ", offset ", submission.gate_offset, ": ", status.message()));
  }
  asker->gate = *region;
  asker->gate_offset = submission.gate_offset;
  asker->gate_generation = submission.gate_generation;
  return absl::OkStatus();
}

void Communicator::ReleaseGate(const Asker& asker) {
  if (asker.gate == nullptr) return;
  const auto words = asker.gate->At(asker.gate_offset, sizeof(gpu::GateWords));
  if (!words.ok()) return;
  gpu::Gate gate{};
  gate.words = reinterpret_cast<uint64_t>(*words);
  gate.generation = asker.gate_generation;
  gpu::Release(gate, /*repeats=*/false);
}

// True if it is over already: a rank that had not said in its post that it would ask.
bool Communicator::AnswerLateLocked(uint32_t channel, uint64_t seq, Asker& asker) {
  const DeviceChannel& state = device_[channel];
  if (seq >= state.next || state.flights.contains(seq)) return false;
  const bool succeeded = server_.Serve(channel, seq, /*work=*/false) == board::Service::kSucceeded;
  ReleaseGate(asker);
  Answer(asker, succeeded ? absl::OkStatus()
                          : absl::AbortedError(absl::StrCat("communicator ", id_, " has failed")));
  return true;
}

}  // namespace shunt::daemon
