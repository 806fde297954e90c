// Every operation, from every kind of memory, at sizes around each change of path, bit for bit.
#include <catch2/catch.hpp>

#include "tests/board/calls.h"

namespace shunt::testing {
namespace {

constexpr OpKind kCollectives[] = {OpKind::kBarrier,   OpKind::kAllReduce, OpKind::kReduce,
                                   OpKind::kBroadcast, OpKind::kAllGather, OpKind::kReduceScatter,
                                   OpKind::kAllToAll,  OpKind::kAllToAllV, OpKind::kGather,
                                   OpKind::kScatter};
constexpr Memory kMemories[] = {Memory::kRegion, Memory::kPlain, Memory::kMixed, Memory::kInRegion,
                                Memory::kOutRegion};

bool HasInPlace(OpKind k) {
  return k != OpKind::kBarrier && k != OpKind::kAllToAll && k != OpKind::kAllToAllV &&
         k != OpKind::kSend;
}

// Runs the cases back to back, so that slow and fast ranks drift apart as they like.
void RunAll(World& world, const std::vector<Case>& cases) {
  world.Run([&](int rank) {
    CaseRunner runner(&world, rank);
    for (const Case& c : cases) runner.RunAndCheck(c);
  });
  CHECK(world.complaints() == "");
}

std::vector<Case> AllKinds(int ranks, uint64_t bytes_most, Memory memory) {
  std::vector<Case> cases;
  uint64_t seed = bytes_most * 16 + static_cast<uint64_t>(memory);
  for (const OpKind kind : kCollectives) {
    // bytes_most is the size that decides the path: of all blocks together where there are several.
    const bool blocks =
        kind != OpKind::kAllReduce && kind != OpKind::kReduce && kind != OpKind::kBroadcast;
    Case c;
    c.kind = kind;
    c.dtype = DataType::kUint32;
    c.count = bytes_most / 4 / (blocks ? static_cast<uint64_t>(ranks) : 1);
    c.root = static_cast<int>(seed % static_cast<uint64_t>(ranks));
    c.memory = memory;
    c.seed = ++seed;
    cases.push_back(c);
    if (!HasInPlace(kind) || memory == Memory::kInRegion || memory == Memory::kOutRegion) continue;
    c.in_place = true;
    c.seed = ++seed;
    cases.push_back(c);
  }
  return cases;
}

TEST_CASE("collectives around the sizes where the path changes") {
  const int ranks = GENERATE(1, 2, 3, 4, 5, 9);
  World world({.ranks = ranks});
  std::vector<Case> cases;
  for (const Memory memory : kMemories) {
    for (const uint64_t bytes : {0, 4, 8, 32, 36, 16384, 16388, 40000}) {
      for (const Case& c : AllKinds(ranks, bytes, memory)) cases.push_back(c);
    }
  }
  RunAll(world, cases);
}

TEST_CASE("large collectives, several staging windows long") {
  const int ranks = GENERATE(1, 2, 3, 4);
  World world({.ranks = ranks});
  std::vector<Case> cases;
  for (const Memory memory : kMemories) {
    for (const uint64_t bytes : {300 << 10, (1 << 20) + 132}) {
      for (const Case& c : AllKinds(ranks, bytes, memory)) cases.push_back(c);
    }
  }
  RunAll(world, cases);
}

TEST_CASE("every type and reduction on every path") {
  const int ranks = GENERATE(1, 2, 3, 9);
  World world({.ranks = ranks});
  std::vector<Case> cases;
  uint64_t seed = 0;
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int op = 0; op < kRedopCount; ++op) {
      for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kReduce}) {
        for (const Memory memory : {Memory::kRegion, Memory::kPlain}) {
          Case c;
          c.kind = kind;
          c.dtype = static_cast<DataType>(t);
          c.redop = static_cast<Redop>(op);
          c.root = ranks - 1;
          c.memory = memory;
          // Once in the line, once on the board, once beyond it.
          for (const uint64_t count : {uint64_t{2}, uint64_t{67}, 17000 / SizeOf(c.dtype)}) {
            c.count = count;
            c.seed = ++seed;
            // The reference is slow, and nine ranks add nothing to what three have shown of a pass.
            if (count > 1000 && (seed % 3 != 0 || ranks > 3)) continue;
            cases.push_back(c);
          }
        }
      }
    }
  }
  RunAll(world, cases);
}

TEST_CASE("sends and receives around the sizes where the path changes") {
  World world({.ranks = 3});
  std::vector<Case> cases;
  uint64_t seed = 0;
  for (const uint64_t bytes : {0, 1, 8, 32, 33, 2048, 2049, 70000, 300 << 10, (1 << 20) + 5}) {
    for (const Memory memory : kMemories) {
      for (int source = 0; source < 3; ++source) {
        for (int destination = 0; destination < 3; ++destination) {
          if (source == destination) continue;
          Case c;
          c.kind = OpKind::kSend;
          c.dtype = DataType::kUint8;
          c.count = bytes;
          c.memory = memory;
          c.source = source;
          c.destination = destination;
          c.seed = ++seed;
          cases.push_back(c);
        }
      }
    }
  }
  RunAll(world, cases);
}

TEST_CASE("the same inputs give the same bits, whoever comes first") {
  World world({.ranks = 4});
  // Sums of floats depend on the order of their terms; a yield here and there changes who is early.
  world.Run([&](int rank) {
    CaseRunner runner(&world, rank);
    for (int round = 0; round < 60; ++round) {
      for (int k = (rank * 7 + round * 13) % 23; k > 0; --k) std::this_thread::yield();
      Case c;
      c.kind = round % 2 == 0 ? OpKind::kAllReduce : OpKind::kReduceScatter;
      c.count = round % 3 == 0 ? 33000 : 600;
      c.memory = round % 5 == 0 ? Memory::kMixed : Memory::kRegion;
      c.seed = 7;  // always the same numbers
      runner.RunAndCheck(c);
    }
  });
  CHECK(world.complaints() == "");
}

}  // namespace
}  // namespace shunt::testing
