#include "daemon/transfer/remote_sections.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/fnv.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/p2p/section_wire.h"

namespace shunt::daemon {
namespace {

// A node that takes longer is treated as if it were not there.
constexpr auto kAnswerMax = std::chrono::seconds(3);
constexpr size_t kOperationsMax = 256;  // of one tenant: each may ask all nodes
constexpr size_t kLocatedMax = 4096;

std::string Text(const AgentAddress& address) {
  return absl::StrCat("agent \"", Printable(address.agent), address.has_node ? "@" : "",
                      Printable(address.node), "\"");
}

// Never that of this node's own lists, which is 0.
p2p::Space SpaceOf(const std::string& node, uint64_t incarnation) {
  return Fnv1a(incarnation, Fnv1a(node)) | 1;
}

}  // namespace

AgentAddress ParseAgent(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == std::string::npos) return {text, "", false};
  return {text.substr(0, at), text.substr(at + 1), true};
}

void RemoteSections::SetPeers(cluster::AgentPeers* peers) {
  peers_ = peers;
  if (peers != nullptr) return;
  while (!operations_.empty()) {
    Fail(*operations_.begin(), absl::UnavailableError("shuntd is stopping"));
  }
}

void RemoteSections::Fetch(Wanted wanted, Fetched done) {
  auto op = std::make_shared<Operation>();
  op->query = {wanted.tenant, wanted.address.agent, std::move(wanted.section), wanted.read,
               wanted.write};
  op->address = std::move(wanted.address);
  op->failed = done;
  loop_->Post([this, op, done] {
    if (!Begin(op)) return;
    const Found found = [this, op, done](const std::string& node, const NodeAnswer& answer) {
      Take(op, node, answer, /*anew=*/false, done);
    };
    const std::string first = op->address.has_node ? op->address.node : Remembered(*op);
    if (first.empty() && !op->address.has_node) return Search(op, found);
    Ask(op, first, /*anew=*/false, [this, op, first, found](const NodeAnswer& answer) {
      if (op->address.has_node || answer.has_agent()) return found(first, answer);
      Search(op, found);
    });
  });
}

void RemoteSections::Notify(AgentAddress address, cluster::AgentNotice notice, Told done) {
  auto op = std::make_shared<Operation>();
  op->query.uid = notice.uid;
  op->query.agent = address.agent;
  op->address = std::move(address);
  op->failed = done;
  loop_->Post([this, op, notice = std::move(notice), done] {
    if (!Begin(op)) return;
    if (op->address.has_node) return Tell(op, op->address.node, /*may_search=*/false, notice, done);
    const std::string remembered = Remembered(*op);
    if (!remembered.empty()) return Tell(op, remembered, /*may_search=*/true, notice, done);
    Search(op, [this, op, notice, done](const std::string& node, const NodeAnswer&) {
      Tell(op, node, /*may_search=*/false, notice, done);
    });
  });
}

bool RemoteSections::Begin(const OperationPtr& op) {
  operations_.insert(op);
  const size_t running = ++of_tenant_[op->query.uid];
  if (!in_cluster()) {
    Fail(op, absl::NotFoundError(absl::StrCat(
                 Text(op->address), ": this daemon is in no cluster, and knows no other node")));
  } else if (peers_ == nullptr) {
    Fail(op, absl::UnavailableError("shuntd is starting or stopping"));
  } else if (running > kOperationsMax) {
    Fail(op, absl::ResourceExhaustedError(absl::StrCat(Text(op->address), ": user ", op->query.uid,
                                                       " waits for ", kOperationsMax,
                                                       " answers of other nodes, the most")));
  }
  return !op->over;
}

bool RemoteSections::End(const OperationPtr& op) {
  if (std::exchange(op->over, true)) return false;
  const auto tenant = of_tenant_.find(op->query.uid);
  if (--tenant->second == 0) of_tenant_.erase(tenant);
  operations_.erase(op);
  return true;
}

void RemoteSections::Fail(const OperationPtr& op, const absl::Status& why) {
  const OperationPtr held = op;  // it may be the set's own
  if (End(held)) held->failed(why);
}

std::string RemoteSections::Remembered(const Operation& op) const {
  const auto place = located_.find({op.query.uid, op.query.agent});
  if (place == located_.end() || peers_->UpIncarnation(place->second) == 0) return "";
  return place->second;
}

void RemoteSections::Search(const OperationPtr& op, Found found) {
  AgentSearch::Run(
      Text(op->address), peers_->OtherNodes(),
      [this, op](const std::string& node, std::function<void(NodeAnswer)> then) {
        Ask(op, node, /*anew=*/false, std::move(then));
      },
      [this, op, found = std::move(found)](const std::string& node, const NodeAnswer& answer) {
        if (op->over) return;
        if (!answer.has_agent()) return Fail(op, answer.answer.status());
        if (located_.size() >= kLocatedMax) located_.clear();
        located_[{op->query.uid, op->query.agent}] = node;
        found(node, answer);
      });
}

void RemoteSections::Ask(const OperationPtr& op, const std::string& node, bool anew,
                         std::function<void(NodeAnswer)> then) {
  cluster::SectionQuery query = op->query;
  std::shared_ptr<const Published> known;
  if (!anew && !query.section.empty()) known = cache_.Find(KeyOf(*op, node));
  if (known != nullptr) {
    query.known_incarnation = known->incarnation();
    query.known_version = known->version();
  }
  peers_->FetchSection(
      node, query, kAnswerMax,
      [op, known, then = std::move(then)](const absl::StatusOr<cluster::SectionAnswer>& answer,
                                          uint64_t incarnation) {
        if (!op->over) then({answer, incarnation, known});
      });
}

SectionCache::Key RemoteSections::KeyOf(const Operation& op, const std::string& node) const {
  return {node, peers_->UpIncarnation(node), op.query.agent, op.query.section, op.query.uid};
}

void RemoteSections::Take(const OperationPtr& op, const std::string& node, const NodeAnswer& answer,
                          bool anew, const Fetched& done) {
  if (!answer.answer.ok()) return Fail(op, answer.answer.status());
  if (answer.answer->kind == cluster::SectionAnswer::Kind::kNoSection) {
    return Fail(op,
                absl::NotFoundError(absl::StrCat("node '", node, "': ", answer.answer->content)));
  }
  const auto made = Make(*op, node, answer);
  if (!made.ok() && answer.known != nullptr && !anew) {
    return Ask(op, node, /*anew=*/true, [this, op, node, done](const NodeAnswer& whole) {
      Take(op, node, whole, /*anew=*/true, done);
    });
  }
  if (!made.ok()) {
    return Fail(op, absl::InternalError(
                        absl::StrCat("node '", node, "': section \"", Printable(op->query.section),
                                     "\" that it sent is wrong: ", made.status().message())));
  }
  if (End(op)) done(made);
}

absl::StatusOr<std::shared_ptr<const Published>> RemoteSections::Make(const Operation& op,
                                                                      const std::string& node,
                                                                      const NodeAnswer& from) {
  using Kind = cluster::SectionAnswer::Kind;
  const cluster::SectionAnswer& answer = *from.answer;
  auto fresh = std::make_shared<Published>();
  fresh->owner = {0, op.query.uid};
  fresh->agent = op.query.agent;
  fresh->grant = {answer.read, answer.write, {}};
  fresh->node = node;
  fresh->node_incarnation = from.incarnation;
  if (answer.kind == Kind::kUnchanged && from.known != nullptr &&
      from.known->node_incarnation == from.incarnation) {
    fresh->list = from.known->list;
  } else {
    p2p::Section section;
    if (answer.kind == Kind::kWhole) {
      SHUNT_ASSIGN_OR_RETURN(section, p2p::DecodeSection(answer.content));
    } else if (from.known == nullptr) {
      return absl::InvalidArgumentError("a change of a section that is not here");
    } else if (answer.kind == Kind::kDelta) {
      SHUNT_ASSIGN_OR_RETURN(section, p2p::ApplyDelta(from.known->list->section(), answer.content));
    } else {
      section = from.known->list->section();
    }
    if (section.name != op.query.section || section.incarnation != answer.agent_incarnation ||
        section.version != answer.version) {
      return absl::InvalidArgumentError(
          absl::StrCat("it is version ", section.version, " of \"", Printable(section.name),
                       "\" of incarnation ", absl::Hex(section.incarnation), ", expected version ",
                       answer.version, " of \"", Printable(op.query.section), "\" of ",
                       absl::Hex(answer.agent_incarnation)));
    }
    SHUNT_ASSIGN_OR_RETURN(fresh->list, p2p::PreparedList::Prepare(
                                            std::move(section), SpaceOf(node, from.incarnation)));
  }
  return cache_.Put({node, from.incarnation, op.query.agent, op.query.section, op.query.uid},
                    std::move(fresh));
}

void RemoteSections::Tell(const OperationPtr& op, const std::string& node, bool may_search,
                          const cluster::AgentNotice& notice, const Told& done) {
  peers_->NotifyAgent(
      node, notice, kAnswerMax, [this, op, may_search, notice, done](const absl::Status& status) {
        if (op->over) return;
        if (may_search && absl::IsNotFound(status)) {
          return Search(op, [this, op, notice, done](const std::string& there, const NodeAnswer&) {
            Tell(op, there, /*may_search=*/false, notice, done);
          });
        }
        if (End(op)) done(status);
      });
}

}  // namespace shunt::daemon
