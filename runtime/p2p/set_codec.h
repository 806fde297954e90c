// Internal to runtime/p2p: one strided set after another as bytes; section_wire.h has the format.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/p2p/section.h"
#include "runtime/p2p/varint.h"

namespace shunt::p2p {

// Foresees the next set from the ones before. Encoder and decoder keep one each and tell it of
// every set in turn, also of those that a delta keeps.
class SetCodec {
 public:
  // `regions` outlives it.
  explicit SetCodec(const std::vector<RegionExtent>* regions) : regions_(regions) {}

  // The set's region is among the regions.
  void Encode(const StridedSet& set, std::string* out);
  absl::Status Decode(VarintReader* reader, StridedSet* set);
  // A set that neither is encoded nor decoded.
  void Pass(const StridedSet& set);

 private:
  uint64_t IndexOf(uint64_t region) const;
  void Remember(const StridedSet& set, uint64_t index);

  const std::vector<RegionExtent>* regions_;
  StridedSet last_ = {};
  uint64_t last_index_ = 0;
  uint64_t index_step_ = 0;
  uint64_t base_step_ = 0;
};

}  // namespace shunt::p2p
