#include "runtime/p2p/set_codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shunt::p2p {
namespace {

constexpr uint8_t kIndex = 1, kBase = 2, kLength = 4, kDims = 8;
constexpr uint8_t kAllFlags = kIndex | kBase | kLength | kDims;

}  // namespace

uint64_t SetCodec::IndexOf(uint64_t region) const {
  return std::lower_bound(regions_->begin(), regions_->end(), region,
                          [](const RegionExtent& r, uint64_t id) { return r.id < id; }) -
         regions_->begin();
}

void SetCodec::Remember(const StridedSet& set, uint64_t index) {
  index_step_ = index - last_index_;
  base_step_ = set.base - last_.base;
  last_index_ = index;
  last_ = set;
}

void SetCodec::Pass(const StridedSet& set) { Remember(set, IndexOf(set.region)); }

void SetCodec::Encode(const StridedSet& set, std::string* out) {
  const uint64_t index = IndexOf(set.region);
  const uint64_t index_step = index - last_index_;
  const uint64_t base_step = set.base - last_.base;
  uint8_t flags = 0;
  if (index_step != index_step_) flags |= kIndex;
  if (base_step != base_step_) flags |= kBase;
  if (set.length != last_.length) flags |= kLength;
  if (set.dims != last_.dims) flags |= kDims;
  out->push_back(static_cast<char>(flags));
  if ((flags & kIndex) != 0) PutVarint(out, ZigZag(static_cast<int64_t>(index_step)));
  if ((flags & kBase) != 0) PutVarint(out, ZigZag(static_cast<int64_t>(base_step)));
  if ((flags & kLength) != 0) PutVarint(out, set.length);
  if ((flags & kDims) != 0) {
    for (const Dimension& d : set.dims) {
      PutVarint(out, d.count);
      PutVarint(out, ZigZag(d.stride));
    }
  }
  Remember(set, index);
}

absl::Status SetCodec::Decode(VarintReader* reader, StridedSet* set) {
  const uint8_t flags = reader->Byte();
  if ((flags & ~kAllFlags) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the flags of a set are ", flags, ", expected at most ", kAllFlags));
  }
  *set = last_;
  uint64_t index_step = index_step_, base_step = base_step_;
  if ((flags & kIndex) != 0) index_step = static_cast<uint64_t>(UnZigZag(reader->Varint()));
  if ((flags & kBase) != 0) base_step = static_cast<uint64_t>(UnZigZag(reader->Varint()));
  if ((flags & kLength) != 0) set->length = reader->Varint();
  if ((flags & kDims) != 0) {
    for (Dimension& d : set->dims) {
      d.count = reader->Varint();
      d.stride = UnZigZag(reader->Varint());
    }
  }
  const uint64_t index = last_index_ + index_step;
  if (reader->bad())
    return absl::InvalidArgumentError("a set ends early, or a number is no number");
  if (index >= regions_->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a set is in region number ", index, " of ", regions_->size()));
  }
  set->base = last_.base + base_step;
  set->region = (*regions_)[index].id;
  Remember(*set, index);
  return absl::OkStatus();
}

}  // namespace shunt::p2p
