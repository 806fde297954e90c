#include "daemon/transfer/agent_search.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace shunt::daemon {
namespace {

constexpr size_t kNamedMax = 3;

// "a; b; c and 4 more".
std::string Some(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size() && i < kNamedMax; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "; ", words[i]);
  }
  if (words.size() > kNamedMax) absl::StrAppend(&text, " and ", words.size() - kNamedMax, " more");
  return text;
}

}  // namespace

void AgentSearch::Run(const std::string& agent, const std::vector<cluster::OtherNode>& nodes,
                      const Ask& ask, Done done) {
  const auto search = std::make_shared<AgentSearch>();
  search->agent_ = agent;
  search->done_ = std::move(done);
  for (const cluster::OtherNode& node : nodes) {
    if (node.up) {
      search->asked_.push_back(node.name);
    } else {
      search->absent_.push_back(node.why.empty() ? absl::StrCat("node '", node.name, "'")
                                                 : node.why);
    }
  }
  search->answers_.resize(search->asked_.size());
  for (size_t i = 0; i < search->asked_.size(); ++i) {
    ask(search->asked_[i], [search, i](NodeAnswer answer) {
      search->answers_[i] = std::move(answer);
      search->Advance();
    });
  }
  search->Advance();
}

void AgentSearch::Advance() {
  if (done_ == nullptr) return;
  for (; next_ < answers_.size() && answers_[next_].has_value(); ++next_) {
    if (!answers_[next_]->has_agent()) continue;
    const Done done = std::exchange(done_, nullptr);
    return done(asked_[next_], *answers_[next_]);
  }
  if (next_ < answers_.size()) return;
  NodeAnswer none;
  none.answer = Nowhere();
  const Done done = std::exchange(done_, nullptr);
  done("", none);
}

absl::Status AgentSearch::Nowhere() const {
  std::vector<std::string> silent;
  for (const std::optional<NodeAnswer>& answer : answers_) {
    if (!absl::IsNotFound(answer->answer.status())) {
      silent.emplace_back(answer->answer.status().message());
    }
  }
  std::string words =
      absl::StrCat(agent_, ": there is none by that name that the user may know of on this node, ");
  if (asked_.empty()) {
    absl::StrAppend(&words, "and no other node is up to be asked");
  } else {
    absl::StrAppend(&words, "nor on the ", asked_.size(), asked_.size() == 1 ? " other" : " others",
                    " that ", asked_.size() == 1 ? "was" : "were", " asked");
  }
  if (!silent.empty()) {
    absl::StrAppend(&words, ", of which ", silent.size(), " gave no answer: ", Some(silent));
  }
  if (!absent_.empty()) absl::StrAppend(&words, "; not up, and not asked: ", Some(absent_));
  return absl::NotFoundError(words);
}

}  // namespace shunt::daemon
