// Reductions on a GPU: every bit as the CPU's, and no byte beside them.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/collectives/exec/reduce.h"
#include "tests/gpu/kernels_device_world.h"
#include "tests/gpu/kernels_inputs.h"

namespace shunt::gpu::testing {
namespace {

constexpr uint64_t kLarge = (1 << 20) + 5;

enum class Form { kOne, kAll, kInPlace, kScatter, kScatterInPlace };
constexpr Form kForms[] = {Form::kOne, Form::kAll, Form::kInPlace, Form::kScatter,
                           Form::kScatterInPlace};
constexpr const char* kFormNames[] = {"to one", "to all", "in place", "scattered",
                                      "scattered in place"};

// How the buffers lie to vectors of 16 bytes: on them, all equally far from one, elements anywhere,
// bytes anywhere.
enum class Alignment { kVectors, kAlike, kElements, kBytes };
constexpr Alignment kAlignments[] = {Alignment::kVectors, Alignment::kAlike, Alignment::kElements,
                                     Alignment::kBytes};
constexpr const char* kAlignmentNames[] = {"aligned", "aligned alike", "aligned to elements",
                                           "aligned to bytes"};

bool Scatters(Form form) { return form == Form::kScatter || form == Form::kScatterInPlace; }

struct Case {
  DataType type;
  Redop redop;
  Form form;
  Alignment alignment;
  int sources;
  uint64_t count;  // of a destination's elements
};

std::string Text(const Case& c) {
  return std::string(Name(c.type)) + " " + std::string(Name(c.redop)) + " of " +
         std::to_string(c.sources) + " " + kFormNames[static_cast<int>(c.form)] + ", " +
         std::to_string(c.count) + " elements, " + kAlignmentNames[static_cast<int>(c.alignment)];
}

class Reductions {
 public:
  explicit Reductions(KernelsWorld* world)
      : world_(*world), arena_(&world->driver, world->stream, 256 << 20), inputs_(FreshSeed()) {}

  // Before the cases of a type: its contributions are stretches of this.
  void Draw(DataType type) {
    drawn_ = 2 * kLarge;
    pool_.resize(drawn_ * SizeOf(type));
    inputs_.Fill(type, true, pool_.data(), drawn_);
  }

  int Sources() {
    constexpr int kSources[] = {1, 2, 3, 4, 5, 8, 13, 16};
    return kSources[inputs_.Below(std::size(kSources))];
  }

  void Check(const Case& c) {
    INFO(Text(c) << ", SHUNT_TEST_SEED " << FreshSeed());
    LayOut(c);
    Fill(c);
    arena_.Send();
    Ok(world_.kernels->Reduce(Params(c), world_.stream));
    arena_.Receive();
    Expect(c);
    REQUIRE(arena_.Difference().empty());
  }

 private:
  static int Blocks(const Case& c) { return Scatters(c.form) ? c.sources : 1; }

  uint64_t Offset(const Case& c, uint64_t alike) {
    const uint64_t size = SizeOf(c.type);
    switch (c.alignment) {
      case Alignment::kVectors:
        return 0;
      case Alignment::kAlike:
        return alike;
      case Alignment::kElements:
        return size * inputs_.Below(32 / size);
      case Alignment::kBytes:
        break;
    }
    return inputs_.Below(32);
  }

  void LayOut(const Case& c) {
    const uint64_t size = SizeOf(c.type), bytes = c.count * size;
    const uint64_t alike = size * (1 + inputs_.Below(16 / size - 1));
    arena_.Clear();
    source_.clear();
    destination_.clear();
    for (int k = 0; k < c.sources; ++k) {
      source_.push_back(arena_.Add(bytes * static_cast<uint64_t>(Blocks(c)), Offset(c, alike)));
    }
    const int destinations = c.form == Form::kOne ? 1 : c.sources;
    for (int d = 0; d < destinations; ++d) {
      const auto at = static_cast<size_t>(d);
      if (c.form == Form::kInPlace) {
        destination_.push_back(source_[at]);
      } else if (c.form == Form::kScatterInPlace) {
        destination_.push_back(source_[at] + at * bytes);
      } else {
        destination_.push_back(arena_.Add(bytes, Offset(c, alike)));
      }
    }
  }

  void Fill(const Case& c) {
    const uint64_t size = SizeOf(c.type);
    const uint64_t elements = c.count * static_cast<uint64_t>(Blocks(c));
    arena_.Poison();
    scalars_.resize(source_.size());
    for (size_t k = 0; k < source_.size(); ++k) {
      std::memcpy(arena_.Image(source_[k]),
                  pool_.data() + size * inputs_.Below(drawn_ - elements + 1), elements * size);
      inputs_.Fill(c.type, true, scalars_[k].bytes, 1);
    }
  }

  ReduceParams Params(const Case& c) const {
    ReduceParams params{};
    params.dtype = static_cast<uint8_t>(c.type);
    params.redop = static_cast<uint8_t>(c.redop);
    params.sources = static_cast<uint16_t>(source_.size());
    params.destinations = static_cast<uint16_t>(destination_.size());
    params.scatter = Scatters(c.form) ? 1 : 0;
    params.divisor = static_cast<uint32_t>(c.sources);
    params.count = c.count;
    for (size_t k = 0; k < source_.size(); ++k) {
      params.source[k] = arena_.At(source_[k]);
      std::memcpy(&params.scalar[k], scalars_[k].bytes, sizeof(Scalar));
    }
    for (size_t d = 0; d < destination_.size(); ++d) {
      params.destination[d] = arena_.At(destination_[d]);
    }
    return params;
  }

  void Expect(const Case& c) {
    const uint64_t bytes = c.count * SizeOf(c.type);
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> destinations;
    for (const uint64_t at : source_) sources.push_back(arena_.Image(at));
    for (const uint64_t at : destination_) destinations.push_back(arena_.Image(at));
    const ReduceSpec spec = {c.type, c.redop, c.sources, StorePolicy::kTemporal};
    const auto all = absl::MakeConstSpan(destinations);
    for (size_t block = 0; block < static_cast<size_t>(Blocks(c)); ++block) {
      ReduceInto(spec, sources, scalars_, Scatters(c.form) ? all.subspan(block, 1) : all, c.count);
      for (const std::byte*& source : sources) source += bytes;
    }
  }

  KernelsWorld& world_;
  Arena arena_;
  Inputs inputs_;
  std::vector<std::byte> pool_;
  uint64_t drawn_ = 0;
  std::vector<uint64_t> source_, destination_;
  std::vector<Scalar> scalars_;
};

template <class Body>
void ForForms(const Body& body) {
  for (int redop = 0; redop < kRedopCount; ++redop) {
    for (const Form form : kForms) {
      for (const Alignment alignment : kAlignments) {
        body(static_cast<Redop>(redop), form, alignment);
      }
    }
  }
}

TEST_CASE("few elements of every type are reduced to the CPU's bits, wherever they lie") {
  KernelsWorld world;
  Reductions reductions(&world);
  for (int type = 0; type < kDataTypeCount; ++type) {
    const auto dtype = static_cast<DataType>(type);
    reductions.Draw(dtype);
    ForForms([&](Redop redop, Form form, Alignment alignment) {
      for (const uint64_t count : {0, 1, 3, 7}) {
        for (const int sources : {1, 2, 3, 4, 5, 8, 13, 16}) {
          reductions.Check({dtype, redop, form, alignment, sources, count});
        }
      }
      for (int i = 0; i < 2; ++i) {
        const int sources = reductions.Sources();
        const uint64_t count = (64 << 10) + 1;
        reductions.Check({dtype, redop, form, alignment, sources,
                          Scatters(form) ? count / static_cast<uint64_t>(sources) : count});
      }
    });
  }
}

TEST_CASE("many elements of every type are reduced to the CPU's bits, wherever they lie") {
  KernelsWorld world;
  Reductions reductions(&world);
  for (int type = 0; type < kDataTypeCount; ++type) {
    const auto dtype = static_cast<DataType>(type);
    reductions.Draw(dtype);
    ForForms([&](Redop redop, Form form, Alignment alignment) {
      // Half of the cases: all alignments of a form with one reduction or the next.
      const int turn = static_cast<int>(redop) + static_cast<int>(form);
      if ((turn + static_cast<int>(alignment)) % 2 != 0) return;
      constexpr int kSources[] = {2, 4, 8, 3};
      const int sources = kSources[(turn + static_cast<int>(alignment) / 2 + type) % 4];
      reductions.Check({dtype, redop, form, alignment, sources,
                        Scatters(form) ? kLarge / static_cast<uint64_t>(sources) : kLarge});
    });
  }
}

TEST_CASE("sums of fixed numbers of sources are those of any number") {
  KernelsWorld world;
  Reductions reductions(&world);
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    reductions.Draw(type);
    for (const int sources : {2, 4, 8}) {
      for (const Redop redop : {Redop::kSum, Redop::kAvg}) {
        for (const uint64_t count : {1000, 1024, 300007}) {
          for (const Alignment alignment : {Alignment::kVectors, Alignment::kAlike}) {
            reductions.Check({type, redop, Form::kAll, alignment, sources, count});
            reductions.Check({type, redop, Form::kInPlace, alignment, sources, count});
          }
        }
      }
    }
  }
}

TEST_CASE("as many sources and destinations as there can be are reduced") {
  KernelsWorld world;
  Reductions reductions(&world);
  for (const DataType type : {DataType::kUint8, DataType::kBfloat16, DataType::kFloat64}) {
    reductions.Draw(type);
    for (const Redop redop : {Redop::kSum, Redop::kMax, Redop::kPremulSum}) {
      for (const Form form : kForms) {
        for (const Alignment alignment : kAlignments) {
          reductions.Check({type, redop, form, alignment, kRanksMax, 1001});
        }
      }
    }
  }
}

TEST_CASE("a reduction gives the same bits every time, beside others") {
  KernelsWorld world;
  constexpr uint64_t kBytes = 8 << 20, kSources = 8, kRounds = 20;
  Inputs inputs(FreshSeed());
  std::vector<std::byte> in(kSources * kBytes);
  inputs.Fill(DataType::kFloat32, true, in.data(), in.size() / 4);
  const DevicePtr source = Value(world.driver.Allocate(in.size()));
  const DevicePtr out = Value(world.driver.Allocate(kRounds * kBytes));
  CopyToDevice(source, in.data(), in.size());
  const Stream other = Value(world.driver.CreateStream());
  ReduceParams params{};
  params.dtype = static_cast<uint8_t>(DataType::kFloat32);
  params.redop = static_cast<uint8_t>(Redop::kSum);
  params.sources = kSources;
  params.destinations = 1;
  params.count = kBytes / 4;
  for (uint64_t k = 0; k < kSources; ++k) params.source[k] = source + k * kBytes;
  for (uint64_t round = 0; round < kRounds; ++round) {
    params.destination[0] = out + round * kBytes;
    Ok(world.kernels->Reduce(params, round % 2 == 0 ? world.stream : other));
  }
  Ok(world.driver.Synchronize(world.stream));
  Ok(world.driver.Synchronize(other));
  std::vector<std::byte> first(kBytes), next(kBytes);
  CopyFromDevice(first.data(), out, kBytes);
  for (uint64_t round = 1; round < kRounds; ++round) {
    CopyFromDevice(next.data(), out + round * kBytes, kBytes);
    REQUIRE(next == first);
  }
  world.driver.DestroyStream(other);
  Ok(world.driver.Free(source));
  Ok(world.driver.Free(out));
}

TEST_CASE("a reduction that cannot be is refused in words before anything runs") {
  KernelsWorld world;
  ReduceParams params{};
  params.sources = params.destinations = 1;
  params.count = 1;
  const auto refused = [&](const std::string& words) {
    const absl::Status status = world.kernels->Reduce(params, world.stream);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()) == words);
  };
  params.dtype = 12;
  refused("data type 12, expected 0 to 11");
  params.dtype = 0;
  params.redop = 6;
  refused("reduction 6, expected 0 to 5");
  params.redop = static_cast<uint8_t>(Redop::kAvg);
  refused("divisor 0, expected at least 1");
  params.sources = 129;
  refused("sources 129, expected 1 to 128");
  params.sources = 1;
  params.destinations = 0;
  refused("destinations 0, expected 1 to 128");
}

}  // namespace
}  // namespace shunt::gpu::testing
