#include "daemon/communicator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/event_signal.h"
#include "daemon/log.h"
#include "daemon/pin_scope.h"
#include "daemon/probe.h"
#include "daemon/scheduler.h"
#include "runtime/board/arrival.h"
#include "runtime/board/failure.h"
#include "runtime/board/post.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr uint64_t kLongBytes = 256 << 10;
// Bounds the descriptors that a client can make the daemon keep.
constexpr int kWatchesMax = 256;

}  // namespace

absl::StatusOr<std::shared_ptr<Communicator>> Communicator::Make(CommunicatorKey key, uint64_t id,
                                                                 uint64_t epoch, int world,
                                                                 std::vector<int32_t> numbers,
                                                                 bool device, OperationHost* host) {
  const board::BoardShape shape{static_cast<int>(numbers.size()), world, numbers.data(), device};
  const size_t bytes = board::Board::BytesFor(shape);
  SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, MakeSealedMemfd("shunt-board", bytes));
  SHUNT_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd.get(), bytes));
  std::shared_ptr<Communicator> made(new Communicator(std::move(key), id, epoch, world,
                                                      std::move(numbers), device, host,
                                                      std::move(fd), std::move(mapping)));
  if (device) made->MakeCaptures();
  return made;
}

Communicator::Communicator(CommunicatorKey key, uint64_t id, uint64_t epoch, int world,
                           std::vector<int32_t> numbers, bool device, OperationHost* host,
                           UniqueFd board_fd, Mapping mapping)
    : key_(std::move(key)),
      id_(id),
      epoch_(epoch),
      world_(world),
      host_(host),
      numbers_(std::move(numbers)),
      board_fd_(std::move(board_fd)),
      mapping_(std::make_shared<const Mapping>(std::move(mapping))),
      board_(mapping_->data(),
             board::BoardShape{static_cast<int>(numbers_.size()), world, numbers_.data(), device}),
      server_(board_, this),
      use_words_(absl::StrCat("a call on communicator '", key_.name, "'")) {
  board::Board(board_).Initialize(id, epoch, key_.name.c_str());
}

Communicator::~Communicator() {
  if (host_->probe != nullptr) host_->probe->operations.Keep(Totals());
  host_->loop->Cancel(timer_);
  if (engine_ != nullptr) engine_->Close(wire_id_);
  if (captures_ != nullptr) captures_->End();
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
  if (const size_t captured = captures_ == nullptr ? 0 : captures_->CountOf(rank); captured > 0) {
    // The others' graphs wait for it whenever they are launched.
    board::RecordFailure(
        board_, board::FailureReason::kRankLeft, rank,
        absl::StrCat("communicator ", board::NameText(board_), ": ", board::RankText(board_, rank),
                     " has left, with ", captured, " calls that graphs have captured"));
  }
  if (server_.failed()) {
    // Also if it was the rank that found the failure, and left with it.
    NoticeFailureLocked();
  } else if (engine_ != nullptr) {
    engine_->TellLeft(wire_id_, numbers_[rank], server_.Posted(rank),
                      absl::StrCat(board::RankText(board_, rank), " on node ", host_->node));
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
  std::lock_guard lock(mutex_);
  NoticeFailureLocked();
  ScheduleAllLocked();
}

void Communicator::NoticeFailureLocked() {
  if (failure_noticed_) return;
  failure_noticed_ = true;
  if (captures_ != nullptr) captures_->End();
  LogInfo("communicator failed", {{"communicator", id_},
                                  {"name", key_.name},
                                  {"job", key_.job},
                                  {"uid", key_.uid},
                                  {"error", std::string(server_.FailureStatus().message())}});
  if (engine_ == nullptr) return;
  const absl::Status failure = server_.OutcomeOfFailed();
  engine_->Tell(wire_id_, {board::ReasonOf(failure.code()), std::string(failure.message())});
}

void Communicator::FailForStop(std::string_view reason) {
  board::RecordFailure(board_, board::FailureReason::kDaemonGone, -1, reason);
  std::lock_guard lock(mutex_);
  NoticeFailureLocked();
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

void Communicator::Serve(int rank, std::shared_ptr<Session> session,
                         const ring::Submission& submission) {
  const uint32_t channel = submission.channel;
  const uint64_t seq = submission.sequence;
  Asker asker;
  asker.rank = rank;
  asker.deadline_ns = submission.deadline_ns;
  asker.session = std::move(session);
  asker.ring_token = submission.token;
  if (device()) {
    if (const absl::Status bad = TakeGate(rank, submission, &asker); !bad.ok()) {
      server_.Fail(channel, seq, board::FailureReason::kBadMemory, rank,
                   std::string_view(bad.message().data(), bad.message().size()));
    }
  }
  std::lock_guard lock(mutex_);
  if (members_[rank].gone) {
    asker.session->Complete(asker.ring_token, absl::StatusCode::kFailedPrecondition);
    return;
  }
  if (device() && AnswerLateLocked(channel, seq, asker)) return;
  AddLocked(channel, seq, std::move(asker));
}

void Communicator::AddLocked(uint32_t channel, uint64_t seq, Asker asker) {
  WatchDeadlineLocked(asker.deadline_ns);
  ChannelQueue& queue = queues_[channel];
  Served& served = queue.pending[seq];
  if (served.began_ns == 0) served.began_ns = NowNs();
  served.askers.push_back(std::move(asker));
  ScheduleLocked(channel, queue);
}

void Communicator::Kick(uint32_t channel, uint64_t seq, int64_t deadline_ns) {
  std::lock_guard lock(mutex_);
  if (server_.failed()) {
    NoticeFailureLocked();
    ScheduleAllLocked();
    return;
  }
  if (board_.Remote(channel)) {
    if (channel >= board_.channel_count()) return;
    if (device()) return KickDeviceLocked(channel, seq, deadline_ns);
    if (deadline_ns > 0) {  // 0: news that tells of no call
      remote_[channel].deadline_ns = deadline_ns;
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
  const auto [channel, participant] = server_.SeatOf(rank, call);
  uint64_t& last = posted_[{channel, participant}];
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
  if (device()) return ResolveDevice(rank, region_id, offset, bytes);
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
  ScheduleDeviceLocked();
}

void Communicator::RunChannel(uint32_t channel) {
  if (device()) return RunDevice(channel);
  if (board_.Remote(channel)) return RunRemote(channel);
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
      NoticeFailureLocked();
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
  if (host_->probe != nullptr) Tell(channel, seq, served, outcome);
  for (Asker& asker : served.askers) {
    if (asker.operation == nullptr) continue;
    server_.CountFor(channel, seq, asker.rank, outcome.ok());
    server_.Retire(channel, seq, asker.rank);
  }
  for (Asker& asker : served.askers) Answer(asker, outcome);
}

// Counts what has ended.
void Communicator::Tell(uint32_t channel, uint64_t seq, const Served& served,
                        const absl::Status& outcome) const {
  for (const Asker& asker : served.askers) {
    if (asker.session != nullptr) host_->probe->answers.Answered(outcome.code());
  }
  if (board_.Remote(channel)) return;  // the engine counts it
  OperationProbe& probe = host_->probe->operations;
  if (!outcome.ok()) return probe.Failed();
  // Any member may have written there since.
  const CollectiveSpec spec =
      board::SpecOf(channel, board::ReadBody(board_.channel(channel).post(seq, 0)));
  if (!IsValid(spec.kind) || !IsValid(spec.dtype)) return;
  probe.Ended(spec.kind, OperationProbe::kBoard, NowNs() - served.began_ns,
              BusBytes(spec, board_.PlanWorld(channel)));
}

board::Totals Communicator::Totals() const { return board::TotalsOf(board_, NowNs() - made_ns_); }

void Communicator::Answer(Asker& asker, const absl::Status& outcome) {
  if (asker.session != nullptr) asker.session->Complete(asker.ring_token, outcome.code());
  if (asker.operation != nullptr) asker.operation->Finish(outcome);
  if (asker.eventfd.valid()) SignalClientEventFd(asker.eventfd.get());
}

bool Communicator::LooksLong(uint32_t channel) {
  if (board_.Remote(channel)) return false;  // the engine has it
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
  for (auto& [channel, state] : remote_) {
    if (state.deadline_ns > now) {
      next = std::min(next, state.deadline_ns);
    } else if (state.busy) {
      asked.push_back({channel, state.next, 0});
      state.deadline_ns = kNeverNs;
    }
  }
  for (auto& [channel, state] : device_) {
    for (auto it = state.deadlines.begin(); it != state.deadlines.end();) {
      if (it->second > now) {
        next = std::min(next, it->second);
        ++it;
        continue;
      }
      due.push_back({channel, it->first, board_.RankOf(channel, 0)});
      it = state.deadlines.erase(it);
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
    if (device() && ExpireDevice(d.channel, d.seq)) continue;
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
      id = board_.SeatOf(rank, peer, kind == OpKind::kSend).channel;
    }
    const board::Channel channel = board_.channel(id);
    for (int p = 0; p < channel.participants(); ++p) {
      if (channel.post(seq, p).word.load(std::memory_order_acquire) >> 2 < seq) return true;
    }
  }
  return false;
}

}  // namespace shunt::daemon
