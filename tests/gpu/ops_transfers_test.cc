// Transfers from, to and between GPU memory, through a real daemon and worker.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>

#include "client/include/shunt/client.h"
#include "tests/gpu/ops_world.h"
#include "tests/transfer/world.h"

namespace shunt::testing {
namespace {

enum class Place { kHost, kDevice };

const TestDaemon& Daemon() {
  static const GpuDaemon daemon;
  return daemon;
}

// An agent with memory of either kind; each byte tells where it is.
struct Side {
  Side(Place place, uint64_t bytes_, uint8_t salt_, const std::string& role)
      : session(Open(Daemon(), role)),
        agent(session.Agent(FreshAgent(role))),
        bytes(bytes_),
        salt(salt_) {
    if (place == Place::kHost) {
      host = session.Allocate<uint8_t>(bytes);
      data = host.data();
    } else {
      device = session.AllocateDevice<uint8_t>(bytes, 0);
      data = device.data();
    }
    for (uint64_t i = 0; i < bytes; ++i) data[i] = At(i);
  }
  uint8_t At(uint64_t i) const { return static_cast<uint8_t>((i * 131 + i / 251) ^ salt); }

  Session session;
  Agent agent;
  Buffer<uint8_t> host;
  DeviceBuffer<uint8_t> device;
  uint64_t bytes;
  uint8_t salt;
  uint8_t* data = nullptr;
};

std::vector<uint64_t> Permuted(uint64_t count, uint64_t of, uint32_t seed) {
  std::vector<uint64_t> all(of);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  all.resize(count);
  return all;
}

// `to`'s pieces must hold `from`'s, in this order, and all else what it was.
void ExpectMoved(const Side& to, const std::vector<std::pair<uint64_t, uint64_t>>& to_pieces,
                 const Side& from, const std::vector<std::pair<uint64_t, uint64_t>>& from_pieces) {
  std::vector<uint8_t> expected(to.bytes), payload;
  for (uint64_t i = 0; i < to.bytes; ++i) expected[i] = to.At(i);
  for (const auto& [offset, length] : from_pieces) {
    for (uint64_t i = 0; i < length; ++i) payload.push_back(from.At(offset + i));
  }
  uint64_t at = 0;
  for (const auto& [offset, length] : to_pieces) {
    for (uint64_t i = 0; i < length; ++i) expected[offset + i] = payload.at(at++);
  }
  Expect(at == payload.size(), "the test's sides differ in length");
  const auto wrong = std::mismatch(expected.begin(), expected.end(), to.data);
  Expect(wrong.first == expected.end(),
         "byte " + std::to_string(wrong.first - expected.begin()) + " is wrong");
}

std::vector<std::pair<uint64_t, uint64_t>> Pieces(const std::vector<uint64_t>& ids,
                                                  uint64_t bytes) {
  std::vector<std::pair<uint64_t, uint64_t>> pieces;
  for (const uint64_t id : ids) pieces.emplace_back(id * bytes, bytes);
  return pieces;
}

TEST_CASE("permuted blocks arrive between GPU and host memory, in every pairing") {
  const auto [own_place, their_place] =
      GENERATE(std::pair(Place::kDevice, Place::kDevice), std::pair(Place::kDevice, Place::kHost),
               std::pair(Place::kHost, Place::kDevice));
  const bool push = GENERATE(false, true);
  // One batch; several; blocks of other sizes on the two sides; more than a run's bytes.
  const auto [own_bytes, their_bytes, blocks] =
      GENERATE(std::tuple(32, 32, 7), std::tuple(48, 48, 40'000), std::tuple(4096, 32768, 256),
               std::tuple(200'000, 100'000, 20));
  const uint64_t total = static_cast<uint64_t>(own_bytes) * blocks;
  Side own(own_place, 2 * total, 3, "own"), their(their_place, 2 * total, 77, "their");
  const uint64_t their_blocks = total / their_bytes;
  const List mine = own.agent.Prepare({Blocks(own.data, own_bytes, 2 * blocks)});
  their.agent.Publish("kv", {Blocks(their.data, their_bytes, 2 * their_blocks)},
                      SHUNT_ACCESS_READ_WRITE);
  const List theirs = own.agent.Fetch(their.agent.name(), "kv", SHUNT_ACCESS_READ_WRITE);
  const auto my_ids = Permuted(blocks, 2 * blocks, 5);
  const auto their_ids = Permuted(their_blocks, 2 * their_blocks, 6);
  Transfer transfer = push ? own.agent.Push(mine.Ids(my_ids), theirs.Ids(their_ids))
                           : own.agent.Pull(mine.Ids(my_ids), theirs.Ids(their_ids));
  REQUIRE_NOTHROW(transfer.Wait());
  CHECK(transfer.Report().bytes == total);
  const auto my_pieces = Pieces(my_ids, own_bytes);
  const auto their_pieces = Pieces(their_ids, their_bytes);
  if (push) {
    REQUIRE_NOTHROW(ExpectMoved(their, their_pieces, own, my_pieces));
  } else {
    REQUIRE_NOTHROW(ExpectMoved(own, my_pieces, their, their_pieces));
  }
}

TEST_CASE("strided pieces and long ones arrive side by side") {
  Side own(Place::kDevice, 40 << 20, 1, "own"), their(Place::kHost, 40 << 20, 9, "their");
  // Heads of 512 bytes out of tokens of 2 KiB; then 3 MiB in one piece.
  const shunt_set heads = Strided(own.data + 512, 512, {{16, 1 << 20}, {100, 2048}});
  const List mine = own.agent.Prepare({heads, Piece(own.data + (20 << 20), 3 << 20)});
  const uint64_t total = 16 * 100 * 512 + (3 << 20);
  their.agent.Publish("all", {Piece(their.data + 8, total)}, SHUNT_ACCESS_READ_WRITE);
  const List theirs = own.agent.Fetch(their.agent.name(), "all");
  REQUIRE_NOTHROW(own.agent.Pull(mine.All(), theirs.All()).Wait());
  std::vector<std::pair<uint64_t, uint64_t>> pieces;
  for (uint64_t i = 0; i < 16; ++i) {
    for (uint64_t j = 0; j < 100; ++j) pieces.emplace_back(512 + (i << 20) + j * 2048, 512);
  }
  pieces.emplace_back(20 << 20, 3 << 20);
  REQUIRE_NOTHROW(ExpectMoved(own, pieces, their, {{8, total}}));
}

TEST_CASE("a transfer with GPU memory is explained by the route gpu") {
  Side own(Place::kDevice, 1 << 20, 1, "own");
  const List list = own.agent.Prepare({Blocks(own.data, 4096, 256)});
  const auto explanation = own.agent.Explain(SHUNT_PULL, list.Ids(std::vector<uint64_t>{1}),
                                             list.Ids(std::vector<uint64_t>{2}));
  CHECK(std::string(explanation.route) == "gpu");
}

TEST_CASE("lists of GPU memory and host memory in one are refused in words") {
  Side own(Place::kDevice, 1 << 20, 1, "own");
  Buffer<uint8_t> host = own.session.Allocate<uint8_t>(4096);
  REQUIRE_NOTHROW(ExpectError(SHUNT_INVALID_ARGUMENT, {"GPU memory", "of one kind"}, [&] {
    own.agent.Prepare({Piece(host.data(), 4096), Piece(own.data, 4096)});
  }));
}

TEST_CASE("many small transfers at once arrive") {
  Side own(Place::kDevice, 1 << 20, 1, "own"), their(Place::kDevice, 1 << 20, 2, "their");
  their.agent.Publish("kv", {Blocks(their.data, 256, 4096)}, SHUNT_ACCESS_READ_WRITE);
  const List mine = own.agent.Prepare({Blocks(own.data, 256, 4096)});
  const List theirs = own.agent.Fetch(their.agent.name(), "kv");
  const auto ids = Permuted(1000, 4096, 8);
  std::vector<Transfer> transfers;
  for (const uint64_t id : ids) {
    const std::vector<uint64_t> one = {id};
    transfers.push_back(
        own.agent.Pull(mine.Ids(one), theirs.Ids(one),
                       {.priority = id % 2 == 0 ? SHUNT_PRIORITY_LATENCY : SHUNT_PRIORITY_BULK}));
  }
  for (Transfer& transfer : transfers) REQUIRE_NOTHROW(transfer.Wait());
  REQUIRE_NOTHROW(ExpectMoved(own, Pieces(ids, 256), their, Pieces(ids, 256)));
}

TEST_CASE("the end of a session ends others' transfers with its GPU memory, or they have ended") {
  Side own(Place::kDevice, 64 << 20, 1, "own");
  const List mine = own.agent.Prepare({Blocks(own.data, 64, 1 << 20)});
  for (int round = 0; round < 5; ++round) {
    auto their = std::make_unique<Side>(Place::kDevice, 64 << 20, 2, "their");
    their->agent.Publish("kv", {Blocks(their->data, 64, 1 << 20)}, SHUNT_ACCESS_READ_WRITE);
    const List theirs = own.agent.Fetch(their->agent.name(), "kv");
    const auto ids = Permuted(1 << 19, 1 << 20, 4);
    Transfer transfer = own.agent.Pull(mine.Ids(ids), theirs.Ids(ids));
    their.reset();
    try {
      transfer.Wait();
    } catch (const Error& error) {
      // It may not have begun yet.
      const std::string words = error.what();
      INFO(words);
      CHECK((words.find("has ended") != std::string::npos ||
             words.find("has freed it") != std::string::npos));
    }
  }
}

TEST_CASE("a cancelled transfer and an expired one end in words, or have ended") {
  Side own(Place::kDevice, 64 << 20, 1, "own");
  const List mine = own.agent.Prepare({Blocks(own.data, 64, 1 << 20)});
  const auto ids = Permuted(1 << 20, 1 << 20, 4);
  Side their(Place::kHost, 64 << 20, 2, "their");
  their.agent.Publish("kv", {Blocks(their.data, 64, 1 << 20)}, SHUNT_ACCESS_READ_WRITE);
  const List theirs = own.agent.Fetch(their.agent.name(), "kv");
  Transfer cancelled = own.agent.Pull(mine.Ids(ids), theirs.Ids(ids));
  cancelled.Cancel();
  try {
    cancelled.Wait();
  } catch (const Error& error) {
    CHECK(error.code() == SHUNT_CANCELLED);
  }
  Transfer late =
      own.agent.Pull(mine.Ids(ids), theirs.Ids(ids), {.timeout = std::chrono::milliseconds(1)});
  try {
    late.Wait();
  } catch (const Error& error) {
    CHECK(error.code() == SHUNT_DEADLINE_EXCEEDED);
  }
  // Nothing of them comes later.
  for (uint64_t i = 0; i < own.bytes; ++i) own.data[i] = 0;
  CHECK(std::all_of(own.data, own.data + own.bytes, [](uint8_t b) { return b == 0; }));
}

}  // namespace
}  // namespace shunt::testing
