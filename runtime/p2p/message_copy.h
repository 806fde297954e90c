// Between scattered pieces and a contiguous message, for transfers whose other side is on another
// node: any slice of the payload can be gathered or scattered by itself, in any order and by any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "runtime/collectives/exec/reduce.h"
#include "runtime/p2p/memory.h"
#include "runtime/p2p/selection.h"

namespace shunt::p2p {

// Payload bytes [begin, begin + message.size()), which must lie in the selection. `bases` is
// FindBases(selection). The message does not overlap the regions. A message is read soon after it
// was gathered, so it is written through the caches; pieces that nobody reads soon may be streamed.
void Gather(const Selection& source, const Bases& bases, uint64_t begin,
            absl::Span<std::byte> message, StorePolicy policy = StorePolicy::kTemporal);
void Scatter(const Selection& destination, const Bases& bases, uint64_t begin,
             absl::Span<const std::byte> message, StorePolicy policy = StorePolicy::kStreaming);

}  // namespace shunt::p2p
