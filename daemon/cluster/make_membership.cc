#include "daemon/cluster/make_membership.h"

#include "daemon/cluster/dns_membership.h"
#include "daemon/cluster/dns_resolver.h"
#include "daemon/cluster/etcd_client.h"
#include "daemon/cluster/etcd_membership.h"

namespace shunt::cluster {

std::unique_ptr<Membership> MakeMembership(const ClusterConfig& config, const SelfInfo& self,
                                           const Credentials& credentials, CallTracker* tracker) {
  switch (config.membership) {
    case MembershipKind::kEtcd:
      return std::make_unique<EtcdMembership>(
          tracker->loop(), MakeEtcdClient(tracker, config.etcd_endpoints, credentials), config.name,
          config.etcd_lease, self.version);
    case MembershipKind::kDns:
      return std::make_unique<DnsMembership>(tracker->loop(),
                                             MakeDnsResolver(tracker->loop(), config.dns_server),
                                             config.dns_name, DnsPort(config), config.dns_refresh);
    case MembershipKind::kStatic:
      break;
  }
  return std::make_unique<FixedMembership>(
      [config](const MemberInfo& member) { return StaticMembers(config, member); });
}

}  // namespace shunt::cluster
