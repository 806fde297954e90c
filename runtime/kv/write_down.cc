#include "runtime/kv/write_down.h"

#include <vector>

#include "runtime/core/status.h"

namespace shunt::tiers {

absl::Status Unname(Tier tier, std::span<const Named> blocks, IndexLog* index) {
  if (blocks.empty()) return absl::OkStatus();
  std::vector<IndexRecord> records;
  records.reserve(blocks.size());
  for (const Named& named : blocks) {
    // A second try: the records were written, and their sync failed.
    if (!index->contents().Names(tier, named.slot)) continue;
    records.push_back({false, tier, named.slot, named.block});
  }
  SHUNT_RETURN_IF_ERROR(index->Append(records));
  return index->Sync();
}

absl::Status WriteDown(std::span<const Written> blocks, SlotFile* file, IndexLog* index) {
  // What failed before may still be read at the next start, and name one of these slots.
  SHUNT_RETURN_IF_ERROR(index->Repair());
  std::vector<SlotFile::Piece> pieces;
  std::vector<IndexRecord> records;
  pieces.reserve(blocks.size());
  records.reserve(blocks.size());
  for (const Written& one : blocks) {
    pieces.push_back({one.named.slot, one.data, one.named.block.bytes});
    records.push_back({true, Tier::kFile, one.named.slot, one.named.block});
  }
  SHUNT_RETURN_IF_ERROR(file->Write(pieces));
  SHUNT_RETURN_IF_ERROR(file->Sync());
  return index->Append(records);
}

}  // namespace shunt::tiers
