// The only file that sees civetweb.
#include "daemon/page/page_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "daemon/cluster/address.h"
#include "daemon/page/status_html.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

// A connection carries one request, so none of them is held by an idle browser.
constexpr char kThreads[] = "16";
constexpr char kWaiting[] =
    "64";  // accepted, and waiting for a thread; the next wait in the kernel
constexpr char kBacklog[] = "1024";
constexpr char kTimeoutMs[] = "1000";     // one that says nothing holds a thread so long
constexpr char kRequestBytes[] = "8192";  // of a request line and its headers

constexpr char kHeaders[] =
    "Cache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Connection: close\r\n";
constexpr char kNothing[] =
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

bool IsIp(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> ignored;
  return ::inet_pton(AF_INET, host.c_str(), ignored.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), ignored.data()) == 1;
}

class Server final : public PageServer {
 public:
  explicit Server(Options options) : options_(std::move(options)) {}

  ~Server() override {
    if (context_ != nullptr) mg_stop(context_);
    mg_exit_library();
  }

  absl::Status Listen() {
    mg_init_library(0);
    SHUNT_ASSIGN_OR_RETURN(cluster::Address address,
                           cluster::ParseAddress(options_.address, /*port_zero=*/true));
    if (address.host == "localhost") address.host = "127.0.0.1";
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) == 0) host_name_ = host.data();
    const std::string ports = cluster::FormatAddress(address);
    const std::array<const char*, 19> settings = {"listening_ports",
                                                  ports.c_str(),
                                                  "num_threads",
                                                  kThreads,
                                                  "connection_queue",
                                                  kWaiting,
                                                  "listen_backlog",
                                                  kBacklog,
                                                  "request_timeout_ms",
                                                  kTimeoutMs,
                                                  "enable_keep_alive",
                                                  "no",
                                                  "max_request_size",
                                                  kRequestBytes,
                                                  "enable_directory_listing",
                                                  "no",
                                                  "decode_url",
                                                  "no",
                                                  nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = [](mg_connection* connection) {
      return static_cast<Server*>(mg_get_request_info(connection)->user_data)->Answer(connection);
    };
    callbacks.log_message = [](const mg_connection* connection, const char* message) {
      auto* const self = static_cast<Server*>(mg_get_user_data(mg_get_context(connection)));
      // The first of the start; later ones are of clients that went away.
      if (self != nullptr && self->context_ == nullptr && self->trouble_.empty()) {
        self->trouble_ = message;
      }
      return 1;
    };
    const auto refused = [&](std::string_view why) {
      return absl::UnavailableError(absl::StrCat(
          "page.address: cannot listen on ", ports, why.empty() ? "" : ": ",
          absl::string_view(why.data(), why.size()), "; expected a free address of this machine"));
    };
    std::array<char, 256> text{};
    unsigned code = 0;
    mg_error_data error{&code, text.data(), text.size()};
    mg_init_data init{&callbacks, this, const_cast<const char**>(settings.data())};
    mg_context* const context = mg_start2(&init, &error);
    if (context == nullptr) return refused(trouble_.empty() ? text.data() : trouble_);
    context_ = context;
    mg_server_port bound{};
    if (mg_get_server_ports(context_, 1, &bound) != 1) return refused("it has no port");
    port_ = static_cast<uint16_t>(bound.port);
    return absl::OkStatus();
  }

  uint16_t port() const override { return port_; }

 private:
  // civetweb's: 0 would have it look for a file.
  int Answer(mg_connection* connection) {
    const mg_request_info& request = *mg_get_request_info(connection);
    const std::string_view method = request.request_method;
    const std::string_view path = request.local_uri_raw != nullptr ? request.local_uri_raw : "";
    const bool head = method == "HEAD";
    if (!KnowsHost(mg_get_header(connection, "Host"))) {
      return Send(connection, 421, "Misdirected Request", "text/plain", kNothing,
                  "this is the status page of a node's shuntd: ask for it by an IP address, as "
                  "localhost, or by the node's name\n",
                  head);
    }
    if (method != "GET" && !head) {
      return Send(connection, 405, "Method Not Allowed", "text/plain", kNothing,
                  "this page can be read only: GET and HEAD\n", false, "Allow: GET, HEAD\r\n");
    }
    if (path == "/") {
      const std::string nonce = Nonce();
      const std::string policy =
          absl::StrCat(kNothing, "; script-src 'nonce-", nonce, "'; style-src 'nonce-", nonce,
                       "'; connect-src 'self'; img-src data:");
      return Send(connection, 200, "OK", "text/html; charset=utf-8", policy,
                  absl::StrReplaceAll(kStatusHtml, {{"@NONCE@", nonce}}), head);
    }
    if (path == "/status.json") {
      return Send(connection, 200, "OK", "application/json", kNothing, Status(), head);
    }
    return Send(connection, 404, "Not Found", "text/plain", kNothing,
                "there are / and /status.json\n", head);
  }

  // A page of somewhere else that has its own name lead here must not be able to read this one.
  bool KnowsHost(const char* header) const {
    if (header == nullptr) return true;  // no browser
    std::string host(header);
    if (!host.empty() && host.front() == '[') {
      host = host.substr(1, host.find(']') - 1);
    } else {
      host = host.substr(0, host.find(':'));
    }
    const auto same = [](const std::string& a, const std::string& b) {
      return std::equal(
          a.begin(), a.end(), b.begin(), b.end(),
          [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
    };
    return IsIp(host) || same(host, "localhost") || (!host_name_.empty() && same(host, host_name_));
  }

  static std::string Nonce() {
    std::array<char, 16> bytes{};
    // So few bytes come at once, and whole.
    SHUNT_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
  }

  std::string Status() {
    const std::lock_guard lock(mutex_);
    if (status_.empty() || NowNs() - made_ns_ > options_.fresh_ns) {
      status_ = options_.status_json();
      made_ns_ = NowNs();
    }
    return status_;
  }

  static int Send(mg_connection* connection, int code, const char* reason, const char* type,
                  const std::string& policy, const std::string& body, bool head,
                  const char* more = "") {
    std::string answer = absl::StrCat("HTTP/1.1 ", code, " ", reason, "\r\nContent-Type: ", type,
                                      "\r\nContent-Length: ", body.size(),
                                      "\r\nContent-Security-Policy: ", policy, "\r\n");
    absl::StrAppend(&answer, kHeaders, more, "\r\n", head ? "" : body);
    mg_write(connection, answer.data(), answer.size());
    return code;
  }

  const Options options_;
  std::string host_name_;
  std::string trouble_;
  mg_context* context_ = nullptr;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::string status_;
  int64_t made_ns_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(Options options) {
  auto server = std::make_unique<Server>(std::move(options));
  SHUNT_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace shunt::daemon
