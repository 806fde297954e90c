#include "daemon/communicator_table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/cluster.h"
#include "daemon/log.h"
#include "daemon/text.h"
#include "runtime/board/layout.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr size_t kNameBytesMax = 128;
// Joins of one session that wait at once.
constexpr int64_t kWaitingJoinsMax = 64;
// How much longer than its deadline a join waits for the cluster's answer; libshunt waits longer.
constexpr int64_t kClusterGraceNs = 3'000'000'000;

std::string Quoted(const CommunicatorKey& key) {
  return key.job.empty() ? absl::StrCat("communicator '", key.name, "'")
                         : absl::StrCat("communicator '", key.name, "' of job '", key.job, "'");
}

absl::Status AcrossNodes(const std::string& who, int world) {
  return absl::UnimplementedError(absl::StrCat(
      who, " with GPU memory (device): its ", world,
      " ranks are on several nodes, between which only host memory is moved as yet; expected all "
      "of them, ",
      board::kMaxLocalRanks, " at most, on one node"));
}

std::string Who(const Session& session) {
  return absl::StrCat("session ", session.id, " (pid ", session.peer.pid, ", '", session.name,
                      "')");
}

}  // namespace

CommunicatorTable::CommunicatorTable(Limits limits, OperationHost* host)
    : limits_(limits), host_(host) {}

CommunicatorTable::~CommunicatorTable() { host_->loop->Cancel(idle_timer_); }

void CommunicatorTable::SetLimits(const Limits& limits) {
  std::lock_guard lock(mutex_);
  limits_ = limits;
  // A longer time to live ends later than the timer says, which then finds nothing due; for a
  // shorter one it comes too late.
  host_->loop->Cancel(idle_timer_);
  idle_timer_ = 0;
  ++idle_turn_;
  ForgetSurplusLocked();
}

absl::Status CommunicatorTable::Check(const Session& session, const JoinRequestArgs& args) const {
  if (args.name.empty() || args.name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("communicator name of ", args.name.size(),
                                                   " bytes; expected 1 to ", kNameBytesMax));
  }
  if (args.job.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("job of ", args.job.size(), " bytes; expected at most ", kNameBytesMax));
  }
  for (const std::string* text : {&args.name, &args.job}) {
    if (std::any_of(text->begin(), text->end(),
                    [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      return absl::InvalidArgumentError("communicator name or job contains a control character");
    }
  }
  if (host_->aggregator) {
    return absl::FailedPreconditionError(absl::StrCat(
        "communicator '", args.name, "': node ", host_->node,
        " is an aggregator (cluster.role), which has no ranks; expected a join at the shuntd of a "
        "node"));
  }
  const int world_max = host_->cluster == nullptr ? board::kMaxLocalRanks : board::kMaxWorld;
  if (args.terms.world_size < 1 || args.terms.world_size > world_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "communicator '", args.name, "': world size ", args.terms.world_size, "; expected 1 to ",
        world_max, host_->cluster == nullptr ? " ranks on one node" : " ranks"));
  }
  if (!args.terms.algorithm.empty()) {
    const auto known = AlgorithmOf(args.terms.algorithm);
    if (!known.ok()) return known.status();
    // Who is up to add decides in which order values meet.
    if (*known == Algorithm::kAggregated && args.terms.deterministic) {
      return absl::InvalidArgumentError(absl::StrCat(
          "communicator '", args.name, "': algorithm \"", args.terms.algorithm,
          "\" with deterministic results; expected one of the two: which aggregators are up at the "
          "time decides how values meet"));
    }
  }
  if (args.terms.device) {
    if (host_->gpus == nullptr || !host_->gpus->CheckServes().ok()) {
      return absl::UnimplementedError(
          absl::StrCat("communicator '", args.name,
                       "' with GPU memory (device): this daemon serves no GPU; expected a join "
                       "without device"));
    }
    if (args.terms.world_size > board::kMaxLocalRanks) {
      return AcrossNodes(absl::StrCat("communicator '", args.name, "'"), args.terms.world_size);
    }
  }
  if (args.rank < 0 || args.rank >= args.terms.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("communicator '", args.name, "': rank ",
                                                   args.rank, "; expected 0 to ",
                                                   args.terms.world_size - 1));
  }
  if (session.ended.load(std::memory_order_acquire))
    return absl::CancelledError("the session has ended");
  return absl::OkStatus();
}

absl::Status CommunicatorTable::AdmitLocked(const std::shared_ptr<Session>& session,
                                            const JoinRequestArgs& args, const CommunicatorKey& key,
                                            Record& record) {
  // Under the table's lock: a session that ends from here on takes its joins with it.
  if (session->ended.load(std::memory_order_acquire))
    return absl::CancelledError("the session has ended");
  const auto waiting = joins_of_session_.find(session->id);
  const int64_t waits = waiting == joins_of_session_.end() ? 0 : waiting->second;
  if (waits >= kWaitingJoinsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(Who(*session), " waits in ", kWaitingJoinsMax,
                                                     " joins already, the most it may"));
  }
  int64_t memberships;
  {
    std::lock_guard lock(session->mutex);
    memberships = static_cast<int64_t>(session->memberships.size());
  }
  if (memberships + waits >= limits_.communicators_per_session) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_communicators_per_session: ", Who(*session), " is in ",
                     limits_.communicators_per_session, " communicators already"));
  }
  if (record.current != nullptr && record.current->FailureStatus().ok()) {
    const std::vector<Member> members = record.current->members();
    const std::vector<int32_t>& numbers = record.current->numbers();
    const bool all_here = std::none_of(members.begin(), members.end(),
                                       [](const Member& member) { return member.gone; });
    if (all_here && record.current->world() != args.terms.world_size) {
      return absl::FailedPreconditionError(
          absl::StrCat(Quoted(key), ": world size ", args.terms.world_size,
                       ", but it is joined with world size ", record.current->world()));
    }
    const auto held = std::lower_bound(numbers.begin(), numbers.end(), args.rank);
    const size_t index = static_cast<size_t>(held - numbers.begin());
    if (held != numbers.end() && *held == args.rank && !members[index].gone) {
      const Member& holder = members[index];
      return absl::AlreadyExistsError(absl::StrCat(
          Quoted(key), ": rank ", args.rank, " is held by session ", holder.session_id, " (pid ",
          holder.pid, ", '", holder.name, "')",
          holder.session_id == session->id ? ", which is this one: leave before joining again"
                                           : "; is it another job's? $SHUNT_JOB keeps jobs apart"));
    }
  }
  if (record.joining != nullptr) {
    Joining& joining = *record.joining;
    if (joining.terms != args.terms) {
      const auto& [rank, other] = *joining.ranks.begin();
      return absl::FailedPreconditionError(absl::StrCat(
          Quoted(key), ": rank ", args.rank, " joins with ",
          cluster::DifferingTerm(args.terms, joining.terms), ", but rank ", rank, ", ",
          Who(*other.session), ", joins with ", cluster::DifferingTerm(joining.terms, args.terms)));
    }
    if (joining.ranks.size() >= board::kMaxLocalRanks) {
      return absl::ResourceExhaustedError(absl::StrCat(Quoted(key), ": ", board::kMaxLocalRanks,
                                                       " ranks on this node already, the most"));
    }
    const auto taken = joining.ranks.find(args.rank);
    if (taken != joining.ranks.end()) {
      return absl::AlreadyExistsError(absl::StrCat(Quoted(key), ": rank ", args.rank,
                                                   " is taken by ", Who(*taken->second.session),
                                                   ", which waits for the others to join; is it "
                                                   "another job's? $SHUNT_JOB keeps jobs apart"));
    }
  }
  return host_->regions->Charge(session->owner(), Communicator::kChargedBytes,
                                "board of a communicator");
}

uint64_t CommunicatorTable::Join(const std::shared_ptr<Session>& session,
                                 const JoinRequestArgs& args, JoinDone done) {
  if (absl::Status status = Check(*session, args); !status.ok()) {
    done(status);
    return 0;
  }
  const CommunicatorKey key{session->peer.uid, args.job, args.name};
  Completions completions;
  uint64_t join_id = 0;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    Record& record = records_[key];
    status = AdmitLocked(session, args, key, record);
    if (status.ok() && record.joining == nullptr) {
      auto joining = std::make_unique<Joining>();
      joining->terms = args.terms;
      if (args.terms.world_size <= board::kMaxLocalRanks) {
        // Now, not when the last rank comes: its call then only sends replies.
        std::vector<int32_t> all(static_cast<size_t>(args.terms.world_size));
        std::iota(all.begin(), all.end(), 0);
        absl::StatusOr<std::shared_ptr<Communicator>> next =
            Communicator::Make(key, next_communicator_id_++, record.epochs + 1,
                               args.terms.world_size, std::move(all), args.terms.device, host_);
        status = next.status();
        if (next.ok()) joining->next = *std::move(next);
      }
      if (status.ok()) {
        record.joining = std::move(joining);
      } else {
        host_->regions->Release(session->owner(), Communicator::kChargedBytes);
      }
    }
    if (status.ok()) {
      if (record.is_idle) {
        idle_.erase(record.idle);
        record.is_idle = false;
      }
      join_id = next_join_id_++;
      record.joining->gave_up.erase(args.rank);
      Participant& participant = record.joining->ranks[args.rank];
      participant.join_id = join_id;
      participant.asked_ns = NowNs();
      participant.session = session;
      participant.daemon_posts = args.daemon_posts;
      participant.done = std::move(done);
      if (static_cast<int>(record.joining->ranks.size()) == args.terms.world_size) {
        FinishLocked(key, record, &completions);
        join_id = 0;
      } else {
        // At the deadline the cluster knows better who is missing: its answer comes first.
        const int64_t expiry_ns =
            host_->cluster == nullptr || args.deadline_ns > kNeverNs - kClusterGraceNs
                ? args.deadline_ns
                : args.deadline_ns + kClusterGraceNs;
        participant.timer = host_->loop->At(expiry_ns, [this, join_id] { Expire(join_id); });
        joins_.emplace(join_id, std::pair(key, args.rank));
        ++joins_of_session_[session->id];
        if (host_->cluster != nullptr) {
          participant.across = host_->cluster->JoinAcross(
              {{key.uid, key.job, key.name},
               args.terms,
               {{args.rank, session->peer.pid, session->name}},
               args.deadline_ns,
               record.epochs},
              [this, join_id](const auto& map) { JoinedAcross(join_id, map); });
        }
      }
    } else {
      completions.emplace_back(std::move(done), status);
      Settle(key, record);
    }
  }
  for (auto& [call, result] : completions) call(result);
  return join_id;
}

void CommunicatorTable::FinishLocked(const CommunicatorKey& key, Record& record,
                                     Completions* completions) {
  const std::unique_ptr<Joining> joining = std::move(record.joining);
  const std::shared_ptr<Communicator>& communicator = joining->next;
  std::vector<Member> members(joining->terms.world_size);
  for (const auto& [rank, participant] : joining->ranks) {
    members[rank] = {participant.session->id, participant.session->peer.pid,
                     participant.session->name, false, participant.daemon_posts};
    if (participant.across != 0) {
      host_->cluster->Withdraw(participant.across, "all ranks are on one node");
    }
  }
  communicator->SetMembers(std::move(members));
  const bool warm = record.epochs > 0;
  ++record.epochs;
  HandOutLocked(key, record, communicator, warm, std::move(joining->ranks), completions);
}

void CommunicatorTable::HandOutLocked(const CommunicatorKey& key, Record& record,
                                      const std::shared_ptr<Communicator>& communicator, bool warm,
                                      std::unordered_map<int, Participant> ranks,
                                      Completions* completions) {
  record.last_world = communicator->world();
  record.current = communicator;
  by_id_.emplace(communicator->id(), communicator);
  const std::vector<int32_t>& numbers = communicator->numbers();
  for (auto& [rank, participant] : ranks) {
    host_->loop->Cancel(participant.timer);
    if (joins_.erase(participant.join_id) != 0) {
      const auto of_session = joins_of_session_.find(participant.session->id);
      if (--of_session->second == 0) joins_of_session_.erase(of_session);
    }
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), rank);
    {
      std::lock_guard lock(participant.session->mutex);
      participant.session->memberships.emplace(
          communicator->id(), Membership{communicator, static_cast<int>(at - numbers.begin()),
                                         participant.daemon_posts});
    }
    completions->emplace_back(std::move(participant.done), Joined{communicator, warm});
  }
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "communicator joined",
        {{"communicator", communicator->id()},
         {"name", key.name},
         {"job", key.job},
         {"uid", key.uid},
         {"world", communicator->world()},
         {"here", numbers.size()},
         {"epoch", record.epochs}});
  }
}

absl::Status CommunicatorTable::FinishAcrossLocked(const CommunicatorKey& key, Record& record,
                                                   const cluster::CommunicatorMap& map,
                                                   Completions* completions) {
  if (record.joining->terms.device) {
    return AcrossNodes(Quoted(key), record.joining->terms.world_size);
  }
  const std::string& self = host_->node;
  int me = -1;
  std::vector<NodeKey> nodes;
  for (const cluster::MappedNode& node : map.nodes) {
    if (node.name == self) me = static_cast<int>(nodes.size());
    nodes.push_back({node.name, node.incarnation});
  }
  std::vector<int32_t> labels, numbers;
  for (const cluster::MappedRank& rank : map.ranks) {
    if (rank.node == me) numbers.push_back(static_cast<int32_t>(labels.size()));
    labels.push_back(rank.node);
  }
  if (me < 0 || numbers.empty() || numbers.size() > board::kMaxLocalRanks) {
    return absl::InternalError(absl::StrCat(Quoted(key), ": the coordinator's map has ",
                                            numbers.size(), " ranks of this node; expected 1 to ",
                                            board::kMaxLocalRanks));
  }
  for (const int32_t number : numbers) {
    if (!record.joining->ranks.contains(number)) {
      return absl::UnavailableError(
          absl::StrCat(Quoted(key), ": rank ", number, " gave up while the others joined"));
    }
  }
  SHUNT_ASSIGN_OR_RETURN(exchange::NodeMap node_map, exchange::NodeMap::Make(labels));
  SHUNT_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> communicator,
                         Communicator::Make(key, next_communicator_id_++, map.epoch,
                                            static_cast<int>(map.ranks.size()), numbers,
                                            /*device=*/false, host_));
  const cluster::JoinTerms terms = record.joining->terms;
  std::unordered_map<int, Participant> ranks;
  std::vector<Member> members;
  for (const int32_t number : numbers) {
    auto at = record.joining->ranks.find(number);
    const Participant& participant = at->second;
    members.push_back({participant.session->id, participant.session->peer.pid,
                       participant.session->name, false, participant.daemon_posts});
    ranks.insert(record.joining->ranks.extract(at));
  }
  if (record.joining->ranks.empty()) record.joining.reset();
  communicator->SetMembers(std::move(members));
  exchange::Policy policy;
  policy.model = terms.deterministic ? exchange::ReferenceModel() : exchange::ModelOf(map.link);
  if (!terms.algorithm.empty()) policy.algorithm = *AlgorithmOf(terms.algorithm);
  NodeEngine::Span span;
  span.wire_id = map.wire_id;
  span.map = std::move(node_map);
  span.node = me;
  span.nodes = std::move(nodes);
  for (const cluster::MappedNode& node : map.aggregators) {
    span.aggregators.push_back({node.name, node.incarnation});
  }
  policy.aggregators = static_cast<int32_t>(span.aggregators.size());
  span.policy = policy;
  span.pinned = terms.deterministic;
  communicator->Span(host_->engine, std::move(span));
  record.epochs = map.epoch;
  HandOutLocked(key, record, communicator, map.warm, std::move(ranks), completions);
  return absl::OkStatus();
}

void CommunicatorTable::JoinedAcross(
    uint64_t join_id, const absl::StatusOr<std::shared_ptr<const cluster::CommunicatorMap>>& map) {
  Completions completions;
  Participant removed;
  absl::Status status = map.status();
  {
    std::lock_guard lock(mutex_);
    const auto join = joins_.find(join_id);
    if (join == joins_.end()) return;  // joined, expired or withdrawn
    const CommunicatorKey key = join->second.first;
    if (status.ok()) status = FinishAcrossLocked(key, records_.at(key), **map, &completions);
    if (!status.ok()) RemoveLocked(join_id, &removed, nullptr);
  }
  for (auto& [call, result] : completions) call(result);
  if (removed.done != nullptr) removed.done(status);
}

bool CommunicatorTable::RemoveLocked(uint64_t join_id, Participant* removed, std::string* missing) {
  const auto join = joins_.find(join_id);
  if (join == joins_.end()) return false;
  const auto [key, rank] = join->second;
  Record& record = records_.at(key);
  Joining& joining = *record.joining;
  if (missing != nullptr) *missing = absl::StrCat(Quoted(key), ": ", MissingRanks(joining));
  const auto participant = joining.ranks.find(rank);
  *removed = std::move(participant->second);
  joining.ranks.erase(participant);
  if (missing != nullptr) joining.gave_up.insert(rank);
  joins_.erase(join);
  const auto of_session = joins_of_session_.find(removed->session->id);
  if (--of_session->second == 0) joins_of_session_.erase(of_session);
  host_->loop->Cancel(removed->timer);
  if (removed->across != 0)
    host_->cluster->Withdraw(removed->across, "the rank does not wait any more");
  host_->regions->Release(removed->session->owner(), Communicator::kChargedBytes);
  if (joining.ranks.empty()) record.joining.reset();
  Settle(key, record);
  return true;
}

bool CommunicatorTable::Withdraw(uint64_t join_id) {
  Participant removed;
  {
    std::lock_guard lock(mutex_);
    if (!RemoveLocked(join_id, &removed, nullptr)) return false;
  }
  removed.done(absl::CancelledError("the join was withdrawn"));
  return true;
}

void CommunicatorTable::Expire(uint64_t join_id) {
  Participant removed;
  std::string missing;
  {
    std::lock_guard lock(mutex_);
    if (!RemoveLocked(join_id, &removed, &missing)) return;
  }
  removed.done(absl::DeadlineExceededError(missing));
}

std::string CommunicatorTable::MissingRanks(const Joining& joining) const {
  constexpr int kNamedMax = 16;
  std::string list;
  int count = 0;
  for (int rank = 0; rank < joining.terms.world_size; ++rank) {
    if (joining.ranks.contains(rank) || joining.gave_up.contains(rank)) continue;
    if (++count <= kNamedMax) absl::StrAppend(&list, list.empty() ? "" : ", ", rank);
  }
  if (count > kNamedMax) absl::StrAppend(&list, ", ... (", count, " in all)");
  const size_t joined = joining.ranks.size() + joining.gave_up.size();
  if (count == 0) {
    return absl::StrCat("all ", joining.terms.world_size, " ranks joined, but ",
                        joining.gave_up.size(),
                        " gave up at their deadlines before the last one came");
  }
  return absl::StrCat(joined, " of ", joining.terms.world_size,
                      " ranks joined before the deadline; missing rank", count == 1 ? " " : "s ",
                      list);
}

void CommunicatorTable::Settle(const CommunicatorKey& key, Record& record) {
  if (record.joining != nullptr || record.current != nullptr || record.is_idle) return;
  if (record.epochs == 0 || limits_.warm_records == 0 || limits_.warm_ttl_ns == 0) {
    // `key` may live in the record.
    const CommunicatorKey copy = key;
    records_.erase(copy);
    return;
  }
  record.is_idle = true;
  record.idle_since_ns = NowNs();
  record.idle = idle_.insert(idle_.end(), key);
  ForgetSurplusLocked();
}

void CommunicatorTable::ForgetSurplusLocked() {
  while (static_cast<int64_t>(idle_.size()) > limits_.warm_records) {
    const CommunicatorKey oldest = idle_.front();
    idle_.pop_front();
    records_.erase(oldest);
  }
  ExpireIdleLocked();
}

void CommunicatorTable::ExpireIdleLocked() {
  const int64_t now = NowNs();
  while (!idle_.empty()) {
    const CommunicatorKey& oldest = idle_.front();
    const int64_t due = records_.at(oldest).idle_since_ns + limits_.warm_ttl_ns;
    if (due > now) {
      if (idle_timer_ == 0) {
        idle_timer_ = host_->loop->At(due, [this, turn = ++idle_turn_] {
          std::lock_guard lock(mutex_);
          if (turn != idle_turn_) return;  // another has taken its place
          idle_timer_ = 0;
          ExpireIdleLocked();
        });
      }
      return;
    }
    const CommunicatorKey copy = oldest;
    idle_.pop_front();
    records_.erase(copy);
  }
}

absl::Status CommunicatorTable::Leave(Session& session, uint64_t communicator_id) {
  Membership membership;
  {
    std::lock_guard lock(session.mutex);
    const auto it = session.memberships.find(communicator_id);
    if (it == session.memberships.end()) {
      return absl::NotFoundError(
          absl::StrCat("communicator ", communicator_id, ": this session is not a member of it"));
    }
    membership = std::move(it->second);
    session.memberships.erase(it);
  }
  DropMembership(session, membership, /*died=*/false);
  return absl::OkStatus();
}

void CommunicatorTable::DropMembership(Session& session, const Membership& membership, bool died) {
  if (!membership.communicator->MemberGone(membership.rank, died)) return;
  host_->regions->Release(session.owner(), Communicator::kChargedBytes);
  if (!membership.communicator->AllGone()) return;
  std::shared_ptr<Communicator> dropped;  // unmapped after the lock
  std::lock_guard lock(mutex_);
  by_id_.erase(membership.communicator->id());
  const auto record = records_.find(membership.communicator->key());
  if (record != records_.end() && record->second.current == membership.communicator) {
    dropped = std::move(record->second.current);
    Settle(record->first, record->second);
  }
}

void CommunicatorTable::SessionGone(Session& session, bool died) {
  std::vector<Participant> removed;
  {
    std::lock_guard lock(mutex_);
    if (joins_of_session_.contains(session.id)) {
      std::vector<uint64_t> ids;
      for (const auto& [id, where] : joins_) {
        if (records_.at(where.first).joining->ranks.at(where.second).session.get() == &session) {
          ids.push_back(id);
        }
      }
      for (const uint64_t id : ids) RemoveLocked(id, &removed.emplace_back(), nullptr);
    }
  }
  for (Participant& participant : removed)
    participant.done(absl::CancelledError("the session has ended"));
  std::unordered_map<uint64_t, Membership> memberships;
  {
    std::lock_guard lock(session.mutex);
    memberships.swap(session.memberships);
  }
  for (const auto& [id, membership] : memberships) DropMembership(session, membership, died);
}

void CommunicatorTable::WithdrawAll(std::string_view reason) {
  std::vector<Participant> removed;
  {
    std::lock_guard lock(mutex_);
    std::vector<uint64_t> ids;
    for (const auto& [id, where] : joins_) ids.push_back(id);
    for (const uint64_t id : ids) RemoveLocked(id, &removed.emplace_back(), nullptr);
  }
  for (Participant& participant : removed)
    participant.done(absl::UnavailableError(AbslView(reason)));
}

void CommunicatorTable::FailAll(std::string_view reason) {
  for (const std::shared_ptr<Communicator>& communicator : List())
    communicator->FailForStop(reason);
}

std::vector<std::shared_ptr<Communicator>> CommunicatorTable::List() const {
  std::vector<std::shared_ptr<Communicator>> list;
  std::lock_guard lock(mutex_);
  for (const auto& [id, communicator] : by_id_) list.push_back(communicator);
  return list;
}

size_t CommunicatorTable::size() const {
  std::lock_guard lock(mutex_);
  return by_id_.size();
}

absl::StatusOr<std::vector<cluster::RankCall>> CommunicatorTable::CallStatus(
    uint64_t wire_id) const {
  for (const std::shared_ptr<Communicator>& communicator : List()) {
    if (communicator->spans_nodes() && communicator->wire_id() == wire_id) {
      return communicator->RankCalls();
    }
  }
  return absl::NotFoundError("none of this node's ranks is in that communicator");
}

std::vector<CommunicatorView> CommunicatorTable::View() const {
  std::vector<CommunicatorView> views;
  std::lock_guard lock(mutex_);
  for (const auto& [id, communicator] : by_id_) {
    CommunicatorView view{
        communicator->key(), id, communicator->epoch(), communicator->world(), "ready", "", 0, {}};
    const absl::Status failure = communicator->FailureStatus();
    if (!failure.ok()) {
      view.state = "failed";
      view.failure = std::string(failure.message());
    }
    const std::vector<Member> members = communicator->members();
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      if (members[rank].gone) continue;
      view.ranks.push_back(
          {rank, members[rank].pid, members[rank].session_id, communicator->LastCall(rank)});
    }
    views.push_back(std::move(view));
  }
  for (const auto& [key, record] : records_) {
    if (record.joining != nullptr) {
      CommunicatorView view{key,
                            record.joining->next == nullptr ? 0 : record.joining->next->id(),
                            record.epochs + 1,
                            record.joining->terms.world_size,
                            "joining",
                            "",
                            kNeverNs,
                            {}};
      for (const auto& [rank, participant] : record.joining->ranks) {
        view.waits_since_ns = std::min(view.waits_since_ns, participant.asked_ns);
        view.ranks.push_back({rank, participant.session->peer.pid, participant.session->id, ""});
      }
      std::sort(view.ranks.begin(), view.ranks.end(),
                [](const auto& a, const auto& b) { return a.rank < b.rank; });
      views.push_back(std::move(view));
    } else if (record.is_idle) {
      views.push_back({key, 0, record.epochs, record.last_world, "idle", "", 0, {}});
    }
  }
  return views;
}

}  // namespace shunt::daemon
