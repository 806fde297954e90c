// Moves and spreads on a GPU: every byte at its place, and none beside.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/kernels_device_world.h"
#include "tests/gpu/kernels_inputs.h"

namespace shunt::gpu::testing {
namespace {

constexpr uint64_t kMi = 1 << 20;

void FillBytes(Inputs* inputs, std::byte* memory, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t number = inputs->Number();
    std::memcpy(memory + i, &number, std::min<uint64_t>(8, bytes - i));
  }
}

// Pinned memory of the host.
struct Pinned {
  explicit Pinned(uint64_t bytes) : memory(static_cast<std::byte*>(AllocatePinnedHost(bytes))) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { FreePinnedHost(memory); }
  DevicePtr address() const { return reinterpret_cast<DevicePtr>(memory); }
  std::byte* const memory;
};

enum class Side { kDevice, kFromHost, kToHost };

// One source that all runs come from, one destination that they fill in order, with gaps.
class Moves {
 public:
  explicit Moves(KernelsWorld* world)
      : world_(*world),
        inputs_(FreshSeed()),
        arena_(&world->driver, world->stream, 2 * kBytes),
        held_(kBytes),
        from_host_(kBytes),
        to_host_(kBytes),
        host_table_(kTable),
        table_(Value(world->driver.Allocate(kTable))) {
    FillBytes(&inputs_, held_.data(), kBytes);
    std::memcpy(from_host_.memory, held_.data(), kBytes);
  }
  ~Moves() { (void)world_.driver.Free(table_); }

  // Of runs up to `longest` bytes, `count` of them or as many as there is room for.
  void Check(Side side, uint64_t longest, uint64_t count, bool vectors) {
    arena_.Clear();
    const uint64_t source = arena_.Add(kBytes / 2, 0), destination = arena_.Add(kBytes, 0);
    arena_.Poison();
    std::memcpy(arena_.Image(source), held_.data(), kBytes / 2);
    std::memset(to_host_.memory, 0xa5, kBytes);
    std::vector<std::byte> host_expected(side == Side::kToHost ? kBytes : 0, std::byte{0xa5});
    const DevicePtr from = side == Side::kFromHost ? from_host_.address() : arena_.At(source);
    const DevicePtr to = side == Side::kToHost ? to_host_.address() : arena_.At(destination);
    std::byte* const expected =
        side == Side::kToHost ? host_expected.data() : arena_.Image(destination);
    arena_.Send();
    Ok(world_.driver.Synchronize(world_.stream));

    MoveParams params{};
    std::vector<RunWords> runs;
    uint64_t at = 0;
    while (runs.size() < count) {
      uint64_t bytes = inputs_.Below(longest + 1), gap = inputs_.Below(40);
      if (vectors) bytes = (bytes + 15) / 16 * 16, gap = gap / 16 * 16;
      if (at + gap + bytes > kBytes) break;
      at += gap;
      uint64_t begin = inputs_.Below(kBytes / 2 - bytes + 1);
      if (vectors) begin = begin / 16 * 16;
      runs.push_back({from + begin, to + at, bytes});
      std::memcpy(expected + at, held_.data() + begin, bytes);
      params.bytes += bytes;
      at += bytes;
    }
    params.runs = static_cast<uint32_t>(runs.size());
    // Wherever the table lies.
    const uint64_t place = runs.size() <= kFewRuns ? inputs_.Below(3) : inputs_.Below(2);
    const uint64_t table_bytes = runs.size() * sizeof(RunWords);
    REQUIRE(table_bytes <= kTable);
    if (place == 2) {
      std::memcpy(params.few, runs.data(), table_bytes);
    } else if (place == 1) {
      std::memcpy(host_table_.memory, runs.data(), table_bytes);
      params.run = reinterpret_cast<const RunWords*>(host_table_.address());
    } else {
      CopyToDevice(table_, runs.data(), table_bytes);
      params.run = reinterpret_cast<const RunWords*>(table_);
    }
    // Wrong guesses cost time alone.
    params.host = inputs_.Below(8) == 0 ? inputs_.Below(2) : side == Side::kDevice ? 0 : 1;
    const uint64_t guess = inputs_.Below(6);
    if (guess == 0) params.bytes /= 9;
    if (guess == 1) params.bytes *= 7;
    INFO(params.runs << " runs up to " << longest << " bytes, side " << static_cast<int>(side)
                     << ", table " << place << ", host " << params.host << ", guess " << guess
                     << ", SHUNT_TEST_SEED " << FreshSeed());
    Ok(world_.kernels->Move(params, world_.stream));
    arena_.Receive();
    REQUIRE(arena_.Difference().empty());
    if (side == Side::kToHost) {
      REQUIRE(std::memcmp(to_host_.memory, host_expected.data(), kBytes) == 0);
    }
  }

 private:
  static constexpr uint64_t kBytes = 16 * kMi, kTable = 2 * kMi;

  KernelsWorld& world_;
  Inputs inputs_;
  Arena arena_;
  std::vector<std::byte> held_;
  Pinned from_host_, to_host_, host_table_;
  const DevicePtr table_;
};

TEST_CASE("runs of any length, place and number are copied, and nothing else") {
  KernelsWorld world;
  Moves moves(&world);
  for (const Side side : {Side::kDevice, Side::kFromHost, Side::kToHost}) {
    for (const uint64_t longest : {1, 40, 700, 3000, 40000, 300000, 5000000}) {
      for (const uint64_t count : {1, 2, 64, 65, 1000, 16384}) {
        moves.Check(side, longest, count, false);
        moves.Check(side, longest, count, true);
      }
    }
  }
}

TEST_CASE("a run onto itself and an empty one are left alone") {
  KernelsWorld world;
  Arena arena(&world.driver, world.stream, kMi);
  Inputs inputs(FreshSeed());
  const uint64_t a = arena.Add(5000, 3), b = arena.Add(5000, 8);
  arena.Poison();
  FillBytes(&inputs, arena.Image(a), 5000);
  MoveParams params{};
  params.few[0] = {arena.At(a), arena.At(a), 5000};
  params.few[1] = {arena.At(a), arena.At(b), 0};
  params.few[2] = {arena.At(a), arena.At(b), 4999};
  params.runs = 3;
  params.bytes = 9999;
  arena.Send();
  Ok(world.kernels->Move(params, world.stream));
  arena.Receive();
  std::memcpy(arena.Image(b), arena.Image(a), 4999);
  REQUIRE(arena.Difference().empty());
}

TEST_CASE("a run of 1 GiB is copied whole") {
  KernelsWorld world;
  constexpr uint64_t kRun = 1 << 30, kPattern = 16 * kMi;
  Inputs inputs(FreshSeed());
  std::vector<std::byte> pattern(kPattern);
  FillBytes(&inputs, pattern.data(), kPattern);
  const DevicePtr from = Value(world.driver.Allocate(kRun + kPattern));
  const DevicePtr to = Value(world.driver.Allocate(kRun + kPattern));
  for (uint64_t at = 0; at < kRun + kPattern; at += kPattern) {
    CopyToDevice(from + at, pattern.data(), kPattern);
  }
  std::vector<std::byte> seen(kPattern);
  for (const uint64_t shift : {0, 5}) {
    Ok(world.driver.FillAsync(to, 0xa5, kRun + kPattern, world.stream));
    MoveParams params{};
    params.runs = 1;
    params.few[0] = {from + shift, to + 16, kRun};
    params.bytes = kRun;
    Ok(world.kernels->Move(params, world.stream));
    Ok(world.driver.Synchronize(world.stream));
    std::vector<std::byte> expected(pattern.begin() + static_cast<ptrdiff_t>(shift), pattern.end());
    expected.insert(expected.end(), pattern.begin(),
                    pattern.begin() + static_cast<ptrdiff_t>(shift));
    for (uint64_t at = 0; at < kRun; at += kPattern) {
      CopyFromDevice(seen.data(), to + 16 + at, kPattern);
      REQUIRE(seen == expected);
    }
    CopyFromDevice(seen.data(), to + 16 + kRun, 64);
    for (size_t i = 0; i < 64; ++i) REQUIRE(seen[i] == std::byte{0xa5});
  }
  Ok(world.driver.Free(from));
  Ok(world.driver.Free(to));
}

// Ranks' inputs and outputs as of all_to_all, all_gather and scatter; in place, each rank's own
// piece is where it belongs already.
class Spreads {
 public:
  explicit Spreads(KernelsWorld* world)
      : world_(*world), arena_(&world->driver, world->stream, 128 * kMi), inputs_(FreshSeed()) {}

  void Check(SpreadPattern pattern, uint32_t ranks, uint64_t bytes, bool in_place, bool aligned) {
    INFO("pattern " << static_cast<int>(pattern) << " of " << ranks << " ranks, " << bytes
                    << " bytes" << (in_place ? ", in place" : "") << (aligned ? ", aligned" : "")
                    << ", SHUNT_TEST_SEED " << FreshSeed());
    const uint64_t all = bytes * ranks;
    const bool pairs = pattern == SpreadPattern::kPairs, each = pattern == SpreadPattern::kEach;
    const auto offset = [&] { return aligned ? 0 : inputs_.Below(32); };
    std::vector<uint64_t> source(ranks), destination(ranks);
    arena_.Clear();
    for (uint32_t r = 0; r < ranks; ++r) destination[r] = arena_.Add(each ? bytes : all, offset());
    for (uint32_t r = 0; r < ranks; ++r) {
      source[r] = in_place ? destination[r] + (each ? 0 : r * bytes)
                           : arena_.Add(pairs ? all : bytes, offset());
    }
    arena_.Poison();
    for (uint32_t r = 0; r < ranks; ++r) {
      FillBytes(&inputs_, arena_.Image(source[r]), pairs ? all : bytes);
    }
    SpreadParams params{};
    params.pattern = pattern;
    params.segments = params.destinations = ranks;
    params.bytes = bytes;
    for (uint32_t r = 0; r < ranks; ++r) {
      params.source[r] = arena_.At(source[r]);
      params.destination[r] = arena_.At(destination[r]);
    }
    arena_.Send();
    Ok(world_.kernels->Spread(params, world_.stream));
    arena_.Receive();
    for (uint32_t s = 0; s < ranks; ++s) {
      for (uint32_t d = 0; d < ranks; ++d) {
        const uint64_t from = source[s] + (pairs ? d * bytes : 0);
        const uint64_t to = destination[d] + (each ? 0 : s * bytes);
        if (from == to || (each && s != d)) continue;
        std::memcpy(arena_.Image(to), arena_.Image(from), bytes);
      }
    }
    REQUIRE(arena_.Difference().empty());
  }

 private:
  KernelsWorld& world_;
  Arena arena_;
  Inputs inputs_;
};

TEST_CASE("a spread brings every segment to its place, and nothing else") {
  KernelsWorld world;
  Spreads spreads(&world);
  for (const SpreadPattern pattern :
       {SpreadPattern::kEach, SpreadPattern::kFan, SpreadPattern::kPairs}) {
    for (const uint32_t ranks : {1u, 2u, 3u, 8u, 16u, 128u}) {
      for (const uint64_t bytes : {1, 15, 16, 500, 4096, 10007, 65536, 1048581}) {
        // What 2 * 128 ranks have fits only if it is short.
        if (bytes * ranks * ranks > 40 * kMi) continue;
        for (const bool aligned : {false, true}) {
          spreads.Check(pattern, ranks, bytes, false, aligned);
          if (pattern == SpreadPattern::kFan) {
            spreads.Check(pattern, ranks, bytes, true, aligned);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shunt::gpu::testing
