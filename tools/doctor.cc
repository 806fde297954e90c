#include "tools/doctor.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/version.h"
#include "runtime/core/fd.h"
#include "runtime/core/unix_socket.h"
#include "tools/show.h"

namespace shunt::tools {
namespace {

using Result = Check::Result;

constexpr char kDeniedAdvice[] =
    "run as a user that may write to the socket, or set the daemon's socket_mode, e.g. \"0666\"";

Check SocketFile(const char* name, const std::string& path) {
  Check check{name, Result::kOk, path, "", ""};
  struct stat info {};
  const char* const cost = "clients of this user cannot use the daemon";
  if (::stat(path.c_str(), &info) != 0) {
    const bool denied = errno == EACCES;
    check.result = Result::kFailed;
    check.seen = absl::StrCat(path, ": ", std::strerror(errno));
    check.cost = cost;
    check.advice = denied ? "let this user look into the socket's directory"
                   : InContainer()
                       ? "mount the directory of the node's socket (hostPath /run/shunt) into the "
                         "pod, or start shuntd"
                       : "start shuntd, or name its socket with --socket or $SHUNT_SOCKET";
  } else if (!S_ISSOCK(info.st_mode)) {
    check.result = Result::kFailed;
    check.seen = absl::StrCat(path, " is no socket");
    check.cost = cost;
    check.advice = "remove the file, or give the daemon another path";
  } else if (::access(path.c_str(), W_OK) != 0) {
    check.result = Result::kFailed;
    check.seen = absl::StrCat(path, ": this user may not write to it");
    check.cost = cost;
    check.advice = kDeniedAdvice;
  }
  return check;
}

Check LeaseSocket(const std::string& path) {
  Check check{"lease socket accepts", Result::kOk, path, "", ""};
  const absl::StatusOr<UniqueFd> fd =
      ConnectUnix(path, SocketType::kSeqPacket, std::chrono::seconds(5));
  if (!fd.ok()) {
    check.result = Result::kFailed;
    check.seen = std::string(fd.status().message());
    check.cost = "libshunt cannot open sessions";
    check.advice = absl::IsPermissionDenied(fd.status())
                       ? kDeniedAdvice
                       : "start shuntd, or restart it: both its sockets must be there";
  }
  return check;
}

// `total`: the machine's memory, as the daemon and `shuntctl topology` see it.
Check Memory(const v1::GetStatusResponse& status, uint64_t total) {
  Check check{
      "memory limit", Result::kOk,
      absl::StrCat(SizeText(status.region_bytes()), " of ", SizeText(status.memory_limit_bytes()),
                   " in use; the machine has ", SizeText(total)),
      "", ""};
  if (status.memory_limit_bytes() > total) {
    check.result = Result::kWarning;
    check.cost = "sessions may be given memory that is not there, and then be killed";
    check.advice = "set memory_total to what the machine has";
  } else if (status.region_bytes() > status.memory_limit_bytes() / 10 * 9) {
    check.result = Result::kWarning;
    check.cost = "nearly full: allocations will fail";
    check.advice = "raise memory_total, or see `shuntctl sessions` for who holds it";
  }
  return check;
}

Check Nodes(const v1::ClusterStatus& cluster) {
  Check check{"other nodes", Result::kOk, "", "", ""};
  int up = 0;
  std::string down;
  for (const v1::NodeStatus& node : cluster.nodes()) {
    up += node.state() == "up";
    if (node.state() != "down" && node.state() != "refused") continue;
    absl::StrAppend(&down, down.empty() ? "" : ", ",
                    Printable(node.name().empty() ? node.address() : node.name()));
  }
  check.seen = absl::StrCat(up, " of ", cluster.nodes_size(), " up");
  if (!cluster.membership_trouble().empty()) {
    check.result = Result::kWarning;
    check.seen = Printable(cluster.membership_trouble());
    check.cost = "joins across nodes wait and fail; jobs that run go on";
    check.advice = "see to cluster.membership: the DNS server or etcd";
  } else if (!down.empty()) {
    check.result = Result::kWarning;
    absl::StrAppend(&check.seen, "; not ", down);
    check.cost = "communicators with ranks there cannot be joined";
    check.advice = "`shuntctl status` says why each is not up";
  }
  return check;
}

}  // namespace

std::vector<Check> Diagnose(AdminClient* client) {
  std::vector<Check> checks;
  const Target& target = client->target();
  if (!target.remote()) {
    checks.push_back(SocketFile("gRPC socket", target.socket));
    checks.push_back(SocketFile("lease socket", target.socket + ".lease"));
    checks.push_back(LeaseSocket(target.socket + ".lease"));
  }
  v1::GetTopologyResponse machine;
  int32_t pid = 0;
  const absl::StatusOr<v1::GetStatusResponse> status = client->Status();
  if (status.ok()) {
    checks.push_back(
        {"daemon answers", Result::kOk,
         absl::StrCat("pid ", status->pid(), ", up ", AgeText(status->uptime_seconds())), "", ""});
    Check version{"version", Result::kOk, status->version(), "", ""};
    if (status->version() != daemon::kVersion) {
      version.result = Result::kWarning;
      version.seen = absl::StrCat("daemon ", status->version(), ", shuntctl ", daemon::kVersion);
      version.cost = "none between neighbouring versions";
      version.advice = "restart the daemon after an upgrade";
    }
    checks.push_back(version);
    if (status->stopping()) {
      checks.push_back({"stopping", Result::kWarning, "the daemon was asked to stop",
                        "it takes no new sessions", "wait until it has started again"});
    } else if (status->state() != "serving") {
      checks.push_back({"drain", Result::kWarning, absl::StrCat("the daemon is ", status->state()),
                        "it begins nothing new", "shuntctl drain --undo"});
    }
    pid = status->pid();
    if (const auto topology = client->Topology(); topology.ok()) {
      checks.push_back(Memory(*status, topology->memory_bytes()));
      machine = *topology;
    }
    if (status->has_cluster()) checks.push_back(Nodes(status->cluster()));
  } else {
    const bool denied = absl::IsPermissionDenied(status.status());
    pid = denied ? -1 : 0;
    checks.push_back({"daemon answers", Result::kFailed, std::string(status.status().message()),
                      "nothing works without it",
                      denied ? kDeniedAdvice
                      : target.remote()
                          ? "see whether it runs, on its node"
                          : "start it: systemctl start shuntd, or shuntd --socket PATH &"});
  }
  if (!target.remote()) AddMachine(pid, machine, &checks);
  return checks;
}

int ShowDoctor(const Shown& to) {
  static constexpr const char* kResults[] = {"ok", "warning", "failed"};
  Json list = Json::List();
  Table table({"CHECK", "RESULT", "SEEN"});
  std::string advice;
  bool failed = false;
  for (const Check& check : Diagnose(&to.client)) {
    const char* result = kResults[static_cast<int>(check.result)];
    failed = failed || check.result == Result::kFailed;
    list.Append(Json::Object()
                    .Add("check", check.name)
                    .Add("result", std::string(result))
                    .Add("seen", check.seen)
                    .Add("cost", check.cost)
                    .Add("advice", check.advice));
    // One line each; the words of an error may have several.
    table.Add({check.name, result, Printable(check.seen.substr(0, check.seen.find('\n')))});
    if (check.advice.empty()) continue;
    absl::StrAppend(&advice, "\n", to.style.Bold(check.name), ": ", check.cost, "\n  → ",
                    check.advice, "\n");
  }
  if (to.json) {
    Print(list);
  } else {
    Print(table.Text(to.style) + advice);
  }
  return failed ? kTrouble : kFine;
}

}  // namespace shunt::tools
