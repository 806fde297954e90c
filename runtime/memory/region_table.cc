#include "runtime/memory/region_table.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::memory {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kLargestBytes =
    static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - kPageBytes;

absl::Status NoSuchRegion(uint64_t id) {
  return absl::NotFoundError(absl::StrCat("region ", id, ": this session has no such region"));
}

absl::Status OverQuota(std::string_view quota, uint64_t limit, uint64_t held, uint64_t asked,
                       std::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(absl::string_view(what.data(), what.size()), " of ", asked,
                   " bytes: over the quota ", absl::string_view(quota.data(), quota.size()), " of ",
                   limit, " bytes, of which ", held, " are held"));
}

}  // namespace

Region::~Region() {
  for (const std::function<void()>& gone : gone_) gone();
}

void Region::OnGone(std::function<void()> gone) {
  std::lock_guard lock(mutex_);
  gone_.push_back(std::move(gone));
}

absl::Status Region::CheckRange(uint64_t offset, uint64_t length) const {
  // Not offset + length, which may overflow.
  if (offset > bytes_ || length > bytes_ - offset) {
    return absl::OutOfRangeError(absl::StrCat("region ", id_, ": offset ", offset, " and length ",
                                              length, " do not fit into its ", bytes_, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> Region::At(uint64_t offset, uint64_t length) {
  SHUNT_RETURN_IF_ERROR(CheckRange(offset, length));
  std::byte* data = data_.load(std::memory_order_acquire);
  if (data == nullptr) {
    std::lock_guard lock(mutex_);
    if (!mapping_.valid()) {
      SHUNT_ASSIGN_OR_RETURN(mapping_, Mapping::Map(fd_.get(), bytes_));
      data_.store(mapping_.data(), std::memory_order_release);
    }
    data = mapping_.data();
  }
  return data + offset;
}

absl::StatusOr<std::shared_ptr<Region>> RegionTable::Allocate(Owner owner, uint64_t bytes) {
  if (bytes == 0 || bytes > kLargestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("region of ", bytes, " bytes: expected 1 to ", kLargestBytes, " bytes"));
  }
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  uint64_t id;
  {
    std::lock_guard lock(mutex_);
    const auto session = sessions_.find(owner.session);
    if (session != sessions_.end() && session->second.regions.size() >= quotas_.session_regions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("max_regions_per_session: session ", owner.session, " has ",
                       quotas_.session_regions, " regions already"));
    }
    if (regions_.size() >= quotas_.total_regions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("all sessions together have ", quotas_.total_regions,
                       " regions, half as many as the daemon may have open files (RLIMIT_NOFILE)"));
    }
    SHUNT_RETURN_IF_ERROR(ChargeLocked(owner, bytes, "region"));
    id = next_id_++;
  }
  // Outside the lock: making a file may take the kernel a while.
  absl::StatusOr<UniqueFd> fd = MakeSealedMemfd("shunt-region", bytes);
  std::lock_guard lock(mutex_);
  if (!fd.ok()) {
    ReleaseLocked(owner, bytes);
    return fd.status();
  }
  auto region = std::make_shared<Region>(id, owner, *std::move(fd), bytes);
  regions_.emplace(id, Entry{region, std::make_shared<std::string>(), {}});
  sessions_[owner.session].regions.push_back(id);
  return region;
}

Quotas RegionTable::quotas() const {
  std::lock_guard lock(mutex_);
  return quotas_;
}

void RegionTable::SetQuotas(const Quotas& quotas) {
  std::lock_guard lock(mutex_);
  quotas_ = quotas;
}

uint64_t RegionTable::NewId() {
  std::lock_guard lock(mutex_);
  return next_id_++;
}

absl::Status RegionTable::Charge(Owner owner, uint64_t bytes, std::string_view what) {
  std::lock_guard lock(mutex_);
  return ChargeLocked(owner, bytes, what);
}

void RegionTable::Release(Owner owner, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  ReleaseLocked(owner, bytes);
}

absl::Status RegionTable::ChargeLocked(Owner owner, uint64_t bytes, std::string_view what) {
  const auto session = sessions_.find(owner.session);
  const uint64_t session_held = session == sessions_.end() ? 0 : session->second.bytes;
  const auto tenant = tenants_.find(owner.tenant);
  const uint64_t tenant_held = tenant == tenants_.end() ? 0 : tenant->second;
  const auto over = [bytes](uint64_t held, uint64_t limit) {
    return held > limit || bytes > limit - held;
  };
  if (over(session_held, quotas_.session_bytes)) {
    return OverQuota("memory_per_session", quotas_.session_bytes, session_held, bytes, what);
  }
  if (over(tenant_held, quotas_.tenant_bytes)) {
    return OverQuota("memory_per_tenant", quotas_.tenant_bytes, tenant_held, bytes, what);
  }
  if (over(total_bytes_, quotas_.total_bytes)) {
    return OverQuota("memory_total", quotas_.total_bytes, total_bytes_, bytes, what);
  }
  sessions_[owner.session].bytes += bytes;
  tenants_[owner.tenant] += bytes;
  total_bytes_ += bytes;
  return absl::OkStatus();
}

void RegionTable::ReleaseLocked(Owner owner, uint64_t bytes) {
  const auto session = sessions_.find(owner.session);
  SHUNT_CHECK(session != sessions_.end() && session->second.bytes >= bytes);
  session->second.bytes -= bytes;
  if (session->second.bytes == 0) sessions_.erase(session);
  const auto tenant = tenants_.find(owner.tenant);
  SHUNT_CHECK(tenant != tenants_.end() && tenant->second >= bytes && total_bytes_ >= bytes);
  tenant->second -= bytes;
  if (tenant->second == 0) tenants_.erase(tenant);
  total_bytes_ -= bytes;
}

absl::StatusOr<std::shared_ptr<Region>> RegionTable::Find(uint64_t session, uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(id);
  if (it == regions_.end() || it->second.region->owner().session != session)
    return NoSuchRegion(id);
  return it->second.region;
}

std::shared_ptr<Region> RegionTable::FindAny(uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(id);
  return it == regions_.end() ? nullptr : it->second.region;
}

absl::StatusOr<RegionUse> RegionTable::Use(uint64_t session, uint64_t id, std::string_view what) {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(id);
  if (it == regions_.end() || it->second.region->owner().session != session)
    return NoSuchRegion(id);
  it->second.use->assign(what);
  return RegionUse(it->second.region, it->second.use);
}

void RegionTable::RecordMapping(uint64_t id, uint64_t session) {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(id);
  if (it == regions_.end()) return;
  std::vector<uint64_t>& by = it->second.mapped_by;
  if (std::find(by.begin(), by.end(), session) == by.end()) by.push_back(session);
}

absl::Status RegionTable::Free(uint64_t session, uint64_t id, std::vector<uint64_t>* mapped_by) {
  std::shared_ptr<Region> region;  // unmapped and closed after the lock
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(id);
  if (it == regions_.end() || it->second.region->owner().session != session)
    return NoSuchRegion(id);
  // New uses are made under the lock only, so the count cannot rise here.
  if (it->second.use.use_count() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("region ", id, " is in use by ", *it->second.use));
  }
  region = std::move(it->second.region);
  if (mapped_by != nullptr) *mapped_by = std::move(it->second.mapped_by);
  regions_.erase(it);
  std::vector<uint64_t>& ids = sessions_[session].regions;
  ids.erase(std::find(ids.begin(), ids.end(), id));
  ReleaseLocked(region->owner(), region->bytes());
  return absl::OkStatus();
}

std::vector<uint64_t> RegionTable::FreeAll(Owner owner) {
  std::vector<uint64_t> mapped_by;
  std::vector<std::shared_ptr<Region>> regions;  // unmapped and closed after the lock
  std::lock_guard lock(mutex_);
  if (const auto it = sessions_.find(owner.session); it != sessions_.end()) {
    // A copy: releasing the last byte forgets the session.
    for (const uint64_t id : std::vector<uint64_t>(it->second.regions)) {
      const auto entry = regions_.find(id);
      for (const uint64_t session : entry->second.mapped_by) {
        if (session != owner.session) mapped_by.push_back(session);
      }
      ReleaseLocked(owner, entry->second.region->bytes());
      regions.push_back(std::move(entry->second.region));
      regions_.erase(entry);
    }
    if (const auto rest = sessions_.find(owner.session); rest != sessions_.end()) {
      rest->second.regions.clear();
    }
  }
  for (auto& [id, entry] : regions_) std::erase(entry.mapped_by, owner.session);
  std::sort(mapped_by.begin(), mapped_by.end());
  mapped_by.erase(std::unique(mapped_by.begin(), mapped_by.end()), mapped_by.end());
  return mapped_by;
}

std::vector<std::shared_ptr<Region>> RegionTable::List(uint64_t session) const {
  std::vector<std::shared_ptr<Region>> list;
  std::lock_guard lock(mutex_);
  if (const auto it = sessions_.find(session); it != sessions_.end()) {
    for (const uint64_t id : it->second.regions) list.push_back(regions_.at(id).region);
  }
  return list;
}

uint64_t RegionTable::region_count() const {
  std::lock_guard lock(mutex_);
  return regions_.size();
}

uint64_t RegionTable::total_bytes() const {
  std::lock_guard lock(mutex_);
  return total_bytes_;
}

uint64_t RegionTable::SessionBytes(uint64_t session) const {
  std::lock_guard lock(mutex_);
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? 0 : it->second.bytes;
}

}  // namespace shunt::memory
