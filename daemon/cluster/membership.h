// Where a view of the cluster comes from: a list, DNS or etcd. All on the event loop's thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/cluster/view.h"

namespace shunt::cluster {

class Membership {
 public:
  struct Events {
    // The view or the status has changed.
    std::function<void()> changed;
    // The cluster has forgotten this node (its lease was lost): from now on it is another
    // incarnation, which the function chooses and returns.
    std::function<uint64_t(std::string_view why)> renew;
    // Asks whether a daemon of this name and incarnation is alive at the address.
    std::function<void(const MemberInfo& member, std::function<void(bool alive)> done)> probe;
  };

  virtual ~Membership() = default;

  // Begins to look, and to be seen as `self`. Once.
  virtual void Start(const MemberInfo& self, Events events) = 0;
  // Somebody has another view: looks again, now. May be called often.
  virtual void Refresh() = 0;
  // Leaves; calls `done` once the others can know, or after a second at the latest.
  virtual void Stop(std::function<void()> done) = 0;

  // The last view there was, also while the source cannot be reached.
  virtual const View& view() const = 0;
  // OK, or why the view may be old or is missing.
  virtual absl::Status status() const = 0;
};

// For a list that does not change.
class FixedMembership : public Membership {
 public:
  explicit FixedMembership(std::function<std::vector<MemberInfo>(const MemberInfo& self)> list)
      : list_(std::move(list)) {}

  void Start(const MemberInfo& self, Events events) override {
    view_ = MakeView(list_(self), /*knows_incarnations=*/false);
    events.changed();
  }
  void Refresh() override {}
  void Stop(std::function<void()> done) override { done(); }
  const View& view() const override { return view_; }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  const std::function<std::vector<MemberInfo>(const MemberInfo& self)> list_;
  View view_;
};

}  // namespace shunt::cluster
