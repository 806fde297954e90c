#include "daemon/cluster/dns_membership.h"

#include "absl/strings/str_cat.h"
#include "daemon/cluster/address.h"
#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

// Whoever asks for news gets what is no older than this.
constexpr int64_t kFreshNs = 200'000'000;
// While there is no answer.
constexpr int64_t kRetryNs = 1'000'000'000;

}  // namespace

DnsMembership::DnsMembership(daemon::EventLoop* loop, std::unique_ptr<DnsResolver> resolver,
                             std::string name, uint16_t port, std::chrono::nanoseconds refresh)
    : loop_(loop),
      resolver_(std::move(resolver)),
      name_(std::move(name)),
      port_(port),
      refresh_ns_(refresh.count()),
      status_(absl::UnavailableError(
          absl::StrCat("DNS name \"", name_, "\" has not been answered yet"))) {}

DnsMembership::~DnsMembership() { loop_->Cancel(timer_); }

void DnsMembership::Start(const MemberInfo&, Events events) {
  events_ = std::move(events);
  events_.changed();
  Look();
}

void DnsMembership::Look() {
  loop_->Cancel(std::exchange(timer_, 0));
  if (stopped_ || std::exchange(looking_, true)) return;
  resolver_->Resolve(
      name_, [this](const absl::StatusOr<std::vector<std::string>>& hosts) { OnAnswer(hosts); });
}

void DnsMembership::OnAnswer(const absl::StatusOr<std::vector<std::string>>& hosts) {
  looking_ = false;
  last_ns_ = NowNs();
  if (stopped_) return;
  timer_ = loop_->At(last_ns_ + (hosts.ok() ? refresh_ns_ : std::min(refresh_ns_, kRetryNs)),
                     [this] { Look(); });
  if (!hosts.ok()) {
    // The view stays: a server that is down has sent nobody away.
    if (status_ == hosts.status()) return;
    status_ = absl::UnavailableError(hosts.status().message());
    return events_.changed();
  }
  std::vector<MemberInfo> members;
  for (const std::string& host : *hosts) members.push_back({"", FormatAddress({host, port_}), 0});
  View view = MakeView(std::move(members), /*knows_incarnations=*/false);
  if (status_.ok() && view.members == view_.members) return;
  status_ = absl::OkStatus();
  view_ = std::move(view);
  events_.changed();
}

void DnsMembership::Refresh() {
  if (NowNs() - last_ns_ >= kFreshNs) return Look();
  if (looking_ || stopped_) return;
  loop_->Cancel(timer_);
  timer_ = loop_->At(last_ns_ + kFreshNs, [this] { Look(); });
}

void DnsMembership::Stop(std::function<void()> done) {
  stopped_ = true;
  loop_->Cancel(std::exchange(timer_, 0));
  done();
}

uint16_t DnsPort(const ClusterConfig& config) {
  if (config.dns_port != 0) return static_cast<uint16_t>(config.dns_port);
  const absl::StatusOr<Address> listen = ParseAddress(config.listen, /*port_zero=*/true);
  return listen.ok() ? listen->port : 0;
}

}  // namespace shunt::cluster
