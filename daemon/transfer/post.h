// What a client asks to be moved, in one form whichever way it came; and how its sides become
// selections. Nothing of it is believed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/core/clock.h"
#include "runtime/memory/region_table.h"
#include "runtime/p2p/selection.h"
#include "runtime/p2p/work_pool.h"
#include "runtime/ring/layout.h"
#include "runtime/ring/transfer_post.h"
#include "shunt/v1/transfer.pb.h"

namespace shunt::daemon {

// Memory that the spans show may be the client's own: each element is read once.
struct PostedSelection {
  struct All {};
  using Form = std::variant<All, absl::Span<const p2p::Run>, absl::Span<const uint32_t>,
                            absl::Span<const uint64_t>, absl::Span<const p2p::Descriptor>>;
  uint64_t list = 0;
  Form form;
  p2p::IdShape shape;
};

struct PostedTransfer {
  bool push = false;
  p2p::Priority priority = p2p::Priority::kBulk;
  PostedSelection local, remote;
  int64_t deadline_ns = kNeverNs;
  std::optional<std::string> notification;
  // What the spans show: a region of the client's, or copies.
  memory::RegionUse record;
  std::vector<std::vector<p2p::Run>> runs;
  std::vector<std::vector<p2p::Descriptor>> raw;

  // Ids, runs and raw pieces of both sides.
  uint64_t elements() const;
};

// INVALID_ARGUMENT. The request outlives the result.
absl::StatusOr<PostedTransfer> DecodePost(const v1::PostTransferRequest& request);
// Errors of regions too.
absl::StatusOr<PostedTransfer> DecodePost(memory::RegionTable& regions, uint64_t session,
                                          const ring::Submission& submission);

// About what Select and what follows from it look at: elements, sets, extents. Whoever must not be
// held up leaves what is above kQuickCost to others.
uint64_t CostOf(const p2p::PreparedList& list, const PostedSelection& posted);
inline constexpr uint64_t kQuickCost = 8192;

// Errors of Selection's functions; OUT_OF_RANGE for raw pieces outside what the list's sets cover
// without gaps.
absl::StatusOr<p2p::Selection> Select(std::shared_ptr<const p2p::PreparedList> list,
                                      const PostedSelection& posted);

// "side: what is wrong with it".
absl::Status WithSide(absl::string_view side, const absl::Status& status);

}  // namespace shunt::daemon
