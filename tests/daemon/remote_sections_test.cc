#include "daemon/transfer/remote_sections.h"

#include <catch2/catch.hpp>

#include "daemon/transfer/store_regions.h"
#include "runtime/p2p/section_wire.h"
#include "tests/daemon/agents_world.h"

namespace shunt::daemon {
namespace {

using Content = v1::FetchPeerSectionResponse;

void CheckError(const absl::Status& status, absl::StatusCode code,
                const std::vector<std::string>& words) {
  CHECK(status.code() == code);
  for (const std::string& word : words) {
    INFO(status.message() << " lacks " << word);
    CHECK(status.message().find(word) != absl::string_view::npos);
  }
}

std::vector<Notification> All(const FakeNode& node, const std::string& agent) {
  bool more = false;
  return (*node.agents.FindInbox(0, agent))->Take(10'000, &more);
}

TEST_CASE("millions of pieces come in a few hundred bytes, and for nothing if they are here") {
  AgentsWorld world;
  const uint64_t incarnation = world["b"].Register("x");
  world["b"].Publish(Cache("kv", 80, 40'960));
  const auto first = world.Fetch("x").value();
  CHECK(world["b"].last.content_case() == Content::kWhole);
  CHECK(world["b"].last.ByteSizeLong() <= 400);
  CHECK(first->list->pieces() == 6'553'600);
  CHECK(first->node == "b");
  CHECK(first->node_incarnation == 1);
  CHECK(first->agent == "x");
  CHECK(first->incarnation() == incarnation);
  CHECK(first->inbox == nullptr);
  CHECK(first->list->space() != 0);
  CHECK(world.Fetch("x@b").value() == first);
  CHECK(world["b"].last.content_case() == Content::kUnchanged);
  CHECK(world["b"].last.ByteSizeLong() <= 32);
}

TEST_CASE("a change comes as a delta, and who holds the version before is told") {
  AgentsWorld world;
  world["b"].Register("x");
  p2p::Section section = Cache("kv", 80, 1000);
  world["b"].Publish(section);
  const auto first = world.Fetch("x").value();
  section.sets.pop_back();
  world["b"].Publish(section);
  CHECK(first->CheckCurrent().ok());
  const auto second = world.Fetch("x").value();
  CHECK(world["b"].last.content_case() == Content::kDelta);
  CHECK(second->version() == 2);
  CHECK(second->list->section().sets == section.sets);
  CheckError(first->CheckCurrent(), absl::StatusCode::kFailedPrecondition,
             {"version 2 now", "version 1 was fetched"});
  CHECK(second->CheckCurrent().ok());
}

TEST_CASE("a delta is made from the last four versions that were fetched, and only if shorter") {
  FakeNode node;
  const uint64_t incarnation = node.Register("x");
  cluster::SectionQuery query{0, "x", "kv", true, false, incarnation, 0};
  const auto kind = [&](uint64_t known) {
    query.known_version = known;
    return node.agents.Answer(query).value().kind;
  };
  using Kind = cluster::SectionAnswer::Kind;
  for (uint64_t blocks = 100; blocks < 107; ++blocks) {
    node.Publish(Cache("kv", 100, 100));
    if (blocks != 104) CHECK(kind(0) == Kind::kWhole);  // version 5 is fetched by nobody
  }
  CHECK(kind(7) == Kind::kUnchanged);
  for (const uint64_t version : {2, 3, 4, 6}) CHECK(kind(version) == Kind::kDelta);
  for (const uint64_t version : {1, 5, 8}) CHECK(kind(version) == Kind::kWhole);
  query.known_incarnation ^= 1;
  CHECK(kind(6) == Kind::kWhole);
  query.known_incarnation ^= 1;
  p2p::Section other = Cache("kv", 1, 100);
  other.regions[0].id = other.sets[0].region = 1'000'000;
  node.Publish(other);
  CHECK(kind(7) == Kind::kWhole);
}

TEST_CASE("the history of one agent is bounded") {
  SectionHistory history;
  p2p::Section section = Cache("", 1024, 1);
  for (int i = 0; i < 100; ++i) {
    section.name = std::to_string(i);
    section.version = 1;
    history.Keep(section);
  }
  CHECK(history.Find("35", 1) == nullptr);  // 64 Ki sets are 64 sections of 1024
  CHECK(history.Find("36", 1) != nullptr);
  section = Cache("", 1, 1);
  for (int i = 0; i < 2000; ++i) {
    section.name = std::to_string(i);
    history.Keep(section);
  }
  CHECK(history.Find("975", 0) == nullptr);
  CHECK(history.Find("976", 0) != nullptr);
}

TEST_CASE("the first node by name is meant, whichever answers first") {
  AgentsWorld world;
  for (const std::string name : {"b", "c", "d"}) world[name].holds = true;
  for (const std::string name : {"c", "d"}) {
    world[name].Register("x");
    world[name].Publish(Cache("kv", 1, 1));
  }
  auto result = world.Begin("x");
  world.Settle();
  world.Release("d");
  world.Release("c");
  CHECK(result.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  world.Release("b");
  CHECK(result.get().value()->node == "c");
  CHECK(world["d"].asked == 1);

  // Next time it is asked alone, until it has the agent no more.
  for (const std::string name : {"b", "c", "d"}) world[name].holds = false;
  CHECK(world.Fetch("x").value()->node == "c");
  CHECK(world["b"].asked == 1);
  world["c"].agents.SessionGone(1);
  CHECK(world.Fetch("x").value()->node == "d");
  CHECK(world["b"].asked == 2);
  // Or is down.
  world["d"].up = false;
  CheckError(world.Fetch("x").status(), absl::StatusCode::kNotFound, {"node 'd' is down"});
}

TEST_CASE("an agent that is nowhere is an error that says who was asked and who did not answer") {
  AgentsWorld world;
  CheckError(world.Fetch("x").status(), absl::StatusCode::kNotFound,
             {"agent \"x\"", "no other node is up"});
  world["b"], world["c"], world["d"].up = false;
  world["e"].lie = [](Content*) {};  // an answer that says nothing
  CheckError(world.Fetch("x").status(), absl::StatusCode::kNotFound,
             {"agent \"x\"", "nor on the 3 others that were asked", "1 gave no answer",
              "its answer is wrong", "not up, and not asked: node 'd' is down"});
  CheckError(world.Fetch("x@d").status(), absl::StatusCode::kUnavailable, {"node 'd'"});
  CheckError(world.Fetch("x@b").status(), absl::StatusCode::kNotFound, {"agent \"x\"", "user 0"});
}

TEST_CASE("a node that has the agent decides, whether or not it gives the section") {
  AgentsWorld world;
  for (const std::string name : {"b", "c"}) {
    world[name].Register("x");
    world[name].Publish(Cache("kv", 1, 1), 1, {name == "c", true, {}});
  }
  CheckError(world.Fetch("x").status(), absl::StatusCode::kPermissionDenied,
             {"\"kv\"", "\"x\"", "not for reading"});
  CHECK(world.Fetch("x", "kv", true).value()->node == "b");
  CHECK(world.Fetch("x@c").value()->node == "c");
  CheckError(world.Fetch("x", "other").status(), absl::StatusCode::kNotFound,
             {"node 'b'", "publishes no section \"other\"", "it has kv"});
}

TEST_CASE("a section of files is refused in words on another node") {
  AgentsWorld world;
  world["b"].Register("x");
  world["b"].Publish(Cache("kv", 1, 1), 1, {}, kStoreSpace);
  CheckError(world.Fetch("x@b").status(), absl::StatusCode::kUnimplemented,
             {"\"kv\"", "\"x\"", "files or objects"});
}

TEST_CASE("what one user may see another does not get from what is kept") {
  AgentsWorld world;
  world["b"].Register("x", 1, 5);
  world["b"].Publish(Cache("kv", 1, 1), 1, {true, false, {7, 9}});
  const auto of_seven = world.Fetch("x", "kv", false, 7u).value();
  const auto of_nine = world.Fetch("x", "kv", false, 9u).value();
  CHECK(of_nine->CheckAccess(9, false).ok());
  CHECK_FALSE(of_nine->CheckAccess(7, false).ok());
  CHECK(of_seven->CheckAccess(7, false).ok());
  CHECK_FALSE(of_seven->CheckAccess(7, true).ok());
  CHECK_FALSE(of_seven->CheckAccess(8, false).ok());
  CHECK(world.Fetch("x", "kv", false, 8u).status().code() == absl::StatusCode::kNotFound);
  CHECK(world.Fetch("x", "other", false, 7u).status().code() == absl::StatusCode::kNotFound);
  CHECK(world.Fetch("x", "kv", true, 7u).status().code() == absl::StatusCode::kPermissionDenied);
  // The same name is another agent's to a user who has one.
  world["b"].Register("x", 2, 7);
  world["b"].Publish(Cache("kv", 2, 1), 2);
  CHECK(world.Fetch("x", "kv", false, 7u).value()->list->pieces() == 4);
  CheckError(of_seven->CheckCurrent(), absl::StatusCode::kFailedPrecondition, {"has ended"});
}

TEST_CASE("a node that came back is another space, and its sections come whole") {
  AgentsWorld world;
  world["b"].Register("x");
  world["b"].Publish(Cache("kv", 1, 1));
  const auto before = world.Fetch("x").value();
  world["b"].incarnation = 2;
  const auto after = world.Fetch("x").value();
  CHECK(world["b"].last.content_case() == Content::kWhole);
  CHECK(after->node_incarnation == 2);
  CHECK(after->list->space() != before->list->space());
}

TEST_CASE("an agent that came back is told from the one before") {
  AgentsWorld world;
  world["b"].Register("x");
  world["b"].Publish(Cache("kv", 1, 1));
  const auto before = world.Fetch("x").value();
  world["b"].agents.SessionGone(1);
  CHECK(world.Fetch("x").status().code() == absl::StatusCode::kNotFound);
  world["b"].Register("x", 2);
  world["b"].Publish(Cache("kv", 1, 1), 2);
  const auto after = world.Fetch("x").value();
  CHECK(after->incarnation() != before->incarnation());
  CheckError(before->CheckCurrent(), absl::StatusCode::kFailedPrecondition, {"has ended"});
}

TEST_CASE("what a node sends is looked at before it is used") {
  AgentsWorld world;
  FakeNode& b = world["b"];
  b.Register("x");
  b.Publish(Cache("kv", 1, 1));
  const auto refused = [&](const std::string& words, std::function<void(Content*)> lie) {
    b.lie = std::move(lie);
    const absl::Status status = world.Fetch("x@b").status();
    INFO(status);
    CHECK_FALSE(status.ok());
    CHECK(status.message().find(words) != absl::string_view::npos);
  };
  refused("node 'b'", [](Content* c) { c->set_whole("nonsense"); });
  refused("expected version 2", [](Content* c) { c->set_version(2); });
  refused("neither to be 0", [](Content* c) { c->set_version(0); });
  refused("incarnation", [](Content* c) { c->set_agent_incarnation(1); });
  refused("may not be used", [](Content* c) { c->set_read(false); });
  refused("unchanged", [](Content* c) { c->set_unchanged(true); });
  refused("a change", [](Content* c) { c->set_delta("d"); });
  refused("\"kw\"", [](Content* c) {
    p2p::Section section = p2p::DecodeSection(c->whole()).value();
    section.name = "kw";
    c->set_whole(p2p::EncodeSection(section));
  });
}

TEST_CASE("a change that does not fit has the whole asked for, once") {
  AgentsWorld world;
  FakeNode& b = world["b"];
  b.Register("x");
  p2p::Section section = Cache("kv", 80, 1);
  b.Publish(section);
  REQUIRE(world.Fetch("x@b").ok());
  section.sets.pop_back();
  b.Publish(section);
  b.lie = [](Content* c) {
    if (c->has_delta()) c->set_delta(c->delta() + "x");
  };
  CHECK(world.Fetch("x@b").value()->version() == 2);
  CHECK(b.asked == 3);
  CHECK(b.last.content_case() == Content::kWhole);
  section.sets.pop_back();
  b.Publish(section);
  b.lie = [](Content* c) { c->has_delta() ? c->set_delta("x") : c->set_whole("x"); };
  CHECK(world.Fetch("x@b").status().code() == absl::StatusCode::kInternal);
  CHECK(b.asked == 5);
}

TEST_CASE("a notification goes to one node, once, and says where it is from") {
  AgentsWorld world;
  for (const std::string name : {"b", "c", "d"}) world[name];
  for (const std::string name : {"c", "d"}) world[name].Register("x");
  CHECK(world.Notify("x", "1").ok());
  CHECK(world.Notify("x", "2").ok());
  CHECK(world["b"].notified + world["d"].notified == 0);
  const auto came = All(world["c"], "x");
  REQUIRE(came.size() == 2);
  CHECK(came[0].payload == "1");
  CHECK(came[1].payload == "2");
  CHECK(came[0].from == "me@a");
  CHECK(world.Notify("x@d", "3").ok());
  CHECK(All(world["d"], "x").size() == 1);
  // It is looked for again where it is no more.
  world["c"].agents.SessionGone(1);
  CHECK(world.Notify("x", "4").ok());
  CHECK(All(world["d"], "x").size() == 1);
  for (size_t i = 0; i < Inbox::kWaitingMax; ++i) REQUIRE(world.Notify("x", "").ok());
  CheckError(world.Notify("x", ""), absl::StatusCode::kResourceExhausted, {"\"x\"", "1024"});
  CheckError(world.Notify("y", ""), absl::StatusCode::kNotFound, {"\"y\"", "3 others"});
  CheckError(world.Notify("y@b", ""), absl::StatusCode::kNotFound, {"\"y\""});
}

TEST_CASE("who waits for other nodes hears of it when the daemon leaves them") {
  AgentsWorld world;
  world["b"].holds = true;
  auto one = world.Begin("x"), other = world.Begin("x@b");
  world.Settle();
  world.OnLoop([&] { world.sections->SetPeers(nullptr); });
  CHECK(one.get().status().code() == absl::StatusCode::kUnavailable);
  CHECK(other.get().status().code() == absl::StatusCode::kUnavailable);
  world.Release("b");
  CHECK(world.Fetch("x").status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("one user's questions are bounded, another's go on") {
  AgentsWorld world;
  world["b"].holds = true;
  std::vector<std::future<AgentsWorld::Result>> waiting;
  for (int i = 0; i < 256; ++i) waiting.push_back(world.Begin("x"));
  CheckError(world.Fetch("x").status(), absl::StatusCode::kResourceExhausted, {"\"x\"", "256"});
  auto other = world.Begin("x", "kv", false, 1);
  world.Settle();
  world.Release("b");
  CHECK(other.get().status().code() == absl::StatusCode::kNotFound);
  for (auto& result : waiting) CHECK(result.get().status().code() == absl::StatusCode::kNotFound);
  world["b"].holds = false;
  CHECK(world.Fetch("x").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("what is kept of other nodes' sections is bounded, the last used stay") {
  SectionCache cache({.entries_max = 3, .bytes_max = 100'000});
  const auto key = [](int i) { return SectionCache::Key{"b", 1, "x", std::to_string(i), 0}; };
  const auto put = [&](int i, uint64_t layers) {
    auto published = std::make_shared<Published>();
    p2p::Section section = Cache(std::to_string(i), layers, 1);
    published->list = *p2p::PreparedList::Prepare(section, 1);
    cache.Put(key(i), published);
  };
  for (int i = 0; i < 3; ++i) put(i, 1);
  CHECK(cache.Find(key(0)) != nullptr);
  put(3, 1);
  CHECK(cache.Find(key(1)) == nullptr);
  CHECK(cache.Find(key(0)) != nullptr);
  put(4, 300);
  CHECK(cache.Find(key(4)) != nullptr);
  CHECK(cache.bytes() <= 100'000);
  put(5, 1000);  // alone too long
  CHECK(cache.size() == 0);
  CHECK(cache.bytes() == 0);
}

TEST_CASE("agents are named with or without a node") {
  CHECK_FALSE(ParseAgent("x").has_node);
  const AgentAddress address = ParseAgent("x@y@b");
  CHECK(address.has_node);
  CHECK(address.agent == "x@y");
  CHECK(address.node == "b");
  CHECK(ParseAgent("x@").has_node);
  AgentsWorld world;
  CHECK(world.sections->IsHere(ParseAgent("x@a")));
  CHECK_FALSE(world.sections->IsHere(ParseAgent("x@b")));
}

}  // namespace
}  // namespace shunt::daemon
