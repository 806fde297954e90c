#include "daemon/communicator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/event_signal.h"
#include "daemon/log.h"
#include "daemon/scheduler.h"
#include "runtime/board/failure.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr uint64_t kLongBytes = 256 << 10;
// Bounds the descriptors that a client can make the daemon keep.
constexpr int kWatchesMax = 256;
constexpr std::chrono::seconds kCallStatusTimeout(1);

// Regions that the operation at hand has resolved: their mappings stay while it runs, also if their
// owner dies meanwhile. One for each thread; Serve and PostFor never nest.
class PinScope {
 public:
  PinScope() { current = this; }
  ~PinScope() { current = nullptr; }
  PinScope(const PinScope&) = delete;

  std::vector<std::shared_ptr<memory::Region>> Take() { return {pinned_.begin(), pinned_.end()}; }

  static void Pin(std::shared_ptr<memory::Region> region) {
    SHUNT_CHECK(current != nullptr);
    if (current->pinned_.empty() || current->pinned_.back() != region) {
      current->pinned_.push_back(std::move(region));
    }
  }

 private:
  static thread_local PinScope* current;
  absl::InlinedVector<std::shared_ptr<memory::Region>, 8> pinned_;
};
thread_local PinScope* PinScope::current = nullptr;

}  // namespace

absl::StatusOr<std::shared_ptr<Communicator>> Communicator::Make(CommunicatorKey key, uint64_t id,
                                                                 uint64_t epoch, int world,
                                                                 std::vector<int32_t> numbers,
                                                                 OperationHost* host) {
  const board::BoardShape shape{static_cast<int>(numbers.size()), world, numbers.data()};
  const size_t bytes = board::Board::BytesFor(shape);
  SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, MakeSealedMemfd("shunt-board", bytes));
  SHUNT_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd.get(), bytes));
  return std::shared_ptr<Communicator>(new Communicator(std::move(key), id, epoch, world,
                                                        std::move(numbers), host, std::move(fd),
                                                        std::move(mapping)));
}

Communicator::Communicator(CommunicatorKey key, uint64_t id, uint64_t epoch, int world,
                           std::vector<int32_t> numbers, OperationHost* host, UniqueFd board_fd,
                           Mapping mapping)
    : key_(std::move(key)),
      id_(id),
      epoch_(epoch),
      world_(world),
      host_(host),
      numbers_(std::move(numbers)),
      board_fd_(std::move(board_fd)),
      mapping_(std::move(mapping)),
      board_(mapping_.data(),
             board::BoardShape{static_cast<int>(numbers_.size()), world, numbers_.data()}),
      server_(board_, this) {
  board::Board(board_).Initialize(id, epoch, key_.name.c_str());
}

Communicator::~Communicator() {
  host_->loop->Cancel(timer_);
  if (engine_ != nullptr) engine_->Close(wire_id_);
}

void Communicator::Span(NodeEngine* engine, uint64_t wire_id, exchange::NodeMap map, int node,
                        std::vector<NodeKey> nodes) {
  engine_ = engine;
  wire_id_ = wire_id;
  nodes_ = nodes;
  node_ = node;
  engine->Open({wire_id, std::move(map), node, std::move(nodes),
                [weak = weak_from_this()](const NodeFailure& failure) {
                  if (const auto self = weak.lock()) self->FailSpanning(failure);
                }});
}

void Communicator::SetMembers(std::vector<Member> members) {
  SHUNT_CHECK(static_cast<int>(members.size()) == board_.ranks());
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    board::RankRow& row = board_.row(rank);
    const Member& member = members[rank];
    row.session_id = member.session_id;
    const size_t length = std::min(member.name.size(), sizeof(row.name) - 1);
    std::copy_n(member.name.data(), length, row.name);
    row.pid.store(member.pid, std::memory_order_release);
  }
  std::lock_guard lock(mutex_);
  members_ = std::move(members);
}

std::vector<Member> Communicator::members() const {
  std::lock_guard lock(mutex_);
  return members_;
}

bool Communicator::HasMember(uint64_t session_id) const {
  std::lock_guard lock(mutex_);
  return std::any_of(members_.begin(), members_.end(), [session_id](const Member& member) {
    return member.session_id == session_id && !member.gone;
  });
}

bool Communicator::AllGone() const {
  std::lock_guard lock(mutex_);
  return gone_ == board_.ranks();
}

bool Communicator::MemberGone(int rank, bool died) {
  std::vector<Served> dropped;  // destroyed after the lock: they may own sessions
  std::lock_guard lock(mutex_);
  Member& member = members_[rank];
  if (member.gone) return false;
  member.gone = true;
  ++gone_;
  // Atomics on the board only: a worker may be serving it meanwhile.
  server_.RankGone(rank, died);
  if (died && engine_ != nullptr) {
    engine_->Tell(wire_id_, {board::FailureReason::kRankDied,
                             std::string(server_.OutcomeOfFailed().message())});
  }
  for (auto& [channel, queue] : queues_) {
    for (auto it = queue.pending.begin(); it != queue.pending.end();) {
      Served mine;
      auto& askers = it->second.askers;
      for (size_t i = 0; i < askers.size();) {
        if (askers[i].rank == rank) {
          mine.askers.push_back(std::move(askers[i]));
          askers.erase(askers.begin() + i);
        } else {
          ++i;
        }
      }
      // Those that the rank itself still waits for end with it.
      for (Asker& asker : mine.askers) {
        if (asker.operation == nullptr) continue;
        host_->loop->Post([operation = asker.operation, rank, id = id_] {
          operation->Finish(absl::AbortedError(absl::StrCat(
              "rank ", rank, " itself left communicator ", id, " before its operation ended")));
        });
      }
      dropped.push_back(std::move(mine));
      it = askers.empty() ? queue.pending.erase(it) : std::next(it);
    }
  }
  ScheduleAllLocked();
  return true;
}

void Communicator::Abort(int rank, std::string_view reason) {
  server_.Abort(rank, reason);
  if (engine_ != nullptr) {
    engine_->Tell(wire_id_, {board::FailureReason::kAborted,
                             std::string(server_.OutcomeOfFailed().message())});
  }
  std::lock_guard lock(mutex_);
  LogFailureLocked();
  ScheduleAllLocked();
}

void Communicator::LogFailureLocked() {
  if (failure_logged_) return;
  failure_logged_ = true;
  LogInfo("communicator failed", {{"communicator", id_},
                                  {"name", key_.name},
                                  {"job", key_.job},
                                  {"uid", key_.uid},
                                  {"error", std::string(server_.FailureStatus().message())}});
}

void Communicator::FailForStop(std::string_view reason) {
  board::RecordFailure(board_, board::FailureReason::kDaemonGone, -1, reason);
  std::lock_guard lock(mutex_);
  ScheduleAllLocked();
}

bool Communicator::TakesPart(int rank, uint32_t channel) const {
  if (channel == 0) return true;
  if (channel >= board_.channel_count()) return false;
  const board::Board::Pair pair = board_.PairOf(channel);
  const int number = board_.shape().Number(rank);
  return (pair.source_here && pair.source == number) ||
         (pair.destination_here && pair.destination == number);
}

std::vector<cluster::RankCall> Communicator::RankCalls() const {
  std::vector<cluster::RankCall> calls;
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    calls.push_back({numbers_[rank], board_.row(rank).pid.load(std::memory_order_relaxed),
                     server_.LastCall(rank)});
  }
  return calls;
}

void Communicator::AskWhoIsMissing(uint32_t channel, uint64_t seq) {
  // The others count the calls of this communicator alike: who is at another one is late.
  const std::string mine = server_.LastCall(board_.RankOf(channel, 0));
  struct Inquiry {
    size_t open = 0;
    std::string missing;
  };
  auto inquiry = std::make_shared<Inquiry>();
  inquiry->open = nodes_.size() - 1;
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
    if (node == node_) continue;
    host_->cluster->CallStatus(
        nodes_[node].name, wire_id_, kCallStatusTimeout,
        [self = shared_from_this(), inquiry, channel, seq, mine,
         name = nodes_[node].name](const absl::StatusOr<std::vector<cluster::RankCall>>& calls) {
          const auto add = [&](const std::string& text) {
            absl::StrAppend(&inquiry->missing, inquiry->missing.empty() ? "" : ", ", text);
          };
          if (!calls.ok()) {
            add(absl::StrCat("node ", name, ", whose daemon gives no answer (",
                             calls.status().message(), ")"));
          } else {
            for (const cluster::RankCall& call : *calls) {
              if (call.last_call == mine) continue;
              add(absl::StrCat(
                  "rank ", call.rank, " (pid ", call.pid, ") on node ", name,
                  call.last_call.empty() ? ", which never called" : ", whose last call was ",
                  call.last_call));
            }
          }
          if (--inquiry->open == 0) self->FailAbsent(channel, seq, inquiry->missing);
        });
  }
}

void Communicator::FailAbsent(uint32_t channel, uint64_t seq, const std::string& missing) {
  std::string words;
  {
    std::lock_guard lock(mutex_);
    const SpanningChannel& state = spanning_[channel];
    if (!state.busy || state.next != seq) return;  // it has ended meanwhile
    words = state.words;
  }
  const std::string text =
      absl::StrCat(words, " on communicator '", key_.name, "' and waited until its deadline",
                   missing.empty() ? ": all ranks called, but it did not end" : " for ", missing);
  board::RecordFailure(board_, board::FailureReason::kAbsent, -1, text);
  engine_->Tell(wire_id_, {board::FailureReason::kAbsent, text});
  std::lock_guard lock(mutex_);
  LogFailureLocked();
  ScheduleAllLocked();
}

NodeFailure Communicator::FailureSeen() const {
  const absl::Status status = server_.OutcomeOfFailed();
  return {board::ReasonOf(status.code()), std::string(status.message())};
}

void Communicator::FailSpanning(const NodeFailure& failure) {
  board::RecordFailure(board_, failure.reason, -1, failure.text);
  std::lock_guard lock(mutex_);
  LogFailureLocked();
  ScheduleAllLocked();
}

void Communicator::RunSpanning(uint32_t channel) {
  struct Pins {
    std::vector<std::shared_ptr<memory::Region>> regions;
  };
  std::unique_lock lock(mutex_);
  ChannelQueue& queue = queues_[channel];
  do {
    queue.again = false;
    if (server_.failed() && !queue.pending.empty()) {
      std::map<uint64_t, Served> pending = std::move(queue.pending);
      queue.pending.clear();
      lock.unlock();
      const absl::Status outcome = server_.OutcomeOfFailed();
      for (auto& [seq, served] : pending) Complete(channel, seq, std::move(served), outcome);
      lock.lock();
      continue;
    }
    SpanningChannel& state = spanning_[channel];
    if (state.busy) break;
    const uint64_t seq = state.next;
    board::Gathered gathered;
    board::Service service;
    auto pins = std::make_shared<Pins>();
    {
      PinScope scope;
      service = server_.Gather(channel, seq, &gathered);
      pins->regions = scope.Take();
    }
    if (service == board::Service::kFailed) {
      // The other nodes hear what this one's ranks have found.
      LogFailureLocked();
      engine_->Tell(wire_id_, FailureSeen());
      ScheduleAllLocked();
      break;
    }
    if (service != board::Service::kSucceeded) continue;
    state.busy = true;
    NodeEngine::Call call;
    call.wire_id = wire_id_;
    if (channel != 0) {
      const board::Board::Pair pair = board_.PairOf(channel);
      call.channel = 1 + static_cast<uint32_t>(pair.source) * static_cast<uint32_t>(world_) +
                     static_cast<uint32_t>(pair.destination);
    }
    call.sequence = seq;
    call.spec = gathered.spec;
    for (const board::Gathered::Rank& rank : gathered.ranks) {
      call.local.push_back({rank.in, rank.out, rank.scalar});
    }
    call.tables.assign(gathered.tables.begin(), gathered.tables.end());
    call.pins = std::move(pins);
    state.words = call.words =
        absl::StrCat(board::RankText(board_, board_.RankOf(channel, 0)), " called ",
                     server_.LastCall(board_.RankOf(channel, 0)));
    call.done = [self = shared_from_this(), channel, seq](const absl::Status& outcome) {
      self->Exchanged(channel, seq, outcome);
    };
    engine_->Begin(std::move(call));
  } while (queue.again);
  queue.scheduled = false;
  if (queue.pending.empty()) queues_.erase(channel);
}

// The engine's thread.
void Communicator::Exchanged(uint32_t channel, uint64_t seq, const absl::Status& outcome) {
  if (outcome.ok()) {
    server_.Finish(channel, seq);
  } else {
    server_.Fail(channel, seq, board::FailureReason::kStuck, -1,
                 std::string_view(outcome.message().data(), outcome.message().size()));
  }
  std::unique_lock lock(mutex_);
  SpanningChannel& state = spanning_[channel];
  state.busy = false;
  ++state.next;
  ChannelQueue& queue = queues_[channel];
  auto node = queue.pending.extract(seq);
  ScheduleLocked(channel, queue);
  lock.unlock();
  if (!node.empty()) {
    Complete(channel, seq, std::move(node.mapped()),
             outcome.ok() ? outcome : server_.OutcomeOfFailed());
  }
}

void Communicator::Serve(int rank, std::shared_ptr<Session> session, uint64_t ring_token,
                         uint32_t channel, uint64_t seq, int64_t deadline_ns) {
  Asker asker;
  asker.rank = rank;
  asker.deadline_ns = deadline_ns;
  asker.session = std::move(session);
  asker.ring_token = ring_token;
  std::lock_guard lock(mutex_);
  if (members_[rank].gone) {
    asker.session->Complete(ring_token, absl::StatusCode::kFailedPrecondition);
    return;
  }
  AddLocked(channel, seq, std::move(asker));
}

void Communicator::AddLocked(uint32_t channel, uint64_t seq, Asker asker) {
  WatchDeadlineLocked(asker.deadline_ns);
  ChannelQueue& queue = queues_[channel];
  queue.pending[seq].askers.push_back(std::move(asker));
  ScheduleLocked(channel, queue);
}

void Communicator::Kick(uint32_t channel, int64_t deadline_ns) {
  std::lock_guard lock(mutex_);
  if (server_.failed()) {
    LogFailureLocked();
    ScheduleAllLocked();
    if (engine_ != nullptr && !told_) {
      told_ = true;
      engine_->Tell(wire_id_, FailureSeen());
    }
    return;
  }
  if (spans_nodes()) {
    if (channel >= board_.channel_count()) return;
    if (deadline_ns > 0) {  // 0: news that tells of no call
      spanning_[channel].deadline_ns = deadline_ns;
      WatchDeadlineLocked(deadline_ns);
    }
    ScheduleLocked(channel, queues_[channel]);
    return;
  }
  const auto it = queues_.find(channel);
  if (it != queues_.end()) ScheduleLocked(channel, it->second);
}

absl::Status Communicator::Watch(int rank, std::shared_ptr<Session> session, uint32_t channel,
                                 uint64_t seq, UniqueFd eventfd) {
  {
    std::lock_guard lock(mutex_);
    const auto queue = queues_.find(channel);
    if (queue != queues_.end() && !members_[rank].gone) {
      const auto served = queue->second.pending.find(seq);
      if (served != queue->second.pending.end()) {
        if (session->watches.load(std::memory_order_relaxed) >= kWatchesMax) {
          return absl::ResourceExhaustedError(
              absl::StrCat("session ", session->id, " watches ", kWatchesMax,
                           " operations already, the most it may; wait for some"));
        }
        session->watches.fetch_add(1, std::memory_order_relaxed);
        Asker asker;
        asker.rank = rank;
        asker.watcher = std::shared_ptr<void>(nullptr, [session](void*) {
          session->watches.fetch_sub(1, std::memory_order_relaxed);
        });
        asker.eventfd = std::move(eventfd);
        served->second.askers.push_back(std::move(asker));
        return absl::OkStatus();
      }
    }
  }
  SignalClientEventFd(eventfd.get());
  return absl::OkStatus();
}

absl::Status Communicator::PostFor(int rank, const board::Call& call, board::RegionRef in,
                                   board::RegionRef out, int64_t deadline_ns,
                                   std::shared_ptr<Operation> operation) {
  std::lock_guard lock(mutex_);
  if (members_[rank].gone) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " has left communicator ", id_));
  }
  const uint32_t channel = server_.ChannelOf(rank, call);
  uint64_t& last = posted_[{channel, board::Server::ParticipantOf(rank, call)}];
  {
    PinScope pins;
    SHUNT_RETURN_IF_ERROR(server_.PostFor(rank, call, in, out, last + 1).status());
  }
  ++last;
  Asker asker;
  asker.rank = rank;
  asker.deadline_ns = deadline_ns;
  asker.operation = std::move(operation);
  AddLocked(channel, last, std::move(asker));
  return absl::OkStatus();
}

std::byte* Communicator::Resolve(int rank, uint64_t region_id, uint64_t offset, uint64_t bytes) {
  // members_ is not changed but for `gone` once the communicator is shared, and a gone member's
  // regions are gone too: no lock, PostFor has it.
  absl::StatusOr<std::shared_ptr<memory::Region>> region =
      host_->regions->Find(members_[rank].session_id, region_id);
  if (!region.ok()) return nullptr;
  const absl::StatusOr<std::byte*> data = (*region)->At(offset, bytes);
  if (!data.ok()) return nullptr;
  PinScope::Pin(*std::move(region));
  return *data;
}

void Communicator::ScheduleLocked(uint32_t channel, ChannelQueue& queue) {
  if (queue.scheduled) {
    queue.again = true;
    return;
  }
  queue.scheduled = true;
  host_->scheduler->Ready(shared_from_this(), channel);
}

void Communicator::ScheduleAllLocked() {
  for (auto& [channel, queue] : queues_) {
    if (!queue.pending.empty()) ScheduleLocked(channel, queue);
  }
}

void Communicator::RunChannel(uint32_t channel) {
  if (spans_nodes()) return RunSpanning(channel);
  std::unique_lock lock(mutex_);
  ChannelQueue& queue = queues_[channel];  // stays: only this function erases it
  while (!queue.pending.empty()) {
    const uint64_t seq = queue.pending.begin()->first;
    queue.again = false;
    lock.unlock();
    board::Service service;
    {
      PinScope pins;
      service = server_.Serve(channel, seq);
    }
    absl::Status outcome;
    if (service == board::Service::kFailed) {
      outcome = server_.OutcomeOfFailed();
      // Its record may be about to be written; the words matter less than the end.
      if (outcome.ok())
        outcome = absl::AbortedError(absl::StrCat("communicator ", id_, " has failed"));
    }
    lock.lock();
    if (service == board::Service::kPending) {
      if (queue.again) continue;
      break;
    }
    if (service == board::Service::kFailed) {
      LogFailureLocked();
      // Dead for every channel: the others find out now.
      for (auto& [other, other_queue] : queues_) {
        if (other != channel && !other_queue.pending.empty()) ScheduleLocked(other, other_queue);
      }
    }
    auto node = queue.pending.extract(seq);
    if (node.empty()) continue;  // all who asked have gone meanwhile
    lock.unlock();
    Complete(channel, seq, std::move(node.mapped()), outcome);
    lock.lock();
    if (!queue.pending.empty() && host_->scheduler->OthersWait()) {
      // One operation at a time: other channels and communicators wait for this worker.
      host_->scheduler->Ready(shared_from_this(), channel);
      return;
    }
  }
  queue.scheduled = false;
  if (queue.pending.empty()) queues_.erase(channel);
}

void Communicator::Complete(uint32_t channel, uint64_t seq, Served served,
                            const absl::Status& outcome) {
  host_->served.fetch_add(1, std::memory_order_relaxed);
  if (!outcome.ok()) host_->failed.fetch_add(1, std::memory_order_relaxed);
  for (Asker& asker : served.askers) {
    if (asker.operation != nullptr) server_.Retire(channel, seq, asker.rank);
  }
  for (Asker& asker : served.askers) Answer(asker, outcome);
}

void Communicator::Answer(Asker& asker, const absl::Status& outcome) {
  if (asker.session != nullptr) asker.session->Complete(asker.ring_token, outcome.code());
  if (asker.operation != nullptr) asker.operation->Finish(outcome);
  if (asker.eventfd.valid()) SignalClientEventFd(asker.eventfd.get());
}

bool Communicator::LooksLong(uint32_t channel) {
  uint64_t seq;
  {
    std::lock_guard lock(mutex_);
    const auto it = queues_.find(channel);
    if (it == queues_.end() || it->second.pending.empty()) return false;
    seq = it->second.pending.begin()->first;
  }
  const board::PostBody body = board_.channel(channel).post(seq, 0).body;
  if (body.dtype >= kDataTypeCount || body.kind >= kOpKindCount) return true;
  return body.kind == static_cast<uint8_t>(OpKind::kAllToAllV) ||
         body.count > kLongBytes / SizeOf(static_cast<DataType>(body.dtype));
}

void Communicator::WatchDeadlineLocked(int64_t deadline_ns) {
  if (deadline_ns >= timer_ns_) return;
  host_->loop->Cancel(timer_);
  timer_ns_ = deadline_ns;
  timer_ = host_->loop->At(deadline_ns, [weak = weak_from_this()] {
    if (const std::shared_ptr<Communicator> self = weak.lock()) self->ExpireDue();
  });
}

void Communicator::ExpireDue() {
  struct Due {
    uint32_t channel;
    uint64_t seq;
    int rank;
  };
  std::vector<Due> due, asked;
  std::unique_lock lock(mutex_);
  timer_ns_ = kNeverNs;
  timer_ = 0;
  const int64_t now = NowNs();
  int64_t next = kNeverNs;
  for (auto& [channel, state] : spanning_) {
    if (state.deadline_ns > now) {
      next = std::min(next, state.deadline_ns);
    } else if (state.busy) {
      asked.push_back({channel, state.next, 0});
      state.deadline_ns = kNeverNs;
    }
  }
  for (const auto& [channel, queue] : queues_) {
    for (const auto& [seq, served] : queue.pending) {
      for (const Asker& asker : served.askers) {
        if (asker.deadline_ns <= now) {
          due.push_back({channel, seq, asker.rank});
        } else {
          next = std::min(next, asker.deadline_ns);
        }
      }
    }
  }
  WatchDeadlineLocked(next);
  lock.unlock();
  for (const Due& d : asked) AskWhoIsMissing(d.channel, d.seq);
  if (due.empty()) return;
  std::vector<Asker> stuck;
  for (const Due& d : due) {
    // Where it waits for other nodes, they are asked first.
    if (std::any_of(asked.begin(), asked.end(),
                    [&](const Due& a) { return a.channel == d.channel && a.seq == d.seq; })) {
      continue;
    }
    PinScope pins;
    if (server_.Expire(d.channel, d.seq, d.rank) != board::Service::kPending) continue;
    // Whatever the board says, which any member may write: who asked is not left waiting.
    lock.lock();
    const auto queue = queues_.find(d.channel);
    if (queue != queues_.end()) {
      const auto served = queue->second.pending.find(d.seq);
      if (served != queue->second.pending.end()) {
        auto& askers = served->second.askers;
        for (size_t i = 0; i < askers.size();) {
          if (askers[i].rank != d.rank || askers[i].deadline_ns > now) {
            ++i;
            continue;
          }
          stuck.push_back(std::move(askers[i]));
          askers.erase(askers.begin() + i);
        }
        if (askers.empty()) queue->second.pending.erase(served);
      }
    }
    lock.unlock();
  }
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat("an operation on communicator '", key_.name,
                   "' did not end by its deadline, and its board makes no sense"));
  for (Asker& asker : stuck) Answer(asker, late);
  lock.lock();
  ScheduleAllLocked();
}

size_t Communicator::pending() const {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [channel, queue] : queues_) count += queue.pending.size();
  return count;
}

bool Communicator::LooksBusy() const {
  if (server_.failed()) return false;
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    const board::LastCall& last = board_.last_call(rank);
    const uint64_t seq = last.sequence.load(std::memory_order_acquire);
    if (seq == 0) continue;
    const uint64_t words = last.words.load(std::memory_order_relaxed);
    const auto kind = static_cast<OpKind>(words & 0xff);
    uint32_t id = 0;
    if (kind == OpKind::kSend || kind == OpKind::kRecv) {
      const int peer = static_cast<int16_t>(words >> 32);
      if (peer < 0 || peer >= world_) continue;
      id = board_.PairChannelOf(rank, peer, kind == OpKind::kSend);
    }
    const board::Channel channel = board_.channel(id);
    for (int p = 0; p < channel.participants(); ++p) {
      if (channel.post(seq, p).word.load(std::memory_order_acquire) >> 2 < seq) return true;
    }
  }
  return false;
}

}  // namespace shunt::daemon
