#include "daemon/cluster/rendezvous_table.h"

#include <catch2/catch.hpp>
#include <set>

#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

const RendezvousKey kKey{1000, "job", "dp"};

// Numbers tokens and registrations in turn.
struct Table {
  explicit Table(RendezvousTable::Limits limits = {})
      : table(limits, [this] { return ++random; }) {}

  RendezvousTable::Answers Register(const std::string& node, std::vector<int> ranks, int world,
                                    int64_t deadline_ns = 100, uint64_t incarnation = 1,
                                    RendezvousKey key = kKey, uint64_t id = 0) {
    Registration registration;
    registration.node = node;
    registration.address = node + ":1";
    registration.incarnation = incarnation;
    registration.id = id != 0 ? id : token + 1;
    for (const int rank : ranks) registration.ranks.push_back({rank, 100 + rank, "s"});
    registration.terms.world_size = world;
    registration.deadline_ns = deadline_ns;
    registration.known_epoch = known_epoch;
    return table.Register(++token, key, registration);
  }

  uint64_t random = 41;
  uint64_t token = 0;
  uint64_t known_epoch = 0;
  RendezvousTable table;
};

std::string Message(const RendezvousTable::Answer& answer) {
  return std::string(answer.status.message());
}

TEST_CASE("all ranks get one map when the last has come") {
  Table t;
  CHECK(t.Register("b", {3, 2}, 4).empty());
  CHECK(t.Register("a", {0}, 4).empty());
  const auto answers = t.Register("a", {1}, 4);
  REQUIRE(answers.size() == 3);
  std::set<uint64_t> tokens;
  for (const auto& answer : answers) {
    CHECK(answer.status.ok());
    CHECK(answer.map == answers[0].map);
    tokens.insert(answer.token);
  }
  CHECK(tokens == std::set<uint64_t>{1, 2, 3});
  const CommunicatorMap& map = *answers[0].map;
  CHECK(map.wire_id == 42);
  CHECK(map.epoch == 1);
  CHECK(!map.warm);
  CHECK(map.nodes == std::vector<MappedNode>{{"a", 1, "a:1"}, {"b", 1, "b:1"}});
  CHECK(map.ranks ==
        std::vector<MappedRank>{{0, 100, "s"}, {0, 101, "s"}, {1, 102, "s"}, {1, 103, "s"}});
  CHECK(t.table.waiting() == 0);
  CHECK(t.table.next_deadline_ns() == kNeverNs);
}

TEST_CASE("who went although all had come is named to those who come again") {
  Table t;
  CHECK(t.Register("a", {0}, 2, 100).empty());
  const auto complete = t.Register("b", {1}, 2, 200);
  REQUIRE(complete.size() == 2);
  CHECK(complete[0].registration->deadline_ns == 100);
  CHECK(complete[1].registration->node == "b");
  const auto missing = [&t] {
    const auto expired = t.table.Expire(1000);
    REQUIRE(expired.size() == 1);
    return Message(expired[0]);
  };
  const std::string gone =
      "missing rank 1 (rank 1 on node b (pid 101, 's') came and went: its process ended)";
  SECTION("before they do") {
    t.table.NoteGone(kKey, *complete[1].registration, "its process ended");
    CHECK(t.Register("a", {0}, 2).empty());
    CHECK_THAT(missing(), Catch::EndsWith(gone));
  }
  SECTION("after they did") {
    CHECK(t.Register("a", {0}, 2).empty());
    t.table.NoteGone(kKey, *complete[1].registration, "its process ended");
    CHECK_THAT(missing(), Catch::EndsWith(gone));
  }
  SECTION("but not if it is back") {
    CHECK(t.Register("b", {1}, 2).empty());
    t.table.NoteGone(kKey, *complete[1].registration, "its process ended");
    CHECK_THAT(missing(), Catch::EndsWith("missing rank 0"));
  }
}

TEST_CASE("tenants, jobs and names do not meet") {
  Table t;
  CHECK(t.Register("a", {0}, 2, 100, 1, {1, "j", "n"}).empty());
  CHECK(t.Register("b", {1}, 2, 100, 1, {2, "j", "n"}).empty());
  CHECK(t.Register("b", {1}, 2, 100, 1, {1, "k", "n"}).empty());
  CHECK(t.Register("b", {1}, 2, 100, 1, {1, "j", "m"}).empty());
  CHECK(t.Register("b", {1}, 2, 100, 1, {1, "j", "n"}).size() == 2);
}

TEST_CASE("a re-join is warm and another epoch with another wire id") {
  Table t;
  t.Register("a", {0}, 2);
  const auto first = t.Register("b", {1}, 2);
  t.Register("a", {0}, 2);
  const auto second = t.Register("b", {1}, 2);
  REQUIRE(second.size() == 2);
  CHECK(second[0].map->epoch == 2);
  CHECK(second[0].map->warm);
  CHECK(second[0].map->wire_id != first[0].map->wire_id);
}

TEST_CASE("a new coordinator goes on from the highest epoch that a node knows") {
  Table t;
  t.Register("a", {0}, 2);
  t.known_epoch = 7;
  const auto answers = t.Register("b", {1}, 2);
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].map->epoch == 8);
  CHECK(answers[0].map->warm);
}

TEST_CASE("a wire id is never zero") {
  Table t;
  t.random = ~uint64_t{0};
  CHECK(t.Register("a", {0}, 1)[0].map->wire_id == 1);
}

TEST_CASE("a rank that is taken is refused with who has it; the others go on") {
  Table t;
  t.Register("a", {0}, 3);
  const auto refused = t.Register("b", {1, 0}, 3);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(Message(refused[0]) ==
        "communicator 'dp' of job 'job': rank 0 on node b (pid 100, 's') cannot join: it is taken "
        "by rank 0 on node a (pid 100, 's'), which waits for the others to join");
  CHECK(t.Register("b", {1}, 3).empty());
  CHECK(t.Register("c", {2}, 3).size() == 3);
}

TEST_CASE("another world size is refused with both") {
  Table t;
  t.Register("a", {0}, 3);
  const auto refused = t.Register("b", {1}, 4);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Message(refused[0]) ==
        "communicator 'dp' of job 'job': rank 1 on node b (pid 101, 's') joins with world size 4, "
        "but rank 0 on node a (pid 100, 's') joins with world size 3");
}

TEST_CASE("wrong registrations are refused before anything is kept") {
  Table t({.world_size_max = 8, .waiting_per_node_max = 2, .records_max = 10});
  const auto code = [](const RendezvousTable::Answers& answers) {
    REQUIRE(answers.size() == 1);
    return answers[0].status.code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(code(t.Register("a", {0}, 0)) == invalid);
  CHECK(code(t.Register("a", {0}, 9)) == invalid);
  CHECK(code(t.Register("a", {-1}, 2)) == invalid);
  CHECK(code(t.Register("a", {2}, 2)) == invalid);
  CHECK(code(t.Register("a", {}, 2)) == invalid);
  CHECK(code(t.Register("a", {1, 1}, 2)) == invalid);
  CHECK(code(t.Register("a", {0}, 2, 1, 1, {0, "", ""})) == invalid);
  CHECK(code(t.Register("a", {0}, 2, 1, 1, {0, "", std::string(129, 'x')})) == invalid);
  CHECK(code(t.Register("a", {0}, 2, 1, 1, {0, "a\nb", "x"})) == invalid);
  CHECK(t.table.waiting() == 0);
  t.Register("a", {0}, 8);
  t.Register("a", {1}, 8);
  CHECK(code(t.Register("a", {2}, 8)) == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("at the deadline the missing ranks are named, those that withdrew with the reason") {
  Table t;
  t.Register("a", {0, 1}, 8, 50);
  t.Register("b", {4}, 8, 50);
  t.Register("c", {6}, 8, 90);
  const auto withdrawn = t.table.Withdraw(2, "its process ended");
  REQUIRE(withdrawn.size() == 1);
  CHECK(withdrawn[0].token == 2);
  CHECK(withdrawn[0].status.code() == absl::StatusCode::kCancelled);
  CHECK(Message(withdrawn[0]) == "communicator 'dp' of job 'job': its process ended");
  CHECK(t.table.next_deadline_ns() == 50);
  CHECK(t.table.Expire(49).empty());
  const auto expired = t.table.Expire(50);
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].token == 1);
  CHECK(expired[0].status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Message(expired[0]) ==
        "communicator 'dp' of job 'job': 3 of 8 ranks joined in time; missing ranks 2-5, 7 (rank 4 "
        "on "
        "node b (pid 104, 's') came and went: its process ended)");
  CHECK(t.table.next_deadline_ns() == 90);
  CHECK(t.table.Withdraw(1, "again").empty());
}

TEST_CASE("a rank that withdrew can come again") {
  Table t;
  t.Register("a", {0}, 2);
  t.table.Withdraw(1, "cancelled");
  CHECK(t.Register("a", {0}, 2).empty());
  CHECK(t.Register("b", {1}, 2).size() == 2);
}

TEST_CASE("a lost node's registrations end, the others' wait on") {
  Table t;
  t.Register("a", {0}, 4);
  t.Register("b", {1}, 4);
  t.Register("b", {2}, 4);
  CHECK(t.table.WithdrawNode("b", 2, "another incarnation was lost").empty());
  const auto answers = t.table.WithdrawNode("b", 1, "its node was lost");
  CHECK(answers.size() == 2);
  CHECK(t.table.waiting() == 1);
  CHECK(t.table.WithdrawNode("b", 0, "again").empty());
  const auto expired = t.table.Expire(100);
  REQUIRE(expired.size() == 1);
  CHECK(Message(expired[0])
            .find("rank 1 on node b (pid 101, 's') came and went: its node was lost") !=
        std::string::npos);
}

TEST_CASE("a restarted node takes the place of what it was") {
  Table t;
  t.Register("a", {0}, 2, 100, /*incarnation=*/1);
  const auto replaced = t.Register("a", {0}, 2, 100, /*incarnation=*/2);
  REQUIRE(replaced.size() == 1);
  CHECK(replaced[0].token == 1);
  CHECK(replaced[0].status.code() == absl::StatusCode::kCancelled);
  const auto answers = t.Register("b", {1}, 2);
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].map->nodes[0] == MappedNode{"a", 2, "a:1"});
}

TEST_CASE("a repeated call takes the place of its first try") {
  Table t;
  t.Register("a", {0}, 2, 100, 1, kKey, /*id=*/77);
  CHECK(t.table.Find("a", 1, 77) == 1);
  const auto replaced = t.Register("a", {0}, 2, 100, 1, kKey, /*id=*/77);
  REQUIRE(replaced.size() == 1);
  CHECK(replaced[0].token == 1);
  CHECK(t.table.Find("a", 1, 77) == 2);
  CHECK(t.table.Find("a", 2, 77) == 0);
  CHECK(t.Register("b", {1}, 2).size() == 2);
  CHECK(t.table.Find("a", 1, 77) == 0);
}

TEST_CASE("registrations move on when another node is the coordinator") {
  Table t;
  t.Register("a", {0}, 2);
  t.Register("a", {0}, 2, 100, 1, {1, "", "other"});
  const auto moved = t.table.EndIf([](const RendezvousKey& key) { return key.name == "other"; },
                                   absl::AbortedError("moved"));
  REQUIRE(moved.size() == 1);
  CHECK(moved[0].token == 2);
  CHECK(moved[0].status.code() == absl::StatusCode::kAborted);
  CHECK(t.table.waiting() == 1);
}

TEST_CASE("the record that was idle longest is dropped beyond the limit") {
  Table t({.world_size_max = 8, .waiting_per_node_max = 8, .records_max = 2});
  for (const char* name : {"x", "y", "z"}) t.Register("a", {0}, 1, 100, 1, {0, "", name});
  CHECK(t.Register("a", {0}, 1, 100, 1, {0, "", "z"})[0].map->epoch == 2);
  CHECK(t.Register("a", {0}, 1, 100, 1, {0, "", "y"})[0].map->epoch == 2);
  CHECK(t.Register("a", {0}, 1, 100, 1, {0, "", "x"})[0].map->epoch == 1);
}

TEST_CASE("many missing ranks are counted, not listed") {
  Table t;
  std::vector<int> even;
  for (int rank = 0; rank < 1000; rank += 2) even.push_back(rank);
  t.Register("a", even, 1000);
  const auto expired = t.table.Expire(100);
  REQUIRE(expired.size() == 1);
  CHECK(Message(expired[0])
            .find("missing ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 488 more") !=
        std::string::npos);
}

TEST_CASE("eighty thousand ranks register one by one") {
  Table t;
  constexpr int kWorld = 80000;
  for (int rank = 0; rank < kWorld - 1; ++rank) {
    t.Register("node" + std::to_string(rank / 8), {rank}, kWorld);
  }
  const auto answers = t.Register("node9999", {kWorld - 1}, kWorld);
  CHECK(answers.size() == kWorld);
  CHECK(answers[0].map->nodes.size() == 10000);
}

}  // namespace
}  // namespace shunt::cluster
