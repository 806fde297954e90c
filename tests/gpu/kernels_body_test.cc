// The bodies of the kernels, run on the CPU thread by thread: what a GPU adds to them is its own
// arithmetic and the order of threads, for which there is kernels_device_test.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/collectives/exec/reduce.h"
#include "runtime/gpu/kernels/forms.h"
#include "runtime/gpu/kernels/move_body.h"
#include "runtime/gpu/kernels/reduce_body.h"
#include "tests/gpu/kernels_inputs.h"
#include "tests/gpu/kernels_on_cpu.h"

namespace shunt::gpu {
namespace {

constexpr std::byte kPoison{0xa5};

template <class Body>
void ForThreads(uint32_t blocks, uint32_t threads, const Body& body) {
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t thread = 0; thread < threads; ++thread) {
      body(Where{block, blocks, thread, threads});
    }
  }
}

// In the small form where it fits, by turns.
void ReduceInAForm(const ReduceParams& params) {
  if (params.count % 4 < 2 && FitsSmall(params)) {
    testing::ReduceOnCpu(ToSmall(params));
  } else {
    testing::ReduceOnCpu(params);
  }
}

// Sum and average of a fixed number of sources.
template <class Codec>
void RunFixed(const ReduceParamsOf<Small>& params, const Where& where) {
  if (params.sources == 2) ReduceBody<Codec, SumOrAvgOp<Codec>, 2, 2>(params, 0, where);
  if (params.sources == 4) ReduceBody<Codec, SumOrAvgOp<Codec>, 4, 1>(params, 0, where);
  if (params.sources == 8) ReduceBody<Codec, SumOrAvgOp<Codec>, 8, 1>(params, 0, where);
}

struct Case {
  DataType type;
  Redop redop;
  int sources, destinations;
  uint64_t count;
  bool in_place, misaligned, specials;
};

// Buffers of a case, each with room around it.
class Arena {
 public:
  static constexpr uint64_t kRoom = 64;

  Arena(const Case& c, Inputs* inputs) : case_(c), bytes_(c.count * SizeOf(c.type)) {
    for (int k = 0; k < c.sources; ++k) {
      Add(c.misaligned ? inputs->Below(32) : 16);
      inputs->Fill(c.type, c.specials, At(k), c.count);
    }
    for (int d = 0; d < c.destinations; ++d) {
      if (!c.in_place) Add(c.misaligned ? inputs->Below(32) : 16);
    }
    for (auto& scalar : scalars_) inputs->Fill(c.type, c.specials, scalar.bytes, 1);
  }

  std::byte* At(size_t i) { return memory_[i].data() + offset_[i]; }
  std::byte* Destination(int d) {
    return At(static_cast<size_t>(case_.in_place ? d : case_.sources + d));
  }

  ReduceParams Params() {
    ReduceParams params{};
    params.dtype = static_cast<uint8_t>(case_.type);
    params.redop = static_cast<uint8_t>(case_.redop);
    params.sources = static_cast<uint16_t>(case_.sources);
    params.destinations = static_cast<uint16_t>(case_.destinations);
    params.divisor = static_cast<uint32_t>(case_.sources);
    params.count = case_.count;
    for (int k = 0; k < case_.sources; ++k) {
      params.source[k] = reinterpret_cast<uint64_t>(At(static_cast<size_t>(k)));
      std::memcpy(&params.scalar[k], scalars_[k].bytes, 8);
    }
    for (int d = 0; d < case_.destinations; ++d) {
      params.destination[d] = reinterpret_cast<uint64_t>(Destination(d));
    }
    return params;
  }

  void Expect() {
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> destinations;
    for (int k = 0; k < case_.sources; ++k) sources.push_back(At(static_cast<size_t>(k)));
    for (int d = 0; d < case_.destinations; ++d) destinations.push_back(Destination(d));
    ReduceInto({case_.type, case_.redop, case_.sources, StorePolicy::kTemporal}, sources,
               absl::MakeConstSpan(scalars_, static_cast<size_t>(case_.sources)), destinations,
               case_.count);
  }

  bool operator==(const Arena& other) const { return memory_ == other.memory_; }
  Arena(const Arena&) = default;

 private:
  void Add(uint64_t offset) {
    // Vectors' own memory is aligned to 16 at least.
    memory_.emplace_back(bytes_ + 2 * kRoom, kPoison);
    offset_.push_back(offset);
  }

  Case case_;
  uint64_t bytes_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<uint64_t> offset_;
  Scalar scalars_[kRanksMax];
};

std::string Text(const Case& c) {
  return std::string(Name(c.type)) + " " + std::string(Name(c.redop)) + " of " +
         std::to_string(c.sources) + " to " + std::to_string(c.destinations) + ", " +
         std::to_string(c.count) + " elements" + (c.in_place ? ", in place" : "") +
         (c.misaligned ? ", misaligned" : "") + (c.specials ? ", specials" : "");
}

template <class Run>
void Compare(const Case& c, Inputs* inputs, const Run& run) {
  INFO(Text(c));
  Arena seen(c, inputs);
  Arena expected = seen;
  expected.Expect();
  run(seen.Params());
  REQUIRE(seen == expected);
}

TEST_CASE("every type and reduction gives the bits of the CPU's") {
  Inputs inputs(20240611);
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int redop = 0; redop < kRedopCount; ++redop) {
      for (const int sources : {1, 2, 3, 4, 5, 8, 13}) {
        for (const uint64_t count : {1, 3, 7, 64, 511, 1025}) {
          for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7}) {
            const Case c = {static_cast<DataType>(type),
                            static_cast<Redop>(redop),
                            sources,
                            variant & 1 ? 1 : sources,
                            count,
                            (variant & 1) != 0,
                            (variant & 2) != 0,
                            (variant & 4) != 0};
            // A copy is another kernel's.
            if (sources == 1 && c.redop != Redop::kPremulSum) continue;
            Compare(c, &inputs, ReduceInAForm);
          }
        }
      }
    }
  }
}

TEST_CASE("sums of a fixed number of sources are those of any number") {
  Inputs inputs(7);
  for (const int sources : {2, 4, 8}) {
    for (const Redop redop : {Redop::kSum, Redop::kAvg}) {
      for (const uint64_t count : {1, 100, 1023, 4099}) {
        for (const bool in_place : {false, true}) {
          const auto compare = [&](DataType type, auto run) {
            Compare({type, redop, sources, sources, count, in_place, false, true}, &inputs,
                    [&](const ReduceParams& params) {
                      const auto small = ToSmall(params);
                      ForThreads(2, 64, [&](const Where& where) { run(small, where); });
                    });
          };
          compare(DataType::kFloat32, RunFixed<Float32Codec>);
          compare(DataType::kBfloat16, RunFixed<Bfloat16Codec>);
          compare(DataType::kFloat16, RunFixed<Float16Codec>);
        }
      }
    }
  }
}

TEST_CASE("a reduction that scatters gives each destination its block") {
  Inputs inputs(3);
  constexpr uint64_t kCount = 37;
  for (const bool in_place : {false, true}) {
    std::vector<std::vector<float>> in(4, std::vector<float>(4 * kCount)), out;
    for (auto& rank : in) {
      inputs.Fill(DataType::kFloat32, false, reinterpret_cast<std::byte*>(rank.data()),
                  rank.size());
    }
    const auto before = in;
    out.assign(4, std::vector<float>(kCount));
    ReduceParams params{};
    params.dtype = static_cast<uint8_t>(DataType::kFloat32);
    params.sources = params.destinations = 4;
    params.scatter = 1;
    params.count = kCount;
    for (size_t r = 0; r < 4; ++r) {
      params.source[r] = reinterpret_cast<uint64_t>(in[r].data());
      params.destination[r] =
          reinterpret_cast<uint64_t>(in_place ? in[r].data() + r * kCount : out[r].data());
    }
    testing::ReduceOnCpu(params);
    for (size_t r = 0; r < 4; ++r) {
      const float* seen = in_place ? in[r].data() + r * kCount : out[r].data();
      for (size_t i = 0; i < kCount; ++i) {
        const size_t at = r * kCount + i;
        REQUIRE(seen[i] == ((before[0][at] + before[1][at]) + before[2][at]) + before[3][at]);
      }
    }
  }
}

TEST_CASE("a move copies runs of any length and place, and nothing else") {
  Inputs inputs(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> source(1 << 17), destination(1 << 17, kPoison);
    for (auto& byte : source) byte = static_cast<std::byte>(inputs.Number());
    std::vector<std::byte> expected = destination;
    std::vector<RunWords> runs;
    uint64_t at = 0;
    for (;;) {
      const uint64_t limit = round % 3 == 0 ? 40 : round % 3 == 1 ? 3000 : 40000;
      uint64_t bytes = 1 + inputs.Below(limit);
      uint64_t gap = inputs.Below(40);
      if (round % 2 == 0) bytes = (bytes + 15) / 16 * 16, gap = gap / 16 * 16;
      if (at + gap + bytes > destination.size()) break;
      at += gap;
      uint64_t from = inputs.Below(source.size() - bytes + 1);
      if (round % 2 == 0) from = from / 16 * 16;
      runs.push_back({reinterpret_cast<uint64_t>(source.data() + from),
                      reinterpret_cast<uint64_t>(destination.data() + at), bytes});
      std::memcpy(expected.data() + at, source.data() + from, bytes);
      at += bytes;
    }
    MoveParams params{};
    params.runs = static_cast<uint32_t>(runs.size());
    if (runs.size() <= kFewRuns) {
      std::copy(runs.begin(), runs.end(), params.few);
    } else {
      params.run = runs.data();
    }
    // Whatever they are: of runs shorter than expected, and longer ones.
    params.part = static_cast<uint32_t>(512 * (1 + inputs.Below(9)));
    params.parts = static_cast<uint32_t>(1 + inputs.Below(5));
    const auto move = [&](const auto& form) {
      if (inputs.Below(3) > 0) {
        ForThreads(form.runs * form.parts * form.team / 64 + 1, 64,
                   [&](const Where& where) { MoveByTeam(form, where); });
      } else {
        ForThreads(3, 64, [&](const Where& where) { MoveByWarp(form, where); });
      }
    };
    params.team = inputs.Below(2) == 0 ? 32 : 64;
    if (FitsSmall(params)) {
      move(ToSmall(params));
    } else {
      move(params);
    }
    INFO("round " << round << ", " << params.runs << " runs, " << params.parts << " parts of "
                  << params.part);
    REQUIRE(destination == expected);
  }
}

TEST_CASE("a spread copies every segment to its place") {
  Inputs inputs(5);
  for (const uint64_t bytes : {1, 15, 16, 500, 4096, 10007}) {
    for (const uint64_t shift : {0, 16, 3}) {
      for (const uint32_t ranks : {1u, 2u, 3u, 5u}) {
        for (const SpreadPattern pattern :
             {SpreadPattern::kEach, SpreadPattern::kFan, SpreadPattern::kPairs}) {
          const uint64_t room = bytes * ranks + 64;
          std::vector<std::vector<std::byte>> in(ranks, std::vector<std::byte>(room));
          std::vector<std::vector<std::byte>> out(ranks, std::vector<std::byte>(room, kPoison));
          for (auto& rank : in) {
            for (auto& byte : rank) byte = static_cast<std::byte>(inputs.Number());
          }
          auto expected = out;
          SpreadParams params{};
          params.pattern = pattern;
          params.segments = params.destinations = ranks;
          params.bytes = bytes;
          params.part = 512;
          for (uint32_t r = 0; r < ranks; ++r) {
            params.source[r] = reinterpret_cast<uint64_t>(in[r].data() + shift);
            params.destination[r] = reinterpret_cast<uint64_t>(out[r].data() + 16);
          }
          for (uint32_t s = 0; s < ranks; ++s) {
            for (uint32_t d = 0; d < ranks; ++d) {
              const std::byte* from = in[s].data() + shift;
              std::byte* to = expected[d].data() + 16;
              if (pattern == SpreadPattern::kPairs) {
                std::memcpy(to + s * bytes, from + d * bytes, bytes);
              } else if (pattern == SpreadPattern::kFan) {
                std::memcpy(to + s * bytes, from, bytes);
              } else if (s == d) {
                std::memcpy(to, from, bytes);
              }
            }
          }
          const uint32_t all = pattern == SpreadPattern::kPairs ? ranks * ranks : ranks;
          const auto spread = [&](const auto& form) {
            for (uint32_t segment = 0; segment < all; ++segment) {
              ForThreads(static_cast<uint32_t>(bytes / params.part) + 1, 64,
                         [&](const Where& where) { SpreadBody(form, segment, where); });
            }
          };
          if (shift == 16) {
            spread(params);
          } else {
            spread(ToSmall(params));
          }
          INFO("bytes " << bytes << ", shift " << shift << ", ranks " << ranks << ", pattern "
                        << static_cast<int>(pattern));
          REQUIRE(out == expected);
        }
      }
    }
  }
}

TEST_CASE("the small form takes eight ranks, runs and signals, and not nine") {
  for (const uint16_t ranks : {8, 9}) {
    const bool fits = ranks == 8;
    Signals signals{};
    CHECK(FitsSmall(signals));
    signals.count = ranks;
    CHECK(FitsSmall(signals) == fits);
    ReduceParams reduce{};
    reduce.sources = ranks, reduce.destinations = 1;
    CHECK(FitsSmall(reduce) == fits);
    reduce.sources = 1, reduce.destinations = ranks;
    CHECK(FitsSmall(reduce) == fits);
    reduce.destinations = 1, reduce.signals = signals;
    CHECK(FitsSmall(reduce) == fits);
    SpreadParams spread{};
    spread.segments = ranks, spread.destinations = 1;
    CHECK(FitsSmall(spread) == fits);
    spread.segments = 1, spread.destinations = ranks;
    CHECK(FitsSmall(spread) == fits);
    spread.destinations = 1, spread.signals = signals;
    CHECK(FitsSmall(spread) == fits);
    MoveParams move{};
    move.runs = ranks;
    CHECK(FitsSmall(move) == fits);
    move.run = move.few;  // a table
    CHECK(FitsSmall(move));
    move.signals = signals;
    CHECK(FitsSmall(move) == fits);
  }
}

TEST_CASE("the small form holds what the large one does") {
  ReduceParams large{};
  large.dtype = 1, large.redop = 2, large.sources = 8, large.destinations = 7, large.scatter = 1;
  large.divisor = 5, large.count = uint64_t{1} << 40;
  uint64_t completion = 0;
  uint32_t words[8] = {};
  large.signals.ticket = words;
  large.signals.count = 8, large.signals.value = 3;
  large.signals.completion = &completion, large.signals.completion_value = uint64_t{1} << 50;
  for (uint32_t i = 0; i < 8; ++i) {
    large.source[i] = 100 + i, large.destination[i] = 200 + i, large.scalar[i] = 300 + i;
    large.signals.word[i] = words + i, large.signals.values[i] = 400 + i;
  }
  const ReduceParamsOf<Small> small = ToSmall(large);
  CHECK(std::memcmp(static_cast<const ReduceHead*>(&small), static_cast<const ReduceHead*>(&large),
                    sizeof(ReduceHead)) == 0);
  CHECK(std::memcmp(static_cast<const SignalsHead*>(&small.signals),
                    static_cast<const SignalsHead*>(&large.signals), sizeof(SignalsHead)) == 0);
  CHECK(std::equal(small.source, small.source + 8, large.source));
  CHECK(std::equal(small.destination, small.destination + 8, large.destination));
  CHECK(std::equal(small.scalar, small.scalar + 8, large.scalar));
  CHECK(std::equal(small.signals.word, small.signals.word + 8, large.signals.word));
  CHECK(std::equal(small.signals.values, small.signals.values + 8, large.signals.values));
}

}  // namespace
}  // namespace shunt::gpu
