#include "tests/p2p/reference.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "runtime/core/check.h"
#include "tests/p2p/memories.h"

namespace shunt::p2p {
namespace {

void Append(Places* places, uint64_t region, uint64_t offset, uint64_t length) {
  for (uint64_t i = 0; i < length; ++i) places->push_back({region, offset + i});
}

template <typename T>
T Valid(absl::StatusOr<T> result) {
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  SHUNT_CHECK(result.ok());
  return *std::move(result);
}

}  // namespace

StridedSet Shapes::Set(const RegionExtent& region) {
  while (true) {
    StridedSet set;
    set.region = region.id;
    set.length = Chance(50) ? Number(1, 8) : Number(1, 40);
    uint64_t span = set.length;
    size_t order[3] = {0, 1, 2};
    std::shuffle(order, order + 3, random_);
    for (const size_t i : order) {
      Dimension& d = set.dims[i];
      d.count = Number(1, 5);
      d.stride = static_cast<int64_t>(d.count > 1 ? span + (Chance(50) ? 0 : Number(0, 30)) : 0);
      span += (d.count - 1) * static_cast<uint64_t>(d.stride);
    }
    if (span > region.bytes) continue;
    set.base = Number(0, region.bytes - span);
    return set;
  }
}

Section Shapes::ASection(const std::vector<RegionExtent>& regions) {
  std::vector<StridedSet> sets(Number(1, 4));
  for (StridedSet& set : sets) {
    set = Set(regions[Number(0, regions.size() - 1)]);
    // Often alike, as layers are, and interleaved.
    if (Chance(50)) {
      const StridedSet& first = sets[0];
      set.length = first.length;
      set.dims = first.dims;
      const uint64_t bytes = MakeSection({set}, regions).regions[0].bytes;
      const uint64_t span = Span(set);
      if (span > bytes) {
        set = first;
      } else {
        set.base = Number(0, bytes - span);
      }
    }
  }
  return MakeSection(sets, regions);
}

std::vector<uint64_t> Shapes::Ids(uint64_t count, uint64_t limit) {
  std::vector<uint64_t> ids;
  if (count <= limit) {
    std::vector<uint64_t> all(limit);
    std::iota(all.begin(), all.end(), 0);
    if (Chance(70)) std::shuffle(all.begin(), all.end(), random_);
    ids.assign(all.begin(), all.begin() + static_cast<int64_t>(count));
  }
  while (ids.size() < count) ids.push_back(Number(0, limit - 1));
  if (Chance(15)) ids[Number(0, count - 1)] = ids[Number(0, count - 1)];
  return ids;
}

Side Shapes::OfList(const std::shared_ptr<const PreparedList>& list) {
  const Section& section = list->section();
  const uint64_t pieces = PiecesOf(section);
  Places places;
  const auto add = [&](uint64_t piece) {
    const Places of_piece = PieceOf(section, piece);
    places.insert(places.end(), of_piece.begin(), of_piece.end());
  };
  const uint64_t form = Number(0, 3);
  if (form == 0) {
    for (uint64_t i = 0; i < pieces; ++i) add(i);
    return {Valid(Selection::All(list)), places};
  }
  if (form == 1) {
    std::vector<Run> runs(Number(1, 4));
    for (Run& run : runs) {
      run.first = Number(0, pieces - 1);
      run.step = Number(1, 4);
      run.count = Number(1, std::min<uint64_t>(20, (pieces - 1 - run.first) / run.step + 1));
      for (uint64_t i = 0; i < run.count; ++i) add(run.first + i * run.step);
    }
    return {Valid(Selection::Runs(list, runs)), places};
  }
  IdShape shape;
  shape.unit = Number(1, std::min<uint64_t>(pieces, 6));
  const uint64_t units = pieces / shape.unit;
  const uint64_t spread = Number(1, units);
  const std::vector<uint64_t> ids = Ids(Number(1, std::min<uint64_t>(spread, 90)), spread);
  const uint64_t high = *std::max_element(ids.begin(), ids.end());
  shape.repeats = Number(1, 3);
  if (shape.repeats > 1) shape.repeat_step = Number(0, (units - 1 - high) / (shape.repeats - 1));
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    for (const uint64_t id : ids) {
      for (uint64_t i = 0; i < shape.unit; ++i) {
        add((id + r * shape.repeat_step) * shape.unit + i);
      }
    }
  }
  if (form == 2) return {Valid(Selection::Ids(list, absl::MakeConstSpan(ids), shape)), places};
  const std::vector<uint32_t> narrow(ids.begin(), ids.end());
  return {Valid(Selection::Ids(list, absl::MakeConstSpan(narrow), shape)), places};
}

Side Shapes::Blocks(Space space, const RegionExtent& region, uint64_t piece, uint64_t bytes) {
  const uint64_t count = region.bytes / piece;
  StridedSet set{region.id, 0, piece, {{{1, 0}, {1, 0}, {count, static_cast<int64_t>(piece)}}}};
  auto list = Valid(PreparedList::Prepare(MakeSection({set}, {region}), space));
  const std::vector<uint64_t> ids = Ids(bytes / piece, count);
  Places places;
  for (const uint64_t id : ids) Append(&places, region.id, id * piece, piece);
  return {Valid(Selection::Ids(list, absl::MakeConstSpan(ids))), places};
}

Side Shapes::Raw(Space space, const std::vector<RegionExtent>& regions, uint64_t bytes) {
  // Slots as long as the longest piece keep them apart; now and then they are put anywhere.
  const bool anywhere = Chance(20), alike = Chance(30);
  const uint64_t longest = std::max<uint64_t>(1, Number(1, 40));
  std::vector<Descriptor> slots;
  for (const RegionExtent& region : regions) {
    for (uint64_t at = 0; at + longest <= region.bytes; at += longest) {
      slots.push_back({region.id, at, longest});
    }
  }
  if (Chance(70)) std::shuffle(slots.begin(), slots.end(), random_);
  std::vector<Descriptor> descriptors;
  Places places;
  for (size_t i = 0; bytes > 0; ++i) {
    Descriptor d = slots[i % slots.size()];
    d.length = std::min(bytes, alike ? longest : Number(1, longest));
    if (anywhere) d.offset = Number(0, d.offset);
    descriptors.push_back(d);
    Append(&places, d.region, d.offset, d.length);
    bytes -= d.length;
  }
  return {Valid(Selection::Raw(space, regions, descriptors)), places};
}

uint64_t PiecesOf(const Section& section) {
  uint64_t pieces = 0;
  for (const StridedSet& s : section.sets) {
    pieces += s.dims[0].count * s.dims[1].count * s.dims[2].count;
  }
  return pieces;
}

Places PieceOf(const Section& section, uint64_t number) {
  Places places;
  for (const StridedSet& s : section.sets) {
    for (uint64_t i = 0; i < s.dims[0].count; ++i) {
      for (uint64_t j = 0; j < s.dims[1].count; ++j) {
        for (uint64_t k = 0; k < s.dims[2].count; ++k) {
          if (number-- > 0) continue;
          Append(&places, s.region,
                 s.base + i * s.dims[0].stride + j * s.dims[1].stride + k * s.dims[2].stride,
                 s.length);
          return places;
        }
      }
    }
  }
  return places;
}

bool HasTwice(Places places) {
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end()) != places.end();
}

bool HaveCommon(Places a, Places b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  Places common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return !common.empty();
}

}  // namespace shunt::p2p
