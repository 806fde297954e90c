#include "daemon/cluster/joiner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/messages.h"
#include "daemon/cluster/random.h"
#include "daemon/cluster/rendezvous_words.h"
#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// How long a join waits for the cluster to be whole before it says why it can't go on.
constexpr int64_t kGiveUpNs = 5 * kSecondNs;
constexpr int64_t kRetryMaxNs = kSecondNs / 2;
constexpr int64_t kRetryMinNs = kSecondNs / 200;
// The coordinator answers at the deadline; after this much longer nobody will.
constexpr int64_t kAnswerGraceNs = 2 * kSecondNs;
constexpr int64_t kTimeoutMaxNs = 24 * 3600 * kSecondNs;
constexpr size_t kReasonBytesMax = 256;

absl::Status Prefixed(const RendezvousKey& key, const absl::Status& status) {
  return {status.code(), absl::StrCat(Words(key), ": ", status.message())};
}

int64_t TimeLeft(int64_t deadline_ns) {
  return deadline_ns == kNeverNs ? kTimeoutMaxNs
                                 : std::clamp<int64_t>(deadline_ns - NowNs(), 0, kTimeoutMaxNs);
}

}  // namespace

Joiner::Joiner(daemon::EventLoop* loop, const SelfInfo* self, PeerTable* peers,
               Membership* membership, std::function<LinkNumbers()> link)
    : loop_(loop),
      self_(self),
      peers_(peers),
      membership_(membership),
      link_(std::move(link)),
      table_(RendezvousTable::Limits(), RandomId) {}

Joiner::~Joiner() {
  loop_->Cancel(expiry_);
  for (auto& [id, join] : joins_) loop_->Cancel(join.timer);
  for (auto& [id, opening] : openings_) loop_->Cancel(opening.timer);
}

Joiner::Entry* Joiner::Find(uint64_t id) {
  const auto it = joins_.find(id);
  return it == joins_.end() ? nullptr : &it->second;
}

const MemberInfo* Joiner::Coordinator(const RendezvousKey& key) const {
  return RendezvousHash(membership_->view(), HashKey(key), [this](const MemberInfo& member) {
    return peers_->Aggregates(member) || (!peers_->IsSelf(member) && peers_->Down(member));
  });
}

void Joiner::Join(uint64_t id, JoinAcrossRequest request, JoinAcrossDone done) {
  Entry& join = joins_[id];
  join.id = id;
  join.request = std::move(request);
  join.done = std::move(done);
  Try(join);
}

void Joiner::Try(Entry& join) {
  loop_->Cancel(std::exchange(join.timer, 0));
  join.stage = Stage::kTrying;
  ++join.attempt;
  join.attempt_ns = NowNs();
  const RendezvousKey& key = join.request.key;
  if (const absl::Status taken = peers_->own_name(); !taken.ok()) {
    return Finish(join, Prefixed(key, taken));
  }
  if (const absl::Status status = membership_->status(); !status.ok()) {
    return Trouble(join, status);
  }
  const std::string hint = std::exchange(join.hint, "");
  const MemberInfo* const own = Coordinator(key);
  const MemberInfo* member = hint.empty() ? nullptr : FindMember(membership_->view(), hint);
  // A node with an old view may send us to ourselves: a coordinator goes by its own view only.
  if (member == nullptr || peers_->IsSelf(*member)) member = own;
  if (member == nullptr) {
    return Trouble(join, absl::UnavailableError(absl::StrCat("none of the members can be reached: ",
                                                             MemberList(membership_->view()))));
  }
  Registration registration;
  registration.node = self_->name;
  registration.incarnation = self_->incarnation;
  registration.address = self_->address;
  registration.id = join.id;
  registration.ranks = join.request.ranks;
  registration.terms = join.request.terms;
  if (link_) registration.link = link_();
  registration.deadline_ns = join.request.deadline_ns;
  registration.known_epoch = join.request.known_epoch;
  join.stage = Stage::kRegistered;
  join.coordinator = member->id();
  if (peers_->IsSelf(*member)) {
    RegisterHere(join, std::move(registration));
  } else {
    RegisterAt(join, *member, registration);
  }
}

void Joiner::RegisterHere(Entry& join, Registration registration) {
  const Token token = next_token_++;
  join.token = token;
  replies_.emplace(
      token, [this, id = join.id, attempt = join.attempt](const RendezvousTable::Answer& answer) {
        OnAnswer(id, attempt, answer.status, answer.map);
      });
  const RendezvousKey key = join.request.key;
  Deliver(table_.Register(token, key, std::move(registration)));
}

void Joiner::RegisterAt(Entry& join, const MemberInfo& member, const Registration& registration) {
  join.token = 0;
  PeerClient* const client = peers_->ClientOf(member.id());
  if (client == nullptr) {
    return Trouble(join, absl::UnavailableError(absl::StrCat(member.id(), " has just come")));
  }
  join.generation = peers_->GenerationOf(member.id());
  v1::RendezvousRequest request;
  ToProto(join.request.key, registration, &request);
  *request.mutable_caller() = Identity(*self_);
  request.set_revision(membership_->view().revision);
  const int64_t left = TimeLeft(join.request.deadline_ns);
  request.set_timeout_ms(static_cast<uint64_t>(left / 1'000'000));
  client->Rendezvous(
      request, std::chrono::nanoseconds(left + kAnswerGraceNs),
      [this, id = join.id, attempt = join.attempt, world = join.request.terms.world_size,
       member](const absl::StatusOr<v1::RendezvousResponse>& answer) {
        if (!answer.ok()) {
          const absl::StatusCode code = answer.status().code();
          if (code != absl::StatusCode::kUnavailable && code != absl::StatusCode::kCancelled) {
            return OnAnswer(id, attempt, answer.status(), nullptr);
          }
          // Finds out whether it is there at all.
          peers_->Contact(member.id(), [](const absl::Status&) {});
          return OnAnswer(
              id, attempt,
              absl::Status(code, absl::StrCat("coordinator ", member.id(), " (", member.address,
                                              "): ", answer.status().message())),
              nullptr);
        }
        if (answer->has_map()) {
          const auto map = FromProto(answer->map(), world);
          return OnAnswer(id, attempt, map.status(), map.ok() ? *map : nullptr);
        }
        Entry* const join = Find(id);
        if (join == nullptr || join->attempt != attempt) return;
        join->hint = answer->moved().coordinator().substr(0, kReasonBytesMax);
        peers_->Contact(join->hint, [](const absl::Status&) {});
        membership_->Refresh();
        OnAnswer(id, attempt,
                 absl::AbortedError(absl::StrCat(
                     "node '", self_->name, "' takes ", member.id(),
                     " for its coordinator (membership revision ",
                     Hex(membership_->view().revision), "), but that node takes ", join->hint,
                     " for it (revision ", Hex(answer->moved().revision()), ")")),
                 nullptr);
      });
}

void Joiner::OnAnswer(uint64_t id, uint64_t attempt, const absl::Status& status,
                      std::shared_ptr<const CommunicatorMap> map) {
  Entry* const join = Find(id);
  if (join == nullptr || join->attempt != attempt || join->stage != Stage::kRegistered) return;
  if (status.ok()) return BeginPeers(*join, std::move(map));
  if (join->withdrawn) {
    return Finish(*join,
                  absl::CancelledError(absl::StrCat(Words(join->request.key), ": ", join->reason)));
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:    // the coordinator is another
    case absl::StatusCode::kCancelled:  // it takes us for lost
      return Trouble(*join, status);
    default:
      return Finish(*join, status);
  }
}

// Tries again, until the deadline or until it has lasted too long.
void Joiner::Trouble(Entry& join, const absl::Status& status) {
  const int64_t now = NowNs();
  if (now - join.attempt_ns > kSecondNs) {  // it had been fine for a while
    join.trouble_since_ns = 0;
    join.tries = 0;
  }
  if (join.trouble_since_ns == 0) join.trouble_since_ns = now;
  join.stage = Stage::kTrying;
  join.trouble = status.code() == absl::StatusCode::kAlreadyExists
                     ? status
                     : absl::UnavailableError(status.message());
  if (now >= join.trouble_since_ns + kGiveUpNs || now >= join.request.deadline_ns) {
    return GiveUp(join);
  }
  // The first time at once: a view that has changed is the rule, not the exception.
  const int64_t delay =
      join.tries == 0 ? 0 : std::min(kRetryMinNs << std::min(join.tries, 10), kRetryMaxNs);
  ++join.tries;
  const int64_t end = std::min(join.trouble_since_ns + kGiveUpNs, join.request.deadline_ns);
  After(join, std::min(now + delay, end), &Joiner::Try);
}

void Joiner::GiveUp(Entry& join) { Finish(join, Prefixed(join.request.key, join.trouble)); }

void Joiner::After(Entry& join, int64_t deadline_ns, void (Joiner::*then)(Entry&)) {
  loop_->Cancel(join.timer);
  join.timer = loop_->At(deadline_ns, [this, &join, then] {
    join.timer = 0;
    (this->*then)(join);
  });
}

void Joiner::BeginPeers(Entry& join, std::shared_ptr<const CommunicatorMap> map) {
  join.stage = Stage::kPeers;
  join.map = std::move(map);
  for (size_t i = 0; i < join.map->nodes.size(); ++i) join.nodes_missing.insert(i);
  join.trouble = absl::UnavailableError("its nodes did not come up in time");
  After(join, NowNs() + kGiveUpNs, &Joiner::GiveUp);
  ContactAggregators(join);
  CheckPeers(join.id);
}

void Joiner::CheckPeers(uint64_t id) {
  Entry* const join = Find(id);
  if (join == nullptr || join->stage != Stage::kPeers) return;
  const std::set<size_t> missing = join->nodes_missing;
  for (const size_t node : missing) {
    const absl::Status status = CheckPeer(*join, node);
    if (!status.ok()) return Finish(*join, Prefixed(join->request.key, status));
  }
  if (join->nodes_missing.empty() && join->aggregators_missing.empty()) Finish(*join, join->map);
}

// An error is final: the map names an incarnation that is no more.
absl::Status Joiner::CheckPeer(Entry& join, size_t node) {
  const MappedNode& wanted = join.map->nodes[node];
  if (wanted.name == self_->name) {
    if (wanted.incarnation != self_->incarnation) {
      return absl::UnavailableError(absl::StrCat(
          "node '", self_->name, "' became another incarnation while it joined; join again"));
    }
    join.nodes_missing.erase(node);
    return absl::OkStatus();
  }
  const std::string id = peers_->IdOf(wanted.name, wanted.address);
  if (const PeerInfo* const info = peers_->FindUp(wanted.name); info != nullptr) {
    if (info->incarnation == wanted.incarnation) {
      join.nodes_missing.erase(node);
      return absl::OkStatus();
    }
    // It has restarted, before or after it registered: asked again, it is one or the other.
    if (join.contacting.count(node) != 0) {
      return absl::UnavailableError(absl::StrCat("node '", wanted.name,
                                                 "' restarted while it joined: incarnation ",
                                                 Hex(wanted.incarnation), " registered, ",
                                                 Hex(info->incarnation), " is there; join again"));
    }
    peers_->Recontact(id, "another incarnation of it has registered");
  }
  if (!join.contacting.insert(node).second) return absl::OkStatus();
  const auto rank = std::find_if(
      join.map->ranks.begin(), join.map->ranks.end(),
      [node](const MappedRank& mapped) { return mapped.node == static_cast<int32_t>(node); });
  const auto number = rank - join.map->ranks.begin();
  loop_->Post([this, id, join_id = join.id, node, number, name = wanted.name] {
    Entry* const waiting = Find(join_id);
    if (waiting == nullptr || waiting->stage != Stage::kPeers) return;
    peers_->Contact(id, [this, join_id, node, number, name](const absl::Status& status) {
      Entry* const join = Find(join_id);
      if (join == nullptr || join->stage != Stage::kPeers) return;
      if (status.ok()) return CheckPeers(join_id);
      const absl::Status why = absl::UnavailableError(
          absl::StrCat("rank ", number, " is on node '", name, "': ", status.message()));
      if (status.code() != absl::StatusCode::kNotFound) {
        return Finish(*join, Prefixed(join->request.key, why));
      }
      // Not in our view yet: that may change.
      join->trouble = why;
      join->contacting.erase(node);
      membership_->Refresh();
    });
  });
  return absl::OkStatus();
}

void Joiner::Finish(Entry& join,
                    const absl::StatusOr<std::shared_ptr<const CommunicatorMap>>& result) {
  loop_->Cancel(join.timer);
  const JoinAcrossDone done = std::move(join.done);
  joins_.erase(join.id);
  done(result);
}

void Joiner::Withdraw(uint64_t id, std::string_view why) {
  Entry* const join = Find(id);
  if (join == nullptr || join->stage == Stage::kPeers) return;  // the others count on it already
  join->withdrawn = true;
  join->reason = std::string(why.substr(0, kReasonBytesMax));
  join->trouble = absl::CancelledError(join->reason);
  if (join->stage == Stage::kTrying) return GiveUp(*join);
  if (join->token != 0) {
    WithdrawHere(join->token, std::string(join->reason));  // the join does not outlive it
    return;
  }
  PeerClient* const client = peers_->ClientOf(join->coordinator);
  if (client == nullptr) return GiveUp(*join);
  v1::WithdrawRequest request;
  *request.mutable_caller() = Identity(*self_);
  request.set_registration(id);
  request.set_reason(join->reason);
  client->Withdraw(request, std::chrono::nanoseconds(kAnswerGraceNs),
                   [](const absl::StatusOr<v1::WithdrawResponse>&) {});
  After(*join, NowNs() + kAnswerGraceNs, &Joiner::GiveUp);
}

void Joiner::OnRendezvous(const RendezvousCall& call) {
  RendezvousKey key;
  Registration registration;
  FromProto(call->request, &key, &registration);
  const int64_t timeout_ns = static_cast<int64_t>(std::min<uint64_t>(call->request.timeout_ms(),
                                                                     kTimeoutMaxNs / 1'000'000)) *
                             1'000'000;
  registration.deadline_ns = NowNs() + timeout_ns;
  if (call->request.revision() != membership_->view().revision) membership_->Refresh();
  const MemberInfo* const coordinator = Coordinator(key);
  if (coordinator == nullptr) {
    return call->Reply(absl::UnavailableError(absl::StrCat(
        "node '", self_->name,
        "' does not see itself among the members: ", MemberList(membership_->view()))));
  }
  const auto moved = [this](const RendezvousCall& to, const RendezvousKey& of) {
    const MemberInfo* const member = Coordinator(of);
    to->response.mutable_moved()->set_coordinator(member == nullptr ? "" : member->id());
    to->response.mutable_moved()->set_revision(membership_->view().revision);
    to->Reply(absl::OkStatus());
  };
  if (!peers_->IsSelf(*coordinator)) {
    // Whether it is there is found out before the caller asks again.
    peers_->Contact(coordinator->id(), [](const absl::Status&) {});
    return moved(call, key);
  }
  const Token token = next_token_++;
  replies_.emplace(token, [call, key, moved](const RendezvousTable::Answer& answer) {
    if (answer.status.code() == absl::StatusCode::kAborted) return moved(call, key);
    if (answer.status.ok()) ToProto(*answer.map, call->response.mutable_map());
    call->Reply(answer.status);
  });
  call->on_cancel = [this, token] {
    WithdrawHere(token, "its node gave up, or the connection to it was lost");
  };
  Deliver(table_.Register(token, key, std::move(registration)));
}

void Joiner::OnWithdraw(const WithdrawCall& call) {
  const v1::PeerIdentity& caller = call->request.caller();
  const uint64_t id = call->request.registration();
  std::string why = call->request.reason().substr(0, kReasonBytesMax);
  if (why.empty()) why = "it was withdrawn";
  const Token token = table_.Find(caller.node(), caller.incarnation(), id);
  const bool withdrawn =
      token != 0 ? WithdrawHere(token, why)
                 : CancelOpenings(
                       [&](const RendezvousTable::Answer& answer) {
                         return answer.registration->id == id &&
                                answer.registration->node == caller.node() &&
                                answer.registration->incarnation == caller.incarnation();
                       },
                       why);
  call->response.set_withdrawn(withdrawn);
  call->Reply(absl::OkStatus());
}

// Whether it waits for the others or, with all of them, for the aggregators.
bool Joiner::WithdrawHere(Token token, std::string_view why) {
  const RendezvousTable::Answers answers = table_.Withdraw(token, why);
  Deliver(answers);
  if (!answers.empty()) return true;
  return CancelOpenings(
      [token](const RendezvousTable::Answer& answer) { return answer.token == token; }, why);
}

void Joiner::WithdrawNode(std::string_view node, uint64_t incarnation, std::string_view why) {
  Deliver(table_.WithdrawNode(node, incarnation, why));
  CancelOpenings(
      [node, incarnation](const RendezvousTable::Answer& answer) {
        return answer.registration->node == node &&
               (incarnation == 0 || answer.registration->incarnation == incarnation);
      },
      why);
}

void Joiner::Deliver(const RendezvousTable::Answers& answers) {
  ArmExpiry();
  // All of one communicator, which the last registration has completed.
  RendezvousTable::Answers complete;
  for (const RendezvousTable::Answer& answer : answers) {
    if (WantsAggregators(answer)) {
      complete.push_back(answer);
    } else {
      Reply(answer);
    }
  }
  if (!complete.empty()) BeginOpening(std::move(complete));
}

void Joiner::Reply(const RendezvousTable::Answer& answer) {
  const auto it = replies_.find(answer.token);
  if (it == replies_.end()) return;
  const auto reply = std::move(it->second);
  replies_.erase(it);
  reply(answer);
}

void Joiner::ArmExpiry() {
  const int64_t next = table_.next_deadline_ns();
  if (expiry_ != 0 && next == expiry_ns_) return;
  loop_->Cancel(std::exchange(expiry_, 0));
  expiry_ns_ = next;
  expiry_ = loop_->At(next, [this] {
    expiry_ = 0;
    Deliver(table_.Expire(NowNs()));
  });
}

void Joiner::Reevaluate() {
  std::map<RendezvousKey, bool> gone;
  Deliver(table_.EndIf(
      [this, &gone](const RendezvousKey& key) {
        const auto [it, is_new] = gone.try_emplace(key, false);
        if (is_new) {
          const MemberInfo* const coordinator = Coordinator(key);
          it->second = coordinator == nullptr || !peers_->IsSelf(*coordinator);
        }
        return it->second;
      },
      absl::AbortedError("its coordinator is another node now")));
  for (const auto& [wire_id, opening] : openings_) {
    loop_->Post([this, wire_id = wire_id] { CheckOpening(wire_id); });
  }
  // Later: this may be in the middle of a change.
  for (auto& [id, join] : joins_) {
    if (join.stage == Stage::kRegistered && join.token == 0 &&
        join.generation != peers_->GenerationOf(join.coordinator)) {
      // Its call ended unheard.
      ++join.attempt;
      join.stage = Stage::kTrying;
      join.trouble = absl::UnavailableError(
          absl::StrCat("coordinator ", join.coordinator, " was lost or has left"));
    }
    if (join.stage == Stage::kTrying) After(join, NowNs(), &Joiner::Try);
    if (join.stage == Stage::kPeers) loop_->Post([this, id = id] { CheckPeers(id); });
  }
}

void Joiner::PeerLost(std::string_view name, uint64_t incarnation, std::string_view why) {
  WithdrawNode(name, incarnation,
               absl::StrCat("its node was lost: ", absl::string_view(why.data(), why.size())));
}

void Joiner::Renewed() {
  for (auto& [id, join] : joins_) {
    if (join.stage == Stage::kPeers) {
      loop_->Post([this, id = id] { CheckPeers(id); });
      join.nodes_missing.insert(0);
      for (size_t i = 0; i < join.map->nodes.size(); ++i) join.nodes_missing.insert(i);
      continue;
    }
    ++join.attempt;
    join.stage = Stage::kTrying;
    After(join, NowNs(), &Joiner::Try);
  }
  WithdrawNode(self_->name, 0, "its node is another incarnation");
}

void Joiner::Stop() {
  const absl::Status stopping =
      absl::UnavailableError(absl::StrCat("shuntd on node '", self_->name, "' is stopping"));
  while (!joins_.empty()) {
    Entry& join = joins_.begin()->second;
    Finish(join, Prefixed(join.request.key, stopping));
  }
  for (auto& [wire_id, opening] : std::exchange(openings_, {})) {
    loop_->Cancel(opening.timer);
    for (const RendezvousTable::Answer& answer : opening.answers) {
      Reply({answer.token, stopping, nullptr});
    }
  }
  Deliver(table_.EndIf([](const RendezvousKey&) { return true; }, stopping));
}

}  // namespace shunt::cluster
