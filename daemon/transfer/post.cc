#include "daemon/transfer/post.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

static_assert(sizeof(ring::PostedRun) == sizeof(p2p::Run));
static_assert(sizeof(ring::PostedPiece) == sizeof(p2p::Descriptor));

absl::Status CheckClass(int number) {
  if (v1::TransferClass_IsValid(number)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unknown class ", number, ", expected 0 (bulk) to 2 (background)"));
}

absl::Status CheckDirection(int number) {
  if (v1::TransferDirection_IsValid(number)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unknown direction ", number, ", expected 0 (pull) or 1 (push)"));
}

absl::Status CheckNotification(uint64_t bytes) {
  if (bytes <= ring::kNotificationBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "notification of ", bytes, " bytes, expected at most ", ring::kNotificationBytesMax));
}

absl::StatusOr<PostedSelection> FromProto(const v1::Selection& side, const char* name,
                                          PostedTransfer* posted) {
  PostedSelection selection;
  selection.list = side.list_id();
  switch (side.form_case()) {
    case v1::Selection::kAll:
      selection.form = PostedSelection::All{};
      return selection;
    case v1::Selection::kRuns: {
      std::vector<p2p::Run>& runs = posted->runs.emplace_back();
      for (const v1::PieceRun& run : side.runs().runs()) {
        runs.push_back({run.first(), run.count(), std::max<uint64_t>(run.step(), 1)});
      }
      selection.form = absl::MakeConstSpan(runs);
      return selection;
    }
    case v1::Selection::kIds:
      selection.form =
          absl::MakeConstSpan(side.ids().ids().data(), static_cast<size_t>(side.ids().ids_size()));
      selection.shape = {std::max<uint64_t>(side.ids().unit(), 1),
                         std::max<uint64_t>(side.ids().repeats(), 1), side.ids().repeat_step()};
      return selection;
    case v1::Selection::kRaw: {
      std::vector<p2p::Descriptor>& raw = posted->raw.emplace_back();
      for (const v1::RawPiece& piece : side.raw().pieces()) {
        raw.push_back({piece.region_id(), piece.offset_bytes(), piece.length_bytes()});
      }
      selection.form = absl::MakeConstSpan(raw);
      return selection;
    }
    case v1::Selection::FORM_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": no form is set, expected all, runs, ids or raw"));
}

// An array of the record's region.
template <typename T>
absl::StatusOr<absl::Span<const T>> ArrayOf(memory::RegionUse& region, const char* name,
                                            uint64_t offset, uint64_t count) {
  if (offset % alignof(uint64_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": array at offset ", offset, ", expected a multiple of 8"));
  }
  SHUNT_ASSIGN_OR_RETURN(const std::byte* const data, region->At(offset, count * sizeof(T)));
  return absl::MakeConstSpan(reinterpret_cast<const T*>(data), count);
}

absl::StatusOr<PostedSelection> FromRecord(const ring::PostedSide& side, const char* name,
                                           memory::RegionUse& region) {
  if (side.count > ring::kPostedPiecesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", side.count, " runs, ids or pieces, expected at most ", ring::kPostedPiecesMax));
  }
  PostedSelection selection;
  selection.list = side.list;
  selection.shape = {side.unit, side.repeats, side.repeat_step};
  const auto take = [&]<typename T>(absl::Span<const T>) -> absl::Status {
    SHUNT_ASSIGN_OR_RETURN(selection.form, ArrayOf<T>(region, name, side.offset, side.count));
    return absl::OkStatus();
  };
  absl::Status status;
  switch (static_cast<ring::PostedForm>(side.form)) {
    case ring::PostedForm::kAll:
      break;
    case ring::PostedForm::kRuns:
      status = take(absl::Span<const p2p::Run>());
      break;
    case ring::PostedForm::kIds32:
      status = take(absl::Span<const uint32_t>());
      break;
    case ring::PostedForm::kIds64:
      status = take(absl::Span<const uint64_t>());
      break;
    case ring::PostedForm::kRaw:
      status = take(absl::Span<const p2p::Descriptor>());
      break;
    default:
      status = absl::InvalidArgumentError(
          absl::StrCat(name, ": unknown form ", side.form, ", expected 0 to 4"));
  }
  if (!status.ok()) return status;
  return selection;
}

// What the sets of a list cover without gaps, by region and begin; neighbours are one.
class SolidRanges {
 public:
  explicit SolidRanges(const p2p::Section& section) {
    for (const p2p::StridedSet& set : section.sets) {
      const uint64_t span = p2p::Span(set);
      if (span == p2p::PieceCount(set) * set.length) {
        ranges_.push_back({set.region, set.base, set.base + span});
      }
    }
    std::sort(ranges_.begin(), ranges_.end());
    size_t kept = 0;
    for (const Range& range : ranges_) {
      if (kept > 0 && ranges_[kept - 1].region == range.region &&
          range.begin <= ranges_[kept - 1].end) {
        ranges_[kept - 1].end = std::max(ranges_[kept - 1].end, range.end);
      } else {
        ranges_[kept++] = range;
      }
    }
    ranges_.resize(kept);
  }
  bool Holds(uint64_t region, uint64_t offset, uint64_t bytes) const {
    auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), Range{region, offset, UINT64_MAX});
    if (after == ranges_.begin()) return false;
    --after;
    // The piece is within its region: the sum does not overflow.
    return after->region == region && offset + bytes <= after->end;
  }

 private:
  struct Range {
    uint64_t region, begin, end;
    auto operator<=>(const Range&) const = default;
  };
  std::vector<Range> ranges_;
};

absl::StatusOr<p2p::Selection> SelectRaw(const p2p::PreparedList& list,
                                         absl::Span<const p2p::Descriptor> pieces) {
  const p2p::Section& section = list.section();
  SHUNT_ASSIGN_OR_RETURN(p2p::Selection selection,
                         p2p::Selection::Raw(list.space(), section.regions, pieces));
  const SolidRanges solid(section);
  for (uint64_t i = 0; i < selection.raw_pieces(); ++i) {
    const p2p::Selection::RawPiece piece = selection.raw_piece(i);
    const uint64_t region = section.regions[piece.region].id;
    if (solid.Holds(region, piece.offset, piece.bytes)) continue;
    return absl::OutOfRangeError(
        absl::StrCat("piece ", i, " (region ", region, ", offset ", piece.offset, ", length ",
                     piece.bytes, ") is not wholly in what the list's sets cover without gaps"));
  }
  return selection;
}

}  // namespace

namespace {

uint64_t ElementsOf(const PostedSelection& side) {
  return std::visit(
      [](const auto& form) -> uint64_t {
        if constexpr (requires { form.size(); }) return form.size();
        return 0;
      },
      side.form);
}

}  // namespace

uint64_t PostedTransfer::elements() const { return ElementsOf(local) + ElementsOf(remote); }

uint64_t CostOf(const p2p::PreparedList& list, const PostedSelection& posted) {
  constexpr uint64_t kMuch = uint64_t{1} << 40;
  const p2p::Section& section = list.section();
  uint64_t cost = section.regions.size();
  const uint64_t elements = std::max<uint64_t>(1, std::min(ElementsOf(posted), kMuch));
  const bool ids = std::holds_alternative<absl::Span<const uint32_t>>(posted.form) ||
                   std::holds_alternative<absl::Span<const uint64_t>>(posted.form);
  if (!ids) {
    cost += elements * section.sets.size();  // a run may go through all of them
  } else {
    cost += elements;
    const uint64_t repeats = std::min(posted.shape.repeats, kMuch / elements);
    if (list.piece_bytes() == 0) cost += elements * repeats;
  }
  // Pieces are compared one with another.
  if (!list.disjoint()) cost += std::min(list.pieces(), kMuch);
  return cost;
}

absl::StatusOr<PostedTransfer> DecodePost(const v1::PostTransferRequest& request) {
  SHUNT_RETURN_IF_ERROR(CheckDirection(request.direction()));
  SHUNT_RETURN_IF_ERROR(CheckClass(request.transfer_class()));
  SHUNT_RETURN_IF_ERROR(CheckNotification(request.notification().size()));
  PostedTransfer posted;
  // Spans show these: they must not move.
  posted.runs.reserve(2);
  posted.raw.reserve(2);
  posted.push = request.direction() == v1::TRANSFER_DIRECTION_PUSH;
  posted.priority = static_cast<p2p::Priority>(request.transfer_class());
  SHUNT_ASSIGN_OR_RETURN(posted.local, FromProto(request.local(), "local", &posted));
  SHUNT_ASSIGN_OR_RETURN(posted.remote, FromProto(request.remote(), "remote", &posted));
  if (request.timeout_ms() != 0) {
    posted.deadline_ns = DeadlineAfterNs(std::chrono::milliseconds(request.timeout_ms()));
  }
  if (request.notify() || !request.notification().empty()) {
    posted.notification = request.notification();
  }
  return posted;
}

absl::StatusOr<PostedTransfer> DecodePost(memory::RegionTable& regions, uint64_t session,
                                          const ring::Submission& submission) {
  PostedTransfer posted;
  SHUNT_ASSIGN_OR_RETURN(
      posted.record, regions.Use(session, submission.communicator_id, "the post of a transfer"));
  SHUNT_ASSIGN_OR_RETURN(const std::byte* const data,
                         posted.record->At(submission.sequence, sizeof(ring::TransferPost)));
  ring::TransferPost record;
  std::memcpy(&record, data, sizeof(record));
  if (record.magic != ring::kTransferPostMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("the record of a transfer at offset ", submission.sequence, " of region ",
                     submission.communicator_id, " begins with ", absl::Hex(record.magic),
                     ", expected ", absl::Hex(ring::kTransferPostMagic)));
  }
  SHUNT_RETURN_IF_ERROR(CheckDirection(record.direction));
  SHUNT_RETURN_IF_ERROR(CheckClass(record.transfer_class));
  posted.push = record.direction == v1::TRANSFER_DIRECTION_PUSH;
  posted.priority = static_cast<p2p::Priority>(record.transfer_class);
  posted.deadline_ns = submission.deadline_ns;
  SHUNT_ASSIGN_OR_RETURN(posted.local, FromRecord(record.local, "local", posted.record));
  SHUNT_ASSIGN_OR_RETURN(posted.remote, FromRecord(record.remote, "remote", posted.record));
  if (record.notify != 0) {
    SHUNT_RETURN_IF_ERROR(CheckNotification(record.notification_bytes));
    SHUNT_ASSIGN_OR_RETURN(
        const std::byte* const payload,
        posted.record->At(record.notification_offset, record.notification_bytes));
    posted.notification.emplace(reinterpret_cast<const char*>(payload), record.notification_bytes);
  }
  return posted;
}

absl::StatusOr<p2p::Selection> Select(std::shared_ptr<const p2p::PreparedList> list,
                                      const PostedSelection& posted) {
  using p2p::Selection;
  return std::visit(
      [&](const auto& form) -> absl::StatusOr<Selection> {
        using Form = std::decay_t<decltype(form)>;
        if constexpr (std::is_same_v<Form, PostedSelection::All>) {
          return Selection::All(std::move(list));
        } else if constexpr (std::is_same_v<Form, absl::Span<const p2p::Run>>) {
          return Selection::Runs(std::move(list), form);
        } else if constexpr (std::is_same_v<Form, absl::Span<const p2p::Descriptor>>) {
          return SelectRaw(*list, form);
        } else {
          return Selection::Ids(std::move(list), form, posted.shape);
        }
      },
      posted.form);
}

absl::Status WithSide(absl::string_view side, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(side, ": ", status.message()));
}

}  // namespace shunt::daemon
