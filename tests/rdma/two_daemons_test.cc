// Two daemons whose payload goes over the RDMA rail, each with two ranks of its own: over real
// verbs in the guest
// ($SHUNT_TEST_UCX_TRANSPORTS=rc_v), over shared memory anywhere else.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/core/fd.h"
#include "tests/client/harness.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;

// Node of each rank, not in order.
constexpr std::array<int, 4> kPlaces = {0, 1, 1, 0};
constexpr int kWorld = kPlaces.size();
// The guest emulates its processor.
constexpr auto kPatience = 100s;

std::string FromEnvironment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::string Transports() { return FromEnvironment("SHUNT_TEST_UCX_TRANSPORTS", "sm"); }

// On which nobody listens now.
std::array<std::string, 2> FreeAddresses() {
  std::array<std::string, 2> addresses;
  std::array<UniqueFd, 2> held;
  for (size_t i = 0; i < 2; ++i) {
    held[i] = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    SHUNT_CHECK(::bind(held[i].get(), raw, size) == 0);
    SHUNT_CHECK(::getsockname(held[i].get(), raw, &size) == 0);
    addresses[i] = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  return addresses;
}

struct TwoDaemons {
  TwoDaemons() {
    const std::string members = "a=" + addresses[0] + ",b=" + addresses[1];
    for (size_t node = 0; node < 2; ++node) {
      daemons[node] = std::make_unique<TestDaemon>(std::vector<std::string>{
          "--cluster-node", node == 0 ? "a" : "b", "--cluster-listen", addresses[node],
          "--cluster-members", members, "--cluster-transport", "rdma", "--cluster-rdma-transports",
          Transports(), "--cluster-rdma-devices", FromEnvironment("SHUNT_TEST_UCX_DEVICES", "")});
    }
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    for (const auto& daemon : daemons) {
      // Another process's log: nothing tells when it grows.
      while (daemon->log().find("node connected") == std::string::npos) {
        if (std::chrono::steady_clock::now() > give_up) {
          throw Wrong("the nodes do not meet:\n" + daemons[0]->log() + daemons[1]->log());
        }
        std::this_thread::sleep_for(5ms);
      }
    }
  }
  const std::string& SocketOf(int rank) const { return daemons[kPlaces[rank]]->socket(); }

  const std::array<std::string, 2> addresses = FreeAddresses();
  std::array<std::unique_ptr<TestDaemon>, 2> daemons;
};

shunt_call Patient() { return WithTimeout(kPatience); }

// The sum of all ranks' contributions is right wherever one looks.
void AllReduce(const TestComm& comm, float* x, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) x[i] = static_cast<float>((comm.rank() + 1) * (i % 97));
  const shunt_call call = Patient();
  ExpectOk(shunt_all_reduce(comm, x, x, count, SHUNT_FLOAT32, SHUNT_SUM, &call, nullptr));
  const int sum = comm.world() * (comm.world() + 1) / 2;
  for (uint64_t i = 0; i < count; ++i) {
    const float expected = static_cast<float>(sum * (i % 97));
    Expect(x[i] == expected, "element " + std::to_string(i) + " of " + std::to_string(count) +
                                 " is " + std::to_string(x[i]) + ", expected " +
                                 std::to_string(expected));
  }
}

// Packets that the RDMA devices of this machine have sent; 0 without any.
uint64_t PacketsSent() {
  uint64_t sum = 0;
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    uint64_t packets = 0;
    std::ifstream(device.path() / "ports/1/hw_counters/sent_pkts") >> packets;
    sum += packets;
  }
  return sum;
}

TEST_CASE("ranks of two daemons reduce any size, over the rail") {
  const TwoDaemons nodes;
  const uint64_t before = PacketsSent();
  constexpr uint64_t kLargest = 200'000;
  std::vector<Process> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.push_back(Process::Fork([&, rank] {
      const TestSession session(nodes.SocketOf(rank));
      const TestComm comm(session, "sizes", rank, kWorld, kPatience);
      auto* region = static_cast<float*>(session.Allocate(kLargest * sizeof(float)));
      std::vector<float> elsewhere(30'000);
      for (const uint64_t count : {uint64_t{1}, uint64_t{1000}, uint64_t{30'000}}) {
        AllReduce(comm, region, count);
        AllReduce(comm, elsewhere.data(), count);
      }
      AllReduce(comm, region, kLargest);
    }));
  }
  for (Process& rank : ranks) rank.Join(kPatience);
  if (Transports() == "sm") return;
  // Each node has sent at least half of the data and got the other half, in packets of up to 4096
  // bytes.
  CHECK(PacketsSent() - before >= kLargest * sizeof(float) / 4096);
}

TEST_CASE("a killed rank is named on both nodes, and what comes after it works") {
  const TwoDaemons nodes;
  constexpr int kVictim = 1;
  const auto rank_main = [&](int rank, pid_t victim) {
    const TestSession session(nodes.SocketOf(rank));
    std::vector<float> x(30'000);
    {
      const TestComm comm(session, "dying", rank, kWorld, kPatience);
      AllReduce(comm, x.data(), x.size());
      if (rank == kVictim) ::raise(SIGKILL);
      const shunt_call call = Patient();
      ExpectCode(shunt_all_reduce(comm, x.data(), x.data(), x.size(), SHUNT_FLOAT32, SHUNT_SUM,
                                  &call, nullptr),
                 SHUNT_UNAVAILABLE, {"rank 1 (pid " + std::to_string(victim) + ") died"});
    }
    const TestComm comm(session, "living", rank == 0 ? 0 : rank - 1, kWorld - 1, kPatience);
    AllReduce(comm, x.data(), x.size());
  };
  Process victim = Process::Fork([&] { rank_main(kVictim, 0); });
  std::vector<Process> others;
  for (const int rank : {0, 2, 3}) {
    others.push_back(Process::Fork([&, rank] { rank_main(rank, victim.pid()); }));
  }
  for (Process& rank : others) rank.Join(kPatience);
  CHECK(WTERMSIG(victim.Wait()) == SIGKILL);
}

}  // namespace
}  // namespace shunt::testing
