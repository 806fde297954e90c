// The two steps that keep the index true, whatever stops them: docs/kv.md, "The index".
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "runtime/kv/files.h"
#include "runtime/kv/index_log.h"
#include "runtime/kv/types.h"

namespace shunt::tiers {

struct Named {
  uint64_t slot = 0;
  Block block;
};

// When this is OK the slots may be overwritten: no start after it finds the blocks there.
absl::Status Unname(Tier tier, std::span<const Named> blocks, IndexLog* index);

struct Written {
  Named named;
  const std::byte* data = nullptr;  // named.block.bytes of them
};

// Puts blocks into slots that nothing names, then names them. With an error none of them is named,
// and the slots are still free.
absl::Status WriteDown(std::span<const Written> blocks, SlotFile* file, IndexLog* index);

}  // namespace shunt::tiers
