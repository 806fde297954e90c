// The bytes of the index: a header, and records that say which slot holds which block, or no longer
// does. docs/kv.md has the table. Pure functions; what they read is anybody's bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kv/types.h"

namespace shunt::tiers {

inline constexpr size_t kIndexHeaderBytes = 64;
inline constexpr size_t kIndexRecordBytes = 104;
inline constexpr uint32_t kIndexVersion = 1;

struct IndexHeader {
  uint64_t slot_bytes = 0;
  uint64_t id = 0;   // random: records of another file are not taken for this one's
  uint32_t sum = 0;  // of the header: where the sums of records begin
};

struct IndexRecord {
  bool names = true;  // or un-names
  Tier tier = Tier::kFile;
  uint64_t slot = 0;
  Block block;
};

std::array<std::byte, kIndexHeaderBytes> EncodeHeader(uint64_t slot_bytes, uint64_t id);
// FAILED_PRECONDITION: it is no index, or of another version.
absl::StatusOr<IndexHeader> DecodeHeader(std::span<const std::byte> file);

// Record `number` of the file, from 0 on.
void AppendRecord(const IndexHeader& header, uint64_t number, const IndexRecord& record,
                  std::vector<std::byte>* out);
// DATA_LOSS says what is wrong with it.
absl::StatusOr<IndexRecord> DecodeRecord(const IndexHeader& header, uint64_t number,
                                         std::span<const std::byte> bytes);

// What records have named and not un-named: no slot twice, no key twice in a tier.
class IndexContents {
 public:
  // FAILED_PRECONDITION if the record does not follow from what is named: nothing is changed then.
  absl::Status Apply(const IndexRecord& record);
  // What applying all of them would say: nothing is changed.
  absl::Status Follow(std::span<const IndexRecord> records) const;
  uint64_t size() const { return by_order_.size(); }
  // In the order in which they were named.
  std::vector<IndexRecord> All() const;
  bool Names(Tier tier, uint64_t slot) const { return by_slot_[Number(tier)].contains(slot); }

 private:
  static size_t Number(Tier tier) { return static_cast<size_t>(tier); }
  const Block* At(Tier tier, uint64_t slot) const;

  uint64_t next_ = 0;
  std::map<uint64_t, IndexRecord> by_order_;
  std::unordered_map<uint64_t, uint64_t> by_slot_[kTiers];    // to the order
  std::unordered_map<std::string, uint64_t> by_key_[kTiers];  // to the slot
};

struct Replayed {
  IndexHeader header;
  IndexContents contents;
  uint64_t records = 0;     // that are right, from the first on
  std::string why_stopped;  // "" if that is the whole file
};
// FAILED_PRECONDITION as DecodeHeader. Never fails for what follows the header.
absl::StatusOr<Replayed> Replay(std::span<const std::byte> file);

}  // namespace shunt::tiers
