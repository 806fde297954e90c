#include "daemon/metrics/exporter.h"

#include <CivetServer.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <pthread.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/address.h"
#include "runtime/core/fd.h"
#include "runtime/core/status.h"

namespace shunt::daemon::metrics {
namespace {

constexpr char kPath[] = "/metrics";
// Scrapes at a time. Others wait in a queue, and then in the kernel's.
constexpr char kThreads[] = "4";
constexpr char kQueue[] = "128";
constexpr char kBacklog[] = "1024";
// A client that says nothing for so long is gone.
constexpr char kTimeoutMs[] = "2000";

prometheus::MetricType TypeOf(Type type) {
  switch (type) {
    case Type::kCounter:
      return prometheus::MetricType::Counter;
    case Type::kHistogram:
      return prometheus::MetricType::Histogram;
    case Type::kGauge:
      break;
  }
  return prometheus::MetricType::Gauge;
}

prometheus::ClientMetric Converted(const Sample& sample, Type type) {
  prometheus::ClientMetric metric;
  metric.label.reserve(sample.labels.size());
  for (const auto& [name, value] : sample.labels) {
    metric.label.push_back({std::string(name), value});
  }
  if (type == Type::kCounter) metric.counter.value = sample.value;
  if (type == Type::kGauge) metric.gauge.value = sample.value;
  if (type != Type::kHistogram) return metric;
  const Durations::Snapshot& durations = sample.durations;
  prometheus::ClientMetric::Histogram& histogram = metric.histogram;
  uint64_t cumulative = 0;
  for (int bucket = 0; bucket < Durations::kBounds; ++bucket) {
    cumulative += durations.counts[bucket];
    histogram.bucket.push_back(
        {cumulative, 1e-9 * static_cast<double>(Durations::BoundNs(bucket))});
  }
  histogram.sample_count = durations.count;
  histogram.sample_sum = 1e-9 * static_cast<double>(durations.sum_ns);
  return metric;
}

class Pages final : public prometheus::Collectable {
 public:
  explicit Pages(std::shared_ptr<Collector> collector) : collector_(std::move(collector)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::shared_ptr<const Page> page = collector_->Collect();
    std::vector<prometheus::MetricFamily> families;
    for (const Family& family : page->families()) {
      prometheus::MetricFamily converted;
      converted.name = std::string(family.name);
      converted.help = std::string(family.help);
      converted.type = TypeOf(family.type);
      for (const Sample& sample : family.samples) {
        converted.metric.push_back(Converted(sample, family.type));
      }
      families.push_back(std::move(converted));
    }
    return families;
  }

 private:
  const std::shared_ptr<Collector> collector_;
};

// The exposer answers to every path below its own, and calls a wrong method a path that is not
// there: told apart before it looks. 1: answered.
int BeforeExposer(mg_connection* connection) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const std::string_view method = request->request_method;
  const bool here = request->local_uri != nullptr && std::string_view(request->local_uri) == kPath;
  if (here && method == "GET") return 0;
  const char* const status = !here              ? "404 Not Found"
                             : method == "HEAD" ? "200 OK"
                                                : "405 Method Not Allowed";
  const std::string text = !here ? absl::StrCat("metrics are at ", kPath, "\n")
                                 : absl::StrCat("expected GET ", kPath, "\n");
  mg_printf(connection,
            "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\n%s"
            "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
            status, here && method != "HEAD" ? "Allow: GET, HEAD\r\n" : "",
            method == "HEAD" ? size_t{0} : text.size(), method == "HEAD" ? "" : text.c_str());
  return 1;
}

void* NameThread(const mg_context*, int) {
  ::pthread_setname_np(::pthread_self(), "shunt-metrics");
  return nullptr;
}

// The library only says that something did not work.
absl::Status CheckAddress(const cluster::Address& address, const std::string& words) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(address.port);
  const bool is_v4 = ::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, address.host.c_str(), &v6.sin6_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(words, ": expected an IP address and a port"));
  }
  const UniqueFd fd(::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat(words, ": making a socket"));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto* const to =
      is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  if (::bind(fd.get(), to, is_v4 ? sizeof(v4) : sizeof(v6)) == 0 && ::listen(fd.get(), 1) == 0) {
    return absl::OkStatus();
  }
  switch (errno) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(
          absl::StrCat(words,
                       ": another process listens there; name another port, or \"\" for no "
                       "metrics"));
    case EADDRNOTAVAIL:
      return absl::NotFoundError(
          absl::StrCat(words,
                       ": this machine has no such address; name one of its own, or "
                       "127.0.0.1 for this machine alone"));
    case EACCES:
      return absl::PermissionDeniedError(
          absl::StrCat(words, ": this user may not listen there; name a port of 1024 or more"));
    default:
      return ErrnoStatus(errno, absl::StrCat(words, ": listening"));
  }
}

class ExporterImpl final : public Exporter {
 public:
  ExporterImpl(const std::string& address, std::shared_ptr<Collector> collector)
      : pages_(std::make_shared<Pages>(std::move(collector))),
        callbacks_(Callbacks()),
        exposer_({"listening_ports", address, "num_threads", kThreads, "connection_queue", kQueue,
                  "listen_backlog", kBacklog, "request_timeout_ms", kTimeoutMs},
                 &callbacks_) {
    exposer_.RegisterCollectable(pages_, kPath);
  }

  uint16_t port() const override {
    return static_cast<uint16_t>(exposer_.GetListeningPorts().at(0));
  }

 private:
  static CivetCallbacks Callbacks() {
    CivetCallbacks callbacks;
    callbacks.begin_request = &BeforeExposer;
    callbacks.init_thread = &NameThread;
    callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
    return callbacks;
  }

  const std::shared_ptr<Pages> pages_;
  const CivetCallbacks callbacks_;
  prometheus::Exposer exposer_;  // last: its threads end before what they use
};

}  // namespace

absl::StatusOr<std::unique_ptr<Exporter>> Exporter::Start(const std::string& address,
                                                          const std::string& key,
                                                          std::shared_ptr<Collector> collector) {
  const std::string words = absl::StrCat(key, " is \"", address, "\"");
  absl::StatusOr<cluster::Address> parsed = cluster::ParseAddress(address, /*port_zero=*/true);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(words, ": ", parsed.status().message()));
  }
  SHUNT_RETURN_IF_ERROR(CheckAddress(*parsed, words));
  try {
    return std::unique_ptr<Exporter>(std::make_unique<ExporterImpl>(address, std::move(collector)));
  } catch (const std::exception& error) {  // the library's way
    return absl::UnavailableError(absl::StrCat(words, ": ", error.what()));
  }
}

}  // namespace shunt::daemon::metrics
