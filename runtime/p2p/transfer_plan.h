// Pure data: which bytes go where. Payload byte k of the source goes to payload byte k of the
// destination, whatever pieces the two sides cut it into: 32 KiB blocks into 4 KiB blocks, or a
// block's heads into the blocks of several tensor-parallel ranks.
//
//   source       [    piece 7     ][    piece 2     ]...        payload order: as selected
//   destination  [p 0 ][p 9 ][p 4 ][p 1 ][p 3 ][p 8 ]...
//   copy runs    [    ][    ][    ][    ][    ][    ]           cut where either side is cut
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/p2p/cursor.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

// Immutable; any number of threads walk it. Copy runs are computed, never stored.
class TransferPlan {
 public:
  // INVALID_ARGUMENT, with both numbers, if the two sides differ in their bytes; errors of
  // CheckOverlap (overlap.h: what may overlap, and what finding out costs).
  static absl::StatusOr<std::shared_ptr<const TransferPlan>> Make(Selection source,
                                                                  Selection destination);

  const Selection& source() const { return source_; }
  const Selection& destination() const { return destination_; }
  uint64_t bytes() const { return source_.payload_bytes(); }

 private:
  TransferPlan(Selection source, Selection destination)
      : source_(std::move(source)), destination_(std::move(destination)) {}

  const Selection source_;
  const Selection destination_;
};

// Regions are indices into the regions() of each side's selection.
struct CopyRun {
  uint32_t source_region = 0;
  uint32_t destination_region = 0;
  uint64_t source_offset = 0;
  uint64_t destination_offset = 0;
  uint64_t bytes = 0;
};

// The copy runs of payload bytes [begin, begin + bytes), the longest that both sides allow.
class PlanCursor {
 public:
  PlanCursor(const TransferPlan& plan, uint64_t begin, uint64_t bytes)
      : source_(plan.source(), begin, bytes), destination_(plan.destination(), begin, bytes) {}

  // False at the end.
  bool Next(CopyRun* run) {
    const Extent& from = source_.extent();
    const Extent& to = destination_.extent();
    const uint64_t bytes = from.bytes < to.bytes ? from.bytes : to.bytes;
    if (bytes == 0) return false;
    *run = {from.region, to.region, from.offset, to.offset, bytes};
    source_.Advance(bytes);
    destination_.Advance(bytes);
    return true;
  }

 private:
  Cursor source_, destination_;
};

}  // namespace shunt::p2p
