#include "daemon/transfer/section_history.h"

#include <algorithm>

namespace shunt::daemon {

void SectionHistory::Keep(const p2p::Section& section) {
  const auto same = [&](const auto& kept) { return kept->name == section.name; };
  if (static_cast<size_t>(std::count_if(kept_.begin(), kept_.end(), same)) == kVersionsMax) {
    Drop(std::find_if(kept_.begin(), kept_.end(), same));
  }
  kept_.push_back(std::make_shared<const p2p::Section>(section));
  sets_ += section.sets.size();
  while (kept_.size() > kSectionsMax || sets_ > kSetsMax) Drop(kept_.begin());
}

std::shared_ptr<const p2p::Section> SectionHistory::Find(const std::string& name,
                                                         uint64_t version) const {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) {
    return kept->version == version && kept->name == name;
  });
  return found == kept_.end() ? nullptr : *found;
}

void SectionHistory::Drop(Kept::iterator which) {
  sets_ -= (*which)->sets.size();
  kept_.erase(which);
}

}  // namespace shunt::daemon
