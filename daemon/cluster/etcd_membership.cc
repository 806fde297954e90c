#include "daemon/cluster/etcd_membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

using daemon::LogInfo;
using daemon::LogWarn;

constexpr int64_t kRetryMinNs = 100'000'000;
constexpr int64_t kRetryMaxNs = 2'000'000'000;
constexpr int64_t kStopNs = 1'000'000'000;

std::chrono::seconds CeilSeconds(std::chrono::nanoseconds time) {
  return std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(time));
}

}  // namespace

EtcdMembership::EtcdMembership(daemon::EventLoop* loop, std::unique_ptr<EtcdClient> client,
                               const std::string& cluster, std::chrono::nanoseconds lease,
                               std::string version)
    : loop_(loop),
      client_(std::move(client)),
      prefix_(absl::StrCat("/shunt/", cluster, "/members/")),
      ttl_(CeilSeconds(lease)),
      version_(std::move(version)),
      status_(absl::UnavailableError("etcd has not answered yet")) {}

EtcdMembership::~EtcdMembership() {
  for (const daemon::EventLoop::TimerId timer : {retry_, keep_alive_, stop_}) loop_->Cancel(timer);
}

std::string EtcdMembership::Record() const {
  return FormatRecord({self_.address, self_.incarnation, version_.empty() ? "-" : version_});
}

void EtcdMembership::Start(const MemberInfo& self, Events events) {
  self_ = self;
  events_ = std::move(events);
  view_ = MakeView({}, /*knows_incarnations=*/true);
  events_.changed();
  Grant();
}

void EtcdMembership::Grant() {
  client_->Grant(ttl_, [this](const absl::StatusOr<int64_t>& lease) {
    if (!lease.ok()) return Fail(lease.status(), &EtcdMembership::Grant);
    if (stopped_) return;
    lease_ = *lease;
    alive_ok_ = true;
    loop_->Cancel(std::exchange(keep_alive_, 0));
    const int64_t third = std::chrono::nanoseconds(ttl_).count() / 3;
    keep_alive_ = loop_->At(NowNs() + third, [this] { KeepAlive(); });
    Register();
  });
}

void EtcdMembership::Register() {
  client_->PutIf(own_key(), 0, Record(), lease_, [this](const absl::StatusOr<EtcdPut>& put) {
    if (!put.ok()) return Fail(put.status(), &EtcdMembership::Register);
    OnRegistered(*put);
  });
}

void EtcdMembership::OnRegistered(const EtcdPut& put) {
  // The second: an earlier try whose answer was lost.
  if (put.done || (put.holder.value == Record() && put.holder.lease == lease_)) {
    registered_ = true;
    LogInfo("registered in etcd",
            {{"key", own_key()}, {"lease", lease_}, {"endpoint", client_->endpoint()}});
    return List();
  }
  MemberRecord record;
  if (!ParseRecord(put.holder.value, &record)) {
    return Fail(absl::AlreadyExistsError(absl::StrCat(
                    "etcd has something else under ", own_key(),
                    "; expected nothing, or a record \"shunt1 ADDRESS INCARNATION VERSION\"")),
                &EtcdMembership::Register);
  }
  // What an earlier incarnation left, or another daemon with this name?
  events_.probe({self_.name, record.address, record.incarnation},
                [this, holder = put.holder, record](bool is_alive) {
                  if (stopped_) return;
                  if (!is_alive) return TakeOver(holder);
                  Fail(absl::AlreadyExistsError(absl::StrCat(
                           "node name '", self_.name, "' is that of the daemon at ", record.address,
                           " (incarnation ", Hex(record.incarnation), ") in etcd (", own_key(),
                           "); expected a name of its own for the daemon at ", self_.address)),
                       &EtcdMembership::Register);
                });
}

void EtcdMembership::TakeOver(const EtcdKey& holder) {
  client_->PutIf(own_key(), holder.mod_revision, Record(), lease_,
                 [this](const absl::StatusOr<EtcdPut>& put) {
                   if (!put.ok()) return Fail(put.status(), &EtcdMembership::Register);
                   if (!put->done) return Register();  // it has changed since
                   OnRegistered(*put);
                 });
}

void EtcdMembership::List() {
  if (std::exchange(listing_, true)) return;
  client_->List(prefix_, [this](const absl::StatusOr<EtcdListing>& listing) {
    listing_ = false;
    if (!registered_ || stopped_) return;
    if (!listing.ok()) return Fail(listing.status(), &EtcdMembership::List);
    OnListing(*listing);
    if (registered_ && !watching_) Watch();
  });
}

void EtcdMembership::OnListing(const EtcdListing& listing) {
  if (listing.revision < revision_) return;
  revision_ = listing.revision;
  records_.clear();
  for (const EtcdKey& key : listing.keys) records_[key.key] = key;
  Update();
}

void EtcdMembership::Watch() {
  watching_ = true;
  EtcdClient::WatchEvents events;
  events.started = [this] {
    delay_ns_ = 0;
    if (alive_ok_) SetStatus(absl::OkStatus());
  };
  events.changed = [this](const std::vector<EtcdEvent>& news, int64_t revision) {
    OnEvents(news, revision);
  };
  events.ended = [this](const absl::Status& why) { OnWatchEnded(why); };
  client_->Watch(prefix_, revision_ + 1, std::move(events));
}

void EtcdMembership::OnEvents(const std::vector<EtcdEvent>& events, int64_t revision) {
  for (const EtcdEvent& event : events) {
    if (event.key.mod_revision <= revision_) continue;  // a listing has shown it already
    if (event.deleted) {
      records_.erase(event.key.key);
    } else {
      records_[event.key.key] = event.key;
    }
  }
  revision_ = std::max(revision_, revision);
  Update();
}

void EtcdMembership::OnWatchEnded(const absl::Status& why) {
  watching_ = false;
  if (!registered_ || stopped_) return;
  if (why.code() == absl::StatusCode::kOutOfRange) {
    LogInfo("the watch of the members was compacted: listing them again",
            {{"revision", revision_}, {"why", std::string(why.message())}});
    return List();
  }
  Fail(why, &EtcdMembership::Watch);
}

// The view from the records; and is ours still there?
void EtcdMembership::Update() {
  if (stopped_) return;
  const auto own = records_.find(own_key());
  if (own == records_.end()) return Lost("its record is gone from etcd: its lease has run out");
  if (own->second.value != Record()) return Lost("its record in etcd is another daemon's");
  std::vector<MemberInfo> members;
  for (const auto& [key, record] : records_) {
    MemberRecord member;
    if (ParseRecord(record.value, &member)) {
      members.push_back({key.substr(prefix_.size()), member.address, member.incarnation});
    } else {
      LogWarn("a member's record in etcd is not understood; the member is left out",
              {{"key", key}, {"expected", "shunt1 ADDRESS INCARNATION VERSION"}});
    }
  }
  View view = MakeView(std::move(members), /*knows_incarnations=*/true);
  if (view.members == view_.members) return;
  view_ = std::move(view);
  events_.changed();
}

void EtcdMembership::KeepAlive() {
  keep_alive_ = 0;
  client_->KeepAlive(lease_, [this, lease = lease_](const absl::StatusOr<bool>& result) {
    if (lease != lease_ || stopped_) return;
    const int64_t ttl_ns = std::chrono::nanoseconds(ttl_).count();
    if (result.ok()) {
      // Whoever could not be asked can be asked again.
      if (!std::exchange(alive_ok_, true) && retry_ == 0) SetStatus(absl::OkStatus());
    } else if (result.status().code() == absl::StatusCode::kNotFound) {
      return Lost("its lease in etcd was lost");
    } else {
      alive_ok_ = false;
      SetStatus(absl::UnavailableError(
          absl::StrCat("etcd at ", client_->endpoint(), ": ", result.status().message())));
    }
    keep_alive_ =
        loop_->At(NowNs() + (result.ok() ? ttl_ns / 3 : ttl_ns / 20), [this] { KeepAlive(); });
  });
}

void EtcdMembership::Lost(std::string_view why) {
  registered_ = false;
  watching_ = false;
  lease_ = 0;
  revision_ = 0;
  records_.clear();
  loop_->Cancel(std::exchange(keep_alive_, 0));
  loop_->Cancel(std::exchange(retry_, 0));
  SetStatus(absl::UnavailableError(
      absl::StrCat("node '", self_.name, "': ", absl::string_view(why.data(), why.size()))));
  self_.incarnation = events_.renew(why);
  Grant();
}

void EtcdMembership::Fail(const absl::Status& why, Step retry) {
  if (stopped_) return;
  SetStatus(why.code() == absl::StatusCode::kAlreadyExists
                ? why
                : absl::UnavailableError(absl::StrCat("the members cannot be known: etcd at ",
                                                      client_->endpoint(), ": ", why.message())));
  delay_ns_ = std::clamp(2 * delay_ns_, kRetryMinNs, kRetryMaxNs);
  loop_->Cancel(retry_);
  retry_ = loop_->At(NowNs() + delay_ns_, [this, retry] {
    retry_ = 0;
    (this->*retry)();
  });
}

void EtcdMembership::SetStatus(const absl::Status& status) {
  if (status == status_ || stopped_) return;
  status_ = status;
  events_.changed();
}

void EtcdMembership::Refresh() {
  if (registered_ && !listing_ && retry_ == 0) List();
}

void EtcdMembership::Stop(std::function<void()> done) {
  stopped_ = std::move(done);
  for (daemon::EventLoop::TimerId* timer : {&retry_, &keep_alive_})
    loop_->Cancel(std::exchange(*timer, 0));
  if (lease_ == 0) return stopped_();
  const auto once = [this](auto&&...) {
    loop_->Cancel(std::exchange(stop_, 0));
    if (const auto then = std::exchange(stopped_, [] {})) then();
  };
  stop_ = loop_->At(NowNs() + kStopNs, once);
  client_->Revoke(lease_, once);
}

}  // namespace shunt::cluster
