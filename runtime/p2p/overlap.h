// Which selections a transfer may write to.
//
// Whatever is copied by several workers in any order must not depend on that order: no byte may be
// written twice, and none may be both read and written. A byte may be read twice (two requests that
// share a prefix), so sources are not held against themselves.
//
//   form                          how it is compared                      time
//   runs of a disjoint list       progressions, exactly                   O(1) a pair in one set
//   ids of a disjoint list        a bit for each id between lowest and    O(ids), or O(ids log ids)
//                                 highest, sorted if they are far apart   if they are far apart
//   raw, or list not disjoint     byte ranges, sorted by radix            O(extents)
//   source and destination        regions, then lists, then numbers of    O(sets), else as above
//                                 one list, then byte ranges
#pragma once

#include "absl/status/status.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

// INVALID_ARGUMENT, saying where, if a byte would be written twice, or read and written, also if
// source and destination name the very same bytes in the same order. RESOURCE_EXHAUSTED if that
// can't be told without listing more than 2^22 extents.
absl::Status CheckOverlap(const Selection& source, const Selection& destination);

}  // namespace shunt::p2p
