#include "runtime/p2p/copier.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "tests/p2p/memories.h"

namespace shunt::p2p {
namespace {

constexpr uint64_t kBlock = 4096, kBlocks = 2048;

struct World {
  TestMemory memory;
  std::vector<uint32_t> ids;
  std::shared_ptr<const TransferPlan> plan;

  World() : ids(kBlocks) {
    std::mt19937 random(1);
    for (std::byte& byte : memory.Add(1, kBlock * kBlocks)) byte = static_cast<std::byte>(random());
    memory.Add(2, kBlock * kBlocks);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    const auto list = [&](uint64_t region) {
      return *PreparedList::Prepare(
          MakeSection({{region, 0, kBlock, {{{1, 0}, {1, 0}, {kBlocks, kBlock}}}}},
                      memory.Extents()),
          0);
    };
    plan = *TransferPlan::Make(*Selection::Ids(list(1), absl::MakeConstSpan(ids)),
                               *Selection::All(list(2)));
  }
  bool BlockArrived(uint64_t i) {
    return std::equal(memory.at(2).begin() + i * kBlock, memory.at(2).begin() + (i + 1) * kBlock,
                      memory.at(1).begin() + ids[i] * kBlock);
  }
  std::unique_ptr<Copier> NewCopier(uint64_t chunk_bytes) {
    return *Copier::Make(plan, memory, memory, {chunk_bytes, 4});
  }
};

TEST_CASE("whoever waits works, and everybody sees all bytes", "[p2p]") {
  World world;
  const auto copier = world.NewCopier(3 * kBlock + 100);
  std::vector<std::thread> workers;
  std::atomic<int> whole = 0;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&] {
      if (copier->Wait() != Outcome::kCopied) return;
      bool all = true;
      for (uint64_t b = 0; b < kBlocks; ++b) all &= world.BlockArrived(b);
      whole += all ? 1 : 0;
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(whole == 4);
  CHECK_FALSE(copier->Cancel());
  CHECK(copier->outcome() == Outcome::kCopied);
}

TEST_CASE("a cancelled copy stops between chunks", "[p2p]") {
  World world;
  const auto copier = world.NewCopier(kBlock);
  CHECK(copier->Work(3) == 3);
  CHECK(copier->outcome() == Outcome::kPending);
  CHECK(copier->Cancel());
  CHECK(copier->outcome() == Outcome::kCancelled);
  CHECK(copier->Work() == 0);
  CHECK(copier->Wait() == Outcome::kCancelled);
  CHECK(copier->Cancel());
  for (uint64_t b = 0; b < 3; ++b) CHECK(world.BlockArrived(b));
  const auto& to = world.memory.at(2);
  CHECK(
      std::all_of(to.begin() + 3 * kBlock, to.end(), [](std::byte b) { return b == std::byte{}; }));
}

TEST_CASE("after a cancel under way nobody touches the memory any more", "[p2p]") {
  for (int round = 0; round < 20; ++round) {
    World world;
    const auto copier = world.NewCopier(kBlock);
    std::atomic<int> begun = 0;
    std::vector<std::thread> workers;
    for (int i = 0; i < 3; ++i) {
      workers.emplace_back([&] {
        while (copier->Work(1) > 0) begun.fetch_add(1);
      });
    }
    while (begun.load() < 10 * round) std::this_thread::yield();
    const bool cancelled = copier->Cancel();
    const Outcome outcome = copier->Wait();
    CHECK(outcome == (cancelled ? Outcome::kCancelled : Outcome::kCopied));
    const std::vector<std::byte> then = world.memory.at(2);
    for (std::thread& worker : workers) worker.join();
    CHECK(world.memory.at(2) == then);
    uint64_t arrived = 0;
    while (arrived < kBlocks && world.BlockArrived(arrived)) ++arrived;
    // Claimed in order, finished if claimed: what arrived is a prefix.
    for (uint64_t b = arrived; b < kBlocks; ++b) REQUIRE_FALSE(world.BlockArrived(b));
  }
}

TEST_CASE("memory that is gone, or smaller than its list says, is refused", "[p2p]") {
  World world;
  TestMemory empty, small;
  small.Add(2, 100);
  CHECK(Copier::Make(world.plan, empty, world.memory).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(Copier::Make(world.plan, world.memory, small).status().code() ==
        absl::StatusCode::kOutOfRange);
  CHECK(Copier::Make(world.plan, world.memory, world.memory, {0, 1}).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a few heads of each block go to each tensor-parallel rank, and come back", "[p2p]") {
  // Blocks of 16 tokens x 8 heads x 64 bytes; each of two ranks holds 4 of the heads.
  constexpr uint64_t kTokens = 16, kHeads = 8, kHead = 64, kCount = 50;
  constexpr uint64_t kToken = kHeads * kHead, kWhole = kTokens * kToken;
  TestMemory memory;
  std::mt19937 random(2);
  for (std::byte& byte : memory.Add(1, kCount * kWhole)) byte = static_cast<std::byte>(random());
  memory.Add(2, kCount * kWhole);
  const std::vector<std::byte> original = memory.at(1);
  std::vector<uint32_t> blocks(kCount), halves(kCount);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::iota(halves.begin(), halves.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random);
  std::shuffle(halves.begin(), halves.end(), random);
  for (uint64_t rank = 0; rank < 2; ++rank) {
    const StridedSet split = {
        1, rank * kToken / 2, kToken / 2, {{{1, 0}, {kCount, kWhole}, {kTokens, kToken}}}};
    const StridedSet half = {
        2, rank * kCount * kWhole / 2, kWhole / 2, {{{1, 0}, {1, 0}, {kCount, kWhole / 2}}}};
    const auto from = *PreparedList::Prepare(MakeSection({split}, memory.Extents()), 0);
    const auto to = *PreparedList::Prepare(MakeSection({half}, memory.Extents()), 0);
    const auto wide = *Selection::Ids(from, absl::MakeConstSpan(blocks), {kTokens, 1, 0});
    const auto narrow = *Selection::Ids(to, absl::MakeConstSpan(halves));
    const auto there = *TransferPlan::Make(wide, narrow);
    CHECK((*Copier::Make(there, memory, memory))->Wait() == Outcome::kCopied);
    for (uint64_t b = 0; b < kCount; ++b) {
      for (uint64_t t = 0; t < kTokens; ++t) {
        const auto in = original.begin() + blocks[b] * kWhole + t * kToken + rank * kToken / 2;
        const auto out = memory.at(2).begin() + rank * kCount * kWhole / 2 +
                         halves[b] * kWhole / 2 + t * kToken / 2;
        REQUIRE(std::equal(in, in + kToken / 2, out));
      }
    }
    for (uint64_t i = 0; i < from->pieces(); ++i) {
      const auto at = memory.at(1).begin() + PieceOffset(split, i);
      std::fill(at, at + kToken / 2, std::byte{});
    }
    const auto back = *TransferPlan::Make(narrow, wide);
    CHECK((*Copier::Make(back, memory, memory))->Wait() == Outcome::kCopied);
    CHECK(memory.at(1) == original);
  }
}

}  // namespace
}  // namespace shunt::p2p
