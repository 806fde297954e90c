// Lists: descriptors with a number, of one session.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/gpu/device_mover.h"
#include "daemon/transfer/transfer_table.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr size_t kListsMax = 1024;  // of one session

const char* KindOf(p2p::Space space) {
  return space == kStoreSpace    ? "a file or object"
         : space == kDeviceSpace ? "GPU memory"
                                 : "memory";
}

absl::Status NoList(uint64_t list) {
  return absl::NotFoundError(
      absl::StrCat("list ", list, ": this session has no such list, or has released it"));
}

}  // namespace

absl::StatusOr<TransferTable::OfSets> TransferTable::OwnSection(
    uint64_t session, const std::string& name,
    const google::protobuf::RepeatedPtrField<v1::StridedSet>& sets) const {
  OfSets of;
  p2p::Section& section = of.section;
  section.name = name;
  for (int i = 0; i < sets.size(); ++i) {
    const v1::StridedSet& from = sets[i];
    p2p::StridedSet to;
    to.region = from.region_id();
    to.base = from.offset_bytes();
    to.length = from.length_bytes();
    if (from.dimensions_size() > static_cast<int>(to.dims.size())) {
      return absl::InvalidArgumentError(absl::StrCat("set ", i, ": ", from.dimensions_size(),
                                                     " dimensions, expected at most ",
                                                     to.dims.size()));
    }
    for (int d = 0; d < from.dimensions_size(); ++d) {
      to.dims[d] = {from.dimensions(d).count(), from.dimensions(d).stride_bytes()};
    }
    uint64_t bytes = 0;
    p2p::Space space = 0;
    if (const auto region = regions_->Find(session, to.region); region.ok()) {
      bytes = (*region)->bytes();
    } else if (const auto stored = stores_->Find(session, to.region); stored.ok()) {
      bytes = (*stored)->bytes;
      space = kStoreSpace;
    } else if (devices_ != nullptr) {
      const auto device = devices_->Find(session, to.region);
      if (!device.ok()) return WithSide(absl::StrCat("set ", i), region.status());
      bytes = (*device)->bytes;
      space = kDeviceSpace;
    } else {
      return WithSide(absl::StrCat("set ", i), region.status());
    }
    if (i > 0 && space != of.space) {
      return absl::InvalidArgumentError(
          absl::StrCat("set ", i, ": region ", to.region, " is ", KindOf(space),
                       ", and those before are ", KindOf(of.space), "; expected sets of one kind"));
    }
    of.space = space;
    const auto place = std::lower_bound(
        section.regions.begin(), section.regions.end(), to.region,
        [](const p2p::RegionExtent& extent, uint64_t id) { return extent.id < id; });
    if (place == section.regions.end() || place->id != to.region) {
      section.regions.insert(place, {to.region, bytes});
    }
    section.sets.push_back(to);
  }
  return of;
}

absl::StatusOr<v1::ListInfo> TransferTable::AddList(const Session& session,
                                                    std::shared_ptr<const p2p::PreparedList> list,
                                                    std::shared_ptr<const Published> published) {
  v1::ListInfo info;
  info.set_list_id(next_list_.fetch_add(1));
  info.set_pieces(list->pieces());
  info.set_piece_bytes(list->piece_bytes());
  info.set_bytes(list->bytes());
  const std::lock_guard lock(mutex_);
  // SessionGone comes after this is set, and takes the lock.
  if (session.ended.load()) return absl::CancelledError("the session has ended");
  OfSession& of = sessions_[session.id];
  if (of.lists.size() >= kListsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("session ", session.id, " has ", kListsMax, " lists, the most; release some"));
  }
  of.lists.emplace(info.list_id(), List{std::move(list), std::move(published)});
  return info;
}

absl::Status TransferTable::ReleaseList(uint64_t session, uint64_t list) {
  List gone;
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return NoList(list);
  const auto found = of->second.lists.find(list);
  if (found == of->second.lists.end()) return NoList(list);
  gone = std::move(found->second);
  of->second.lists.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<v1::ListInfo> TransferTable::SetSectionList(
    const Session& session, std::shared_ptr<const p2p::PreparedList> list) {
  const std::string section = list->section().name;
  DropSectionList(session.id, section);
  SHUNT_ASSIGN_OR_RETURN(v1::ListInfo info, AddList(session, std::move(list), nullptr));
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session.id);
  if (of != sessions_.end()) of->second.section_lists[section] = info.list_id();
  return info;
}

void TransferTable::DropSectionList(uint64_t session, const std::string& section) {
  List gone;
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return;
  const auto name = of->second.section_lists.find(section);
  if (name == of->second.section_lists.end()) return;
  if (auto list = of->second.lists.extract(name->second)) gone = std::move(list.mapped());
  of->second.section_lists.erase(name);
}

absl::Status TransferTable::FindLists(const Session& session, const PostedTransfer& posted,
                                      List* local, List* remote) const {
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session.id);
  const auto find = [&](const char* side, uint64_t list, List* found) -> absl::Status {
    if (of == sessions_.end()) return WithSide(side, NoList(list));
    const auto it = of->second.lists.find(list);
    if (it == of->second.lists.end()) return WithSide(side, NoList(list));
    *found = it->second;
    return absl::OkStatus();
  };
  SHUNT_RETURN_IF_ERROR(find("local", posted.local.list, local));
  return find("remote", posted.remote.list, remote);
}

}  // namespace shunt::daemon
