// What an agent publishes under a name: strided sets, whose pieces are numbered through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/p2p/descriptor.h"

namespace shunt::p2p {

// A cache of 80 layers is 80 sets, or 160 with keys and values apart; millions of pieces either
// way.
inline constexpr size_t kSectionSetsMax = 1024;
inline constexpr size_t kSectionNameBytesMax = 255;

// Bytes of a section, and of a transfer.
inline constexpr uint64_t kPayloadMax = uint64_t{1} << 62;

struct Section {
  std::string name;
  // Of the process that published it. Region ids mean nothing to the next one.
  uint64_t incarnation = 0;
  // Counts up with every change.
  uint64_t version = 0;
  // All regions that the sets name, by rising id, with their sizes: who fetches a section can check
  // it without asking anybody. The memory's owner checks again when it executes.
  std::vector<RegionExtent> regions;
  std::vector<StridedSet> sets;
  bool operator==(const Section&) const = default;
};

// INVALID_ARGUMENT or OUT_OF_RANGE, in words, for a name that is empty or too long, no sets or too
// many, regions that are out of order, unused or missing, more than kPiecesMax pieces, and what
// Check says of a set.
absl::Status Check(const Section& section);

}  // namespace shunt::p2p
