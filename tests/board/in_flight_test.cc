// Many operations at once: order, dependencies, several threads, several channels.
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "tests/board/calls.h"

namespace shunt::testing {
namespace {

using board::Call;
using board::Member;
using board::Operation;

// Waits for all; complains about those that fail.
void WaitForAll(World& world, int rank, const std::vector<std::shared_ptr<Operation>>& operations) {
  for (const std::shared_ptr<Operation>& op : operations) {
    absl::Status outcome;
    if (!world.member(rank).Wait(*op, Soon(), &outcome)) outcome = absl::InternalError("hangs");
    if (!outcome.ok()) world.Complain(absl::StrCat("rank ", rank, ": ", outcome.ToString()));
  }
}

std::shared_ptr<Operation> Start(World& world, int rank, const Call& call) {
  auto started = world.member(rank).Start(call);
  if (started.ok()) return *std::move(started);
  world.Complain(absl::StrCat("rank ", rank, ": ", started.status().ToString()));
  return nullptr;
}

Case MakeCase(OpKind kind, uint64_t count, Memory memory, uint64_t seed) {
  Case c;
  c.kind = kind;
  c.count = count;
  c.dtype = DataType::kUint32;
  c.memory = memory;
  c.seed = seed;
  return c;
}

// A sum that grows: operation k + 1 reads what operation k wrote. `in_region` says where the chain
// lies.
void RunChain(World& world, int rank, std::byte* memory, uint64_t count, int links) {
  const size_t bytes = count * 4;
  auto* first = reinterpret_cast<uint32_t*>(memory);
  for (uint64_t i = 0; i < count; ++i)
    first[i] = static_cast<uint32_t>(rank) + static_cast<uint32_t>(i % 5);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int k = 0; k < links; ++k) {
    Call call;
    call.spec = {OpKind::kAllReduce, DataType::kUint32, Redop::kSum, 0, count};
    call.in = memory + (k % 2) * bytes;
    call.out = memory + ((k + 1) % 2) * bytes;
    call.deadline_ns = Soon();
    auto op = Start(world, rank, call);
    if (op == nullptr) return;
    operations.push_back(std::move(op));
  }
  WaitForAll(world, rank, operations);
  const auto n = static_cast<uint32_t>(world.ranks());
  const auto* last = reinterpret_cast<const uint32_t*>(memory + (links % 2) * bytes);
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t want = n * (n - 1) / 2 + n * static_cast<uint32_t>(i % 5);
    for (int k = 1; k < links; ++k) want *= n;
    if (last[i] == want) continue;
    world.Complain(absl::StrCat("rank ", rank, ": element ", i, " of a chain of ", links, " is ",
                                last[i], ", expected ", want));
    return;
  }
}

TEST_CASE("operations in flight take effect in the order in which they were submitted") {
  const int ranks = GENERATE(1, 2, 4);
  const bool daemon = GENERATE(false, true);
  World world({.ranks = ranks, .daemon = daemon});
  world.Run([&](int rank) {
    std::vector<std::byte> plain(1 << 20);
    for (const uint64_t count : {2, 600, 20000}) {
      RunChain(world, rank, world.region(rank), count, 25);
      RunChain(world, rank, plain.data(), count, 25);
      // Some ranks' in regions, others' not, in turns.
      RunChain(world, rank,
               (rank + static_cast<int>(count)) % 2 == 0 ? world.region(rank) : plain.data(), count,
               25);
    }
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("more operations may be started than the board has slots for") {
  const bool daemon = GENERATE(false, true);
  World world({.ranks = 3, .daemon = daemon});
  world.Run([&](int rank) {
    std::vector<std::byte> plain(1 << 20);
    RunChain(world, rank, world.region(rank), 5000, 100);
    RunChain(world, rank, plain.data(), 5000, 70);
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("blocking and asynchronous calls mix on every rank as it likes") {
  const bool daemon = GENERATE(false, true);
  World world({.ranks = 3, .daemon = daemon});
  world.Run([&](int rank) {
    constexpr int kParts = 6;
    std::vector<std::unique_ptr<CaseRunner>> runners;
    for (int s = 0; s < kParts; ++s)
      runners.push_back(std::make_unique<CaseRunner>(&world, rank, s, kParts));
    uint64_t dice = static_cast<uint64_t>(rank) * 77 + 5;
    std::vector<std::shared_ptr<Operation>> pending(kParts);
    const auto finish = [&](int s) {
      if (pending[s] == nullptr) return;
      WaitForAll(world, rank, {pending[s]});
      pending[s] = nullptr;
      if (std::string wrong = runners[s]->Check(); !wrong.empty()) world.Complain(std::move(wrong));
    };
    for (int i = 0; i < 600; ++i) {
      dice = dice * 6364136223846793005 + 1442695040888963407;
      const int s = i % kParts;
      finish(s);
      const OpKind kinds[] = {OpKind::kAllReduce,     OpKind::kBarrier,   OpKind::kAllGather,
                              OpKind::kReduceScatter, OpKind::kBroadcast, OpKind::kAllToAllV};
      const uint64_t counts[] = {0, 2, 9, 700, 30000};
      const Case c = MakeCase(kinds[i % 6], counts[i * 7 % 5],
                              (dice >> 40) % 3 == 0 ? Memory::kPlain : Memory::kRegion,
                              static_cast<uint64_t>(i));
      if ((dice >> 33) % 2 == 0) {
        runners[s]->RunAndCheck(c);
      } else if (runners[s]->Prepare(c)) {
        pending[s] = Start(world, rank, runners[s]->call());
      }
      if ((dice >> 50) % 4 == 0) finish(static_cast<int>((dice >> 55) % kParts));
    }
    for (int s = 0; s < kParts; ++s) finish(s);
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("rings and all pairs of sends and receives in flight, from any memory") {
  const int ranks = GENERATE(2, 3, 5);
  const Memory memory = GENERATE(Memory::kRegion, Memory::kPlain, Memory::kMixed);
  const uint64_t count = GENERATE(5, 900, 100000);
  World world({.ranks = ranks});
  world.Run([&](int rank) {
    for (int round = 0; round < 5; ++round) {
      std::vector<std::unique_ptr<CaseRunner>> runners;
      std::vector<std::shared_ptr<Operation>> operations;
      const int parts = 2 * ranks;
      for (int distance = 0; distance < (round % 2 == 0 ? 2 : ranks); ++distance) {
        for (const bool send : {true, false}) {
          Case c =
              MakeCase(OpKind::kSend, count, memory, static_cast<uint64_t>(round * 100 + distance));
          const int peer = (send ? rank + distance : rank - distance + ranks) % ranks;
          c.source = send ? rank : peer;
          c.destination = send ? peer : rank;
          if (c.source == c.destination) continue;
          c.seed += static_cast<uint64_t>(c.source) * 1000;
          runners.push_back(
              std::make_unique<CaseRunner>(&world, rank, static_cast<int>(runners.size()), parts));
          runners.back()->Prepare(c);
          auto op = Start(world, rank, runners.back()->call());
          if (op != nullptr) operations.push_back(std::move(op));
        }
      }
      WaitForAll(world, rank, operations);
      for (const auto& runner : runners) {
        if (std::string wrong = runner->Check(); !wrong.empty()) world.Complain(std::move(wrong));
      }
    }
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("a rank sends to itself") {
  const Memory memory = GENERATE(Memory::kRegion, Memory::kPlain);
  World world({.ranks = 2});
  world.Run([&](int rank) {
    if (rank != 1) return;
    for (const uint64_t bytes : {8, 3000, 300000}) {
      std::vector<std::byte> plain(2 * bytes);
      std::byte* data = memory == Memory::kRegion ? world.region(1) : plain.data();
      for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31);
      Call send, receive;
      send.spec = {OpKind::kSend, DataType::kUint8, Redop::kSum, 0, bytes};
      send.in = data;
      send.peer = 1;
      send.deadline_ns = Soon();
      receive = send;
      receive.spec.kind = OpKind::kRecv;
      receive.in = nullptr;
      receive.out = data + bytes;
      auto op = Start(world, 1, send);
      if (op == nullptr) return;
      const absl::Status received = world.member(1).Run(receive);
      if (!received.ok()) world.Complain(received.ToString());
      WaitForAll(world, 1, {op});
      if (std::memcmp(data, data + bytes, bytes) != 0) world.Complain("received something else");
    }
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("two threads of each rank use one communicator") {
  World world({.ranks = 3});
  world.Run([&](int rank) {
    // One thread the collectives, one a ring of sends and receives, both from plain memory and
    // regions.
    std::thread pairs([&] {
      CaseRunner out(&world, rank, 2, 4), in(&world, rank, 3, 4);
      for (int i = 0; i < 150; ++i) {
        Case c = MakeCase(OpKind::kSend, i % 3 == 0 ? 50000 : 300,
                          i % 2 == 0 ? Memory::kPlain : Memory::kRegion, static_cast<uint64_t>(i));
        c.source = rank;
        c.destination = (rank + 1) % 3;
        out.Prepare(c);
        auto op = Start(world, rank, out.call());
        if (op == nullptr) return;
        c.destination = rank;
        c.source = (rank + 2) % 3;
        in.RunAndCheck(c);
        WaitForAll(world, rank, {op});
      }
    });
    CaseRunner runner(&world, rank, 0, 4);
    for (int i = 0; i < 300; ++i) {
      runner.RunAndCheck(
          MakeCase(i % 2 == 0 ? OpKind::kAllReduce : OpKind::kAllGather, i % 4 == 0 ? 70000 : 40,
                   i % 3 == 0 ? Memory::kPlain : Memory::kRegion, static_cast<uint64_t>(i) + 5000));
    }
    pairs.join();
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("two threads of each rank call the same collective at once") {
  World world({.ranks = 2});
  world.Run([&](int rank) {
    // Whose call meets whose is open, so all bring the same numbers.
    std::thread other([&] {
      CaseRunner runner(&world, rank, 1, 2);
      for (int i = 0; i < 400; ++i)
        runner.RunAndCheck(MakeCase(OpKind::kAllReduce, 9000, Memory::kRegion, 1));
    });
    CaseRunner runner(&world, rank, 0, 2);
    for (int i = 0; i < 400; ++i)
      runner.RunAndCheck(MakeCase(OpKind::kAllReduce, 9000, Memory::kRegion, 1));
    other.join();
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("a staged result is not overwritten by the rank's next call on another channel") {
  // Rank 0's staging buffer holds the result that the others still copy out while it goes on to
  // receive.
  World world({.ranks = 3});
  world.Run([&](int rank) {
    CaseRunner runner(&world, rank);
    for (int i = 0; i < 200; ++i) {
      const auto seed = static_cast<uint64_t>(i);
      runner.RunAndCheck(MakeCase(OpKind::kAllReduce, 60000, Memory::kPlain, seed));
      Case c = MakeCase(OpKind::kSend, 60000, Memory::kPlain, seed + 10000);
      c.source = 1 + i % 2;
      c.destination = 0;
      runner.RunAndCheck(c);
    }
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("a blocking rank is not held up by one that has started everything and computes") {
  World world({.ranks = 2, .daemon = true});
  std::atomic<bool> done{false};
  world.Run([&](int rank) {
    constexpr int kCalls = 8;
    std::vector<std::unique_ptr<CaseRunner>> runners;
    std::vector<std::shared_ptr<Operation>> operations;
    for (int i = 0; i < kCalls; ++i) {
      runners.push_back(std::make_unique<CaseRunner>(&world, rank, i, kCalls));
      const Case c = MakeCase(OpKind::kAllReduce, 100, Memory::kRegion, static_cast<uint64_t>(i));
      if (rank == 0) {
        runners.back()->RunAndCheck(c);
      } else {
        runners.back()->Prepare(c);
        auto op = Start(world, rank, runners.back()->call());
        if (op != nullptr) operations.push_back(std::move(op));
      }
    }
    if (rank == 0) done = true;
    // Computes, and looks at none of its operations.
    const int64_t limit = Soon(20);
    while (!done && NowNs() < limit) std::this_thread::yield();
    if (!done) world.Complain("the blocking rank waits for one that has called long ago");
    WaitForAll(world, rank, operations);
  });
  CHECK(world.complaints() == "");
}

TEST_CASE("small calls by the million do not make an old operation's marks look like a new one's") {
  World world({.ranks = 1});
  CaseRunner runner(&world, 0);
  for (uint64_t i = 0; i < 32; ++i)
    runner.RunAndCheck(MakeCase(OpKind::kAllReduce, 10000, Memory::kRegion, i));
  Call barrier;
  barrier.spec = {OpKind::kBarrier, DataType::kInt8, Redop::kSum, 0, 0};
  barrier.deadline_ns = Soon(600);
  for (int i = 0; i < (1 << 23) + 100; ++i) {
    if (!world.member(0).Run(barrier).ok()) FAIL("barrier");
  }
  for (uint64_t i = 100; i < 132; ++i)
    runner.RunAndCheck(MakeCase(OpKind::kAllReduce, 10000, Memory::kRegion, i));
  CHECK(world.complaints() == "");
}

}  // namespace
}  // namespace shunt::testing
