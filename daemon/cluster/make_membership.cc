#include "daemon/cluster/make_membership.h"

namespace shunt::cluster {

std::unique_ptr<Membership> MakeMembership(const ClusterConfig& config, const SelfInfo&,
                                           const Credentials&, CallTracker*) {
  return std::make_unique<FixedMembership>(
      [config](const MemberInfo& self) { return StaticMembers(config, self); });
}

}  // namespace shunt::cluster
