// What is refused, and that the words name the thing, the value and what was expected.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/transfer/world.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

constexpr uint64_t kBlocks = 16;
constexpr uint64_t kBytes = 4096;

// A pull of one kind or another that fails, and moves nothing.
struct Pair {
  Pair() : kv(b.agent.Fetch(a.agent.name(), "kv", SHUNT_ACCESS_READ_WRITE)) {}
  void ExpectFailure(int code, const std::vector<std::string>& parts, const Selection& local,
                     const Selection& remote, bool push = false) {
    ExpectError(code, parts, [&] {
      (push ? b.agent.Push(local, remote) : b.agent.Pull(local, remote)).Wait(30s);
    });
    // An explanation says the same.
    ExpectError(code, parts,
                [&] { b.agent.Explain(push ? SHUNT_PUSH : SHUNT_PULL, local, remote); });
    ExpectMoved(a, {}, b, {});
    ExpectMoved(b, {}, a, {});
  }
  Cache a{Daemon(), "prefill", kBlocks, kBytes, 0x11};
  Cache b{Daemon(), "decode", kBlocks, kBytes, 0x22};
  List kv;
};

const std::vector<uint32_t> kOne{1}, kTwo{1, 2}, kTwice{3, 3}, kOutside{2, kBlocks};

TEST_CASE("sides of different lengths are refused with both lengths") {
  REQUIRE_NOTHROW([] {
    Pair p;
    p.ExpectFailure(SHUNT_INVALID_ARGUMENT, {"4096", "8192"}, p.b.kv.Ids(kTwo), p.kv.Ids(kOne));
  }());
}

TEST_CASE("a destination that is named twice is refused, a source is not") {
  REQUIRE_NOTHROW([] {
    Pair p;
    p.ExpectFailure(SHUNT_INVALID_ARGUMENT, {"destination", "twice"}, p.b.kv.Ids(kTwice),
                    p.kv.Ids(kTwo));
    p.ExpectFailure(SHUNT_INVALID_ARGUMENT, {"destination", "twice"}, p.b.kv.Ids(kTwo),
                    p.kv.Ids(kTwice), /*push=*/true);
    p.b.agent.Pull(p.b.kv.Ids(kTwo), p.kv.Ids(kTwice)).Wait(30s);
    ExpectMoved(p.b, {1, 2}, p.a, {3, 3});
  }());
}

TEST_CASE("pieces that a list does not have are refused, in every form") {
  REQUIRE_NOTHROW([] {
    Pair p;
    const std::vector<uint64_t> wide{1, uint64_t{1} << 40};
    const std::vector<shunt_run> run{{kBlocks - 1, 2, 1}};
    p.ExpectFailure(SHUNT_OUT_OF_RANGE, {"remote", "16", "\"kv\""}, p.b.kv.Ids(kTwo),
                    p.kv.Ids(kOutside));
    p.ExpectFailure(SHUNT_OUT_OF_RANGE, {"local", "16"}, p.b.kv.Ids(kOutside), p.kv.Ids(kTwo));
    p.ExpectFailure(SHUNT_OUT_OF_RANGE, {"remote", "1099511627776"}, p.b.kv.Ids(kTwo),
                    p.kv.Ids(wide));
    p.ExpectFailure(SHUNT_OUT_OF_RANGE, {"remote", "run"}, p.b.kv.Ids(kTwo), p.kv.Runs(run));
    const std::vector<shunt_piece> stranger{{~uint64_t{0} >> 1, 0, kBytes}};
    p.ExpectFailure(SHUNT_NOT_FOUND, {"remote", "region 9223372036854775807"}, p.b.kv.Ids(kOne),
                    p.kv.Pieces(stranger));
    const std::vector<shunt_span> outside{{p.b.memory.data() + p.b.memory.size() - 1, 1}};
    const List part = p.b.agent.Prepare({Piece(p.b.memory.data(), kBytes)});
    const std::vector<shunt_run> all{{0, 1, 1}};
    p.ExpectFailure(SHUNT_OUT_OF_RANGE, {"local", "without gaps"}, part.Pointers(outside),
                    p.kv.Runs(all));
  }());
}

TEST_CASE("a section is used as it was published for") {
  REQUIRE_NOTHROW([] {
    for (const auto& [granted, asked] : {std::pair(SHUNT_ACCESS_READ, SHUNT_ACCESS_WRITE),
                                         {SHUNT_ACCESS_WRITE, SHUNT_ACCESS_READ}}) {
      Cache a(Daemon(), "prefill", kBlocks, kBytes, 0x11, granted);
      Cache b(Daemon(), "decode", kBlocks, kBytes, 0x22);
      const bool reads = granted == SHUNT_ACCESS_READ;
      const std::string what = reads ? "published for reading, not for writing"
                                     : "published for writing, not for reading";
      ExpectError(SHUNT_PERMISSION_DENIED, {a.agent.name(), "\"kv\"", what},
                  [&, asked = asked] { b.agent.Fetch(a.agent.name(), "kv", asked); });
      const List kv = b.agent.Fetch(a.agent.name(), "kv", granted);
      ExpectError(SHUNT_PERMISSION_DENIED, {what}, [&] {
        (reads ? b.agent.Push(b.kv.All(), kv.All()) : b.agent.Pull(b.kv.All(), kv.All())).Wait(30s);
      });
      ExpectMoved(a, {}, b, {});
      ExpectMoved(b, {}, a, {});
    }
  }());
}

TEST_CASE("a section that has changed since it was fetched is refused until it is fetched again") {
  REQUIRE_NOTHROW([] {
    Pair p;
    p.a.agent.Publish("kv", {Blocks(p.a.memory.data(), kBytes / 2, kBlocks * 2)});
    p.ExpectFailure(SHUNT_FAILED_PRECONDITION, {"\"kv\"", "version 2 now", "version 1 was fetched"},
                    p.b.kv.Ids(kOne), p.kv.Ids(kOne));
    const List again = p.b.agent.Fetch(p.a.agent.name(), "kv");
    Expect(again.facts().version == 2 && again.pieces() == kBlocks * 2, "the new version");
    p.a.agent.Withdraw("kv");
    p.ExpectFailure(SHUNT_FAILED_PRECONDITION, {"\"kv\"", "withdrawn"}, p.b.kv.Ids(kOne),
                    again.Ids(kTwo));
    ExpectError(SHUNT_NOT_FOUND, {p.a.agent.name(), "\"kv\""},
                [&] { p.b.agent.Fetch(p.a.agent.name(), "kv"); });
    ExpectError(SHUNT_NOT_FOUND, {"\"kv\""}, [&] { p.a.agent.Withdraw("kv"); });
  }());
}

TEST_CASE("names are checked, and taken once") {
  REQUIRE_NOTHROW([] {
    Session session = Open(Daemon());
    const std::string name = FreshAgent("taken");
    const Agent agent = session.Agent(name);
    Session other = Open(Daemon());
    ExpectError(SHUNT_ALREADY_EXISTS, {name}, [&] { other.Agent(name); });
    ExpectError(SHUNT_ALREADY_EXISTS, {name}, [&] { session.Agent("another"); });
    for (const char* bad : {"", "a/b", "a@b", "a\nb"}) {
      ExpectError(SHUNT_INVALID_ARGUMENT, {"expected 1 to 255"}, [&] { other.Agent(bad); });
    }
    Buffer<uint8_t> memory = other.Allocate<uint8_t>(4096);
    const shunt_set set = Piece(memory.data(), 4096);
    ExpectCode(shunt_section_publish(other.get(), "kv", &set, 1, nullptr, nullptr),
               SHUNT_FAILED_PRECONDITION, {"no agent"});
    shunt_notifications* taken = nullptr;
    ExpectCode(shunt_notifications_take(other.get(), 0, 0, &taken), SHUNT_FAILED_PRECONDITION,
               {"no agent"});
  }());
}

TEST_CASE("a set that is wrong is named") {
  REQUIRE_NOTHROW([] {
    Pair p;
    const uint8_t* data = p.a.memory.data();
    int on_stack = 0;
    const auto publish = [&](const shunt_set& set) {
      p.a.agent.Publish("wrong", {Piece(data, 16), set});
    };
    ExpectError(SHUNT_INVALID_ARGUMENT, {"sets[1]", "4 bytes", "no region", "shunt_alloc"},
                [&] { publish(Piece(&on_stack, sizeof(on_stack))); });
    ExpectError(SHUNT_OUT_OF_RANGE, {"65536"}, [&] { publish(Blocks(data, kBytes, kBlocks + 1)); });
    ExpectError(SHUNT_INVALID_ARGUMENT, {}, [&] { publish(Blocks(data, 64, 2, 32)); });
    ExpectError(SHUNT_INVALID_ARGUMENT, {}, [&] { publish(Blocks(data, 64, 0)); });
    shunt_set four = Piece(data, 16);
    four.dimensions = 4;
    ExpectError(SHUNT_INVALID_ARGUMENT, {"sets[1].dimensions is 4", "0 to 3"},
                [&] { publish(four); });
    const shunt_set one = Piece(data, 16);
    shunt_list* list = nullptr;
    ExpectCode(shunt_list_prepare(p.a.session.get(), &one, 0, &list), SHUNT_INVALID_ARGUMENT,
               {"0 sets", "1 to 1024"});
    const std::vector<shunt_set> many(1025, one);
    ExpectError(SHUNT_INVALID_ARGUMENT, {"1025 sets", "1 to 1024"},
                [&] { p.a.agent.Prepare(many); });
    // As many as there may be, of the longest kind, fit.
    std::vector<shunt_set> most(1024, Strided(data + 60000, 8, {{2, 1024}, {2, 512}, {2, 256}}));
    Expect(p.a.agent.Prepare(most).pieces() == 8192, "1024 sets");
  }());
}

TEST_CASE("arguments that no daemon need see are refused at once") {
  REQUIRE_NOTHROW([] {
    Pair p;
    shunt_transfer* transfer = nullptr;
    const Selection mine = p.b.kv.Ids(kOne), theirs = p.kv.Ids(kOne);
    shunt_session* session = p.b.session.get();
    const auto post = [&](const shunt_selection& l, const shunt_selection& r,
                          const shunt_transfer_options* o = nullptr, int direction = SHUNT_PULL) {
      return shunt_transfer_post(session, direction, &l, &r, o, &transfer);
    };
    ExpectCode(post(mine.get(), theirs.get(), nullptr, 2), SHUNT_INVALID_ARGUMENT,
               {"direction is 2"});
    ExpectCode(post(theirs.get(), mine.get()), SHUNT_INVALID_ARGUMENT,
               {"local.list", "another agent's"});
    shunt_selection s = mine.get();
    s.form = 6;
    ExpectCode(post(s, theirs.get()), SHUNT_INVALID_ARGUMENT, {"local.form is 6", "0 to 5"});
    s = mine.get();
    s.count = 0;
    ExpectCode(post(s, theirs.get()), SHUNT_INVALID_ARGUMENT,
               {"local.count is 0", "1 to 16777216"});
    s = theirs.get();
    s.data = nullptr;
    ExpectCode(post(mine.get(), s), SHUNT_INVALID_ARGUMENT, {"remote.data is null"});
    s = theirs.get();
    s.form = SHUNT_FORM_POINTERS;
    ExpectCode(post(mine.get(), s), SHUNT_INVALID_ARGUMENT, {"remote.form", "SHUNT_FORM_PIECES"});
    s = mine.get();
    s.list = nullptr;
    ExpectCode(post(s, theirs.get()), SHUNT_INVALID_ARGUMENT, {"local.list is null"});
    s.list = p.a.kv.get();
    ExpectCode(post(s, theirs.get()), SHUNT_INVALID_ARGUMENT, {"local.list is of session"});
    s = mine.get();
    s.struct_size = 3;
    ExpectCode(post(s, theirs.get()), SHUNT_INVALID_ARGUMENT, {"shunt_selection.struct_size is 3"});
    shunt_transfer_options o{};
    o.struct_size = sizeof(o);
    o.priority = 3;
    ExpectCode(post(mine.get(), theirs.get(), &o), SHUNT_INVALID_ARGUMENT, {"priority is 3"});
    o.priority = 0;
    o.timeout_ns = -1;
    ExpectCode(post(mine.get(), theirs.get(), &o), SHUNT_INVALID_ARGUMENT, {"timeout_ns is -1"});
    o.timeout_ns = 0;
    o.notification = "x";
    o.notification_bytes = 1025;
    ExpectCode(post(mine.get(), theirs.get(), &o), SHUNT_INVALID_ARGUMENT, {"1025 bytes", "1024"});
    o.notification = nullptr;
    ExpectCode(post(mine.get(), theirs.get(), &o), SHUNT_INVALID_ARGUMENT,
               {"notification is null"});
    const uint8_t outside = 0;
    const std::vector<shunt_span> spans{{p.b.memory.data(), 16}, {&outside, 1}};
    ExpectError(SHUNT_INVALID_ARGUMENT, {"local.data[1]", "no region", "shunt_alloc"},
                [&] { p.b.agent.Pull(p.b.kv.Pointers(spans), p.kv.All()); });
    Expect(transfer == nullptr, "a handle");
    shunt_transfer_release(nullptr);
    shunt_list_release(nullptr);
    shunt_notifications_release(nullptr);
  }());
}

TEST_CASE("a selection too long to be explained is moved all the same") {
  REQUIRE_NOTHROW([] {
    Session session = Open(Daemon());
    Buffer<uint8_t> memory = session.Allocate<uint8_t>(2 << 18);
    Agent agent = session.Agent(FreshAgent("long"));
    const List from = agent.Prepare({Blocks(memory.data(), 2, 1 << 17)});
    const List to = agent.Prepare({Blocks(memory.data() + (1 << 18), 2, 1 << 17)});
    std::vector<uint32_t> ids(1 << 17);
    for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = i ^ 1;
    for (size_t i = 0; i < 1 << 18; ++i) memory[i] = static_cast<uint8_t>(i * 7);
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {"at most 98304 fit"},
                [&] { agent.Explain(SHUNT_PUSH, from.Ids(ids), to.Ids(ids)); });
    agent.Push(from.Ids(ids), to.All()).Wait(30s);
    for (size_t i = 0; i < 1 << 18; ++i) {
      Expect(memory[(1 << 18) + i] == memory[i ^ 2], "byte " + std::to_string(i));
    }
  }());
}

TEST_CASE("memory that a transfer uses is freed only after it, and freed memory is named") {
  REQUIRE_NOTHROW([] {
    Pair p;
    const List own = p.a.agent.Prepare({Piece(p.a.memory.data(), kBytes)});
    const List other = p.a.agent.Prepare({Piece(p.a.memory.data() + kBytes, kBytes)});
    ExpectCode(shunt_free(p.a.session.get(), p.a.memory.data()), SHUNT_OK);
    ExpectError(SHUNT_NOT_FOUND, {"region", "freed"},
                [&] { p.b.agent.Pull(p.b.kv.Ids(kOne), p.kv.Ids(kOne)).Wait(30s); });
    ExpectError(SHUNT_NOT_FOUND, {"region"},
                [&] { p.a.agent.Push(own.All(), other.All()).Wait(30s); });
    ExpectMoved(p.b, {}, p.a, {});
  }());
}

TEST_CASE("a receiver that takes no notifications is an error to the sender, not to the data") {
  REQUIRE_NOTHROW([] {
    Pair p;
    int sent = 0;
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {p.a.agent.name(), "notifications"}, [&] {
      for (; sent < 5000; ++sent) p.b.agent.Notify(p.a.agent.name(), "x");
    });
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {p.a.agent.name(), "notifications"}, [&] {
      p.b.agent.Pull(p.b.kv.Ids(kOne), p.kv.Ids(kOne), {.timeout = 30s, .notification = "x"})
          .Wait(30s);
    });
    p.b.agent.Pull(p.b.kv.Ids(kOne), p.kv.Ids(kOne)).Wait(30s);
    int taken = 0;
    for (auto some = p.a.agent.Notifications(); !some.empty(); some = p.a.agent.Notifications()) {
      taken += static_cast<int>(some.size());
    }
    Expect(taken == sent, std::to_string(sent) + " sent, " + std::to_string(taken) + " taken");
  }());
}

}  // namespace
}  // namespace shunt::testing
