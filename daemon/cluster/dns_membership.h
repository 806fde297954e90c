// Members from a DNS name with an address record for each node, such as a Kubernetes headless
// service. It names no nodes: members are known by their addresses until they say who they are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/cluster/config.h"
#include "daemon/cluster/dns_resolver.h"
#include "daemon/cluster/membership.h"
#include "daemon/event_loop.h"

namespace shunt::cluster {

class DnsMembership : public Membership {
 public:
  DnsMembership(daemon::EventLoop* loop, std::unique_ptr<DnsResolver> resolver, std::string name,
                uint16_t port, std::chrono::nanoseconds refresh);
  ~DnsMembership() override;

  void Start(const MemberInfo& self, Events events) override;
  void Refresh() override;
  void Stop(std::function<void()> done) override;
  const View& view() const override { return view_; }
  absl::Status status() const override { return status_; }

 private:
  void Look();
  void OnAnswer(const absl::StatusOr<std::vector<std::string>>& hosts);

  daemon::EventLoop* const loop_;
  const std::unique_ptr<DnsResolver> resolver_;
  const std::string name_;
  const uint16_t port_;
  const int64_t refresh_ns_;
  Events events_;
  View view_;
  absl::Status status_;
  bool looking_ = false;
  bool stopped_ = false;
  int64_t last_ns_ = 0;
  daemon::EventLoop::TimerId timer_ = 0;
};

// The port of every node.
uint16_t DnsPort(const ClusterConfig& config);

}  // namespace shunt::cluster
