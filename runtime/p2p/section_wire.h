// A section as bytes, and what changes between two versions of it. Layers that lie in regular steps
// cost one byte each: 6.5 million blocks in 80 layers are a few hundred bytes.
//
//   section   1 format (1)                    delta   1 format (1)
//             1 kind (1)                              1 kind (2)
//             8 incarnation                           8 incarnation
//             8 version                               8 version that it changes
//             v name length, name                     8 version that it makes
//             regions                                 8 digest of what it makes (FNV-1a of it as
//             bytes) v sets                                  1 whether regions follow, regions set
//             ...                                 v edits
//                                                     edit ...
//
//   regions   v how many; for each: v id after the one before, z bytes beyond the one before
//   set       1 flags: what is not as foreseen; then, for each flag from the lowest:
//               1  z step of the region's index    foreseen: the last set's steps once more
//               2  z step of the base
//               4  v length                        foreseen: as the last set has it
//               8  v count, z stride, three times
//   edit      v 4 n + kind: 0 keep the next n sets, 1 drop the next n, 2 insert n sets, which
//   follow
//
// Fixed numbers are little-endian; v and z are variable (varint.h), z with a sign. Steps wrap at
// 2^64. An encoding is the only one of its section: a decoder refuses any other bytes for it, and
// any behind it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/p2p/section.h"

namespace shunt::p2p {

// No section, and no delta that is worth sending, is longer.
inline constexpr size_t kSectionBytesMax = 128 << 10;

// `section` has passed Check.
std::string EncodeSection(const Section& section);
// INVALID_ARGUMENT, or an error of Check. Memory is bounded by kSectionSetsMax, whatever the bytes
// say.
absl::StatusOr<Section> DecodeSection(std::string_view bytes);

// From one version to a later one of the same incarnation; both have passed Check. May be longer
// than the section itself.
std::string EncodeDelta(const Section& from, const Section& to);
// FAILED_PRECONDITION if the bytes are for another incarnation or version than `from`, or don't
// make what they say: fetch the whole section then. INVALID_ARGUMENT if what they make is no later
// version; that and Check's errors as above.
absl::StatusOr<Section> ApplyDelta(const Section& from, std::string_view bytes);

}  // namespace shunt::p2p
