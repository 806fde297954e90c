// Real clusters on loopback: greeting, refusing, joining, losing.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/cluster/node.h"
#include "tests/cluster/program.h"
#include "tests/cluster/proxy.h"
#include "tests/support/temp_dir.h"

namespace shunt::cluster::testing {
namespace {

using namespace std::chrono_literals;
using State = PeerTable::State;

bool Contains(const absl::Status& status, std::string_view part) {
  return std::string_view(status.message().data(), status.message().size()).find(part) !=
         std::string_view::npos;
}
bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

struct Names {
  explicit Names(std::vector<std::string> names)
      : names(names), ports(FreePorts(static_cast<int>(names.size()))) {
    for (size_t i = 0; i < names.size(); ++i)
      members.push_back(absl::StrCat(names[i], "=", Loopback(ports[i])));
  }
  std::unique_ptr<Node> Start(size_t i, std::function<void(Cluster::Options*)> adjust = nullptr) {
    return std::make_unique<Node>(names[i], ports[i], members, std::move(adjust));
  }
  View view() const {
    std::vector<MemberInfo> list;
    for (size_t i = 0; i < names.size(); ++i) list.push_back({names[i], Loopback(ports[i]), 0});
    return MakeView(std::move(list), false);
  }
  // A communicator's name whose coordinator is `node` in `view`.
  static std::string CoordinatedBy(const std::string& node, const View& view, int skip = 0) {
    for (int i = 0;; ++i) {
      const std::string name = absl::StrCat("c", i);
      if (RendezvousHash(view, HashKey({1000, "job", name}))->id() == node && skip-- == 0)
        return name;
    }
  }
  std::vector<std::string> names;
  std::vector<uint16_t> ports;
  std::vector<std::string> members;
};

TEST_CASE("two nodes find each other and exchange tokens for both directions") {
  Names names({"a", "b"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  REQUIRE(a->started().ToString() == "OK");
  REQUIRE(a->WaitUp("b"));
  REQUIRE(b->WaitUp("a"));
  const PeerInfo b_at_a = a->FindUp("b"), a_at_b = b->FindUp("a");
  CHECK(b_at_a.data_addresses == std::vector<std::string>{"127.0.0.1:1b"});
  CHECK(b_at_a.token_out.size() == 32);
  CHECK(b_at_a.token_out == a_at_b.token_in);
  CHECK(b_at_a.token_in == a_at_b.token_out);
  CHECK(b_at_a.token_in != b_at_a.token_out);
  CHECK(b_at_a.incarnation == (*b)->GetView().self.incarnation);
  // Whoever may come is known before it is up.
  CHECK(a->log().front() == "expected b 32");
}

TEST_CASE("ranks of three nodes meet, whichever node coordinates") {
  Names names({"a", "b", "c"});
  std::vector<std::unique_ptr<Node>> nodes;
  for (size_t i = 0; i < 3; ++i) nodes.push_back(names.Start(i));
  for (const std::string& coordinator : names.names) {
    const std::string name = Names::CoordinatedBy(coordinator, names.view());
    for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
      std::vector<Joining> joins;
      joins.push_back(nodes[2]->Join(name, {4, 5}, 6));
      joins.push_back(nodes[0]->Join(name, {0}, 6));
      joins.push_back(nodes[0]->Join(name, {1}, 6));
      joins.push_back(nodes[1]->Join(name, {3, 2}, 6));
      std::vector<MapPtr> maps;
      for (const Joining& join : joins) {
        const auto map = join.Get();
        INFO(map.status().ToString());
        REQUIRE(map.ok());
        maps.push_back(*map);
        CHECK(*maps.back() == *maps.front());
      }
      const CommunicatorMap& map = *maps.front();
      CHECK(map.epoch == epoch);
      CHECK(map.warm == (epoch == 2));
      CHECK(map.wire_id != 0);
      REQUIRE(map.nodes.size() == 3);
      CHECK(map.nodes[0].name == "a");
      CHECK(map.nodes[2].incarnation == (*nodes[2])->GetView().self.incarnation);
      REQUIRE(map.ranks.size() == 6);
      CHECK(map.ranks[3] == MappedRank{1, 103, "s"});
      // Who has the map has its nodes.
      for (const char* other : {"b", "c"}) CHECK(nodes[0]->FindUp(other).incarnation != 0);
    }
  }
}

TEST_CASE("refusals say who, where and what") {
  Names names({"a", "b"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  for (const std::string& coordinator : names.names) {
    const std::string name = Names::CoordinatedBy(coordinator, names.view());
    const Joining first = a->Join(name, {0}, 3, 3s);
    REQUIRE(Eventually([&] {
      return (*a)->GetView().registrations_waiting + (*b)->GetView().registrations_waiting == 1;
    }));
    const absl::Status taken = b->Join(name, {0}, 3).Get().status();
    CHECK(taken.code() == absl::StatusCode::kAlreadyExists);
    CHECK(Contains(taken,
                   "rank 0 on node b (pid 100, 's') cannot join: it is taken by rank 0 on "
                   "node a (pid 100, 's')"));
    const absl::Status world = b->Join(name, {1}, 4).Get().status();
    CHECK(world.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Contains(world,
                   "rank 1 on node b (pid 101, 's') joins with world size 4, but rank 0 on "
                   "node a (pid 100, 's') joins with world size 3"));
    const absl::Status range = b->Join(name, {3}, 3).Get().status();
    CHECK(range.code() == absl::StatusCode::kInvalidArgument);

    const Joining second = b->Join(name, {1}, 3);
    REQUIRE(Eventually([&] {
      return (*a)->GetView().registrations_waiting + (*b)->GetView().registrations_waiting == 2;
    }));
    (*b)->Withdraw(second.id, "its process ended");
    const absl::Status withdrawn = second.Get().status();
    CHECK(withdrawn.code() == absl::StatusCode::kCancelled);
    CHECK(Contains(withdrawn, "its process ended"));
    const absl::Status missing = first.Get().status();
    CHECK(missing.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(Contains(missing,
                   "1 of 3 ranks joined in time; missing ranks 1-2 (rank 1 on node b (pid 101, "
                   "'s') came and went: its process ended)"));
  }
}

// Two nodes and a member that answers nothing, for what goes to it is held up on its way: while it
// is greeted for the first time, who wants aggregators waits.
struct Greeting {
  Greeting() : names({"a", "b", "silent"}), silence(names.ports[0]) {
    silence.Stall();
    names.members[2] = absl::StrCat("silent=", Loopback(silence.port()));
    a = names.Start(0);
    b = names.Start(1);
    REQUIRE(a->WaitUp("b"));
    REQUIRE(b->WaitUp("a"));
  }
  Names names;
  Proxy silence;
  std::unique_ptr<Node> a, b;
};

TEST_CASE("a rank that goes while aggregators are waited for is gone for all") {
  for (const std::string at : {"a", "b"}) {
    Greeting nodes;
    Node& coordinator = at == "a" ? *nodes.a : *nodes.b;
    const auto waiting = [&] { return coordinator->GetView().registrations_waiting; };
    const std::string name = Names::CoordinatedBy(at, nodes.names.view());
    const Joining stays = nodes.a->Join(name, {0}, 2, 3s, "aggregated");
    REQUIRE(Eventually([&] { return waiting() == 1; }));
    const Joining goes = nodes.b->Join(name, {1}, 2, 20s, "aggregated");
    REQUIRE(Eventually([&] { return waiting() == 0; }));
    CHECK_FALSE(goes.outcome->there());
    (*nodes.b)->Withdraw(goes.id, "its process ended");
    const absl::Status withdrawn = goes.Get().status();
    CHECK(withdrawn.code() == absl::StatusCode::kCancelled);
    CHECK(Contains(withdrawn, "its process ended"));
    const absl::Status missing = stays.Get().status();
    CHECK(missing.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(Contains(missing,
                   "1 of 2 ranks joined in time; missing rank 1 (rank 1 on node b (pid 101, 's') "
                   "came and went: its process ended)"));
  }
}

TEST_CASE("a node that goes while aggregators are waited for is gone for the others") {
  Greeting nodes;
  const std::string name = Names::CoordinatedBy("a", nodes.names.view());
  const Joining goes = nodes.b->Join(name, {1}, 2, 20s, "aggregated");
  REQUIRE(Eventually([&] { return (*nodes.a)->GetView().registrations_waiting == 1; }));
  const Joining stays = nodes.a->Join(name, {0}, 2, 3s, "aggregated");
  REQUIRE(Eventually([&] { return (*nodes.a)->GetView().registrations_waiting == 0; }));
  nodes.b->Stop();
  const absl::Status missing = stays.Get().status();
  CHECK(missing.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(
      Contains(missing, "missing rank 1 (rank 1 on node b (pid 101, 's') came and went: its node"));
}

TEST_CASE("no rank waits for aggregators past its deadline") {
  Greeting nodes;
  const auto begin = std::chrono::steady_clock::now();
  const Joining at_a = nodes.a->Join("x", {0}, 2, 700ms, "aggregated");
  const Joining at_b = nodes.b->Join("x", {1}, 2, 20s, "aggregated");
  for (const Joining* join : {&at_a, &at_b}) {
    const absl::Status status = join->Get().status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Contains(status, "algorithm \"aggregated\" needs an aggregator"));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 1500ms);
}

TEST_CASE("an aggregator that does not answer is left out") {
  Names names({"a", "b", "x"});
  Outcome<bool> asked;
  auto x =
      names.Start(2, [](Cluster::Options* options) { options->config.role = Role::kAggregator; });
  x->Post([&] {
    x->open_span = [&](const std::function<void(const absl::Status&)>&) { asked.Set(true); };
  });
  auto a = names.Start(0);
  auto b = names.Start(1);
  for (const auto* node : {&a, &b}) REQUIRE((*node)->WaitUp("x"));
  std::vector<MemberInfo> ranked = names.view().members;
  ranked.pop_back();
  const std::string name = Names::CoordinatedBy("a", MakeView(ranked, false));
  const Joining at_a = a->Join(name, {0}, 2, 20s, "aggregated");
  const Joining at_b = b->Join(name, {1}, 2, 20s, "aggregated");
  REQUIRE(asked.Get().ok());
  std::string why = "it did not answer in time";
  SECTION("when it stays silent") {}
  SECTION("when it is lost") {
    (*a)->DataLost("x", a->FindUp("x").incarnation, "cut");
    why = "it was lost";
  }
  for (const Joining* join : {&at_a, &at_b}) {
    const absl::Status status = join->Get().status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Contains(status, "aggregator 'x' is not ready: " + why));
  }
}

TEST_CASE("a host that cannot be reached is named, and the others go on") {
  Names names({"a", "b", "c"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  REQUIRE(Eventually([&] { return a->StateOf("c") == State::kDown; }));
  CHECK(Contains(a->WhyNot("c"),
                 absl::StrCat("node 'c' (", Loopback(names.ports[2]), ") cannot be reached: ")));
  // Also what c would coordinate.
  const std::string name = Names::CoordinatedBy("c", names.view());
  const Joining at_a = a->Join(name, {0}, 2);
  const Joining at_b = b->Join(name, {1}, 2);
  CHECK(at_a.Get().status().ToString() == "OK");
  CHECK(at_b.Get().status().ToString() == "OK");
}

TEST_CASE("a daemon of another cluster is refused with both names") {
  Names names({"a", "b"});
  auto a = names.Start(0);
  auto b = names.Start(1, [](Cluster::Options* options) { options->config.name = "other"; });
  REQUIRE(Eventually([&] { return a->StateOf("b") == State::kRefused; }));
  const std::string why = a->WhyNot("b");
  CHECK(Contains(why, "'shunt'"));
  CHECK(Contains(why, "'other'"));
  CHECK(a->up().empty());
  CHECK(b->up().empty());
}

TEST_CASE("a daemon without a common protocol version is refused with both ranges") {
  Names names({"a", "b", "c"});
  auto a = names.Start(0);
  auto b = names.Start(1, [](Cluster::Options* options) {
    options->version = "9.9";
    options->protocol_min = 2;
    options->protocol_max = 3;
  });
  // One that speaks ours and newer ones is welcome.
  auto c = names.Start(2, [](Cluster::Options* options) { options->protocol_max = 2; });
  REQUIRE(Eventually([&] { return b->StateOf("a") == State::kRefused; }));
  const std::string why = b->WhyNot("a");
  CHECK(Contains(why, "9.9"));
  CHECK(Contains(why, "speaks versions 2 to 3"));
  CHECK(Contains(why, "speaks 1 to 1"));
  CHECK(c->WaitUp("a"));
  CHECK(c->WaitUp("b"));
}

TEST_CASE("a second daemon with a node's name is refused, and told so when it joins") {
  Names names({"a", "b"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  REQUIRE(a->WaitUp("b"));
  const uint64_t incarnation = a->FindUp("b").incarnation;
  Node impostor("b", FreePorts(1)[0], {names.members[0]});
  REQUIRE(Eventually([&] { return impostor.StateOf("a") == State::kRefused; }));
  const absl::Status joined = impostor.Join("x", {0}, 1).Get().status();
  CHECK(joined.code() == absl::StatusCode::kAlreadyExists);
  CHECK(Contains(
      joined, absl::StrCat("node name 'b' is that of the daemon at ", Loopback(names.ports[1]))));
  CHECK(a->FindUp("b").incarnation == incarnation);
  CHECK(b->WaitUp("a"));
}

TEST_CASE("a daemon that is in nobody's list is refused with the list") {
  Names names({"a"});
  auto a = names.Start(0);
  Node stranger("z", FreePorts(1)[0], {names.members[0]});
  REQUIRE(Eventually([&] { return !stranger.WhyNot("a").empty(); }));
  CHECK(Contains(stranger.WhyNot("a"),
                 "node 'z', which is not among the members as node 'a' sees them: a"));
  CHECK(a->up().empty());
}

TEST_CASE("when a coordinator stops, those who wait meet at another node") {
  Names names({"a", "b", "c"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  auto c = names.Start(2);
  const std::string name = Names::CoordinatedBy("c", names.view());
  const Joining at_a = a->Join(name, {0}, 2);
  REQUIRE(Eventually([&] { return (*c)->GetView().registrations_waiting == 1; }));
  c->Stop();
  const Joining at_b = b->Join(name, {1}, 2);
  CHECK(at_a.Get().status().ToString() == "OK");
  CHECK(at_b.Get().status().ToString() == "OK");
  CHECK(a->WaitLog("lost c: it stopped"));
}

TEST_CASE("when the coordinator comes back, what waited elsewhere moves to it") {
  Names names({"a", "b", "c"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  const std::string name = Names::CoordinatedBy("c", names.view());
  const Joining at_a = a->Join(name, {0}, 3);
  REQUIRE(Eventually([&] {
    return (*a)->GetView().registrations_waiting + (*b)->GetView().registrations_waiting == 1;
  }));
  auto c = names.Start(2);
  REQUIRE(Eventually([&] { return (*c)->GetView().registrations_waiting == 1; }));
  const Joining at_b = b->Join(name, {1}, 3);
  const Joining at_c = c->Join(name, {2}, 3);
  for (const Joining* join : {&at_a, &at_b, &at_c}) {
    CHECK(join->Get().status().ToString() == "OK");
  }
}

TEST_CASE("a restarted node is another incarnation, and joins again at once") {
  Names names({"a", "b"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  REQUIRE(a->WaitUp("b"));
  const PeerInfo before = a->FindUp("b");
  b.reset();
  REQUIRE(a->WaitLog("lost b: "));
  b = names.Start(1);
  const Joining at_a = a->Join("x", {0}, 2);
  const Joining at_b = b->Join("x", {1}, 2);
  CHECK(at_a.Get().status().ToString() == "OK");
  CHECK(at_b.Get().status().ToString() == "OK");
  CHECK(a->FindUp("b").incarnation != before.incarnation);
  CHECK(a->FindUp("b").token_in != before.token_in);
}

TEST_CASE("a node with an old view is sent on, and looks again") {
  Names names({"a", "b", "c"});
  const View full = names.view();
  std::vector<MemberInfo> two(full.members.begin(), full.members.begin() + 2);
  const View old = MakeView(two, false);
  // Coordinated by b as a sees it, by c as all others do.
  std::string name;
  for (int skip = 0; name.empty(); ++skip) {
    const std::string candidate = Names::CoordinatedBy("c", full, skip);
    if (RendezvousHash(old, HashKey({1000, "job", candidate}))->id() == "b") name = candidate;
  }
  SetMembership* membership = nullptr;
  bool may_look = false;
  auto a = names.Start(0, [&](Cluster::Options* options) {
    auto own = std::make_unique<SetMembership>();
    membership = own.get();
    options->membership = std::move(own);
  });
  auto b = names.Start(1);
  auto c = names.Start(2);
  a->Post([&] {
    membership->on_refresh = [&] { return may_look ? full : old; };
    membership->Set(old);
  });
  SECTION("and finds the new one") {
    a->Post([&] { may_look = true; });
    const Joining at_a = a->Join(name, {0}, 2);
    const Joining at_c = c->Join(name, {1}, 2);
    CHECK(at_a.Get().status().ToString() == "OK");
    CHECK(at_c.Get().status().ToString() == "OK");
  }
  SECTION("and says who thinks what if it stays old") {
    const absl::Status status = a->Join(name, {0}, 2).Get().status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(Contains(status, "takes b for its coordinator"));
    CHECK(Contains(status, absl::StrCat("takes c for it (revision ", Hex(full.revision))));
  }
}

TEST_CASE("a coordinator with an old view sends nobody to where the others do not look") {
  Names names({"a", "b", "c"});
  const View full = names.view();
  // c is the coordinator for all but itself: it does not see itself yet, and takes a for it.
  std::vector<MemberInfo> two(full.members.begin(), full.members.begin() + 2);
  const View old = MakeView(two, false);
  std::string name;
  for (int skip = 0; name.empty(); ++skip) {
    const std::string candidate = Names::CoordinatedBy("c", full, skip);
    if (RendezvousHash(old, HashKey({1000, "job", candidate}))->id() == "a") name = candidate;
  }
  SetMembership* membership = nullptr;
  bool asked = false;
  auto c = names.Start(2, [&](Cluster::Options* options) {
    auto own = std::make_unique<SetMembership>();
    membership = own.get();
    options->membership = std::move(own);
  });
  c->Post([&] { membership->Set(old); });
  auto a = names.Start(0);
  auto b = names.Start(1);
  REQUIRE(a->WaitUp("c"));
  REQUIRE(b->WaitUp("c"));
  c->Post([&] {
    membership->on_refresh = [&] {
      asked = true;
      return old;
    };
  });
  const Joining at_a = a->Join(name, {0}, 2);
  REQUIRE(Eventually([&] {
    bool was = false;
    c->Post([&] { was = asked; });
    return was;
  }));
  c->Post([&] {
    membership->on_refresh = nullptr;
    membership->Set(full);
  });
  const Joining at_c = c->Join(name, {1}, 2);
  CHECK(at_a.Get().status().ToString() == "OK");
  CHECK(at_c.Get().status().ToString() == "OK");
}

TEST_CASE("a node that is cut off is lost, and found again") {
  Names names({"a", "b"});
  Proxy proxy(names.ports[1]);
  names.members[1] = absl::StrCat("b=", Loopback(proxy.port()));
  auto a = names.Start(0);
  auto b = names.Start(1);
  REQUIRE(a->WaitUp("b"));
  proxy.Stall();
  REQUIRE(a->WaitLog("lost b: "));
  proxy.Mend();
  CHECK(Eventually([&] { return a->FindUp("b").incarnation != 0; }));
}

// Certificates made out for each name, and their authority.
struct Authority {
  Authority() : openssl(ProgramOrSkip("openssl", {"/usr/bin/openssl"})) {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca "
        "-keyout " +
        (dir / "ca.key") + " -out " + (dir / "ca.pem"));
  }
  void Run(const std::string& arguments) {
    REQUIRE(std::system((openssl + " " + arguments + " 2>/dev/null").c_str()) == 0);
  }
  void Certify(const std::string& name) {
    const std::string base = dir / name;
    std::ofstream(base + ".ext") << "subjectAltName=DNS:" << name << "\n";
    Run("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " -keyout " +
        base + ".key -out " + base + ".csr");
    Run("x509 -req -days 2 -in " + base + ".csr -CA " + (dir / "ca.pem") + " -CAkey " +
        (dir / "ca.key") + " -CAcreateserial -extfile " + base + ".ext -out " + base + ".pem");
  }
  std::function<void(Cluster::Options*)> Use(const std::string& name) {
    return [this, name](Cluster::Options* options) {
      options->config.tls_ca = dir / "ca.pem";
      options->config.tls_cert = dir / (name + ".pem");
      options->config.tls_key = dir / (name + ".key");
    };
  }
  const std::string openssl;
  const shunt::testing::TempDir dir;
};

TEST_CASE("with TLS nodes meet if their certificates are made out for their names") {
  Authority authority;
  for (const char* name : {"a", "b", "x"}) authority.Certify(name);
  Names names({"a", "b", "c", "d"});
  auto a = names.Start(0, authority.Use("a"));
  auto b = names.Start(1, authority.Use("b"));
  auto c = names.Start(2, authority.Use("x"));  // a certificate of the authority, for another name
  auto d = names.Start(3);                      // none
  REQUIRE(a->started().ToString() == "OK");
  REQUIRE(a->WaitUp("b"));
  REQUIRE(b->WaitUp("a"));
  REQUIRE(Eventually([&] { return c->StateOf("a") == State::kRefused; }));
  CHECK(Contains(c->WhyNot("a"),
                 "says that it is node 'c', but its certificate is not made out for "
                 "'c'"));
  REQUIRE(Eventually([&] { return d->StateOf("a") == State::kDown; }));
  CHECK(a->FindUp("c").incarnation == 0);
  CHECK(a->FindUp("d").incarnation == 0);
  Node missing("e", 0, {}, [](Cluster::Options* options) {
    options->config.tls_ca = options->config.tls_key = options->config.tls_cert = "/no/such.pem";
  });
  CHECK(missing.started().ToString() == "NOT_FOUND: cluster.tls_cert: cannot open /no/such.pem");
}

TEST_CASE("joining says why the membership is not known, and goes on when it is") {
  Names names({"a"});
  SetMembership* membership = nullptr;
  auto a = names.Start(0, [&](Cluster::Options* options) {
    auto own = std::make_unique<SetMembership>();
    membership = own.get();
    options->membership = std::move(own);
  });
  a->Post([&] { membership->Set(View(), absl::UnavailableError("etcd is down")); });
  const Joining join = a->Join("x", {0}, 1);
  SECTION("it stays away") {
    const absl::Status status = join.Get().status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(Contains(status, "communicator 'x' of job 'job': etcd is down"));
  }
  SECTION("it comes") {
    a->Post([&] { membership->Set(names.view()); });
    CHECK(join.Get().status().ToString() == "OK");
  }
}

TEST_CASE("a peer tells what its ranks called last") {
  Names names({"a", "b"});
  auto a = names.Start(0);
  auto b = names.Start(1);
  b->call_status = [](uint64_t wire_id) -> absl::StatusOr<std::vector<RankCall>> {
    if (wire_id != 7) return absl::NotFoundError("no communicator 8");
    return std::vector<RankCall>{{3, 42, "barrier", 7}};
  };
  REQUIRE(a->WaitUp("b"));
  const auto ask = [&](const std::string& node, uint64_t wire_id) {
    auto outcome = std::make_shared<Outcome<std::vector<RankCall>>>();
    (*a)->CallStatus(node, wire_id, 2s, [outcome](const auto& ranks) { outcome->Set(ranks); });
    return outcome->Get();
  };
  const auto ranks = ask("b", 7);
  REQUIRE(ranks.ok());
  REQUIRE(ranks->size() == 1);
  CHECK(ranks->front().rank == 3);
  CHECK(ranks->front().pid == 42);
  CHECK(ranks->front().last_call == "barrier");
  CHECK(ranks->front().collectives == 7);
  CHECK(ask("b", 8).status().ToString() == "NOT_FOUND: node 'b': no communicator 8");
  CHECK(ask("z", 7).status().ToString() == "UNAVAILABLE: node 'z' is not connected");
}

TEST_CASE("an address that is taken is an error at the start") {
  Names names({"a"});
  auto a = names.Start(0);
  Node second("b", names.ports[0], {});
  CHECK(second.started().code() == absl::StatusCode::kUnavailable);
  CHECK(Contains(second.started(),
                 absl::StrCat("cluster.listen: cannot listen on ", Loopback(names.ports[0]))));
}

TEST_CASE("joins that wait when the daemon stops end with words") {
  Names names({"a", "b"});
  auto a = names.Start(0);
  const Joining join = a->Join("x", {0}, 2);
  REQUIRE(Eventually([&] { return (*a)->GetView().joins_waiting == 1; }));
  a->Stop();
  CHECK(join.Get().status().ToString() ==
        "UNAVAILABLE: communicator 'x' of job 'job': shuntd on node 'a' is stopping");
}

}  // namespace
}  // namespace shunt::cluster::testing
