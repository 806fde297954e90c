// What a client asks to be transferred: sets, ids, runs and descriptors of any numbers. What is
// accepted reads and writes inside regions only, and all of its bytes once.
#include <algorithm>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/p2p/transfer_plan.h"
#include "tests/fuzz/input.h"

namespace {

using namespace shunt::p2p;
using shunt::testing::FuzzInput;

constexpr size_t kListed = 40;

// Small numbers often, so that something is accepted; any number now and then.
uint64_t Number(FuzzInput& input) {
  const auto kind = input.Take<uint8_t>();
  if (kind < 160) return kind % 32;
  if (kind < 220) return input.Take<uint16_t>();
  return input.Take<uint64_t>();
}

std::vector<RegionExtent> Regions(FuzzInput& input) {
  return {{1, Number(input) * 256}, {2, Number(input)}, {9, uint64_t{1} << 50}};
}

std::shared_ptr<const PreparedList> AList(FuzzInput& input) {
  Section section;
  section.name = "fuzzed";
  const std::vector<RegionExtent> regions = Regions(input);
  const size_t sets = input.Take<uint8_t>() % 4 + 1;
  for (size_t i = 0; i < sets; ++i) {
    StridedSet set;
    set.region = regions[input.Take<uint8_t>() % regions.size()].id;
    set.base = Number(input);
    set.length = Number(input);
    for (Dimension& d : set.dims) {
      d.count = Number(input);
      d.stride = static_cast<int64_t>(Number(input));
    }
    section.sets.push_back(set);
  }
  for (const RegionExtent& region : regions) {
    for (const StridedSet& set : section.sets) {
      if (set.region != region.id) continue;
      section.regions.push_back(region);
      break;
    }
  }
  auto list = PreparedList::Prepare(section, input.Take<uint8_t>() % 2);
  return list.ok() ? *list : nullptr;
}

absl::StatusOr<Selection> ASelection(FuzzInput& input, std::shared_ptr<const PreparedList> list) {
  const size_t count = input.Take<uint8_t>() % kListed;
  const uint8_t form = list == nullptr ? 3 : input.Take<uint8_t>() % 4;
  const IdShape shape{Number(input) + 1, Number(input) % 5000 + 1, Number(input)};
  std::vector<uint64_t> ids(count);
  for (uint64_t& id : ids) id = Number(input);
  if (form == 0) return Selection::Ids(std::move(list), absl::MakeConstSpan(ids), shape);
  if (form == 1) {
    const std::vector<uint32_t> narrow(ids.begin(), ids.end());
    return Selection::Ids(std::move(list), absl::MakeConstSpan(narrow));
  }
  if (form == 2) {
    std::vector<Run> runs;
    for (const uint64_t id : ids) runs.push_back({id, Number(input), Number(input)});
    return Selection::Runs(std::move(list), runs);
  }
  std::vector<Descriptor> descriptors;
  for (const uint64_t id : ids) descriptors.push_back({id % 3, Number(input), Number(input)});
  return Selection::Raw(0, Regions(input), descriptors);
}

void CheckInside(const Selection& selection, uint32_t region, uint64_t offset, uint64_t bytes) {
  SHUNT_CHECK(region < selection.regions().size());
  const uint64_t size = selection.regions()[region].bytes;
  SHUNT_CHECK(offset <= size && bytes <= size - offset);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto list = AList(input);
  const auto other = input.Take<uint8_t>() % 2 == 0 ? list : AList(input);
  const auto source = ASelection(input, list);
  auto destination = ASelection(input, other);
  if (!source.ok()) return 0;
  const uint64_t bytes = source->payload_bytes();
  // Totals seldom agree by themselves.
  const RegionExtent far{1 << 20, bytes};
  const Descriptor whole{1 << 20, 0, bytes};
  if (!destination.ok() || destination->payload_bytes() != bytes) {
    destination = Selection::Raw(0, absl::MakeConstSpan(&far, 1), absl::MakeConstSpan(&whole, 1));
    SHUNT_CHECK(destination.ok());
  }
  const auto plan = TransferPlan::Make(*source, *destination);
  if (!plan.ok()) return 0;
  SHUNT_CHECK((*plan)->bytes() == bytes && bytes > 0);
  for (const uint64_t begin : {uint64_t{0}, bytes / 2, bytes - 1}) {
    const uint64_t part = std::min<uint64_t>(bytes - begin, 5000);
    PlanCursor cursor(**plan, begin, part);
    uint64_t seen = 0;
    for (CopyRun run; cursor.Next(&run); seen += run.bytes) {
      CheckInside(*source, run.source_region, run.source_offset, run.bytes);
      CheckInside(*destination, run.destination_region, run.destination_offset, run.bytes);
    }
    SHUNT_CHECK(seen == part);
  }
  return 0;
}
