#include "daemon/cluster/config.h"

#include <unistd.h>

#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/cluster/address.h"
#include "runtime/core/status.h"

namespace shunt::cluster {
namespace {

using std::chrono::nanoseconds;

constexpr char kAddressWords[] = "HOST:PORT such as \"10.0.0.1:7071\"";
constexpr char kDurationWords[] = "a duration from \"1s\" to \"1h\"";
constexpr int64_t kMoversMax = 8;
constexpr char kMemberWords[] =
    "a list of NAME=HOST:PORT such as [\"a=10.0.0.1:7071\", \"b=10.0.0.2:7071\"]; as a flag "
    "a=10.0.0.1:7071,b=10.0.0.2:7071";
constexpr char kEndpointWords[] =
    "a list of URLs such as [\"http://10.0.0.1:2379\", \"https://10.0.0.2:2379\"]; as a flag "
    "http://10.0.0.1:2379,https://10.0.0.2:2379";

absl::Status Is(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("is ", what));
}

absl::Status Wrong(const ClusterValue& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    return Is(absl::StrCat("\"", *text, "\""));
  if (const auto* number = std::get_if<int64_t>(&value)) return Is(absl::StrCat(*number));
  return Is(std::holds_alternative<std::vector<int64_t>>(value) ? "a list of integers"
                                                                : "a list of strings");
}

template <std::string ClusterConfig::*kMember>
absl::Status SetText(ClusterConfig* config, const ClusterValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || text->size() > 4096) return Wrong(value);
  config->*kMember = *text;
  return absl::OkStatus();
}

template <std::string ClusterConfig::*kMember>
absl::Status SetName(ClusterConfig* config, const ClusterValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || !CheckNodeName(*text).ok()) return Wrong(value);
  config->*kMember = *text;
  return absl::OkStatus();
}

template <std::string ClusterConfig::*kMember, bool kPortZero>
absl::Status SetAddress(ClusterConfig* config, const ClusterValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || !ParseAddress(*text, kPortZero).ok()) return Wrong(value);
  config->*kMember = *text;
  return absl::OkStatus();
}

template <nanoseconds ClusterConfig::*kMember>
absl::Status SetDuration(ClusterConfig* config, const ClusterValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || text->size() > 32) return Wrong(value);
  static constexpr struct {
    absl::string_view unit;
    double ns;
  } kUnits[] = {{"ms", 1e6}, {"min", 60e9}, {"m", 60e9}, {"h", 3600e9}, {"s", 1e9}};
  for (const auto& known : kUnits) {
    double number = 0;
    if (absl::EndsWith(*text, known.unit) &&
        absl::SimpleAtod(text->substr(0, text->size() - known.unit.size()), &number)) {
      const double ns = number * known.ns;
      if (!(ns >= 1e9 && ns <= 3600e9)) return Wrong(value);
      config->*kMember = nanoseconds(std::llround(ns));
      return absl::OkStatus();
    }
  }
  return Wrong(value);
}

// A flag gives a list of one as plain text.
bool Texts(const ClusterValue& value, std::vector<std::string>* list) {
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) *list = *texts;
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value)) return numbers->empty();
  return std::holds_alternative<std::vector<std::string>>(value);
}

absl::StatusOr<MemberInfo> ParseMember(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("has the entry \"", text, "\" without a '='"));
  }
  MemberInfo member{text.substr(0, equals), text.substr(equals + 1), 0};
  SHUNT_RETURN_IF_ERROR(CheckNodeName(member.name));
  SHUNT_RETURN_IF_ERROR(ParseAddress(member.address, /*port_zero=*/false).status());
  return member;
}

absl::Status SetMembers(ClusterConfig* config, const ClusterValue& value) {
  std::vector<std::string> list;
  if (!Texts(value, &list)) return Wrong(value);
  for (const std::string& text : list) {
    if (const auto member = ParseMember(text); !member.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has a wrong entry: ", member.status().message()));
    }
  }
  config->members = std::move(list);
  return absl::OkStatus();
}

absl::Status SetEndpoints(ClusterConfig* config, const ClusterValue& value) {
  std::vector<std::string> list;
  if (!Texts(value, &list)) return Wrong(value);
  for (const std::string& text : list) {
    const size_t slashes = text.find("://");
    const std::string scheme = text.substr(0, slashes);
    if (slashes == std::string::npos || (scheme != "http" && scheme != "https") ||
        !ParseAddress(text.substr(slashes + 3), /*port_zero=*/false).ok()) {
      return absl::InvalidArgumentError(absl::StrCat("has the entry \"", text, "\""));
    }
  }
  config->etcd_endpoints = std::move(list);
  return absl::OkStatus();
}

absl::Status SetTransport(ClusterConfig* config, const ClusterValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  for (const DataTransport transport : {DataTransport::kTcp, DataTransport::kRdma}) {
    if (text != nullptr && *text == Name(transport)) {
      config->transport = transport;
      return absl::OkStatus();
    }
  }
  return Wrong(value);
}

absl::Status SetRole(ClusterConfig* config, const ClusterValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  for (const Role role : {Role::kNode, Role::kAggregator}) {
    if (text != nullptr && *text == Name(role)) {
      config->role = role;
      return absl::OkStatus();
    }
  }
  return Wrong(value);
}

absl::Status SetMembership(ClusterConfig* config, const ClusterValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  for (MembershipKind kind :
       {MembershipKind::kStatic, MembershipKind::kDns, MembershipKind::kEtcd}) {
    if (text != nullptr && *text == Name(kind)) {
      config->membership = kind;
      return absl::OkStatus();
    }
  }
  return Wrong(value);
}

absl::Status SetMovers(ClusterConfig* config, const ClusterValue& value) {
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr || *number < -1 || *number > kMoversMax) return Wrong(value);
  config->movers = *number;
  return absl::OkStatus();
}

absl::Status SetDnsPort(ClusterConfig* config, const ClusterValue& value) {
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr || *number < 0 || *number > 65535) return Wrong(value);
  config->dns_port = *number;
  return absl::OkStatus();
}

// No member twice: neither a name at two addresses nor an address under two names.
absl::Status CheckMembers(const ClusterConfig& config) {
  std::map<std::string, std::string> address_of, name_of;
  for (const std::string& text : config.members) {
    const MemberInfo member = *ParseMember(text);
    const auto [by_name, new_name] = address_of.emplace(member.name, member.address);
    if (!new_name && by_name->second != member.address) {
      return absl::InvalidArgumentError(
          absl::StrCat("cluster.members names node '", member.name, "' twice, at ", by_name->second,
                       " and at ", member.address, "; expected one address for each node"));
    }
    const auto [by_address, new_address] = name_of.emplace(member.address, member.name);
    if (!new_address && by_address->second != member.name) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cluster.members has two nodes at ", member.address, ", '", by_address->second, "' and '",
          member.name, "'; expected one node at each address"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const ClusterKey kClusterKeys[kClusterKeyCount] = {
    {"cluster.name", "1 to 63 letters, digits, '.', '_' and '-'",
     "the cluster's name; daemons of another cluster are refused", SetName<&ClusterConfig::name>},
    {"cluster.node", "1 to 63 letters, digits, '.', '_' and '-'",
     "this node's name, alone in the cluster; default: the host's name",
     SetName<&ClusterConfig::node>},
    {"cluster.role", "\"node\" or \"aggregator\"",
     "an aggregator has no ranks: it lends its CPU and its links to add for the nodes", SetRole},
    {"cluster.listen", kAddressWords,
     "where the daemon listens for other nodes' daemons; without it there is no cluster",
     SetAddress<&ClusterConfig::listen, true>},
    {"cluster.advertise", kAddressWords, "where other nodes reach `listen`; default: the same",
     SetAddress<&ClusterConfig::advertise, false>},
    {"cluster.data_listen", kAddressWords,
     "where the daemon listens for payload; default: the host of `listen`, any port",
     SetAddress<&ClusterConfig::data_listen, true>},
    {"cluster.transport", "\"tcp\" or \"rdma\"",
     "what carries payload; the same on all nodes, which meet over TCP in any case", SetTransport},
    {"cluster.movers", "an integer from -1 to 8",
     "tcp: threads that move large payload beside the one that polls; -1: 2 where this process may "
     "use 8 CPUs, else 0",
     SetMovers},
    {"cluster.congestion", "text", "tcp: congestion control, \"cubic\"; default: the machine's",
     SetText<&ClusterConfig::congestion>},
    {"cluster.rdma_devices", "text", "rdma: devices as UCX names them, \"mlx5_0:1\"; default: all",
     SetText<&ClusterConfig::rdma_devices>},
    {"cluster.rdma_transports", "text", "rdma: UCX's carriers, of rc and dc",
     SetText<&ClusterConfig::rdma_transports>},
    {"cluster.membership", "\"static\", \"dns\" or \"etcd\"", "how the other nodes are found",
     SetMembership},
    {"cluster.members", kMemberWords, "static: the nodes, with or without this one", SetMembers},
    {"cluster.dns_name", "a host name", "dns: a name with an address record for each node",
     SetText<&ClusterConfig::dns_name>},
    {"cluster.dns_port", "an integer from 0 to 65535",
     "dns: the port that every node listens on; 0: that of `listen`", SetDnsPort},
    {"cluster.dns_server", kAddressWords, "dns: the server to ask; default: the machine's",
     SetAddress<&ClusterConfig::dns_server, false>},
    {"cluster.dns_refresh", kDurationWords, "dns: how often the name is looked up",
     SetDuration<&ClusterConfig::dns_refresh>},
    {"cluster.etcd_endpoints", kEndpointWords, "etcd: its servers, asked in turn", SetEndpoints},
    {"cluster.etcd_lease", kDurationWords, "etcd: how long a node that says nothing stays a member",
     SetDuration<&ClusterConfig::etcd_lease>},
    {"cluster.tls_cert", "a path", "this node's certificate, a PEM file",
     SetText<&ClusterConfig::tls_cert>},
    {"cluster.tls_key", "a path", "its private key, a PEM file", SetText<&ClusterConfig::tls_key>},
    {"cluster.tls_ca", "a path", "the authority of all nodes' certificates, a PEM file",
     SetText<&ClusterConfig::tls_ca>},
};

std::string_view Name(Role role) { return role == Role::kAggregator ? "aggregator" : "node"; }

std::string_view Name(DataTransport transport) {
  return transport == DataTransport::kRdma ? "rdma" : "tcp";
}

std::string_view Name(MembershipKind kind) {
  switch (kind) {
    case MembershipKind::kStatic:
      return "static";
    case MembershipKind::kDns:
      return "dns";
    case MembershipKind::kEtcd:
      return "etcd";
  }
  return "unknown";
}

absl::Status CheckClusterConfig(const ClusterConfig& config) {
  const auto wrong = [](auto... words) {
    return absl::InvalidArgumentError(absl::StrCat(words...));
  };
  if (!config.enabled()) {
    if (config.role == Role::kNode) return absl::OkStatus();
    return wrong(
        "cluster.role is \"aggregator\" and cluster.listen is not set; expected both: an "
        "aggregator adds for other nodes");
  }
  const int tls_files = !config.tls_cert.empty() + !config.tls_key.empty() + !config.tls_ca.empty();
  if (tls_files != 0 && tls_files != 3) {
    return wrong("cluster.tls_cert, cluster.tls_key and cluster.tls_ca: ", tls_files,
                 " of the three are set; expected all or none");
  }
  SHUNT_ASSIGN_OR_RETURN(const Address listen, ParseAddress(config.listen, /*port_zero=*/true));
  if (IsWildcard(listen)) {
    if (tls_files == 0) {
      return wrong("cluster.listen is \"", config.listen,
                   "\", every address of this machine, without TLS; expected one address, or "
                   "cluster.tls_cert, cluster.tls_key and cluster.tls_ca");
    }
    if (config.advertise.empty()) {
      return wrong("cluster.listen is \"", config.listen,
                   "\", which nobody can connect to; expected cluster.advertise with the address "
                   "at which other nodes reach this one");
    }
  }
  if (const absl::Status status = CheckNodeName(NodeName(config)); !status.ok()) {
    return wrong("cluster.node (the host's name, if not set): ", status.message());
  }
  switch (config.membership) {
    case MembershipKind::kStatic:
      return CheckMembers(config);
    case MembershipKind::kDns:
      if (config.dns_name.empty())
        return wrong("cluster.dns_name is not set; expected for cluster.membership \"dns\"");
      if (config.dns_port == 0 && listen.port == 0) {
        return wrong("cluster.dns_port is 0 and cluster.listen has no port; expected one of them");
      }
      return absl::OkStatus();
    case MembershipKind::kEtcd:
      if (config.etcd_endpoints.empty()) {
        return wrong("cluster.etcd_endpoints is empty; expected for cluster.membership \"etcd\"");
      }
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

std::string NodeName(const ClusterConfig& config) {
  if (!config.node.empty()) return config.node;
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string AdvertisedAddress(const ClusterConfig& config, uint16_t bound_port) {
  if (!config.advertise.empty()) return config.advertise;
  if (config.membership == MembershipKind::kStatic) {
    for (const std::string& text : config.members) {
      const absl::StatusOr<MemberInfo> member = ParseMember(text);
      if (member.ok() && member->name == NodeName(config)) return member->address;
    }
  }
  absl::StatusOr<Address> listen = ParseAddress(config.listen, /*port_zero=*/true);
  if (!listen.ok()) return config.listen;
  listen->port = bound_port;
  return FormatAddress(*listen);
}

std::vector<MemberInfo> StaticMembers(const ClusterConfig& config, const MemberInfo& self) {
  std::vector<MemberInfo> members{self};
  for (const std::string& text : config.members) {
    absl::StatusOr<MemberInfo> member = ParseMember(text);
    if (member.ok() && member->name != self.name) members.push_back(*std::move(member));
  }
  return members;
}

}  // namespace shunt::cluster
