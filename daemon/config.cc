#include "daemon/config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "daemon/cluster/address.h"
#include "daemon/gpu/device_names.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"

namespace shunt::daemon {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Seen(const ConfigValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return absl::StrCat("\"", *text, "\"");
  if (const auto* number = std::get_if<int64_t>(&value)) return absl::StrCat(*number);
  if (std::holds_alternative<std::vector<std::string>>(value)) return "a list of strings";
  return "a list";
}

absl::Status Wrong(const ConfigValue& value) {
  return absl::InvalidArgumentError(absl::StrCat("is ", Seen(value)));
}

template <std::string Config::*kMember>
absl::Status SetText(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Wrong(value);
  config->*kMember = *text;
  return absl::OkStatus();
}

absl::Status SetSocket(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Wrong(value);
  // The lease socket's name is longer by its suffix.
  if (absl::Status status = CheckUnixPath(*text + ".lease"); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is unusable, counting the suffix \".lease\": ", status.message()));
  }
  config->socket = *text;
  return absl::OkStatus();
}

absl::Status SetMode(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || text->empty() || text->size() > 4 ||
      text->find_first_not_of("01234567") != std::string::npos) {
    return Wrong(value);
  }
  config->socket_mode = static_cast<uint32_t>(std::stoul(*text, nullptr, 8));
  return config->socket_mode <= 0777 ? absl::OkStatus() : Wrong(value);
}

absl::Status SetLogLevel(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  for (const char* level : {"trace", "debug", "info", "warn", "error"}) {
    if (text != nullptr && *text == level) {
      config->log_level = level;
      return absl::OkStatus();
    }
  }
  return Wrong(value);
}

absl::Status SetLogFormat(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || (*text != "text" && *text != "json")) return Wrong(value);
  config->log_format = *text;
  return absl::OkStatus();
}

template <int64_t Config::*kMember, int64_t kMin, int64_t kMax>
absl::Status SetInteger(Config* config, const ConfigValue& value) {
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr || *number < kMin || *number > kMax) return Wrong(value);
  config->*kMember = *number;
  return absl::OkStatus();
}

absl::Status SetCpus(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Wrong(value);
  SHUNT_RETURN_IF_ERROR(topology::ParseCpuList(*text).status());
  config->worker_cpus = *text;
  return absl::OkStatus();
}

absl::Status SetNodes(Config* config, const ConfigValue& value) {
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  if (list == nullptr) return Wrong(value);
  std::vector<int> nodes;
  for (const int64_t node : *list) {
    if (node < 0 || node > 65535) {
      return absl::InvalidArgumentError(absl::StrCat("names node ", node));
    }
    nodes.push_back(static_cast<int>(node));
  }
  config->numa_nodes = std::move(nodes);
  return absl::OkStatus();
}

template <uint64_t Config::*kMember>
absl::Status SetSize(Config* config, const ConfigValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    if (*number < 0) return Wrong(value);
    config->*kMember = static_cast<uint64_t>(*number);
    return absl::OkStatus();
  }
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Wrong(value);
  const absl::StatusOr<uint64_t> bytes = ParseSize(*text);
  if (!bytes.ok()) return Wrong(value);
  config->*kMember = *bytes;
  return absl::OkStatus();
}

template <std::chrono::nanoseconds Config::*kMember>
absl::Status SetDuration(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Wrong(value);
  const absl::StatusOr<std::chrono::nanoseconds> duration = ParseDuration(*text);
  if (!duration.ok()) return Wrong(value);
  config->*kMember = *duration;
  return absl::OkStatus();
}

template <auto kMember, auto kParse>
absl::Status SetList(Config* config, const ConfigValue& value) {
  const auto* texts = std::get_if<std::vector<std::string>>(&value);
  const auto* numbers = std::get_if<std::vector<int64_t>>(&value);
  const bool empty = numbers != nullptr && numbers->empty();  // as an empty list comes
  if (texts == nullptr && !empty) return Wrong(value);
  SHUNT_ASSIGN_OR_RETURN(config->*kMember, kParse(empty ? std::vector<std::string>() : *texts));
  return absl::OkStatus();
}

template <std::string Config::*kMember>
absl::Status SetOneOf(Config* config, const ConfigValue& value,
                      std::initializer_list<const char*> words) {
  const auto* text = std::get_if<std::string>(&value);
  for (const char* const word : words) {
    if (text == nullptr || *text != word) continue;
    config->*kMember = word;
    return absl::OkStatus();
  }
  return Wrong(value);
}

absl::Status SetGpuEnabled(Config* config, const ConfigValue& value) {
  return SetOneOf<&Config::gpu_enabled>(config, value, {"auto", "on", "off"});
}

absl::Status SetGpuMps(Config* config, const ConfigValue& value) {
  return SetOneOf<&Config::gpu_mps>(config, value, {"off", "use"});
}

absl::Status SetGpuDevices(Config* config, const ConfigValue& value) {
  std::vector<std::string> devices;
  if (const auto* text = std::get_if<std::string>(&value)) devices = {*text};
  if (const auto* number = std::get_if<int64_t>(&value)) devices = {absl::StrCat(*number)};
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) devices = *texts;
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t number : *numbers) devices.push_back(absl::StrCat(number));
  }
  if (devices.empty()) return absl::InvalidArgumentError("is empty");
  for (const std::string& device : devices) {
    if (IsDeviceName(device)) continue;
    return absl::InvalidArgumentError(absl::StrCat("has \"", device, "\""));
  }
  config->gpu_devices = std::move(devices);
  return absl::OkStatus();
}

absl::Status SetMetricsAddress(Config* config, const ConfigValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Wrong(value);
  if (!text->empty()) {
    // A name might be another machine's by the time that it is looked up.
    const auto address = cluster::ParseAddress(*text, /*port_zero=*/true);
    in6_addr ignored;
    if (!address.ok() || (::inet_pton(AF_INET, address->host.c_str(), &ignored) != 1 &&
                          ::inet_pton(AF_INET6, address->host.c_str(), &ignored) != 1)) {
      return Wrong(value);
    }
  }
  config->metrics_address = *text;
  return absl::OkStatus();
}

constexpr char kSizeWords[] = "a size such as \"8GiB\" or \"512MiB\", or an integer of bytes";
constexpr char kDurationWords[] = "a duration such as \"500ms\", \"10s\" or \"5m\"";

// The keys of the section [cluster], by their place in the cluster's own table.
template <size_t kIndex>
absl::Status SetCluster(Config* config, const ConfigValue& value) {
  return cluster::kClusterKeys[kIndex].set(&config->cluster, value);
}

template <size_t... kIndex>
void AppendCluster(std::vector<ConfigKey>* keys, std::index_sequence<kIndex...>) {
  (keys->push_back({cluster::kClusterKeys[kIndex].name, cluster::kClusterKeys[kIndex].expected,
                    cluster::kClusterKeys[kIndex].help, nullptr, SetCluster<kIndex>}),
   ...);
}

constexpr ConfigKey kOwnKeys[] = {
    {"socket", "a path of at most 101 bytes",
     "Unix socket to listen on; the lease socket lies beside it, with the suffix .lease",
     "/run/shunt/shuntd.sock", SetSocket},
    {"socket_mode", "an octal mode such as \"0600\" or \"0666\"",
     "permissions of both socket files: who may write may connect", "0600", SetMode},
    {"log_level", "\"trace\", \"debug\", \"info\", \"warn\" or \"error\"",
     "least level that is logged", "info", SetLogLevel},
    {"log_format", "\"text\" or \"json\"", "form of a log line", "text", SetLogFormat},
    {"worker_threads", "an integer from 0 to 256",
     "threads that serve operations; 0: one for each CPU of the budget, at most 8", "0",
     SetInteger<&Config::worker_threads, 0, 256>},
    {"worker_cpus", "a list of CPUs such as \"0-3,8\"", "CPUs that workers may use; empty: all", "",
     SetCpus},
    {"numa_nodes", "a list of NUMA nodes such as [0, 1]",
     "NUMA nodes that workers may use; empty: all", "", SetNodes},
    {"memory_total", kSizeWords, "shared memory of all sessions; 0: half of the machine's", "0",
     SetSize<&Config::memory_total>},
    {"memory_per_tenant", kSizeWords, "shared memory of one user's sessions; 0: as memory_total",
     "0", SetSize<&Config::memory_per_tenant>},
    {"memory_per_session", kSizeWords, "shared memory of one session; 0: as memory_per_tenant", "0",
     SetSize<&Config::memory_per_session>},
    {"grace_period", kDurationWords, "what running operations get when the daemon is asked to stop",
     "10s", SetDuration<&Config::grace_period>},
    {"warm_ttl", kDurationWords,
     "how long the record of a communicator is kept after its last member left", "10m",
     SetDuration<&Config::warm_ttl>},
    {"warm_communicators", "an integer from 0 to 65536",
     "records of left communicators that are kept at most", "256",
     SetInteger<&Config::warm_communicators, 0, 65536>},
    {"max_sessions", "an integer from 1 to 65536", "open sessions at most", "4096",
     SetInteger<&Config::max_sessions, 1, 65536>},
    {"max_sessions_per_tenant", "an integer from 1 to 65536", "open sessions of one user at most",
     "4096", SetInteger<&Config::max_sessions_per_tenant, 1, 65536>},
    {"max_communicators_per_session", "an integer from 1 to 65536",
     "communicators of one session at most, joined or joining", "1024",
     SetInteger<&Config::max_communicators_per_session, 1, 65536>},
    {"max_regions_per_session", "an integer from 1 to 1048576", "regions of one session at most",
     "4096", SetInteger<&Config::max_regions_per_session, 1, 1048576>},
    {"spin_us", "an integer from -1 to 10000",
     "microseconds that a worker polls before it sleeps; -1: 20 while there are more CPUs than "
     "sessions (in a cluster: four for each session and one more), else 0",
     "-1", SetInteger<&Config::spin_us, -1, 10000>},
    {"gpu.enabled", "\"auto\", \"on\" or \"off\"",
     "whether GPU memory is served; auto: where there is an NVIDIA driver", "auto", SetGpuEnabled},
    {"gpu.devices",
     "a list of \"all\", ordinals from 0 to 1023, and UUIDs (GPU-...) or beginnings of them",
     "GPUs that are served", "all", SetGpuDevices},
    {"gpu.worker", "a path", "the program that drives a GPU; empty: shunt-gpu-worker beside shuntd",
     "", SetText<&Config::gpu_worker>},
    {"gpu.mps", "\"off\" or \"use\"",
     "whether the workers are clients of NVIDIA's MPS; off: not even where it runs", "off",
     SetGpuMps},
    {"storage.roots", kRootWords,
     "directories below which sessions may open and create files, with the daemon's rights; "
     "files "
     "that clients open themselves need none",
     nullptr, SetList<&Config::storage_roots, ParseRoots>},
    {"storage.s3", kS3Words,
     "object stores that sessions may use, with keys of their own, or, if they are allowed to, "
     "the "
     "daemon's",
     nullptr, SetList<&Config::storage_s3, ParseEndpoints>},
    {"storage.plugins", kPluginWords,
     "libraries that bring stores, whose names are used as those of roots", nullptr,
     SetList<&Config::storage_plugins, ParsePlugins>},
    {"metrics.address", "an IP address and a port such as \"127.0.0.1:9464\", or \"\"",
     "where Prometheus finds this daemon's metrics, under /metrics; whoever reaches it may read "
     "them; empty: nowhere",
     "", SetMetricsAddress},
    {"metrics.link_capacity", kSizeWords,
     "bytes a second, each direction, that a link to another node carries at best, for its "
     "utilisation; 0: as measured when the connection was made",
     "0", SetSize<&Config::metrics_link_capacity>},
};

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The number and the unit of "1.5 GiB".
bool SplitUnit(std::string_view text, double* number, std::string_view* unit) {
  const size_t end = text.find_first_not_of("0123456789.");
  if (end == 0) return false;
  if (!absl::SimpleAtod(View(text.substr(0, end)), number)) return false;
  *unit = end == std::string_view::npos ? std::string_view() : text.substr(end);
  while (!unit->empty() && unit->front() == ' ') unit->remove_prefix(1);
  return true;
}

}  // namespace

std::span<const ConfigKey> ConfigKeys() {
  static const std::vector<ConfigKey>* const keys = [] {
    auto* all = new std::vector<ConfigKey>(std::begin(kOwnKeys), std::end(kOwnKeys));
    AppendCluster(all, std::make_index_sequence<cluster::kClusterKeyCount>());
    return all;
  }();
  return *keys;
}

absl::Status SetKey(const ConfigKey& key, const ConfigValue& value, Config* config) {
  SHUNT_RETURN_IF_ERROR(key.set(config, value));
  config->set_to.insert_or_assign(key.name, value);
  return absl::OkStatus();
}

std::string FlagOf(const ConfigKey& key) {
  return absl::StrCat("--", absl::StrReplaceAll(key.name, {{"_", "-"}, {".", "-"}}));
}

const ConfigKey* FindConfigKey(std::string_view name) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (name == key.name) return &key;
  }
  return nullptr;
}

std::string_view SimilarConfigKey(std::string_view name) {
  std::string_view best;
  if (name.size() > 64) return best;
  size_t distance = name.size() / 2 + 1;
  for (const ConfigKey& key : ConfigKeys()) {
    if (const size_t d = EditDistance(name, key.name); d < distance) {
      distance = d;
      best = key.name;
    }
  }
  return best;
}

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  static constexpr struct {
    std::string_view unit;
    double bytes;
  } kUnits[] = {
      {"", 1},     {"B", 1},       {"kB", 1e3},       {"KB", 1e3},           {"MB", 1e6},
      {"GB", 1e9}, {"TB", 1e12},   {"KiB", 1024},     {"MiB", 1048576},      {"GiB", 1073741824},
      {"K", 1024}, {"M", 1048576}, {"G", 1073741824}, {"TiB", 1099511627776}};
  double number = 0;
  std::string_view unit;
  if (SplitUnit(text, &number, &unit)) {
    for (const auto& known : kUnits) {
      const double bytes = number * known.bytes;
      if (unit == known.unit && bytes < 9e18 && (bytes == 0 || bytes >= 1)) {
        return static_cast<uint64_t>(std::llround(bytes));
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", View(text), "\" is no size; expected ", kSizeWords));
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  static constexpr struct {
    std::string_view unit;
    double ns;
  } kUnits[] = {{"ns", 1},   {"us", 1e3},   {"ms", 1e6},  {"s", 1e9},
                {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}};
  double number = 0;
  std::string_view unit;
  if (SplitUnit(text, &number, &unit)) {
    for (const auto& known : kUnits) {
      const double ns = number * known.ns;
      if (unit == known.unit && ns < 9e18) return std::chrono::nanoseconds(std::llround(ns));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", View(text), "\" is no duration; expected ", kDurationWords));
}

absl::Status ApplyConfigFile(const std::string& path, Config* config) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot open the configuration file"));
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory; expected a configuration file"));
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return ApplyToml(text, path, config);
}

absl::Status ApplyFlag(const ConfigKey& key, std::string_view text, Config* config) {
  config->set_at[key.name] = FlagOf(key);
  // A flag is text: try it as each type that the key may take.
  int64_t number = 0;
  if (absl::SimpleAtoi(View(text), &number) && SetKey(key, number, config).ok())
    return absl::OkStatus();
  if (SetKey(key, std::string(text), config).ok()) return absl::OkStatus();
  std::vector<int64_t> list;
  bool all_numbers = true;
  for (absl::string_view part : absl::StrSplit(View(text), ',', absl::SkipWhitespace())) {
    all_numbers = all_numbers && absl::SimpleAtoi(part, &number);
    list.push_back(number);
  }
  if (all_numbers && SetKey(key, list, config).ok()) return absl::OkStatus();
  const std::vector<std::string> texts = absl::StrSplit(View(text), ',', absl::SkipWhitespace());
  const absl::Status as_list = SetKey(key, texts, config);
  if (as_list.ok()) return absl::OkStatus();
  // Of a list that is one, but not as expected, it says what is wrong.
  const absl::Status status = absl::StartsWith(as_list.message(), "has ")
                                  ? as_list
                                  : SetKey(key, std::string(text), config);
  return absl::InvalidArgumentError(
      absl::StrCat(FlagOf(key), " ", status.message(), "; expected ", key.expected));
}

absl::Status CheckConfig(const Config& config) {
  SHUNT_RETURN_IF_ERROR(cluster::CheckClusterConfig(config.cluster));
  const auto ordered = [](const char* small, uint64_t a, const char* large, uint64_t b) {
    if (a == 0 || b == 0 || a <= b) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(small, " (", a, " bytes) is more than ", large, " (", b, " bytes)"));
  };
  SHUNT_RETURN_IF_ERROR(ordered("memory_per_session", config.memory_per_session,
                                "memory_per_tenant", config.memory_per_tenant));
  SHUNT_RETURN_IF_ERROR(
      ordered("memory_per_tenant", config.memory_per_tenant, "memory_total", config.memory_total));
  return ordered("memory_per_session", config.memory_per_session, "memory_total",
                 config.memory_total);
}

absl::StatusOr<topology::CpuList> CheckWorkerCpus(const Config& config,
                                                  const topology::Topology& topology) {
  const auto named = [&config](const char* key, const std::string& value, const absl::Status& why) {
    const auto at = config.set_at.find(key);
    return absl::InvalidArgumentError(
        absl::StrCat(at == config.set_at.end() ? "" : absl::StrCat(at->second, ": "), key, " is ",
                     value, ": ", why.message()));
  };
  SHUNT_ASSIGN_OR_RETURN(const topology::CpuList budget,
                         topology::ParseCpuList(config.worker_cpus));
  // The budget alone first, so that each error is the one of its key.
  if (const auto cpus = topology::WorkerCpus(topology, budget, {}); !cpus.ok()) {
    return named("worker_cpus", absl::StrCat("\"", config.worker_cpus, "\""), cpus.status());
  }
  auto cpus = topology::WorkerCpus(topology, budget, config.numa_nodes);
  if (!cpus.ok()) {
    return named("numa_nodes", absl::StrCat("[", absl::StrJoin(config.numa_nodes, ", "), "]"),
                 cpus.status());
  }
  return cpus;
}

}  // namespace shunt::daemon
