// What is asked of this node's agents from elsewhere.
#include <utility>

#include "daemon/transfer/agent_table.h"
#include "daemon/transfer/store_regions.h"
#include "runtime/core/status.h"
#include "runtime/p2p/section_wire.h"

namespace shunt::daemon {

absl::StatusOr<cluster::SectionAnswer> AgentTable::Answer(const cluster::SectionQuery& query) {
  using Kind = cluster::SectionAnswer::Kind;
  cluster::SectionAnswer answer;
  std::shared_ptr<Published> published;
  std::shared_ptr<const p2p::Section> known;
  {
    const std::lock_guard lock(mutex_);
    const std::string* const section = query.section.empty() ? nullptr : &query.section;
    const Agent* const agent = FindLocked(query.uid, query.agent, section);
    if (agent == nullptr) return NoAgent(query.uid, query.agent);
    answer.agent_incarnation = agent->incarnation;
    const auto place = agent->sections.find(query.section);
    if (place == agent->sections.end()) {
      if (section != nullptr)
        answer.content = std::string(NoSection(*agent, query.section).message());
      return answer;
    }
    published = place->second;
    if (query.known_incarnation == agent->incarnation) {
      known = agent->history.Find(query.section, query.known_version);
    }
  }
  for (const bool write : {false, true}) {
    if (write ? !query.write : !query.read) continue;
    SHUNT_RETURN_IF_ERROR(published->CheckAccess(query.uid, write));
  }
  SHUNT_RETURN_IF_ERROR(published->CheckElsewhere());
  answer.version = published->version();
  answer.read = published->grant.read;
  answer.write = published->grant.write;
  published->fetched_elsewhere.store(true, std::memory_order_relaxed);
  if (query.known_incarnation == answer.agent_incarnation &&
      query.known_version == answer.version) {
    answer.kind = Kind::kUnchanged;
    return answer;
  }
  const p2p::Section& now = published->list->section();
  answer.kind = Kind::kWhole;
  answer.content = p2p::EncodeSection(now);
  if (known == nullptr || known->version > now.version) return answer;
  std::string delta = p2p::EncodeDelta(*known, now);
  if (delta.size() < answer.content.size()) {
    answer.kind = Kind::kDelta;
    answer.content = std::move(delta);
  }
  return answer;
}

absl::Status AgentTable::Deliver(const cluster::AgentNotice& notice, bool* has_agent) {
  const absl::StatusOr<std::shared_ptr<Inbox>> inbox = FindInbox(notice.uid, notice.agent);
  if (has_agent != nullptr) *has_agent = inbox.ok();
  if (!inbox.ok()) return inbox.status();
  SHUNT_RETURN_IF_ERROR((*inbox)->Reserve(notice.agent));
  (*inbox)->Put({notice.from, notice.payload});
  return absl::OkStatus();
}

}  // namespace shunt::daemon
