// Members from etcd: each node keeps a record under a lease, and watches all records.
//
//   /shunt/CLUSTER/members/NODE = "shunt1 ADDRESS INCARNATION VERSION"
//
//   grant a lease ──► write the record, if nobody alive has the name ──► list ──► watch from there
//   on lease lost, record gone: another incarnation, from the start watch compacted: list again;
//   watch ended otherwise: watch again from the last revision seen
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/cluster/etcd_client.h"
#include "daemon/cluster/membership.h"
#include "daemon/event_loop.h"

namespace shunt::cluster {

class EtcdMembership : public Membership {
 public:
  EtcdMembership(daemon::EventLoop* loop, std::unique_ptr<EtcdClient> client,
                 const std::string& cluster, std::chrono::nanoseconds lease, std::string version);
  ~EtcdMembership() override;

  void Start(const MemberInfo& self, Events events) override;
  void Refresh() override;
  void Stop(std::function<void()> done) override;
  const View& view() const override { return view_; }
  absl::Status status() const override { return status_; }

 private:
  using Step = void (EtcdMembership::*)();

  void Grant();
  void Register();
  void OnRegistered(const EtcdPut& put);
  void TakeOver(const EtcdKey& holder);
  void List();
  void OnListing(const EtcdListing& listing);
  void Watch();
  void OnEvents(const std::vector<EtcdEvent>& events, int64_t revision);
  void OnWatchEnded(const absl::Status& why);
  void KeepAlive();
  void Lost(std::string_view why);
  void Update();
  void Fail(const absl::Status& why, Step retry);
  void SetStatus(const absl::Status& status);
  std::string own_key() const { return prefix_ + self_.name; }
  std::string Record() const;

  daemon::EventLoop* const loop_;
  std::unique_ptr<EtcdClient> client_;
  const std::string prefix_;
  const std::chrono::seconds ttl_;
  const std::string version_;
  MemberInfo self_;
  Events events_;
  View view_;
  absl::Status status_;

  int64_t lease_ = 0;  // 0: none
  bool registered_ = false;
  bool listing_ = false;
  bool watching_ = false;
  int64_t revision_ = 0;                    // up to which the records are known
  std::map<std::string, EtcdKey> records_;  // by key
  int64_t delay_ns_ = 0;                    // before the next try
  daemon::EventLoop::TimerId retry_ = 0;
  daemon::EventLoop::TimerId keep_alive_ = 0;
  bool alive_ok_ = true;
  daemon::EventLoop::TimerId stop_ = 0;
  std::function<void()> stopped_;  // set: it leaves
};

}  // namespace shunt::cluster
