// Which bytes a transfer moves, whatever names them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "tests/transfer/world.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

std::vector<uint64_t> Shuffled(uint64_t count, uint64_t of, unsigned seed) {
  std::vector<uint64_t> all(of);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  all.resize(count);
  return all;
}

std::vector<uint32_t> Narrow(const std::vector<uint64_t>& ids) { return {ids.begin(), ids.end()}; }

// A list, and how its blocks are selected in each form.
struct Forms {
  Forms(Cache& cache, const std::vector<uint64_t>& ids_, bool own_) : own(own_), ids(ids_) {
    narrow = Narrow(ids);
    uint64_t region = 0;
    ExpectOk(shunt_region_id(cache.session.get(), cache.memory.data(), &region));
    for (const uint64_t id : ids) {
      runs.push_back({id, 1, 0});
      pieces.push_back({region, id * cache.block_bytes, cache.block_bytes});
      spans.push_back({cache.memory.data() + id * cache.block_bytes, cache.block_bytes});
    }
  }
  std::vector<Selection> Of(const List& list) const {
    std::vector<Selection> forms{list.Ids(narrow), list.Ids(ids), list.Runs(runs),
                                 list.Pieces(pieces)};
    if (own) forms.push_back(list.Pointers(spans));
    return forms;
  }
  bool own;
  std::vector<uint64_t> ids;
  std::vector<uint32_t> narrow;
  std::vector<shunt_run> runs;
  std::vector<shunt_piece> pieces;
  std::vector<shunt_span> spans;
};

TEST_CASE("permuted blocks arrive where they are named, in every form and both directions") {
  constexpr uint64_t kBlocks = 64;
  const auto mine = Shuffled(20, kBlocks, 1);
  const auto theirs = Shuffled(20, kBlocks, 2);
  for (const bool push : {false, true}) {
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 4; ++j) {
        CAPTURE(push, i, j);
        REQUIRE_NOTHROW([&] {
          Cache a(Daemon(), "prefill", kBlocks, 768, 0x11);
          Cache b(Daemon(), "decode", kBlocks, 768, 0x22);
          const Forms local(b, mine, true);
          const Forms remote(a, theirs, false);
          const List fetched =
              b.agent.Fetch(a.agent.name(), "kv", push ? SHUNT_ACCESS_WRITE : SHUNT_ACCESS_READ);
          const Selection l = local.Of(b.kv)[i];
          const Selection r = remote.Of(fetched)[j];
          (push ? b.agent.Push(l, r) : b.agent.Pull(l, r)).Wait(30s);
          if (push) {
            ExpectMoved(a, theirs, b, mine);
            ExpectMoved(b, {}, a, {});
          } else {
            ExpectMoved(b, mine, a, theirs);
            ExpectMoved(a, {}, b, {});
          }
        }());
      }
    }
  }
}

TEST_CASE("whole lists, runs with steps, units and repeats name the pieces they say") {
  REQUIRE_NOTHROW([&] {
    Cache a(Daemon(), "prefill", 32, 512, 0x11);
    Cache b(Daemon(), "decode", 32, 512, 0x22);
    const List kv = b.agent.Fetch(a.agent.name(), "kv");
    b.agent.Pull(b.kv.All(), kv.All()).Wait(30s);
    std::vector<uint64_t> all(32);
    std::iota(all.begin(), all.end(), 0);
    ExpectMoved(b, all, a, all);
  }());
  REQUIRE_NOTHROW([&] {
    Cache a(Daemon(), "prefill", 32, 512, 0x11);
    Cache b(Daemon(), "decode", 32, 512, 0x22);
    const List kv = b.agent.Fetch(a.agent.name(), "kv");
    const std::vector<shunt_run> steps{{1, 3, 10}, {2, 2, 0}};
    const std::vector<uint64_t> five{9, 8, 7, 31, 0};
    b.agent.Pull(b.kv.Runs(steps), kv.Ids(five)).Wait(30s);
    ExpectMoved(b, {1, 11, 21, 2, 3}, a, five);
  }());
  REQUIRE_NOTHROW([&] {
    Cache a(Daemon(), "prefill", 32, 512, 0x11);
    Cache b(Daemon(), "decode", 32, 512, 0x22);
    const List kv = b.agent.Fetch(a.agent.name(), "kv");
    const std::vector<shunt_run> eight{{0, 8, 1}};
    const std::vector<uint32_t> ids{5, 1};
    b.agent.Pull(b.kv.Runs(eight), kv.Ids(ids, {2, 2, 4})).Wait(30s);
    ExpectMoved(b, {0, 1, 2, 3, 4, 5, 6, 7}, a, {10, 11, 2, 3, 18, 19, 10, 11});
  }());
}

TEST_CASE("blocks of another size at each side meet by their bytes") {
  for (const auto& [mine, theirs] : {std::pair(uint64_t{96}, uint64_t{1024}), {4096, 64}}) {
    CAPTURE(mine, theirs);
    const uint64_t bytes = std::lcm(mine, theirs) * 3;
    REQUIRE_NOTHROW([&, mine = mine, theirs = theirs] {
      Cache a(Daemon(), "prefill", 2 * bytes / theirs, theirs, 0x33);
      Cache b(Daemon(), "decode", 2 * bytes / mine, mine, 0x44);
      const auto to = Shuffled(bytes / mine, b.blocks, 3);
      const auto from = Shuffled(bytes / theirs, a.blocks, 4);
      const List kv = b.agent.Fetch(a.agent.name(), "kv");
      b.agent.Pull(b.kv.Ids(to), kv.Ids(from)).Wait(30s);
      ExpectMoved(b, to, a, from);
    }());
  }
}

TEST_CASE("strided sets of three dimensions number their pieces with the last one fastest") {
  REQUIRE_NOTHROW([&] {
    Session session = Open(Daemon());
    Agent agent = session.Agent(FreshAgent("strided"));
    // 2 layers x 3 tokens x 4 heads of 16 bytes, heads first in memory.
    Buffer<uint8_t> from = session.Allocate<uint8_t>(2 * 3 * 4 * 16);
    Buffer<uint8_t> to = session.Allocate<uint8_t>(from.size());
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + 1);
    const List source = agent.Prepare({Strided(from.data(), 16, {{2, 192}, {3, 16}, {4, 48}})});
    const List target = agent.Publish("flat", {Blocks(to.data(), 16, 24)});
    Expect(source.pieces() == 24 && source.facts().piece_bytes == 16, "what the list says");
    agent.Push(source.All(), target.All()).Wait(30s);
    for (size_t layer = 0, piece = 0; layer < 2; ++layer) {
      for (size_t token = 0; token < 3; ++token) {
        for (size_t head = 0; head < 4; ++head, ++piece) {
          const uint8_t* expected = from.data() + layer * 192 + token * 16 + head * 48;
          Expect(std::memcmp(to.data() + piece * 16, expected, 16) == 0,
                 "piece " + std::to_string(piece));
        }
      }
    }
  }());
}

TEST_CASE("a notification comes exactly once, after the data") {
  REQUIRE_NOTHROW([&] {
    Cache a(Daemon(), "prefill", 256, 65536, 0x11);
    Cache b(Daemon(), "decode", 256, 65536, 0x22);
    const List kv = a.agent.Fetch(b.agent.name(), "kv", SHUNT_ACCESS_WRITE);
    const std::string words("block\0done", 10);
    Transfer push =
        a.agent.Push(a.kv.All(), kv.All(),
                     {.timeout = 30s, .priority = SHUNT_PRIORITY_LATENCY, .notification = words});
    const auto came = b.agent.Notifications(30s);
    // Before the sender has even looked: all of it is there.
    std::vector<uint64_t> all(256);
    std::iota(all.begin(), all.end(), 0);
    ExpectMoved(b, all, a, all);
    Expect(came.size() == 1 && came[0].payload == words && came[0].from == a.agent.name(),
           "what came");
    push.Wait(30s);
    Expect(b.agent.Notifications().empty(), "a notification came twice");
    // An empty one is one too, and without any nothing comes.
    a.agent.Push(a.kv.All(), kv.All(), {.timeout = 30s, .notification = ""}).Wait(30s);
    a.agent.Push(a.kv.All(), kv.All()).Wait(30s);
    const auto empty = b.agent.Notifications();
    Expect(empty.size() == 1 && empty[0].payload.empty(), "an empty notification");
  }());
}

TEST_CASE("notifications alone come in order, in parts of the size that is asked for") {
  REQUIRE_NOTHROW([&] {
    Cache a(Daemon(), "prefill", 1, 64, 0);
    Cache b(Daemon(), "decode", 1, 64, 0);
    for (int i = 0; i < 100; ++i)
      a.agent.Notify(b.agent.name(), std::string(1000, char('0' + i % 10)));
    int seen = 0;
    while (seen < 100) {
      const auto some = b.agent.Notifications(0s, seen % 2 == 0 ? 0 : 3);
      Expect(!some.empty(), "only " + std::to_string(seen) + " came");
      Expect(seen % 2 == 0 || some.size() <= 3, "more than asked for");
      for (const auto& n : some) {
        Expect(n.payload == std::string(1000, char('0' + seen++ % 10)), "the order");
      }
    }
    Expect(b.agent.Notifications().empty(), "more than 100 came");
    ExpectError(SHUNT_INVALID_ARGUMENT, {"1025 bytes", "at most 1024"},
                [&] { a.agent.Notify(b.agent.name(), std::string(1025, 'x')); });
    ExpectError(SHUNT_NOT_FOUND, {"nobody-of-this-name"},
                [&] { a.agent.Notify("nobody-of-this-name", ""); });
  }());
}

TEST_CASE("a report says what was moved and how, and an explanation says so before") {
  REQUIRE_NOTHROW([&] {
    Cache a(Daemon(), "prefill", 16, 4096, 0x11);
    Cache b(Daemon(), "decode", 16, 4096, 0x22);
    const List kv = b.agent.Fetch(a.agent.name(), "kv");
    const std::vector<uint32_t> ids{1, 3, 5};
    const shunt_explanation e = b.agent.Explain(SHUNT_PULL, b.kv.Ids(ids), kv.Ids(ids));
    Expect(e.bytes == 3 * 4096 && std::string(e.route) == "copy" && e.copy_runs == 3,
           "the explanation");
    Transfer pull = b.agent.Pull(b.kv.Ids(ids), kv.Ids(ids));
    pull.Wait(30s);
    for (int i = 0; i < 2; ++i) {
      const shunt_report report = pull.Report();
      Expect(report.bytes == 3 * 4096 && std::string(report.route) == "copy", "the report");
    }
  }());
}

}  // namespace
}  // namespace shunt::testing
