// Nodes of a cluster in this process: each with an event loop of its own and the cluster's real
// server and channels on loopback.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/cluster/cluster.h"
#include "daemon/event_loop.h"

namespace shunt::cluster::testing {

// Ports that nobody listened on a moment ago.
std::vector<uint16_t> FreePorts(int count);
std::string Loopback(uint16_t port);

// Looks again until `done`, at most for ten seconds: false if it never was.
bool Eventually(const std::function<bool()>& done);

// A membership that a test sets.
class SetMembership : public Membership {
 public:
  void Start(const MemberInfo& self, Events events) override;
  void Refresh() override;
  void Stop(std::function<void()> done) override { done(); }
  const View& view() const override { return view_; }
  absl::Status status() const override { return status_; }

  // On the loop.
  void Set(View view, absl::Status status = absl::OkStatus());
  // What Refresh finds; none: nothing new.
  std::function<View()> on_refresh;

 private:
  Events events_;
  View view_;
  absl::Status status_;
};

using MapPtr = std::shared_ptr<const CommunicatorMap>;

// The outcome of a call, once it is there.
template <typename T>
class Outcome {
 public:
  void Set(absl::StatusOr<T> value) {
    std::lock_guard lock(mutex_);
    value_ = std::make_unique<absl::StatusOr<T>>(std::move(value));
    cv_.notify_all();
  }
  bool there() const {
    std::lock_guard lock(mutex_);
    return value_ != nullptr;
  }
  absl::StatusOr<T> Get() const {
    std::unique_lock lock(mutex_);
    if (!cv_.wait_for(lock, std::chrono::seconds(30), [this] { return value_ != nullptr; })) {
      return absl::InternalError("no outcome within 30 s");
    }
    return *value_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable cv_;
  std::unique_ptr<absl::StatusOr<T>> value_;
};

struct Joining {
  uint64_t id = 0;
  std::shared_ptr<Outcome<MapPtr>> outcome = std::make_shared<Outcome<MapPtr>>();
  absl::StatusOr<MapPtr> Get() const { return outcome->Get(); }
};

class Node {
 public:
  // Static membership of `members` unless `options` says otherwise.
  Node(const std::string& name, uint16_t port, std::vector<std::string> members,
       std::function<void(Cluster::Options*)> adjust = nullptr);
  ~Node();

  Cluster& operator*() { return *cluster_; }
  Cluster* operator->() { return cluster_.get(); }
  absl::Status started() const { return started_; }
  daemon::EventLoop* loop() { return loop_.get(); }
  void Post(std::function<void()> f);  // and wait until it has run
  void Stop();

  Joining Join(const std::string& name, std::vector<int> ranks, int world,
               std::chrono::milliseconds timeout = std::chrono::seconds(20),
               const std::string& algorithm = "");
  // Peers that are up, and everything that was told of them.
  std::vector<PeerInfo> up() const;
  const PeerInfo FindUp(const std::string& name) const;  // incarnation 0 if it isn't
  bool WaitUp(const std::string& name) const;
  std::vector<std::string> log() const;  // "up b", "lost b: it stopped", "renewed"
  bool WaitLog(const std::string& part) const;
  // Why a member is not usable; "" if it is.
  std::string WhyNot(const std::string& id);
  PeerTable::State StateOf(const std::string& id);

  std::function<absl::StatusOr<std::vector<RankCall>>(uint64_t)> call_status;
  // On the loop; of an aggregator.
  std::function<void(std::function<void(const absl::Status&)>)> open_span;

 private:
  bool Wait(const std::function<bool()>& done) const;

  std::unique_ptr<daemon::EventLoop> loop_;
  std::thread thread_;
  absl::Status started_;
  std::unique_ptr<Cluster> cluster_;
  mutable std::mutex mutex_;
  mutable std::condition_variable cv_;
  std::vector<PeerInfo> up_;
  std::vector<std::string> log_;
};

}  // namespace shunt::cluster::testing
