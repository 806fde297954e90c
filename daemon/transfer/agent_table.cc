#include "daemon/transfer/agent_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/event_signal.h"
#include "daemon/gpu/device_mover.h"
#include "daemon/session_table.h"
#include "daemon/transfer/store_regions.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::daemon {
namespace {

constexpr size_t kAgentNameBytesMax = 255;
constexpr size_t kSectionsMax = 1024;  // of one agent

}  // namespace

absl::Status CheckAgentName(const std::string& name) {
  if (!name.empty() && name.size() <= kAgentNameBytesMax && Printable(name) == name &&
      name.find_first_of("/@") == std::string::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "agent name \"", Printable(name), "\" of ", name.size(), " bytes: expected 1 to ",
      kAgentNameBytesMax, " printable ones without \"/\" and \"@\""));
}

namespace {

bool Grants(const Published& published, uint32_t tenant) {
  return published.owner.tenant == tenant ||
         std::find(published.grant.tenants.begin(), published.grant.tenants.end(), tenant) !=
             published.grant.tenants.end();
}

std::string Text(const Published& published) {
  return absl::StrCat("section \"", Printable(published.section()), "\" of agent \"",
                      published.agent, "\"");
}

}  // namespace

absl::Status Published::CheckCurrent() const {
  const uint64_t by = replaced_by.load(std::memory_order_acquire);
  if (by == 0) return absl::OkStatus();
  std::string why;
  if (by == kAgentEnded) {
    why = absl::StrCat("the agent has ended (it was incarnation ", absl::Hex(incarnation()), ")");
  } else if (by == kWithdrawn) {
    why = "it was withdrawn";
  } else {
    why = absl::StrCat("it is version ", by, " now, and version ", version(), " was fetched");
  }
  return absl::FailedPreconditionError(absl::StrCat(Text(*this), ": ", why, "; fetch it again"));
}

absl::Status Published::CheckElsewhere() const {
  const p2p::Space space = list->space();
  if (space != kStoreSpace && space != kDeviceSpace) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      Text(*this), ": it is of ", space == kDeviceSpace ? "GPU memory" : "files or objects",
      ", which agents of their own node alone can read and write"));
}

absl::Status Published::CheckAccess(uint32_t tenant, bool write) const {
  if (Grants(*this, tenant) && (write ? grant.write : grant.read)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(Text(*this), ": published for ",
                   grant.read ? (grant.write ? "reading and writing" : "reading") : "writing",
                   ", not for ", write ? "writing" : "reading", " by user ", tenant));
}

absl::Status Inbox::Reserve(const std::string& agent) {
  const std::lock_guard lock(mutex_);
  if (ended_) return absl::NotFoundError(absl::StrCat("agent \"", agent, "\" has ended"));
  if (waiting_.size() + reserved_ >= kWaitingMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "agent \"", agent, "\" has ", waiting_.size(), " notifications that it did not take, and ",
        reserved_, " are on their way; at most ", kWaitingMax, " may wait"));
  }
  ++reserved_;
  return absl::OkStatus();
}

void Inbox::GiveBack() {
  const std::lock_guard lock(mutex_);
  --reserved_;
}

void Inbox::Put(Notification notification) {
  std::function<void()> ready;
  {
    const std::lock_guard lock(mutex_);
    --reserved_;
    if (ended_) return;
    waiting_.push_back(std::move(notification));
    ready = std::exchange(ready_, nullptr);
    if (event_.valid()) SignalClientEventFd(event_.get());
  }
  if (ready) ready();
}

std::vector<Notification> Inbox::Take(size_t max, bool* more) {
  const std::lock_guard lock(mutex_);
  std::vector<Notification> taken;
  while (taken.size() < max && !waiting_.empty()) {
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  *more = !waiting_.empty();
  return taken;
}

void Inbox::WhenSome(std::function<void()> ready) {
  std::function<void()> earlier;
  {
    const std::lock_guard lock(mutex_);
    earlier = std::exchange(ready_, nullptr);
    if (waiting_.empty() && !ended_) ready_ = std::exchange(ready, nullptr);
  }
  if (earlier) earlier();
  if (ready) ready();
}

void Inbox::SetEvent(UniqueFd event) {
  const std::lock_guard lock(mutex_);
  event_ = std::move(event);
  if (!waiting_.empty()) SignalClientEventFd(event_.get());
}

void Inbox::End() {
  std::function<void()> ready;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    waiting_.clear();
    ready = std::exchange(ready_, nullptr);
    event_.Reset();
  }
  if (ready) ready();
}

absl::StatusOr<uint64_t> AgentTable::Register(memory::Owner owner, const std::string& name) {
  SHUNT_RETURN_IF_ERROR(CheckAgentName(name));
  const std::lock_guard lock(mutex_);
  if (const auto own = by_session_.find(owner.session); own != by_session_.end()) {
    return absl::AlreadyExistsError(absl::StrCat("agent \"", name, "\": this session is agent \"",
                                                 own->second->name, "\" already"));
  }
  const auto [first, last] = by_name_.equal_range(name);
  for (auto it = first; it != last; ++it) {
    if (it->second->owner.tenant != owner.tenant) continue;
    return absl::AlreadyExistsError(absl::StrCat("agent \"", name, "\": session ",
                                                 it->second->owner.session, " of user ",
                                                 owner.tenant, " has this name"));
  }
  auto agent = std::make_unique<Agent>();
  agent->owner = owner;
  agent->name = name;
  while (agent->incarnation == 0) agent->incarnation = RandomNumber();
  const uint64_t incarnation = agent->incarnation;
  by_name_.emplace(name, agent.get());
  by_session_.emplace(owner.session, std::move(agent));
  return incarnation;
}

absl::StatusOr<std::shared_ptr<const Published>> AgentTable::Publish(uint64_t session,
                                                                     p2p::Section section,
                                                                     p2p::Space space,
                                                                     Grant grant) {
  auto published = std::make_shared<Published>();
  published->grant = std::move(grant);
  {
    const std::lock_guard lock(mutex_);
    const auto own = by_session_.find(session);
    if (own == by_session_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("section \"", Printable(section.name),
                       "\": this session is no agent; register one first"));
    }
    Agent& agent = *own->second;
    if (agent.sections.size() >= kSectionsMax && !agent.sections.contains(section.name)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("agent \"", agent.name, "\" has ", kSectionsMax, " sections, the most"));
    }
    section.incarnation = agent.incarnation;
    if (section.name.size() > p2p::kSectionNameBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("section name of ", section.name.size(),
                                                     " bytes, expected 1 to ",
                                                     p2p::kSectionNameBytesMax));
    }
    // Counted here: two calls at once get different ones.
    section.version =
        ++agent.versions.try_emplace(section.name, agent.forgotten_version).first->second;
    published->owner = agent.owner;
    published->agent = agent.name;
    published->inbox = agent.inbox;
  }
  const std::string name = section.name;
  const uint64_t version = section.version;
  auto list = p2p::PreparedList::Prepare(std::move(section), space);
  const std::lock_guard lock(mutex_);
  const auto own = by_session_.find(session);
  if (own == by_session_.end()) return absl::CancelledError("the session has ended");
  if (!list.ok()) {
    if (!own->second->sections.contains(name)) ForgetVersions(*own->second, name);
    return list.status();
  }
  published->list = *std::move(list);
  std::shared_ptr<Published>& place = own->second->sections[name];
  if (place != nullptr && place->version() > version) {
    published->replaced_by.store(place->version());  // by a later call, which was quicker
    return published;
  }
  if (place != nullptr) {
    place->replaced_by.store(version, std::memory_order_release);
    if (place->fetched_elsewhere.load(std::memory_order_relaxed)) {
      own->second->history.Keep(place->list->section());
    }
  }
  place = published;
  return published;
}

absl::Status AgentTable::Withdraw(uint64_t session, const std::string& section) {
  const std::lock_guard lock(mutex_);
  const auto own = by_session_.find(session);
  if (own == by_session_.end()) return absl::FailedPreconditionError("this session is no agent");
  const auto found = own->second->sections.find(section);
  if (found == own->second->sections.end()) {
    return absl::NotFoundError(absl::StrCat(
        "agent \"", own->second->name, "\" publishes no section \"", Printable(section), "\""));
  }
  found->second->replaced_by.store(Published::kWithdrawn, std::memory_order_release);
  if (found->second->fetched_elsewhere.load(std::memory_order_relaxed)) {
    own->second->history.Keep(found->second->list->section());
  }
  own->second->sections.erase(found);
  ForgetVersions(*own->second, section);
  return absl::OkStatus();
}

void AgentTable::ForgetVersions(Agent& agent, const std::string& section) {
  const auto last = agent.versions.find(section);
  if (last == agent.versions.end()) return;
  agent.forgotten_version = std::max(agent.forgotten_version, last->second);
  agent.versions.erase(last);
}

void AgentTable::SessionGone(uint64_t session) {
  std::unique_ptr<Agent> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto own = by_session_.find(session);
    if (own == by_session_.end()) return;
    gone = std::move(own->second);
    by_session_.erase(own);
    const auto [first, last] = by_name_.equal_range(gone->name);
    by_name_.erase(
        std::find_if(first, last, [&](const auto& entry) { return entry.second == gone.get(); }));
    for (const auto& [name, published] : gone->sections) {
      published->replaced_by.store(Published::kAgentEnded, std::memory_order_release);
    }
  }
  gone->inbox->End();
}

absl::Status AgentTable::NoAgent(uint32_t tenant, const std::string& agent) {
  return absl::NotFoundError(absl::StrCat("agent \"", Printable(agent),
                                          "\": there is none by that name on this node that "
                                          "publishes for user ",
                                          tenant));
}

absl::Status AgentTable::NoSection(const Agent& agent, const std::string& section) {
  std::string names;
  for (const auto& [name, unused] : agent.sections) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", Printable(name));
    if (names.size() > 200) break;
  }
  return absl::NotFoundError(absl::StrCat("agent \"", agent.name, "\" publishes no section \"",
                                          Printable(section), "\"; it has ",
                                          names.empty() ? "none" : names));
}

const AgentTable::Agent* AgentTable::FindLocked(uint32_t tenant, const std::string& agent,
                                                const std::string* section) const {
  const Agent* granting = nullptr;
  const auto [first, last] = by_name_.equal_range(agent);
  for (auto it = first; it != last; ++it) {
    const Agent* candidate = it->second;
    if (candidate->owner.tenant == tenant) return candidate;
    for (const auto& [name, published] : candidate->sections) {
      if ((section == nullptr || name == *section) && Grants(*published, tenant)) {
        if (granting != nullptr && granting != candidate) return nullptr;  // whose is meant?
        granting = candidate;
      }
    }
  }
  return granting;
}

absl::StatusOr<std::shared_ptr<const Published>> AgentTable::Find(uint32_t tenant,
                                                                  const std::string& agent,
                                                                  const std::string& section,
                                                                  bool write,
                                                                  bool* has_agent) const {
  const std::lock_guard lock(mutex_);
  const Agent* const found = FindLocked(tenant, agent, &section);
  if (has_agent != nullptr) *has_agent = found != nullptr;
  if (found == nullptr) return NoAgent(tenant, agent);
  const auto published = found->sections.find(section);
  if (published == found->sections.end()) return NoSection(*found, section);
  SHUNT_RETURN_IF_ERROR(published->second->CheckAccess(tenant, write));
  return published->second;
}

absl::StatusOr<std::shared_ptr<Inbox>> AgentTable::FindInbox(uint32_t tenant,
                                                             const std::string& agent) const {
  const std::lock_guard lock(mutex_);
  const Agent* const found = FindLocked(tenant, agent, nullptr);
  if (found != nullptr) return found->inbox;
  return absl::NotFoundError(absl::StrCat("agent \"", Printable(agent),
                                          "\": there is none by that name on this node that user ",
                                          tenant, " may know of"));
}

absl::StatusOr<std::shared_ptr<Inbox>> AgentTable::OwnInbox(uint64_t session) const {
  const std::lock_guard lock(mutex_);
  const auto own = by_session_.find(session);
  if (own != by_session_.end()) return own->second->inbox;
  return absl::FailedPreconditionError(
      "this session is no agent, so nothing can come for it; register one first");
}

std::string AgentTable::NameOf(uint64_t session) const {
  const std::lock_guard lock(mutex_);
  const auto own = by_session_.find(session);
  return own == by_session_.end() ? std::string() : own->second->name;
}

size_t AgentTable::size() const {
  const std::lock_guard lock(mutex_);
  return by_session_.size();
}

}  // namespace shunt::daemon
