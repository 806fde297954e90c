#include "runtime/p2p/prepared_list.h"

#include <algorithm>
#include <tuple>

#include "runtime/core/status.h"
#include "runtime/p2p/disjoint.h"

namespace shunt::p2p {
namespace {

// Of all comparisons of a list's sets together: 512 layers that are interleaved in one region are
// 130,000 pairs of up to seven steps. Beyond it nothing is shown: a section comes from others, and
// must not cost more than tens of milliseconds.
constexpr uint32_t kStepsMax = 1 << 20;
// The same for two lists, which are compared with each transfer.
constexpr uint32_t kStepsOfListsMax = 1 << 15;

}  // namespace

absl::StatusOr<std::shared_ptr<const PreparedList>> PreparedList::Prepare(Section section,
                                                                          Space space) {
  SHUNT_RETURN_IF_ERROR(Check(section));
  return std::shared_ptr<const PreparedList>(new PreparedList(std::move(section), space));
}

PreparedList::PreparedList(Section section, Space space)
    : section_(std::move(section)), space_(space) {
  const std::vector<StridedSet>& sets = section_.sets;
  first_piece_.push_back(0);
  set_pieces_ = Divider(PieceCount(sets[0]));
  piece_bytes_ = sets[0].length;
  for (uint32_t i = 0; i < sets.size(); ++i) {
    const StridedSet& set = sets[i];
    const auto region =
        std::lower_bound(section_.regions.begin(), section_.regions.end(), set.region,
                         [](const RegionExtent& extent, uint64_t id) { return extent.id < id; });
    geometry_.emplace_back(set, static_cast<uint32_t>(region - section_.regions.begin()));
    const uint64_t count = PieceCount(set);
    if (count != set_pieces_.divisor()) set_pieces_ = Divider(0);
    if (set.length != piece_bytes_) piece_bytes_ = 0;
    first_piece_.push_back(first_piece_.back() + count);
    first_byte_.push_back(bytes_);
    bytes_ += count * set.length;
    boxes_.push_back({set.region, set.base, set.base + Span(set), i});
  }
  std::sort(boxes_.begin(), boxes_.end(), [](const Box& a, const Box& b) {
    return std::tie(a.region, a.begin) < std::tie(b.region, b.begin);
  });
  disjoint_ = ShowDisjoint();
}

size_t PreparedList::FindSet(uint64_t piece) const {
  return std::upper_bound(first_piece_.begin(), first_piece_.end(), piece) - first_piece_.begin() -
         1;
}

bool PreparedList::ShowDisjoint() const {
  uint32_t steps = kStepsMax;
  for (size_t i = 0; i < boxes_.size(); ++i) {
    for (size_t k = i + 1; k < boxes_.size(); ++k) {
      const Box& a = boxes_[i];
      const Box& b = boxes_[k];
      if (b.region != a.region || b.begin >= a.end) break;
      if (!SurelyDisjoint(section_.sets[a.set], section_.sets[b.set], &steps)) return false;
    }
  }
  return true;
}

bool PreparedList::SurelyApartFrom(const PreparedList& other) const {
  if (space_ != other.space_) return true;
  // Both lists sorted by where their sets begin: each set is held against those of the other list
  // that begin in it.
  uint32_t steps = kStepsOfListsMax;
  const auto may_meet = [&steps](const PreparedList& outer, const PreparedList& inner) {
    size_t from = 0;
    for (const Box& a : outer.boxes_) {
      const auto before = [&](const Box& b) {
        return std::tie(b.region, b.begin) < std::tie(a.region, a.begin);
      };
      while (from < inner.boxes_.size() && before(inner.boxes_[from])) ++from;
      for (size_t k = from; k < inner.boxes_.size(); ++k) {
        const Box& b = inner.boxes_[k];
        if (b.region != a.region || b.begin >= a.end) break;
        const StridedSet& of_outer = outer.section_.sets[a.set];
        if (!SurelyDisjoint(of_outer, inner.section_.sets[b.set], &steps)) return true;
      }
    }
    return false;
  };
  return !may_meet(*this, other) && !may_meet(other, *this);
}

}  // namespace shunt::p2p
