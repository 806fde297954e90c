#include "tests/cluster/node.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"

namespace shunt::cluster::testing {

std::vector<uint16_t> FreePorts(int count) {
  std::vector<UniqueFd> held;
  std::vector<uint16_t> ports;
  for (int i = 0; i < count; ++i) {
    held.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    SHUNT_CHECK(::bind(held.back().get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    SHUNT_CHECK(::getsockname(held.back().get(), reinterpret_cast<sockaddr*>(&address), &size) ==
                0);
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

std::string Loopback(uint16_t port) { return absl::StrCat("127.0.0.1:", port); }

bool Eventually(const std::function<bool()>& done) {
  const int64_t deadline = NowNs() + 10'000'000'000;
  while (!done()) {
    if (NowNs() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void SetMembership::Start(const MemberInfo&, Events events) {
  events_ = std::move(events);
  events_.changed();
}

void SetMembership::Refresh() {
  if (on_refresh) Set(on_refresh());
}

void SetMembership::Set(View view, absl::Status status) {
  if (view.revision == view_.revision && view.members == view_.members && status == status_) return;
  view_ = std::move(view);
  status_ = std::move(status);
  if (events_.changed) events_.changed();
}

Node::Node(const std::string& name, uint16_t port, std::vector<std::string> members,
           std::function<void(Cluster::Options*)> adjust)
    : loop_(*daemon::EventLoop::Make()) {
  thread_ = std::thread([this] { loop_->Run(); });
  Cluster::Options options;
  options.config.node = name;
  options.config.listen = Loopback(port);
  options.config.members = std::move(members);
  options.data_addresses = {absl::StrCat("127.0.0.1:1", name)};
  options.version = "0.1.0";
  if (adjust) adjust(&options);
  ClusterEvents events;
  events.peer_expected = [this](const std::string& node, uint64_t, const std::string& token) {
    std::lock_guard lock(mutex_);
    log_.push_back(absl::StrCat("expected ", node, " ", token.size()));
    cv_.notify_all();
  };
  events.peer_up = [this](const PeerInfo& peer) {
    std::lock_guard lock(mutex_);
    up_.push_back(peer);
    log_.push_back("up " + peer.name);
    cv_.notify_all();
  };
  events.peer_lost = [this](const PeerInfo& peer, std::string_view why) {
    std::lock_guard lock(mutex_);
    up_.erase(std::find_if(up_.begin(), up_.end(), [&peer](const PeerInfo& x) {
      return x.name == peer.name && x.incarnation == peer.incarnation;
    }));
    log_.push_back(absl::StrCat("lost ", peer.name, ": ", std::string(why)));
    cv_.notify_all();
  };
  events.renewed = [this](uint64_t, std::string_view why) {
    std::lock_guard lock(mutex_);
    log_.push_back(absl::StrCat("renewed: ", std::string(why)));
    cv_.notify_all();
  };
  events.call_status = [this](uint64_t wire_id) -> absl::StatusOr<std::vector<RankCall>> {
    if (call_status) return call_status(wire_id);
    return absl::NotFoundError("no communicator");
  };
  events.open_span = [this](const CommunicatorMap&, std::function<void(const absl::Status&)> done) {
    if (open_span) return open_span(std::move(done));
    done(absl::OkStatus());
  };
  auto cluster = Cluster::Start(std::move(options), std::move(events), loop_.get());
  started_ = cluster.status();
  if (cluster.ok()) cluster_ = *std::move(cluster);
}

Node::~Node() {
  Stop();
  loop_->Stop();
  thread_.join();
}

void Node::Stop() { cluster_.reset(); }

void Node::Post(std::function<void()> f) {
  Outcome<bool> ran;
  loop_->Post([&] {
    f();
    ran.Set(true);
  });
  SHUNT_CHECK(ran.Get().ok());
}

Joining Node::Join(const std::string& name, std::vector<int> ranks, int world,
                   std::chrono::milliseconds timeout, const std::string& algorithm) {
  JoinAcrossRequest request;
  request.key = {1000, "job", name};
  request.terms.world_size = world;
  request.terms.algorithm = algorithm;
  for (const int rank : ranks) request.ranks.push_back({rank, 100 + rank, "s"});
  request.deadline_ns = DeadlineAfterNs(timeout);
  Joining joining;
  joining.id = cluster_->JoinAcross(
      std::move(request),
      [outcome = joining.outcome](const absl::StatusOr<MapPtr>& map) { outcome->Set(map); });
  return joining;
}

std::vector<PeerInfo> Node::up() const {
  std::lock_guard lock(mutex_);
  return up_;
}

const PeerInfo Node::FindUp(const std::string& name) const {
  for (const PeerInfo& peer : up()) {
    if (peer.name == name) return peer;
  }
  return {};
}

bool Node::Wait(const std::function<bool()>& done) const {
  std::unique_lock lock(mutex_);
  return cv_.wait_for(lock, std::chrono::seconds(20), done);
}

bool Node::WaitUp(const std::string& name) const {
  return Wait([&] {
    return std::any_of(up_.begin(), up_.end(),
                       [&name](const PeerInfo& peer) { return peer.name == name; });
  });
}

std::vector<std::string> Node::log() const {
  std::lock_guard lock(mutex_);
  return log_;
}

bool Node::WaitLog(const std::string& part) const {
  return Wait([&] {
    return std::any_of(log_.begin(), log_.end(), [&part](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  });
}

std::string Node::WhyNot(const std::string& id) {
  for (const PeerTable::Row& row : cluster_->GetView().peers) {
    if (row.member.id() == id || row.member.address == id) {
      return row.state == PeerTable::State::kUp ? "" : row.why;
    }
  }
  return "no such member";
}

PeerTable::State Node::StateOf(const std::string& id) {
  for (const PeerTable::Row& row : cluster_->GetView().peers) {
    if (row.member.id() == id || row.member.address == id) return row.state;
  }
  return PeerTable::State::kNew;
}

}  // namespace shunt::cluster::testing
