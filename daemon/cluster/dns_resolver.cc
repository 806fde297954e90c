// The only file that sees c-ares: it asks the servers over sockets that our loop watches.
#include "daemon/cluster/dns_resolver.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/epoll.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

// Of one try; each server is tried twice.
constexpr int kTimeoutMs = 1000;
constexpr int kTries = 2;

class Resolver : public DnsResolver {
 public:
  Resolver(daemon::EventLoop* loop, const std::string& server) : loop_(loop) {
    ares_library_init(ARES_LIB_INIT_ALL);
    ares_options options{};
    options.timeout = kTimeoutMs;
    options.tries = kTries;
    options.sock_state_cb = [](void* self, ares_socket_t fd, int read, int write) {
      static_cast<Resolver*>(self)->Want(fd, read, write);
    };
    options.sock_state_cb_data = this;
    const int made = ares_init_options(
        &channel_, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
    if (made != ARES_SUCCESS) {
      channel_ = nullptr;
      wrong_ = absl::InternalError(absl::StrCat("c-ares: ", ares_strerror(made)));
      return;
    }
    if (!server.empty()) {
      const int set = ares_set_servers_ports_csv(channel_, server.c_str());
      if (set != ARES_SUCCESS) {
        wrong_ = absl::InvalidArgumentError(absl::StrCat(
            "cluster.dns_server \"", server, "\": ", ares_strerror(set), "; expected an address"));
      }
    }
  }

  ~Resolver() override {
    open_ = false;
    if (channel_ != nullptr) ares_destroy(channel_);
    for (const auto& [fd, watched] : watched_) loop_->Unwatch(watched.id);
    loop_->Cancel(timer_);
    ares_library_cleanup();
  }

  void Resolve(const std::string& name, Done done) override {
    if (!wrong_.ok()) return done(wrong_);
    ares_addrinfo_hints hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    auto* query = new Query{this, name, std::move(done)};
    ares_getaddrinfo(
        channel_, name.c_str(), nullptr, &hints,
        [](void* argument, int status, int, ares_addrinfo* result) {
          const std::unique_ptr<Query> query(static_cast<Query*>(argument));
          auto addresses = Addresses(query->name, status, result);
          if (query->resolver->open_) query->done(std::move(addresses));
        },
        query);
    Arm();
  }

 private:
  struct Query {
    Resolver* resolver;
    std::string name;
    Done done;
  };

  static absl::StatusOr<std::vector<std::string>> Addresses(const std::string& name, int status,
                                                            ares_addrinfo* result) {
    const std::unique_ptr<ares_addrinfo, decltype(&ares_freeaddrinfo)> owner(result,
                                                                             ares_freeaddrinfo);
    if (status == ARES_ENODATA || status == ARES_ENOTFOUND) {
      return absl::NotFoundError(absl::StrCat("DNS name \"", name, "\" has no address"));
    }
    if (status != ARES_SUCCESS) {
      return absl::UnavailableError(
          absl::StrCat("DNS name \"", name, "\" cannot be looked up: ", ares_strerror(status)));
    }
    std::vector<std::string> addresses;
    for (const ares_addrinfo_node* node = result->nodes; node != nullptr; node = node->ai_next) {
      char text[INET6_ADDRSTRLEN] = {};
      const void* bytes = node->ai_family == AF_INET
                              ? static_cast<const void*>(
                                    &reinterpret_cast<const sockaddr_in*>(node->ai_addr)->sin_addr)
                              : &reinterpret_cast<const sockaddr_in6*>(node->ai_addr)->sin6_addr;
      if (::inet_ntop(node->ai_family, bytes, text, sizeof text) != nullptr)
        addresses.emplace_back(text);
    }
    return addresses;
  }

  // c-ares opens and closes its sockets and says which it waits for.
  void Want(ares_socket_t fd, int read, int write) {
    const uint32_t events = (read != 0 ? EPOLLIN : 0u) | (write != 0 ? EPOLLOUT : 0u);
    const auto it = watched_.find(fd);
    if (events == 0) {
      if (it == watched_.end()) return;
      loop_->Unwatch(it->second.id);
      watched_.erase(it);
      return;
    }
    if (it != watched_.end()) {
      loop_->Change(it->second.id, events).IgnoreError();
      return;
    }
    const auto id = loop_->Watch(fd, events, [this, fd](uint32_t ready) {
      ares_process_fd(channel_,
                      (ready & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 ? fd : ARES_SOCKET_BAD,
                      (ready & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0 ? fd : ARES_SOCKET_BAD);
      Arm();
    });
    // If it cannot be watched the query ends by its timeout.
    if (id.ok()) watched_[fd] = {*id};
  }

  void Arm() {
    loop_->Cancel(std::exchange(timer_, 0));
    timeval left{};
    if (ares_timeout(channel_, nullptr, &left) == nullptr) return;  // nothing is in flight
    const int64_t ns = left.tv_sec * 1'000'000'000 + left.tv_usec * 1000 + 1'000'000;
    timer_ = loop_->At(NowNs() + ns, [this] {
      timer_ = 0;
      ares_process_fd(channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
      Arm();
    });
  }

  struct Watched {
    daemon::EventLoop::WatchId id = 0;
  };
  daemon::EventLoop* const loop_;
  ares_channel channel_ = nullptr;
  absl::Status wrong_;
  bool open_ = true;
  std::map<ares_socket_t, Watched> watched_;
  daemon::EventLoop::TimerId timer_ = 0;
};

}  // namespace

std::unique_ptr<DnsResolver> MakeDnsResolver(daemon::EventLoop* loop, const std::string& server) {
  return std::make_unique<Resolver>(loop, server);
}

}  // namespace shunt::cluster
