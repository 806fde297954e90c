// The last versions of an agent's sections that other nodes have fetched: what has changed since
// then is shorter to tell than the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "runtime/p2p/section.h"

namespace shunt::daemon {

class SectionHistory {
 public:
  static constexpr size_t kVersionsMax = 4;  // of one section
  // Of all sections of the agent: the oldest go first.
  static constexpr size_t kSectionsMax = 1024;
  static constexpr size_t kSetsMax = 64 << 10;

  void Keep(const p2p::Section& section);
  // Null if it is not kept.
  std::shared_ptr<const p2p::Section> Find(const std::string& name, uint64_t version) const;

 private:
  using Kept = std::deque<std::shared_ptr<const p2p::Section>>;  // the oldest first
  void Drop(Kept::iterator which);

  Kept kept_;
  size_t sets_ = 0;
};

}  // namespace shunt::daemon
