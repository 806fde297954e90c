#include "tools/hang.h"

#include <catch2/catch.hpp>

namespace shunt::tools {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Two nodes, a rank on each, whose all_reduce both have called; nothing is wrong with it.
struct World {
  World() {
    for (int i = 0; i < 2; ++i) {
      v1::NodeRecords* const node = records.add_nodes();
      node->set_node(i == 0 ? "a" : "b");
      node->set_now_ns(100 * kSecond);
      v1::CommunicatorRecord* const c = node->add_communicators();
      c->set_wire_id(7);
      c->set_name("train");
      c->set_world_size(2);
      c->set_state("ready");
      c->add_nodes("a");
      c->add_nodes("b");
      v1::RankRecord* const rank = c->add_ranks();
      rank->set_rank(i);
      rank->set_pid(10 + i);
      rank->set_session_id(1);
      rank->set_collectives(4);
      v1::CallRecord* const call = rank->add_calls();
      call->set_kind("all_reduce");
      call->set_sequence(4);
      call->set_root(-1);
      call->set_posted_ns(97 * kSecond);
      call->set_waits(true);
      call->set_state("open");
      v1::OpenOperationRecord* const open = c->add_open();
      open->set_source(-1);
      open->set_destination(-1);
      open->set_sequence(4);
      open->add_posted(i);
      v1::ProcessRecord* const process = node->add_processes();
      process->set_pid(10 + i);
      process->set_state("S");
      v1::LinkRecord* const link = node->add_links();
      link->set_node(i == 0 ? "b" : "a");
      link->set_state("up");
    }
  }
  v1::NodeRecords& node(int i) { return *records.mutable_nodes(i); }
  v1::CommunicatorRecord& part(int i) { return *node(i).mutable_communicators(0); }
  Stuck One() {
    const std::vector<Stuck> found = FindStuck(records, kSecond);
    REQUIRE(found.size() == 1);
    return found[0];
  }
  // Rank 1 has not called: its node has nothing open.
  void TakeBack() {
    part(1).clear_open();
    part(1).mutable_ranks(0)->set_collectives(3);
    part(1).mutable_ranks(0)->clear_calls();
  }
  v1::GetRecordsResponse records;
};

TEST_CASE("what all have called and nothing holds up is slow") {
  World world;
  const Stuck one = world.One();
  CHECK(one.cause == cause::kSlow);
  CHECK(one.waited_ns == 3 * kSecond);
  CHECK(one.waiting.size() == 2);
  CHECK(FindStuck(world.records, 4 * kSecond).empty());
}

TEST_CASE("what is decided, failed or closed is not stuck") {
  World decided;
  decided.part(1).mutable_open(0)->set_decided(true);
  CHECK(FindStuck(decided.records, 0).empty());
  World failed;
  failed.part(1).set_state("failed");
  CHECK(FindStuck(failed.records, 0).empty());
  World closed;
  closed.part(0).set_state("closed");
  closed.part(1).set_state("closed");
  CHECK(FindStuck(closed.records, 0).empty());
}

TEST_CASE("a rank of another node is missing by that node's word") {
  World world;
  world.TakeBack();
  const Stuck one = world.One();
  CHECK(one.cause == cause::kMissingRank);
  REQUIRE(one.missing.size() == 1);
  CHECK((one.missing[0].rank == 1 && one.missing[0].pid == 11 && one.missing[0].node == "b"));
}

TEST_CASE("states of a missing rank's process are causes") {
  for (const auto& [state, file, cause] :
       {std::tuple("T", "", cause::kStoppedProcess), std::tuple("t", "", cause::kStoppedProcess),
        std::tuple("Z", "", cause::kDeadProcess), std::tuple("gone", "", cause::kDeadProcess),
        std::tuple("D", "", cause::kWaitingOnFile),
        std::tuple("S", "read of /x", cause::kWaitingOnFile),
        std::tuple("R", "", cause::kMissingRank)}) {
    World world;
    world.TakeBack();
    world.node(1).mutable_processes(0)->set_state(state);
    world.node(1).mutable_processes(0)->set_file(file);
    INFO(state << " " << file);
    CHECK(world.One().cause == cause);
  }
}

TEST_CASE("who holds a part of the work and is stopped is named") {
  World world;
  world.part(1).mutable_open(0)->add_working(1);
  world.node(1).mutable_processes(0)->set_state("T");
  const Stuck one = world.One();
  CHECK(one.cause == cause::kStoppedProcess);
  CHECK(one.reason.find("rank 1 (pid 11 on node b) holds a part of the work") != std::string::npos);
}

TEST_CASE("a link is stuck by its silence or by what is sent again and again") {
  World silent;
  silent.node(0).mutable_links(0)->set_silent_ns(2 * kSecond);
  CHECK(silent.One().cause == cause::kStuckLink);
  World lossy;
  lossy.node(1).mutable_links(0)->set_bytes_unacknowledged(1000);
  lossy.node(1).mutable_links(0)->set_retransmits(3);
  CHECK(lossy.One().cause == cause::kStuckLink);
  // One that lost a packet is not.
  World busy;
  busy.node(1).mutable_links(0)->set_bytes_unacknowledged(1000);
  busy.node(1).mutable_links(0)->set_retransmits(1);
  CHECK(busy.One().cause == cause::kSlow);
}

TEST_CASE("a link that is stuck is said once, also if nothing waits for it") {
  World world;
  for (int i = 0; i < 2; ++i) world.part(i).clear_open();
  world.node(0).mutable_links(0)->set_silent_ns(2 * kSecond);
  world.node(1).mutable_links(0)->set_silent_ns(2 * kSecond);
  const Stuck one = world.One();
  CHECK(one.cause == cause::kStuckLink);
  CHECK(one.what == "the link from node a to node b");
}

TEST_CASE("a node that gives no answer is a dead peer") {
  World world;
  world.records.mutable_nodes()->RemoveLast();
  v1::SilentNode* const silent = world.records.add_silent();
  silent->set_node("b");
  silent->set_why("it did not answer in time");
  const Stuck one = world.One();
  CHECK(one.cause == cause::kDeadPeer);
  CHECK(one.reason.find("node b gives no answer (it did not answer in time)") != std::string::npos);
}

TEST_CASE("ranks that wait for each other in different operations are in different orders") {
  World world;
  world.part(0).clear_open();
  world.part(1).clear_open();
  for (int i = 0; i < 2; ++i) {
    // Rank 0 sends to 1, which is in a collective that rank 0 has not called.
    v1::CallRecord* const call = world.part(i).mutable_ranks(0)->mutable_calls(0);
    v1::OpenOperationRecord* const open = world.part(i).add_open();
    open->add_posted(i);
    if (i == 0) {
      world.part(0).mutable_ranks(0)->set_collectives(3);
      call->set_kind("send");
      call->set_root(1);
      call->set_sequence(1);
      open->set_source(0);
      open->set_destination(1);
      open->set_sequence(1);
    } else {
      open->set_source(-1);
      open->set_destination(-1);
      open->set_sequence(4);
    }
  }
  const std::vector<Stuck> found = FindStuck(world.records, 0);
  REQUIRE(found.size() == 2);
  CHECK(found[0].cause == cause::kWrongOrder);
  CHECK(found[1].cause == cause::kWrongOrder);
  // A rank that has begun something and goes on may come yet.
  world.part(0).mutable_ranks(0)->mutable_calls(0)->set_waits(false);
  for (const Stuck& one : FindStuck(world.records, 0)) CHECK(one.cause != cause::kWrongOrder);
}

TEST_CASE("joins of several nodes are one world") {
  World world;
  for (int i = 0; i < 2; ++i) {
    world.part(i).clear_open();
    v1::CommunicatorRecord* const join = world.node(i).add_communicators();
    join->set_state("joining");
    join->set_name("next");
    join->set_world_size(4);
    join->set_waits_since_ns((90 + i) * kSecond);
    join->add_ranks()->set_rank(3 * i);
  }
  const Stuck one = world.One();
  CHECK(one.cause == cause::kWorldIncomplete);
  CHECK(one.waited_ns == 10 * kSecond);
  CHECK((one.waiting.size() == 2 && one.missing.size() == 2));
  CHECK(one.missing[0].rank == 1);
}

TEST_CASE("a transfer that waits for a grant says who has what may be granted") {
  World world;
  for (int i = 0; i < 2; ++i) world.part(i).clear_open();
  world.node(0).mutable_links(0)->set_bytes_granted(8 << 20);
  world.node(0).mutable_links(0)->set_grant_limit(8 << 20);
  for (uint64_t id = 1; id <= 3; ++id) {
    v1::TransferRecord* const transfer = world.node(0).add_transfers();
    transfer->set_id(id);
    transfer->set_route("pull");
    transfer->set_node("b");
    transfer->set_bytes(8 << 20);
    transfer->set_posted_ns(90 * kSecond);
    transfer->set_state("open");
    if (id < 3) transfer->set_bytes_posted(4 << 20);
    transfer->set_waits_for_grant(id == 3);
  }
  const std::vector<Stuck> found = FindStuck(world.records, kSecond);
  REQUIRE(found.size() == 3);
  CHECK(found[0].cause == cause::kSlow);
  CHECK(found[2].cause == cause::kGrantsExhausted);
  CHECK(found[2].reason.find("2 transfers with node b hold 8.0 MiB of it") != std::string::npos);
}

}  // namespace
}  // namespace shunt::tools
