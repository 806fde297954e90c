// shunt-transport-perf: a transport alone, between two processes: 1 MiB messages one way, and
// 8-byte ping-pong. Sleeps between polls, as a daemon does; with SPIN in the environment it does
// not.
//
//   shunt-transport-perf b ADDRESS PORT [MOVERS [MESSAGES [BYTES [UCX]]]]   listens there
//   shunt-transport-perf a ADDRESS PORT [MOVERS [MESSAGES [BYTES [UCX]]]]   connects, prints
//
// Both take the same numbers. MOVERS: -1 as shuntd has by default. UCX: its transports, for example
// rc, over as many streams; without it the transport is TCP.
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/clock.h"
#include "runtime/transport/tcp/tcp_transport.h"
#ifdef SHUNT_PERF_UCX
#include "runtime/transport/ucx/ucx_transport.h"
#endif

namespace {

using namespace shunt;
using namespace shunt::transport;

constexpr int kPingPongs = 2000;
constexpr uint32_t kWindow = 16;  // messages posted at a time

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "shunt-transport-perf: %s\n", why.c_str());
  std::exit(1);
}

class End {
 public:
  End(Transport* transport, bool spin) : transport_(transport), spin_(spin) {}

  // Polls until so many messages have ended since the start.
  void Wait(uint64_t sent, uint64_t received) {
    while (sent_ < sent || received_ < received) {
      Completion batch[32];
      const size_t count = transport_->Poll(absl::MakeSpan(batch));
      for (size_t i = 0; i < count; ++i) {
        const Completion& c = batch[i];
        if (c.event == Event::kPeerLost) Die(c.text);
        if (c.event != Event::kSent && c.event != Event::kReceived) continue;
        if (c.code == absl::StatusCode::kUnavailable) continue;  // kPeerLost says why
        if (c.code != absl::StatusCode::kOk) Die("a message ended with an error");
        ++(c.event == Event::kSent ? sent_ : received_);
      }
      if (count == 0 && !spin_) {
        pollfd p{transport_->fd(), POLLIN, 0};
        ::poll(&p, 1, -1);
      }
    }
  }
  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }

 private:
  Transport* transport_;
  bool spin_;
  uint64_t sent_ = 0, received_ = 0;
};

Message At(uint64_t sequence, uint32_t slice, Class service_class) {
  Message m;
  m.peer = 1;
  m.tag = {.communicator = 1, .sequence = sequence, .channel = 0, .step = 0, .slice = slice};
  m.service_class = service_class;
  return m;
}

TcpPeer Other(const std::string& name, const std::string& address, uint16_t port) {
  TcpPeer peer;  // all tokens zero: for measuring only
  peer.id = 1;
  peer.name = name;
  peer.address = address;
  peer.port = port;
  peer.incarnation = 1;
  return peer;
}

void PingPong(Transport* t, End* end, bool first) {
  std::byte out[8]{}, in[8]{};
  const uint64_t sent = end->sent(), received = end->received();
  const int64_t start = NowNs();
  for (uint32_t i = 0; i < kPingPongs; ++i) {
    t->PostRecv(At(1, i, Class::kLatency), in, 0);
    if (first) t->PostSend(At(1, i, Class::kLatency), out, 0);
    end->Wait(sent + i + (first ? 1 : 0), received + i + 1);
    if (!first) t->PostSend(At(1, i, Class::kLatency), out, 0);
  }
  end->Wait(sent + kPingPongs, received + kPingPongs);
  if (first) {
    std::printf("ping-pong 8 B: %.2f us one way\n",
                static_cast<double>(NowNs() - start) / 1e3 / kPingPongs / 2);
  }
}

void OneWay(Transport* t, End* end, bool sender, uint32_t messages, size_t bytes) {
  // One buffer for all, as ucx_perftest and iperf3 have it: caches serve all three alike.
  std::vector<std::byte> buffer(bytes);
  const uint64_t sent = end->sent(), received = end->received();
  const int64_t start = NowNs();
  for (uint32_t i = 0; i < messages + kWindow; ++i) {
    if (i >= kWindow) {
      const uint64_t done = i - kWindow + 1;
      end->Wait(sent + (sender ? done : 0), received + (sender ? 0 : done));
    }
    if (i >= messages) continue;
    if (sender) {
      t->PostSend(At(2, i, Class::kBulk), buffer, 0);
    } else {
      t->PostRecv(At(2, i, Class::kBulk), absl::MakeSpan(buffer), 0);
    }
  }
  // The last word is the receiver's.
  std::byte word[1];
  if (sender) {
    t->PostRecv(At(3, 0, Class::kLatency), word, 0);
    end->Wait(0, received + 1);
    const double seconds = static_cast<double>(NowNs() - start) / 1e9;
    std::printf("one way %zu B: %.3f GB/s\n", bytes,
                static_cast<double>(bytes) * messages / seconds / 1e9);
    t->PostSend(At(4, 0, Class::kLatency), word, 0);
    end->Wait(sent + messages + 1, 0);
    // It leaves with the next polls; the other side then hangs up.
    Completion c;
    while (t->Poll(absl::MakeSpan(&c, 1)) == 0 || c.event != Event::kPeerLost) {
    }
  } else {
    t->PostSend(At(3, 0, Class::kLatency), word, 0);
    t->PostRecv(At(4, 0, Class::kLatency), word, 0);
    end->Wait(0, received + messages + 1);
  }
}

// With its only peer.
std::unique_ptr<Transport> Make(const TcpOptions& options, const TcpPeer& peer,
                                const char* ucx_transports) {
  const auto check = [](const absl::Status& status) {
    if (!status.ok()) Die(std::string(status.message()));
  };
  if (ucx_transports == nullptr) {
    auto made = TcpTransport::Create(options);
    check(made.status());
    check((*made)->AddPeer(peer));
    return std::move(*made);
  }
#ifdef SHUNT_PERF_UCX
  UcxOptions ucx;
  ucx.bootstrap = options;
  ucx.streams = std::max(1, options.movers);
  ucx.transports = ucx_transports;
  auto made = UcxTransport::Create(ucx);
  check(made.status());
  check((*made)->AddPeer(peer));
  return std::move(*made);
#else
  Die("built without UCX");
#endif
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || (std::string(argv[1]) != "a" && std::string(argv[1]) != "b")) {
    Die("usage: shunt-transport-perf a|b ADDRESS PORT [MOVERS [MESSAGES [BYTES [UCX]]]]");
  }
  const bool first = std::string(argv[1]) == "a";
  const auto port = static_cast<uint16_t>(std::atoi(argv[3]));
  const auto messages = static_cast<uint32_t>(argc > 5 ? std::atoi(argv[5]) : 4000);
  const auto bytes = static_cast<size_t>(argc > 6 ? std::atol(argv[6]) : 1 << 20);
  TcpOptions options;
  options.name = argv[1];
  options.incarnation = 1;
  const int movers = argc > 4 ? std::atoi(argv[4]) : -1;  // -1: as shuntd would have
  UseMovers(&options, movers >= 0
                          ? movers
                          : DefaultMovers(static_cast<int>(std::thread::hardware_concurrency())));
  options.connect_timeout_ns = 30'000'000'000;
  if (first) {
    options.listen_address = "127.0.0.1";
  } else {
    options.listen_address = argv[2];
    options.listen_port = port;
  }
  const std::unique_ptr<Transport> made =
      Make(options, Other(first ? "b" : "a", argv[2], port), argc > 7 ? argv[7] : nullptr);
  Transport* t = made.get();
  if (absl::Status status = t->Open(1, {1}); !status.ok()) Die(std::string(status.message()));
  End end(t, std::getenv("SPIN") != nullptr);
  PingPong(t, &end, first);
  OneWay(t, &end, first, messages, bytes);
  return 0;
}
