// One side of a transfer: pieces in the order in which their bytes are the payload.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/p2p/prepared_list.h"

namespace shunt::p2p {

// Pieces first, first + step, ... of a list.
struct Run {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t step = 1;
};

// How ids name pieces. Id i names the `unit` pieces from i * unit on: a block that is `unit` pieces
// (one a token, where heads are split) is named as one. All ids are walked `repeats` times, the
// next time with repeat_step added to each: the same blocks of every layer need be named once.
struct IdShape {
  uint64_t unit = 1;
  uint64_t repeats = 1;
  uint64_t repeat_step = 0;
};

// Immutable; checked when it is made, from a copy of what the caller passed, so that nobody can
// change it afterwards. Ids and runs keep their list alive. Runs are not expanded.
class Selection {
 public:
  // All pieces of a list.
  static absl::StatusOr<Selection> All(std::shared_ptr<const PreparedList> list);
  // INVALID_ARGUMENT for none, or a count or step of 0; OUT_OF_RANGE names the first id or run that
  // leaves the list; RESOURCE_EXHAUSTED for more than can be held. Time: O(sets of the list that
  // the runs touch).
  static absl::StatusOr<Selection> Runs(std::shared_ptr<const PreparedList> list,
                                        absl::Span<const Run> runs);
  // Time: O(ids), a fraction of a nanosecond each if the list's pieces are all of one length.
  static absl::StatusOr<Selection> Ids(std::shared_ptr<const PreparedList> list,
                                       absl::Span<const uint32_t> ids, IdShape shape = {});
  static absl::StatusOr<Selection> Ids(std::shared_ptr<const PreparedList> list,
                                       absl::Span<const uint64_t> ids, IdShape shape = {});
  // Descriptors of regions in `regions` (by rising id). Errors of Check(Descriptor), with the
  // number of the first that is wrong.
  static absl::StatusOr<Selection> Raw(Space space, absl::Span<const RegionExtent> regions,
                                       absl::Span<const Descriptor> descriptors);

  uint64_t payload_bytes() const { return payload_bytes_; }
  Space space() const { return space_; }
  // What extents of a Cursor count in: who executes brings the memory of each.
  absl::Span<const RegionExtent> regions() const {
    return list_ != nullptr ? list_->section().regions : raw_regions_;
  }
  // Null for raw descriptors.
  const std::shared_ptr<const PreparedList>& list() const { return list_; }

  // The forms below are for Cursor and the overlap checks.
  enum class Form : uint8_t { kRuns, kIds, kRaw };
  Form form() const { return form_; }

  // The part of a run in one set.
  struct Segment {
    uint64_t payload_begin;
    uint64_t first;  // in the set
    uint64_t count;
    uint64_t step;
    uint32_t set;
  };
  const std::vector<Segment>& segments() const { return segments_; }

  const IdShape& shape() const { return shape_; }
  uint64_t ids() const { return narrow_ids_.size() + wide_ids_.size(); }
  uint64_t id(uint64_t i) const { return wide_ids_.empty() ? narrow_ids_[i] : wide_ids_[i]; }
  std::pair<uint64_t, uint64_t> id_range() const { return {id_min_, id_max_}; }
  // Payload bytes before every kMarkEvery-th id, repeats included, or raw piece; empty if all have
  // as many.
  static constexpr uint64_t kMarkEvery = 64;
  const std::vector<uint64_t>& marks() const { return marks_; }
  // Of the pieces that `id`, a repeat's step already added, names.
  uint64_t UnitBytes(uint64_t id) const {
    return list_->BytesBefore((id + 1) * shape_.unit) - list_->BytesBefore(id * shape_.unit);
  }

  struct RawPiece {
    uint32_t region;
    uint64_t offset;
    uint64_t bytes;
  };
  uint64_t raw_pieces() const { return raw_offsets_.size(); }
  // What all raw pieces have; 0 if they differ.
  uint64_t raw_bytes() const { return raw_lengths_.empty() ? raw_length_ : 0; }
  RawPiece raw_piece(uint64_t i) const {
    return {raw_region_of_.empty() ? raw_region_ : raw_region_of_[i], raw_offsets_[i],
            raw_lengths_.empty() ? raw_length_ : raw_lengths_[i]};
  }

 private:
  Selection(Form form, Space space) : form_(form), space_(space) {}
  template <typename Id>
  static absl::StatusOr<Selection> MakeIds(std::shared_ptr<const PreparedList> list,
                                           absl::Span<const Id> ids, IdShape shape);
  template <typename From, typename To>
  absl::Status TakeIds(absl::Span<const From> ids, std::vector<To>* taken);
  absl::Status AddRun(const Run& run, size_t number);
  absl::Status MarkPayload();
  void AddRaw(uint32_t region, const Descriptor& descriptor);

  Form form_;
  Space space_;
  uint64_t payload_bytes_ = 0;
  std::shared_ptr<const PreparedList> list_;
  std::vector<Segment> segments_;
  IdShape shape_;
  // Where all units of the list have numbers of 32 bits, ids are kept so, however they came.
  std::vector<uint32_t> narrow_ids_;
  std::vector<uint64_t> wide_ids_;
  uint64_t id_min_ = 0, id_max_ = 0;
  std::vector<uint64_t> marks_;
  std::vector<RegionExtent> raw_regions_;
  // What is alike in all descriptors is kept once: memory that is touched for the first time costs
  // more than everything else here.
  std::vector<uint64_t> raw_offsets_;
  std::vector<uint64_t> raw_lengths_;
  std::vector<uint32_t> raw_region_of_;
  uint64_t raw_length_ = 0;
  uint32_t raw_region_ = 0;
};

}  // namespace shunt::p2p
