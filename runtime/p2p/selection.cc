#include "runtime/p2p/selection.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::p2p {
namespace {

constexpr size_t kSegmentsMax = 1 << 20;
constexpr uint64_t kIdsMax = uint64_t{1} << 28;
// Each is looked at when the selection is made, also if a few ids come with many repeats.
constexpr uint64_t kMarkedIdsMax = uint64_t{1} << 22;

std::string ListText(const PreparedList& list) {
  return absl::StrCat("section \"", Printable(list.section().name), "\", which has ", list.pieces(),
                      " pieces");
}

absl::Status TooLong() {
  return absl::InvalidArgumentError("the pieces that were named have more than 2^62 bytes in all");
}

}  // namespace

absl::StatusOr<Selection> Selection::All(std::shared_ptr<const PreparedList> list) {
  const Run all{0, list->pieces(), 1};
  return Runs(std::move(list), absl::MakeConstSpan(&all, 1));
}

absl::StatusOr<Selection> Selection::Runs(std::shared_ptr<const PreparedList> list,
                                          absl::Span<const Run> runs) {
  Selection selection(Form::kRuns, list->space());
  selection.list_ = std::move(list);
  if (runs.empty()) return absl::InvalidArgumentError("a selection of no runs, expected some");
  selection.segments_.reserve(std::min(runs.size(), kSegmentsMax));
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run run = runs[i];  // a copy: the caller's memory may be shared
    SHUNT_RETURN_IF_ERROR(selection.AddRun(run, i));
  }
  return selection;
}

absl::Status Selection::AddRun(const Run& run, size_t number) {
  const auto text = [&] {
    return absl::StrCat("run ", number, " (first ", run.first, ", count ", run.count, ", step ",
                        run.step, ")");
  };
  if (run.count == 0 || (run.step == 0 && run.count > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(text(), ": expected a count and a step of at least 1"));
  }
  const uint64_t pieces = list_->pieces();
  const uint64_t step = run.count == 1 ? 1 : run.step;
  if (run.first >= pieces || (run.count - 1) > (pieces - 1 - run.first) / step) {
    return absl::OutOfRangeError(absl::StrCat(text(), " leaves ", ListText(*list_)));
  }
  uint64_t piece = run.first;
  for (uint64_t left = run.count; left > 0;) {
    const size_t set = list_->SetOf(piece);
    const uint64_t begin = list_->first_piece(set);
    const uint64_t here = std::min(left, (list_->first_piece(set + 1) - 1 - piece) / step + 1);
    if (segments_.size() == kSegmentsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the runs have more than ", kSegmentsMax, " parts in different sets"));
    }
    segments_.push_back({payload_bytes_, piece - begin, here, step, static_cast<uint32_t>(set)});
    const uint64_t bytes = here * list_->geometry(set).length();
    if (bytes > kPayloadMax - payload_bytes_) return TooLong();
    payload_bytes_ += bytes;
    left -= here;
    if (left > 0) piece += here * step;
  }
  return absl::OkStatus();
}

absl::StatusOr<Selection> Selection::Ids(std::shared_ptr<const PreparedList> list,
                                         absl::Span<const uint32_t> ids, IdShape shape) {
  return MakeIds(std::move(list), ids, shape);
}
absl::StatusOr<Selection> Selection::Ids(std::shared_ptr<const PreparedList> list,
                                         absl::Span<const uint64_t> ids, IdShape shape) {
  return MakeIds(std::move(list), ids, shape);
}

// Each id is read once, since the caller's memory may be shared.
template <typename From, typename To>
absl::Status Selection::TakeIds(absl::Span<const From> ids, std::vector<To>* taken) {
  taken->resize(ids.size());
  uint64_t low = UINT64_MAX, high = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t id = ids[i];
    low = std::min(low, id);
    high = std::max(high, id);
    (*taken)[i] = static_cast<To>(id);
  }
  const uint64_t units = list_->pieces() / shape_.unit;
  if (high >= units) {
    return absl::OutOfRangeError(
        absl::StrCat("id ", std::find(ids.begin(), ids.end(), high) - ids.begin(), " is ", high,
                     ", but ", ListText(*list_), ", ", units, " units of ", shape_.unit));
  }
  if (shape_.repeats > 1 && shape_.repeat_step > (units - 1 - high) / (shape_.repeats - 1)) {
    return absl::OutOfRangeError(absl::StrCat(
        "id ", high, ", repeated ", shape_.repeats, " times in steps of ", shape_.repeat_step,
        ", leaves ", ListText(*list_), ", ", units, " units of ", shape_.unit));
  }
  id_min_ = low;
  id_max_ = high;
  return absl::OkStatus();
}

template <typename Id>
absl::StatusOr<Selection> Selection::MakeIds(std::shared_ptr<const PreparedList> list,
                                             absl::Span<const Id> ids, IdShape shape) {
  Selection selection(Form::kIds, list->space());
  if (ids.empty()) return absl::InvalidArgumentError("a selection of no ids, expected some");
  if (ids.size() > kIdsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(ids.size(), " ids, expected at most ", kIdsMax));
  }
  if (shape.unit == 0 || shape.repeats == 0) {
    return absl::InvalidArgumentError(absl::StrCat("ids of ", shape.unit, " pieces each, repeated ",
                                                   shape.repeats,
                                                   " times: expected at least 1 of both"));
  }
  selection.list_ = std::move(list);
  selection.shape_ = shape;
  if (selection.list_->pieces() / shape.unit <= uint64_t{1} << 32) {
    SHUNT_RETURN_IF_ERROR(selection.TakeIds(ids, &selection.narrow_ids_));
  } else {
    SHUNT_RETURN_IF_ERROR(selection.TakeIds(ids, &selection.wide_ids_));
  }
  SHUNT_RETURN_IF_ERROR(selection.MarkPayload());
  return selection;
}

absl::Status Selection::MarkPayload() {
  uint64_t count;
  if (__builtin_mul_overflow(ids(), shape_.repeats, &count)) return TooLong();
  if (list_->piece_bytes() != 0) {
    if (count > kPayloadMax / (shape_.unit * list_->piece_bytes())) return TooLong();
    payload_bytes_ = count * shape_.unit * list_->piece_bytes();
    return absl::OkStatus();
  }
  if (count > kMarkedIdsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(count,
                     " ids, repeats counted, into pieces of different lengths; expected at "
                     "most ",
                     kMarkedIdsMax));
  }
  marks_.reserve(count / kMarkEvery + 1);
  uint64_t number = 0;
  for (uint64_t repeat = 0; repeat < shape_.repeats; ++repeat) {
    for (uint64_t i = 0; i < ids(); ++i, ++number) {
      if (number % kMarkEvery == 0) marks_.push_back(payload_bytes_);
      const uint64_t bytes = UnitBytes(id(i) + repeat * shape_.repeat_step);
      if (bytes > kPayloadMax - payload_bytes_) return TooLong();
      payload_bytes_ += bytes;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Selection> Selection::Raw(Space space, absl::Span<const RegionExtent> regions,
                                         absl::Span<const Descriptor> descriptors) {
  Selection selection(Form::kRaw, space);
  if (descriptors.empty()) {
    return absl::InvalidArgumentError("a selection of no descriptors, expected some");
  }
  selection.raw_regions_.assign(regions.begin(), regions.end());
  for (size_t i = 1; i < regions.size(); ++i) {
    const uint64_t before = selection.raw_regions_[i - 1].id, id = selection.raw_regions_[i].id;
    if (id <= before) {
      return absl::InvalidArgumentError(
          absl::StrCat("region ", id, " comes after region ", before, ", expected rising ids"));
    }
  }
  selection.raw_offsets_.reserve(descriptors.size());
  auto region = selection.raw_regions_.cend();
  for (size_t i = 0; i < descriptors.size(); ++i) {
    const Descriptor d = descriptors[i];  // a copy: the caller's memory may be shared
    if (region == selection.raw_regions_.cend() || region->id != d.region) {
      region =
          std::lower_bound(selection.raw_regions_.cbegin(), selection.raw_regions_.cend(), d.region,
                           [](const RegionExtent& extent, uint64_t id) { return extent.id < id; });
      if (region == selection.raw_regions_.cend() || region->id != d.region) {
        return absl::NotFoundError(absl::StrCat("descriptor ", i, " names region ", d.region,
                                                ", which is not among the ", regions.size(),
                                                " that were given"));
      }
    }
    if (absl::Status s = Check(d, region->bytes); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("descriptor ", i, ": ", s.message()));
    }
    if (d.length > kPayloadMax - selection.payload_bytes_) return TooLong();
    selection.AddRaw(static_cast<uint32_t>(region - selection.raw_regions_.cbegin()), d);
  }
  return selection;
}

void Selection::AddRaw(uint32_t region, const Descriptor& descriptor) {
  const size_t number = raw_offsets_.size();
  if (number == 0) {
    raw_length_ = descriptor.length;
    raw_region_ = region;
  }
  if (raw_lengths_.empty() && descriptor.length != raw_length_) {
    raw_lengths_.assign(number, raw_length_);
    for (size_t i = 0; i < number; i += kMarkEvery) marks_.push_back(i * raw_length_);
  }
  if (raw_region_of_.empty() && region != raw_region_) raw_region_of_.assign(number, raw_region_);
  raw_offsets_.push_back(descriptor.offset);
  if (raw_bytes() == 0 || descriptor.length != raw_length_) {
    if (number % kMarkEvery == 0) marks_.push_back(payload_bytes_);
    raw_lengths_.push_back(descriptor.length);
  }
  if (!raw_region_of_.empty() || region != raw_region_) raw_region_of_.push_back(region);
  payload_bytes_ += descriptor.length;
}

}  // namespace shunt::p2p
