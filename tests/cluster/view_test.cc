#include "daemon/cluster/view.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "absl/strings/str_cat.h"

namespace shunt::cluster {
namespace {

MemberInfo Node(int i) { return {absl::StrCat("node", i), absl::StrCat("10.0.0.", i, ":7071"), 0}; }

View Nodes(int count) {
  std::vector<MemberInfo> members;
  for (int i = 0; i < count; ++i) members.push_back(Node(i));
  return MakeView(std::move(members), false);
}

TEST_CASE("a view does not depend on the order in which members were found") {
  const View one = MakeView({Node(1), Node(2), Node(3)}, false);
  const View other = MakeView({Node(3), Node(1), Node(2), Node(1)}, false);
  CHECK(one.members == other.members);
  CHECK(one.revision == other.revision);
}

TEST_CASE("any change of names or addresses is another revision, a restart is none") {
  const View base = MakeView({Node(1), Node(2)}, false);
  CHECK(MakeView({Node(1)}, false).revision != base.revision);
  CHECK(MakeView({Node(1), Node(2), Node(3)}, false).revision != base.revision);
  MemberInfo moved = Node(2);
  moved.address = "10.0.0.9:7071";
  CHECK(MakeView({Node(1), moved}, false).revision != base.revision);
  MemberInfo renamed = Node(2);
  renamed.name = "b";
  CHECK(MakeView({Node(1), renamed}, false).revision != base.revision);
  MemberInfo restarted = Node(2);
  restarted.incarnation = 7;
  CHECK(MakeView({Node(1), restarted}, true).revision == base.revision);
  // Where one text ends and the next begins counts too.
  CHECK(MakeView({{"ab", "c:1", 0}}, false).revision !=
        MakeView({{"a", "bc:1", 0}}, false).revision);
}

TEST_CASE("members are found by name, by address where there is no name") {
  const View view = MakeView({Node(1), {"", "10.0.0.2:7071", 0}}, false);
  REQUIRE(FindMember(view, "node1") != nullptr);
  CHECK(FindMember(view, "node1")->address == "10.0.0.1:7071");
  CHECK(FindMember(view, "10.0.0.2:7071") != nullptr);
  CHECK(FindMember(view, "10.0.0.1:7071") == nullptr);
  CHECK(FindAddress(view, "10.0.0.1:7071")->name == "node1");
  CHECK(FindMember(view, "node") == nullptr);
}

TEST_CASE("when a member leaves, only its own keys move") {
  const View before = Nodes(20);
  std::vector<MemberInfo> rest = before.members;
  rest.erase(rest.begin() + 7);
  const std::string gone = before.members[7].id();
  const View after = MakeView(rest, false);
  int moved = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string key = absl::StrCat("communicator", i);
    const std::string old_id = RendezvousHash(before, key)->id();
    const std::string new_id = RendezvousHash(after, key)->id();
    if (old_id == gone) {
      ++moved;
    } else {
      REQUIRE(new_id == old_id);
    }
  }
  CHECK(moved > 50);
  CHECK(moved < 200);
}

TEST_CASE("keys spread evenly over members, also with names that hardly differ") {
  const View view = Nodes(16);
  std::map<std::string, int> count;
  for (int i = 0; i < 16000; ++i) ++count[RendezvousHash(view, absl::StrCat("c", i))->id()];
  CHECK(count.size() == 16);
  for (const auto& [id, keys] : count) {
    INFO(id);
    CHECK(keys > 850);
    CHECK(keys < 1150);
  }
}

TEST_CASE("a skipped member's keys go where they would go without it") {
  const View all = Nodes(10);
  for (int i = 0; i < 200; ++i) {
    const std::string key = absl::StrCat("k", i);
    const std::string first = RendezvousHash(all, key)->id();
    std::vector<MemberInfo> rest = all.members;
    rest.erase(std::find_if(rest.begin(), rest.end(),
                            [&](const MemberInfo& member) { return member.id() == first; }));
    const MemberInfo* second = RendezvousHash(
        all, key, [&first](const MemberInfo& member) { return member.id() == first; });
    CHECK(second->id() == RendezvousHash(MakeView(rest, false), key)->id());
  }
  CHECK(RendezvousHash(all, "k", [](const MemberInfo&) { return true; }) == nullptr);
  CHECK(RendezvousHash(View(), "k") == nullptr);
}

TEST_CASE("the hash is what it was: nodes of neighbouring versions must agree") {
  CHECK(Hex(StableHash("")) == "f52a15e9a9b5e89b");
  CHECK(Hex(StableHash("shunt", 1)) == "b9bdea1871e89758");
}

TEST_CASE("long member lists are cut") {
  CHECK(MemberList(Nodes(3)) == "node0, node1, node2");
  CHECK(MemberList(Nodes(10), 2) == "node0, node1 and 8 more");
  CHECK(MemberList(View()) == "nobody");
}

TEST_CASE("a record is read back as it was written") {
  const MemberRecord record{"[fd00::1]:7071", 0xabcdef, "0.1.0"};
  CHECK(FormatRecord(record) == "shunt1 [fd00::1]:7071 0000000000abcdef 0.1.0");
  MemberRecord read;
  REQUIRE(ParseRecord(FormatRecord(record), &read));
  CHECK(read == record);
}

TEST_CASE("what is no record is refused") {
  MemberRecord read;
  for (const char* text :
       {"", "shunt1", "shunt2 a:1 00000000000000aa 1", "shunt1 a:0 00000000000000aa 1",
        "shunt1 a:1 aa 1", "shunt1 a:1 00000000000000AA 1", "shunt1 a:1 0000000000000000 1",
        "shunt1 a:1 00000000000000aa ", "shunt1 a:1 00000000000000aa 1 2",
        "shunt1 a:1  00000000000000aa 1", "shunt1 a:1 00000000000000aa \x01",
        "shunt1 a:65536 00000000000000aa 1", "shunt1 a%:1 00000000000000aa 1"}) {
    INFO(text);
    CHECK(!ParseRecord(text, &read));
  }
  CHECK(!ParseRecord("shunt1 a:1 00000000000000aa " + std::string(1000, 'x'), &read));
}

}  // namespace
}  // namespace shunt::cluster
