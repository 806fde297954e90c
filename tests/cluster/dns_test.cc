// Membership from a real DNS server, dnsmasq, whose records a test changes.
#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/cluster/node.h"
#include "tests/cluster/program.h"
#include "tests/support/temp_dir.h"

namespace shunt::cluster::testing {
namespace {

using namespace std::chrono_literals;

bool Contains(const absl::Status& status, std::string_view part) {
  return std::string_view(status.message().data(), status.message().size()).find(part) !=
         std::string_view::npos;
}

class Dns {
 public:
  Dns() : binary_(ProgramOrSkip("dnsmasq", {"/usr/sbin/dnsmasq"})), port_(FreePorts(1)[0]) {}

  // What the name's addresses are from now on.
  void Set(const std::vector<std::string>& hosts) {
    std::ofstream out(dir_ / "hosts", std::ios::trunc);
    for (const std::string& host : hosts) out << host << " shunt.test\n";
    out.close();
    if (program_ != nullptr) program_->Signal(SIGHUP);  // it reads the file again
  }
  void Start() {
    program_ = std::make_unique<Program>(
        std::vector<std::string>{binary_, "--keep-in-foreground", "--no-resolv", "--no-hosts",
                                 absl::StrCat("--addn-hosts=", dir_ / "hosts"),
                                 absl::StrCat("--port=", port_), "--listen-address=127.0.0.1",
                                 "--bind-interfaces", "--conf-file=/dev/null",
                                 "--pid-file=", "--user=root", "--no-negcache", "--local=/test/"},
        dir_ / "log");
  }
  void Kill() { program_.reset(); }
  std::string server() const { return Loopback(port_); }

 private:
  const std::string binary_;
  const shunt::testing::TempDir dir_;
  const uint16_t port_;
  std::unique_ptr<Program> program_;
};

// Nodes listen on different addresses of 127.0.0.0/8 and one port, as pods do.
std::unique_ptr<Node> Start(const std::string& name, const std::string& host, uint16_t port,
                            const Dns& dns) {
  return std::make_unique<Node>(name, 0, std::vector<std::string>(),
                                [&](Cluster::Options* options) {
                                  options->config.listen = absl::StrCat(host, ":", port);
                                  options->config.membership = MembershipKind::kDns;
                                  options->config.dns_name = "shunt.test";
                                  options->config.dns_server = dns.server();
                                  options->config.dns_refresh = 1s;
                                });
}

bool Meets(Node& one, Node& other, const std::string& name) {
  const Joining first = one.Join(name, {0}, 2);
  const Joining second = other.Join(name, {1}, 2);
  INFO(first.Get().status().ToString());
  INFO(second.Get().status().ToString());
  CHECK(first.Get().ok());
  CHECK(second.Get().ok());
  return first.Get().ok() && second.Get().ok();
}

TEST_CASE("nodes behind one name find each other, by addresses only, and come and go") {
  Dns dns;
  dns.Set({"127.0.0.2", "127.0.0.3"});
  dns.Start();
  const uint16_t port = FreePorts(1)[0];
  auto a = Start("a", "127.0.0.2", port, dns);
  auto b = Start("b", "127.0.0.3", port, dns);
  REQUIRE(a->WaitUp("b"));
  for (int i = 0; i < 4; ++i) CHECK(Meets(*a, *b, absl::StrCat("x", i)));
  auto c = Start("c", "127.0.0.4", port, dns);
  dns.Set({"127.0.0.2", "127.0.0.3", "127.0.0.4"});
  REQUIRE(a->WaitUp("c"));
  REQUIRE(c->WaitUp("b"));
  for (int i = 0; i < 4; ++i) CHECK(Meets(*c, *b, absl::StrCat("y", i)));
  // Out of the name, yet it answers: what runs goes on; only new members are chosen without it.
  dns.Set({"127.0.0.2", "127.0.0.3"});
  REQUIRE(Eventually([&] { return (*a)->GetView().view.members.size() == 2; }));
  CHECK(a->FindUp("c").incarnation != 0);
  c.reset();
  CHECK(a->WaitLog("lost c: it stopped"));
}

TEST_CASE("no DNS server at the start and later: joining says so, members stay") {
  Dns dns;
  dns.Set({"127.0.0.2"});
  const uint16_t port = FreePorts(1)[0];
  auto a = Start("a", "127.0.0.2", port, dns);
  REQUIRE(Eventually([&] { return Contains((*a)->GetView().membership, "cannot be looked up"); }));
  const absl::Status status = a->Join("x", {0}, 1, 300ms).Get().status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Contains(status, "DNS name \"shunt.test\" cannot be looked up"));
  dns.Start();
  CHECK(a->Join("x", {0}, 1).Get().status().ToString() == "OK");
  dns.Kill();
  REQUIRE(Eventually([&] { return !(*a)->GetView().membership.ok(); }));
  CHECK((*a)->GetView().view.members.size() == 1);
}

TEST_CASE("a name without addresses is said to have none") {
  Dns dns;
  dns.Set({});
  dns.Start();
  auto a = Start("a", "127.0.0.2", FreePorts(1)[0], dns);
  REQUIRE(Eventually([&] { return Contains((*a)->GetView().membership, "has no address"); }));
}

TEST_CASE("two daemons with one name behind a DNS name: the second is refused") {
  Dns dns;
  dns.Set({"127.0.0.2", "127.0.0.3"});
  dns.Start();
  const uint16_t port = FreePorts(1)[0];
  auto a = Start("a", "127.0.0.2", port, dns);
  auto second = Start("a", "127.0.0.3", port, dns);
  const std::string id = absl::StrCat("127.0.0.2:", port);
  REQUIRE(Eventually([&] { return second->StateOf(id) == PeerTable::State::kRefused; }));
  CHECK(second->WhyNot(id).find("node name 'a' is that of the daemon at " + id) !=
        std::string::npos);
}

}  // namespace
}  // namespace shunt::cluster::testing
