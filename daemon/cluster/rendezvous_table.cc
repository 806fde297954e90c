#include "daemon/cluster/rendezvous_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/rendezvous_words.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::cluster {
namespace {

constexpr size_t kNameBytesMax = 128;
constexpr size_t kAlgorithmBytesMax = 64;

absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

std::string GoneWords(std::string_view node, const RankInfo& rank, std::string_view why) {
  return absl::StrCat(RankWords(node, rank), " came and went: ", AbslView(why));
}

}  // namespace

std::string DifferingTerm(const JoinTerms& terms, const JoinTerms& other) {
  if (terms.world_size != other.world_size) return absl::StrCat("world size ", terms.world_size);
  if (terms.algorithm != other.algorithm) {
    return terms.algorithm.empty() ? "no algorithm of its choice"
                                   : absl::StrCat("algorithm ", terms.algorithm);
  }
  if (terms.deterministic != other.deterministic) {
    return terms.deterministic ? "deterministic results" : "no deterministic results";
  }
  return terms.device ? "GPU memory (device)" : "host memory alone (no device)";
}

struct RendezvousTable::Waiting {
  JoinTerms terms;
  std::map<Token, Registration> registrations;
  std::map<int32_t, Token> ranks;
  std::map<int32_t, std::string> withdrawn;  // who came for a rank and why it went
};

struct RendezvousTable::Record {
  uint64_t epochs = 0;
  std::unique_ptr<Waiting> waiting;
  std::map<int32_t, std::string> gone;  // Waiting::withdrawn of those who will wait
  bool is_idle = false;
  std::list<RendezvousKey>::iterator idle;
};

RendezvousTable::RendezvousTable(Limits limits, std::function<uint64_t()> random)
    : limits_(limits), random_(std::move(random)) {}
RendezvousTable::~RendezvousTable() = default;

absl::Status RendezvousTable::Check(const RendezvousKey& key,
                                    const Registration& registration) const {
  SHUNT_RETURN_IF_ERROR(CheckText("communicator name", key.name, 1, kNameBytesMax));
  SHUNT_RETURN_IF_ERROR(CheckText("job", key.job, 0, kNameBytesMax));
  SHUNT_RETURN_IF_ERROR(
      CheckText("algorithm", registration.terms.algorithm, 0, kAlgorithmBytesMax));
  const int32_t world = registration.terms.world_size;
  if (world < 1 || world > limits_.world_size_max) {
    return absl::InvalidArgumentError(absl::StrCat(Words(key), ": world size ", world,
                                                   "; expected 1 to ", limits_.world_size_max));
  }
  if (registration.ranks.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Words(key), ": node ", registration.node, " registers no rank"));
  }
  std::vector<int32_t> seen;
  for (const RankInfo& rank : registration.ranks) {
    SHUNT_RETURN_IF_ERROR(CheckText("session name", rank.session, 0, kNameBytesMax));
    if (rank.rank < 0 || rank.rank >= world) {
      return absl::InvalidArgumentError(absl::StrCat(Words(key), ": ",
                                                     RankWords(registration.node, rank),
                                                     "; expected a rank from 0 to ", world - 1));
    }
    seen.push_back(rank.rank);
  }
  std::sort(seen.begin(), seen.end());
  const auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice != seen.end()) {
    return absl::InvalidArgumentError(absl::StrCat(Words(key), ": node ", registration.node,
                                                   " registers rank ", *twice, " twice at once"));
  }
  const auto node = of_node_.find(registration.node);
  if (node != of_node_.end() && node->second.size() >= limits_.waiting_per_node_max) {
    return absl::ResourceExhaustedError(absl::StrCat("node ", registration.node, " waits in ",
                                                     node->second.size(),
                                                     " registrations, the most it may"));
  }
  return absl::OkStatus();
}

// Against those who wait already.
absl::Status RendezvousTable::Admit(const Waiting& waiting, const RendezvousKey& key,
                                    const Registration& registration) const {
  const auto words = [&](const RankInfo& rank) { return RankWords(registration.node, rank); };
  if (!waiting.registrations.empty() && waiting.terms != registration.terms) {
    const Registration& other = waiting.registrations.begin()->second;
    return absl::FailedPreconditionError(
        absl::StrCat(Words(key), ": ", words(registration.ranks[0]), " joins with ",
                     DifferingTerm(registration.terms, other.terms), ", but ",
                     RankWords(other.node, other.ranks[0]), " joins with ",
                     DifferingTerm(other.terms, registration.terms)));
  }
  for (const RankInfo& rank : registration.ranks) {
    const auto taken = waiting.ranks.find(rank.rank);
    if (taken == waiting.ranks.end()) continue;
    const Registration& other = waiting.registrations.at(taken->second);
    const RankInfo& holder =
        *std::find_if(other.ranks.begin(), other.ranks.end(),
                      [&rank](const RankInfo& info) { return info.rank == rank.rank; });
    return absl::AlreadyExistsError(
        absl::StrCat(Words(key), ": ", words(rank), " cannot join: it is taken by ",
                     RankWords(other.node, holder), ", which waits for the others to join"));
  }
  return absl::OkStatus();
}

RendezvousTable::Answers RendezvousTable::Register(Token token, const RendezvousKey& key,
                                                   Registration registration) {
  Answers answers;
  if (absl::Status status = Check(key, registration); !status.ok()) {
    answers.push_back({token, std::move(status), nullptr});
    return answers;
  }
  // What an earlier incarnation of the node left, and this registration's own earlier try.
  answers = WithdrawWhere(
      registration.node,
      [&registration](uint64_t incarnation) { return incarnation != registration.incarnation; },
      "its node restarted");
  if (const Token earlier = Find(registration.node, registration.incarnation, registration.id)) {
    Remove(earlier, "");
    answers.push_back({earlier, absl::CancelledError("the node registered again"), nullptr});
  }
  const auto record = records_.try_emplace(key).first;
  if (record->second.is_idle) {
    idle_.erase(record->second.idle);
    record->second.is_idle = false;
  }
  if (record->second.waiting == nullptr) {
    record->second.waiting = std::make_unique<Waiting>();
    record->second.waiting->withdrawn = std::exchange(record->second.gone, {});
  }
  Waiting& waiting = *record->second.waiting;
  if (absl::Status status = Admit(waiting, key, registration); !status.ok()) {
    answers.push_back({token, std::move(status), nullptr});
    Settle(record);
    return answers;
  }
  waiting.terms = registration.terms;
  for (const RankInfo& rank : registration.ranks) {
    waiting.ranks.emplace(rank.rank, token);
    waiting.withdrawn.erase(rank.rank);
  }
  keys_.emplace(token, key);
  deadlines_.emplace(std::pair(registration.deadline_ns, token), true);
  of_node_[registration.node].emplace(std::pair(registration.incarnation, registration.id), token);
  waiting.registrations.emplace(token, std::move(registration));
  if (static_cast<int32_t>(waiting.ranks.size()) == waiting.terms.world_size)
    Complete(record, &answers);
  return answers;
}

void RendezvousTable::Complete(Records::iterator record, Answers* answers) {
  const Waiting& waiting = *record->second.waiting;
  auto map = std::make_shared<CommunicatorMap>();
  do map->wire_id = random_();
  while (map->wire_id == 0);
  uint64_t known = record->second.epochs;
  std::map<std::string_view, int32_t> index_of;
  map->ranks.resize(static_cast<size_t>(waiting.terms.world_size));
  for (const auto& [number, token] : waiting.ranks) {
    const Registration& registration = waiting.registrations.at(token);
    known = std::max(known, registration.known_epoch);
    map->link = Worst(map->link, registration.link);
    const auto [node, is_new] =
        index_of.emplace(registration.node, static_cast<int32_t>(map->nodes.size()));
    if (is_new)
      map->nodes.push_back({registration.node, registration.incarnation, registration.address});
    for (const RankInfo& rank : registration.ranks) {
      if (rank.rank == number) map->ranks[number] = {node->second, rank.pid, rank.session};
    }
  }
  map->warm = known > 0;
  map->epoch = known + 1;
  record->second.epochs = map->epoch;
  const RendezvousKey key = record->first;
  const size_t first = answers->size();
  for (const auto& [token, registration] : waiting.registrations) {
    answers->push_back(
        {token, absl::OkStatus(), map, key, std::make_shared<const Registration>(registration)});
  }
  for (size_t i = first; i < answers->size(); ++i) Remove((*answers)[i].token, "");
}

void RendezvousTable::Remove(Token token, std::string_view why) {
  const auto key = keys_.find(token);
  SHUNT_CHECK(key != keys_.end());
  const auto record = records_.find(key->second);
  Waiting& waiting = *record->second.waiting;
  const auto it = waiting.registrations.find(token);
  const Registration& registration = it->second;
  for (const RankInfo& rank : registration.ranks) {
    waiting.ranks.erase(rank.rank);
    if (!why.empty()) waiting.withdrawn[rank.rank] = GoneWords(registration.node, rank, why);
  }
  deadlines_.erase(std::pair(registration.deadline_ns, token));
  const auto node = of_node_.find(registration.node);
  node->second.erase(std::pair(registration.incarnation, registration.id));
  if (node->second.empty()) of_node_.erase(node);
  waiting.registrations.erase(it);
  keys_.erase(key);
  Settle(record);
}

// Nobody waits for it any more: it becomes a record of how often it was joined, or nothing.
void RendezvousTable::Settle(Records::iterator record) {
  if (record->second.waiting != nullptr && !record->second.waiting->registrations.empty()) return;
  record->second.waiting = nullptr;
  if (record->second.epochs == 0) {
    records_.erase(record);
    return;
  }
  record->second.is_idle = true;
  record->second.idle = idle_.insert(idle_.end(), record->first);
  if (idle_.size() > limits_.records_max) {
    records_.erase(idle_.front());
    idle_.pop_front();
  }
}

RendezvousTable::Answers RendezvousTable::Withdraw(Token token, std::string_view why) {
  const auto key = keys_.find(token);
  if (key == keys_.end()) return {};
  const std::string words = absl::StrCat(Words(key->second), ": ", AbslView(why));
  Remove(token, why);
  return {{token, absl::CancelledError(words), nullptr}};
}

void RendezvousTable::NoteGone(const RendezvousKey& key, const Registration& registration,
                               std::string_view why) {
  const auto it = records_.find(key);
  if (it == records_.end()) return;
  Record& record = it->second;
  auto& gone = record.waiting == nullptr ? record.gone : record.waiting->withdrawn;
  for (const RankInfo& rank : registration.ranks) {
    const bool is_back = record.waiting != nullptr && record.waiting->ranks.contains(rank.rank);
    if (!is_back) gone[rank.rank] = GoneWords(registration.node, rank, why);
  }
}

RendezvousTable::Answers RendezvousTable::WithdrawNode(std::string_view node, uint64_t incarnation,
                                                       std::string_view why) {
  return WithdrawWhere(
      node, [incarnation](uint64_t x) { return incarnation == 0 || x == incarnation; }, why);
}

RendezvousTable::Answers RendezvousTable::WithdrawWhere(
    std::string_view node, const std::function<bool(uint64_t)>& incarnation, std::string_view why) {
  Answers answers;
  const auto waiting = of_node_.find(node);
  if (waiting == of_node_.end()) return answers;
  std::vector<Token> tokens;
  for (const auto& [registration, token] : waiting->second) {
    if (incarnation(registration.first)) tokens.push_back(token);
  }
  for (const Token token : tokens) {
    Answers withdrawn = Withdraw(token, why);
    answers.insert(answers.end(), withdrawn.begin(), withdrawn.end());
  }
  return answers;
}

RendezvousTable::Answers RendezvousTable::Expire(int64_t now_ns) {
  Answers answers;
  // The words of all first: who goes with the same deadline is not missing for the others.
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first.first <= now_ns; ++it) {
    const Token token = it->first.second;
    const RendezvousKey& key = keys_.at(token);
    const Waiting& waiting = *records_.at(key).waiting;
    const size_t world = static_cast<size_t>(waiting.terms.world_size);
    answers.push_back(
        {token,
         absl::DeadlineExceededError(absl::StrCat(
             Words(key), ": ", waiting.ranks.size(), " of ", world,
             " ranks joined in time; missing ",
             waiting.ranks.size() + 1 == world ? "rank " : "ranks ", Missing(waiting))),
         nullptr});
  }
  for (const Answer& answer : answers) Remove(answer.token, "its deadline passed");
  return answers;
}

RendezvousTable::Answers RendezvousTable::EndIf(
    const std::function<bool(const RendezvousKey&)>& pred, const absl::Status& status) {
  Answers answers;
  for (const auto& [token, key] : keys_) {
    if (pred(key)) answers.push_back({token, status, nullptr});
  }
  for (const Answer& answer : answers) Remove(answer.token, "");
  return answers;
}

int64_t RendezvousTable::next_deadline_ns() const {
  return deadlines_.empty() ? kNeverNs : deadlines_.begin()->first.first;
}

RendezvousTable::Token RendezvousTable::Find(std::string_view node, uint64_t incarnation,
                                             uint64_t id) const {
  const auto waiting = of_node_.find(node);
  if (waiting == of_node_.end()) return 0;
  const auto it = waiting->second.find(std::pair(incarnation, id));
  return it == waiting->second.end() ? 0 : it->second;
}

std::string RendezvousTable::Missing(const Waiting& waiting) const {
  return MissingRanks(
      waiting.terms.world_size, [&waiting](int32_t rank) { return waiting.ranks.count(rank) != 0; },
      waiting.withdrawn);
}

}  // namespace shunt::cluster
