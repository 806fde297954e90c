// One transfer between this node and another, and how its two ends come to the same end.
//
//   slices  0 1 2 3 4 5 6 7 ...
//           ───done──┤posted┤           each end posts its slices in order, some ahead
//
// What has been posted can't be taken back, so who gives a transfer up says how far it has posted
// (its frontier), the other says how far it has, and both post, without content, up to the further
// one. Then nothing of it is left anywhere, and its memory is its owners' again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "runtime/p2p/memory.h"
#include "runtime/p2p/selection.h"
#include "runtime/p2p/work_pool.h"
#include "runtime/pull/ask.h"

namespace shunt::pull {

using FlowId = uint64_t;

// What the copy threads call it.
p2p::Priority PriorityOf(transport::Class service_class);

// This node's memory.
struct Side {
  p2p::Selection selection;
  p2p::Bases bases;
  std::shared_ptr<void> pins;  // keeps it
};

struct Flow {
  // Slices that are posted and not done.
  static constexpr uint32_t kWindow = 8;

  FlowId id = 0;
  transport::PeerId peer = 0;
  uint64_t number = 0;     // between the two nodes
  bool initiator = false;  // this node asked
  bool source = false;     // this node sends
  Ask ask;
  uint32_t slices = 0;
  std::optional<Side> side;  // none: still looked up
  // The initiator's outcome; the other node's, before the initiator hears of it.
  std::function<void(const absl::Status&)> ended;

  uint32_t posted = 0;
  uint32_t done = 0;         // sent; or received and scattered
  uint32_t outstanding = 0;  // operations of the transport
  uint32_t working = 0;      // pieces of work elsewhere
  bool looking_up = false;
  absl::Status status;  // not OK: it was given up
  bool stop_told = false;
  int64_t stopped_ns = 0;  // when
  uint32_t own_frontier = 0;
  std::optional<uint32_t> other_frontier;
  bool severed = false;    // nothing more comes from the other node, nor goes there
  bool all_there = false;  // the other node has said so

  uint64_t Begin(uint32_t slice) const { return uint64_t{slice} * ask.slice_bytes; }
  uint64_t BytesOf(uint32_t slice) const {
    return std::min<uint64_t>(ask.slice_bytes, ask.bytes - Begin(slice));
  }
  // Its place among the classes, the most urgent first.
  size_t rank() const { return static_cast<size_t>(ask.service_class); }
  bool stopping() const { return !status.ok(); }
  // So many slices are to be posted, as far as it is known.
  uint32_t Limit() const {
    if (severed) return posted;
    if (!stopping()) return side.has_value() ? slices : posted;
    return other_frontier.has_value() ? std::max(own_frontier, *other_frontier) : posted;
  }
  bool WantsToPost() const { return posted < Limit() && posted - done < kWindow; }
  bool Idle() const { return outstanding == 0 && working == 0 && !looking_up; }
  // Nothing of it is left, here and elsewhere.
  bool Drained() const {
    if (!Idle()) return false;
    return severed || (stopping() && other_frontier.has_value() && posted == Limit());
  }
};

}  // namespace shunt::pull
