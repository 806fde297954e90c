// The keys of the section [cluster]: how this node finds the other nodes' daemons, and how they
// find it. Off unless `listen` is set.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "daemon/cluster/view.h"

namespace shunt::cluster {

// What a daemon is to the others: one that has ranks, or one that lends its CPU and its links to
// add for them.
enum class Role { kNode, kAggregator };
// "node", "aggregator".
std::string_view Name(Role role);

enum class MembershipKind { kStatic, kDns, kEtcd };
// "static", "dns", "etcd".
std::string_view Name(MembershipKind kind);

// What carries payload between nodes.
enum class DataTransport { kTcp, kRdma };
// "tcp", "rdma".
std::string_view Name(DataTransport transport);

struct ClusterConfig {
  std::string name = "shunt";  // daemons of another cluster are refused
  std::string node;            // "": the host's name
  Role role = Role::kNode;
  std::string listen;       // control plane, HOST:PORT; "": no cluster
  std::string advertise;    // where the others reach it; "": as `listen`
  std::string data_listen;  // payload, HOST:PORT; "": the host of `listen`, any port
  DataTransport transport = DataTransport::kTcp;
  int64_t movers = -1;       // tcp: threads that move large payload; -1: by the number of CPUs
  std::string congestion;    // tcp: as Linux names it; "": the machine's
  std::string rdma_devices;  // as UCX names them, "mlx5_0:1"; "": all
  std::string rdma_transports = "rc";  // UCX's carriers
  MembershipKind membership = MembershipKind::kStatic;
  std::vector<std::string> members;  // static: "NAME=HOST:PORT"
  std::string dns_name;
  int64_t dns_port = 0;    // 0: that of `listen`
  std::string dns_server;  // HOST:PORT; "": those of the machine
  std::chrono::nanoseconds dns_refresh = std::chrono::seconds(5);
  std::vector<std::string> etcd_endpoints;  // "http://HOST:PORT" or "https://..."
  std::chrono::nanoseconds etcd_lease = std::chrono::seconds(10);
  // PEM files; all three or none. With them both ends of every connection between daemons show a
  // certificate of this authority, made out for their node's name (dns: for dns_name).
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;

  bool operator==(const ClusterConfig&) const = default;
  bool enabled() const { return !listen.empty(); }
  bool tls() const { return !tls_cert.empty(); }
};

// A value as the file or the command line gives it: the same type as the daemon's ConfigValue.
using ClusterValue =
    std::variant<std::string, int64_t, std::vector<int64_t>, std::vector<std::string>>;

struct ClusterKey {
  const char* name;  // "cluster.listen"
  const char* expected;
  const char* help;
  // INVALID_ARGUMENT, saying what was seen, if the value isn't as `expected`.
  absl::Status (*set)(ClusterConfig* config, const ClusterValue& value);
};
inline constexpr size_t kClusterKeyCount = 22;
extern const ClusterKey kClusterKeys[kClusterKeyCount];

// What no key can check alone; OK if there is no cluster. Words begin with the key at fault.
absl::Status CheckClusterConfig(const ClusterConfig& config);

// The node's name: as configured, or the host's.
std::string NodeName(const ClusterConfig& config);
// What other nodes are told: `advertise`; else this node's entry in the static list; else `listen`
// with the port that it got.
std::string AdvertisedAddress(const ClusterConfig& config, uint16_t bound_port);
// The static list, this node itself among it: an entry for it may be there or not, `self` counts.
// Checked before.
std::vector<MemberInfo> StaticMembers(const ClusterConfig& config, const MemberInfo& self);

}  // namespace shunt::cluster
