// Aggregators of a communicator: opened by its coordinator before anybody hears of them, so that
// all nodes have the same list and every one of it is ready.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/joiner.h"
#include "daemon/cluster/messages.h"
#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

constexpr char kAggregated[] = "aggregated";
// An aggregator that does not answer is left out: the join goes on without it.
constexpr int64_t kOpenNs = 500'000'000;
// Who asks for aggregators by name waits so long for the cluster to be whole.
constexpr int64_t kGreetingNs = 2'000'000'000;

}  // namespace

bool Joiner::WantsAggregators(const RendezvousTable::Answer& answer) const {
  if (!answer.status.ok() || answer.map == nullptr || answer.map->nodes.size() < 2 ||
      answer.registration->terms.deterministic) {
    return false;
  }
  if (answer.registration->terms.algorithm == kAggregated) return true;
  return answer.registration->terms.algorithm.empty() && !peers_->Aggregators().empty();
}

void Joiner::BeginOpening(RendezvousTable::Answers answers) {
  const uint64_t wire_id = answers.front().map->wire_id;
  Opening& opening = openings_[wire_id];
  opening.answers = std::move(answers);
  if (opening.answers.front().registration->terms.algorithm == kAggregated && peers_->Greeting()) {
    int64_t until_ns = NowNs() + kGreetingNs;
    for (const RendezvousTable::Answer& answer : opening.answers) {
      until_ns = std::min(until_ns, answer.registration->deadline_ns);
    }
    opening.timer = loop_->At(until_ns, [this, wire_id] {
      const auto it = openings_.find(wire_id);
      if (it == openings_.end() || it->second.asked) return;
      it->second.timer = 0;
      AskAggregators(wire_id);
    });
    return;
  }
  AskAggregators(wire_id);
}

void Joiner::AskAggregators(uint64_t wire_id) {
  Opening& opening = openings_.at(wire_id);
  loop_->Cancel(std::exchange(opening.timer, 0));
  opening.asked = true;
  const std::shared_ptr<const CommunicatorMap> map = opening.answers.front().map;
  for (const PeerInfo* const peer : peers_->Aggregators()) {
    if (opening.candidates.size() == kAggregatorsMax) break;
    opening.candidates.push_back(
        {{peer->name, peer->incarnation, peer->control_address}, std::nullopt});
  }
  if (opening.candidates.empty()) return FinishOpening(wire_id);
  v1::OpenSpanRequest request;
  ToProto(*map, &request);
  *request.mutable_caller() = Identity(*self_);
  for (size_t i = 0; i < opening.candidates.size(); ++i) {
    const MappedNode& node = opening.candidates[i].node;
    PeerClient* const client = peers_->ClientOf(peers_->IdOf(node.name, node.address));
    client->OpenSpan(request, std::chrono::nanoseconds(kOpenNs),
                     [this, wire_id, i](const absl::StatusOr<v1::OpenSpanResponse>& answer) {
                       const auto it = openings_.find(wire_id);
                       if (it == openings_.end()) return;
                       it->second.candidates[i].said = answer.status();
                       CheckOpening(wire_id);
                     });
  }
}

void Joiner::CheckOpening(uint64_t wire_id) {
  const auto it = openings_.find(wire_id);
  if (it == openings_.end()) return;
  Opening& opening = it->second;
  if (!opening.asked) {
    if (!peers_->Greeting()) AskAggregators(wire_id);
    return;
  }
  bool all = true;
  for (Opening::Candidate& candidate : opening.candidates) {
    // Calls end by their timeout, but those to a peer that is lost may end unheard.
    const PeerInfo* const info = peers_->FindUp(candidate.node.name);
    if (!candidate.said.has_value() &&
        (info == nullptr || info->incarnation != candidate.node.incarnation)) {
      candidate.said = absl::UnavailableError("it was lost");
    }
    all = all && candidate.said.has_value();
  }
  if (all) FinishOpening(wire_id);
}

void Joiner::FinishOpening(uint64_t wire_id) {
  auto found = openings_.extract(wire_id);
  Opening& opening = found.mapped();
  loop_->Cancel(opening.timer);
  auto map = std::make_shared<CommunicatorMap>(*opening.answers.front().map);
  std::string why;
  for (const Opening::Candidate& candidate : opening.candidates) {
    if (candidate.said->ok()) {
      map->aggregators.push_back(candidate.node);
    } else {
      const bool silent = candidate.said->code() == absl::StatusCode::kDeadlineExceeded;
      absl::StrAppend(&why, "; aggregator '", candidate.node.name, "' is not ready: ",
                      silent ? "it did not answer in time" : candidate.said->message());
    }
  }
  absl::Status status;
  if (map->aggregators.empty() &&
      opening.answers.front().registration->terms.algorithm == kAggregated) {
    status = absl::FailedPreconditionError(absl::StrCat(
        Words(opening.answers.front().key),
        ": algorithm \"aggregated\" needs an aggregator, and this cluster has none that is up", why,
        "; expected a shuntd with cluster.role = \"aggregator\""));
  }
  for (RendezvousTable::Answer& answer : opening.answers) {
    answer.status = status;
    answer.map = status.ok() ? map : nullptr;
    Reply(answer);
  }
}

bool Joiner::CancelOpenings(const std::function<bool(const RendezvousTable::Answer&)>& pred,
                            std::string_view why) {
  // Out of the list before anybody is told: who is may join or withdraw at once.
  std::vector<RendezvousTable::Answers> ended;
  for (auto it = openings_.begin(); it != openings_.end();) {
    Opening& opening = it->second;
    bool ends = false;
    for (const RendezvousTable::Answer& answer : opening.answers) {
      if (!pred(answer)) continue;
      ends = true;
      table_.NoteGone(answer.key, *answer.registration, why);
    }
    if (!ends) {
      ++it;
      continue;
    }
    loop_->Cancel(opening.timer);
    ended.push_back(std::move(opening.answers));
    it = openings_.erase(it);
  }
  for (const RendezvousTable::Answers& answers : ended) {
    const absl::Status status = absl::CancelledError(
        absl::StrCat(Words(answers.front().key), ": ", absl::string_view(why.data(), why.size())));
    for (const RendezvousTable::Answer& answer : answers) Reply({answer.token, status, nullptr});
  }
  return !ended.empty();
}

// An aggregator that cannot be reached from here is none for the communicator, which the engines
// find out; this only spares them that where it is about to come up.
void Joiner::ContactAggregators(Entry& join) {
  for (size_t i = 0; i < join.map->aggregators.size(); ++i) {
    const MappedNode& wanted = join.map->aggregators[i];
    const PeerInfo* const info = peers_->FindUp(wanted.name);
    if (info != nullptr && info->incarnation == wanted.incarnation) continue;
    join.aggregators_missing.insert(i);
    loop_->Post([this, join_id = join.id, i, id = peers_->IdOf(wanted.name, wanted.address)] {
      peers_->Contact(id, [this, join_id, i](const absl::Status&) {
        Entry* const join = Find(join_id);
        if (join == nullptr || join->stage != Stage::kPeers) return;
        join->aggregators_missing.erase(i);
        CheckPeers(join_id);
      });
    });
  }
}

}  // namespace shunt::cluster
