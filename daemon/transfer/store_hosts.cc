#include "daemon/transfer/store_hosts.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr auto kEndMax = std::chrono::seconds(1);  // for those whose owner has not said

}  // namespace

StoreHosts::~StoreHosts() { Stop(DeadlineAfterNs(kEndMax)); }

void StoreHosts::Sweep() {
  const std::lock_guard lock(mutex_);
  Forget();
}

void StoreHosts::Forget() {
  const int64_t now_ns = NowNs();
  for (Host& host : hosts_) {
    if (!host.ending && host.end_at_ns <= now_ns) BeginEnd(&host);
  }
  // Not while somebody has it: the last to let go must not be its own thread.
  std::erase_if(
      hosts_, [](const Host& host) { return host.host.use_count() == 1 && host.host->finished(); });
}

void StoreHosts::BeginEnd(Host* host) {
  host->ending = true;
  host->host->BeginStop();
}

bool StoreHosts::MakeRoom(bool any_user, uint32_t user) {
  const auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& host) {
    return host.unused() && (any_user || host.name.owner.tenant == user);
  });
  if (found == hosts_.end()) return false;
  BeginEnd(&*found);
  return true;
}

absl::StatusOr<std::shared_ptr<storage::StoreHost>> StoreHosts::Get(const Name& name,
                                                                    storage::StoreHost::Make make) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return absl::UnavailableError("shuntd is stopping and opens nothing");
  Forget();
  const uint32_t user = name.owner.tenant;
  size_t of_user = 0, all = 0, ending = 0;
  for (Host& host : hosts_) {
    // One whose store could not be made has ended by itself; the next may be luckier.
    host.ending |= !host.host->serves();
    const bool same_user = host.name.owner.tenant == user;
    if (host.ending) {
      // One that has ended may be here yet because somebody has it.
      ending += same_user && !host.host->finished() ? 1 : 0;
      continue;
    }
    if (same_user && host.name.owner.session == name.owner.session && host.name.key == name.key) {
      host.end_at_ns = kNeverNs;
      return host.host;
    }
    ++all;
    of_user += same_user ? 1 : 0;
  }
  if (ending >= limits_.ending_of_user) {
    return absl::ResourceExhaustedError(
        absl::StrCat("user ", user, " has ", ending,
                     " stores that are to end and do not, as their file systems or servers do not "
                     "answer; expected fewer than ",
                     limits_.ending_of_user));
  }
  if (of_user >= limits_.of_user && !MakeRoom(/*any_user=*/false, user)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("user ", user, " has ", of_user,
                     " stores in use (one for its files, one for each session's endpoint and "
                     "keys), the most; close some"));
  }
  if (all >= limits_.all && !MakeRoom(/*any_user=*/true, user)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all users together have ", all, " stores in use, the most; try again later"));
  }
  SHUNT_ASSIGN_OR_RETURN(std::shared_ptr<storage::StoreHost> host,
                         storage::StoreHost::Start(std::move(make), [] {
                           ::pthread_setname_np(::pthread_self(), "shunt-store");
                         }));
  if (tallies_ != nullptr) host->CountIn(tallies_->Of(name.words));
  hosts_.push_back({name, host});
  return host;
}

void StoreHosts::End(memory::Owner owner) {
  const std::lock_guard lock(mutex_);
  for (Host& host : hosts_) {
    if (host.name.owner.tenant != owner.tenant || host.name.owner.session != owner.session)
      continue;
    if (host.ending) continue;
    const bool lingers = owner.session == 0 && limits_.linger.count() > 0;
    host.end_at_ns = lingers ? DeadlineAfterNs(limits_.linger) : NowNs();
    if (lingers && at_) at_(host.end_at_ns, [this] { Sweep(); });
  }
  Forget();
}

void StoreHosts::Stop(int64_t deadline_ns) {
  std::vector<Host> hosts;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    hosts.swap(hosts_);
  }
  for (const Host& host : hosts) host.host->BeginStop();  // all at once
  // What their threads may use yet stays.
  static auto* const left_behind = new std::vector<std::shared_ptr<storage::StoreHost>>();
  size_t left = 0;
  for (Host& host : hosts) {
    if (host.host->StopBy(deadline_ns)) continue;
    ++left;
    LogWarn("a store's thread is left behind: what it uses does not answer",
            {{"uid", host.name.owner.tenant},
             {"session", host.name.owner.session},
             {"store", host.name.words}});
    left_behind->push_back(std::move(host.host));
  }
  if (left != 0) LogWarn("stores were left behind", {{"stores", left}, {"of", hosts.size()}});
}

size_t StoreHosts::ending() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(hosts_.begin(), hosts_.end(), [](const Host& host) {
    return host.ending && !host.host->finished();
  }));
}

}  // namespace shunt::daemon
