#include "client/src/kv/region_lists.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::client::kv {
namespace {

// A list has no more sets.
constexpr size_t kRegionsMax = 1024;
// Sets of regions: most programs have one or two.
constexpr size_t kRemembered = 64;

absl::StatusOr<std::set<uint64_t>> RegionsOf(std::span<const Span> spans,
                                             const RegionTable& table) {
  std::set<uint64_t> regions;
  RegionTable::Holder holder;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (holder.id != 0 && holder.Holds(spans[i].pointer, spans[i].bytes)) continue;
    holder = table.HolderOf(spans[i].pointer);
    if (holder.id == 0 || !holder.Holds(spans[i].pointer, spans[i].bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("blocks[", i, "]: ", spans[i].bytes, " bytes at 0x",
                       absl::Hex(reinterpret_cast<uintptr_t>(spans[i].pointer)),
                       " lie in no region of this session, expected memory from shunt_alloc or "
                       "shunt_register"));
    }
    regions.insert(holder.id);
  }
  if (regions.size() > kRegionsMax) {
    return absl::InvalidArgumentError(absl::StrCat("the blocks lie in ", regions.size(),
                                                   " regions, expected at most ", kRegionsMax));
  }
  return regions;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const List>> RegionLists::For(std::span<const Span> spans) {
  SHUNT_ASSIGN_OR_RETURN(std::set<uint64_t> regions, RegionsOf(spans, session_->regions()));
  // Making a list and dropping the last use of one both ask the daemon: not while others wait.
  Lists old;
  {
    std::lock_guard lock(mutex_);
    for (auto at = lists_.begin(); at != lists_.end();) {
      const bool gone = std::any_of(at->first.begin(), at->first.end(), [this](uint64_t id) {
        return session_->regions().BytesOf(id) == 0;
      });
      const auto next = std::next(at);
      if (gone) old.insert(lists_.extract(at));
      at = next;
    }
    if (const auto at = lists_.find(regions); at != lists_.end()) return at->second;
  }
  PrepareList request;
  for (const uint64_t id : regions) {
    request.sets.push_back({id, 0, session_->regions().BytesOf(id), {}});
  }
  SHUNT_ASSIGN_OR_RETURN(std::shared_ptr<const List> list, List::Prepare(session_, request, {}));
  std::lock_guard lock(mutex_);
  if (lists_.size() >= kRemembered) {
    old.merge(lists_);
    lists_.clear();
  }
  // Another thread may have made one meanwhile: either does.
  lists_.try_emplace(std::move(regions), list);
  return list;
}

}  // namespace shunt::client::kv
