// Regions: sealed memory files that the daemon makes for its sessions. The only code that turns a
// region and an offset into a pointer.
//
// Ids start at 1 and are never used again. A region's pages belong to whoever touches them first,
// which is the client: the daemon never touches one outside an operation, and maps a region only
// when it first serves an operation on it. Memory is not recycled: each region is a file of its
// own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"

namespace shunt::memory {

// A session, the tenant behind it, and what each may hold.
struct Owner {
  uint64_t session = 0;
  uint32_t tenant = 0;  // uid
};

struct Quotas {
  uint64_t session_bytes = UINT64_MAX;
  uint64_t tenant_bytes = UINT64_MAX;
  uint64_t total_bytes = UINT64_MAX;
  // Each region is an open file.
  uint64_t session_regions = UINT64_MAX;
  uint64_t total_regions = UINT64_MAX;
};

// Thread-safe. Kept alive by whoever uses its memory, also when the table has forgotten it.
class Region {
 public:
  Region(uint64_t id, Owner owner, UniqueFd fd, uint64_t bytes)
      : id_(id), owner_(owner), fd_(std::move(fd)), bytes_(bytes) {}
  ~Region();

  uint64_t id() const { return id_; }
  const Owner& owner() const { return owner_; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

  // Where [offset, offset + length) lies in this process; maps the region on first use.
  // OUT_OF_RANGE, with the numbers, if it is not wholly inside. Length 0 is inside at every offset
  // up to the size.
  absl::StatusOr<std::byte*> At(uint64_t offset, uint64_t length);
  // The check alone.
  absl::Status CheckRange(uint64_t offset, uint64_t length) const;

  // Calls `gone` when nobody uses the memory any more and the table has forgotten it, on whichever
  // thread let go of it last: for who maps it elsewhere.
  void OnGone(std::function<void()> gone);

 private:
  const uint64_t id_;
  const Owner owner_;
  const UniqueFd fd_;
  const uint64_t bytes_;
  std::mutex mutex_;
  Mapping mapping_;
  std::atomic<std::byte*> data_ = nullptr;
  std::vector<std::function<void()>> gone_;
};

// Says that an operation uses the region: it cannot be freed meanwhile. Move-only.
class RegionUse {
 public:
  RegionUse() = default;
  RegionUse(RegionUse&& other) noexcept = default;
  RegionUse& operator=(RegionUse&& other) noexcept = default;

  Region* operator->() const { return region_.get(); }
  explicit operator bool() const { return region_ != nullptr; }

 private:
  friend class RegionTable;
  RegionUse(std::shared_ptr<Region> region, std::shared_ptr<void> count)
      : region_(std::move(region)), count_(std::move(count)) {}
  std::shared_ptr<Region> region_;
  std::shared_ptr<void> count_;
};

// Thread-safe.
class RegionTable {
 public:
  explicit RegionTable(Quotas quotas) : quotas_(quotas) {}

  // A new region of at least `bytes` bytes, rounded up to whole pages. INVALID_ARGUMENT for 0 and
  // for more than a file can hold; RESOURCE_EXHAUSTED names the quota, what is held and what was
  // asked.
  absl::StatusOr<std::shared_ptr<Region>> Allocate(Owner owner, uint64_t bytes);

  // A number for a region that somebody else keeps: no other one has or gets it.
  uint64_t NewId();

  // Counts memory that is no region (rings, boards) against the same quotas. Give it back with
  // Release.
  absl::Status Charge(Owner owner, uint64_t bytes, std::string_view what);
  void Release(Owner owner, uint64_t bytes);

  // NOT_FOUND, also for a region of another session: nobody learns what others hold.
  absl::StatusOr<std::shared_ptr<Region>> Find(uint64_t session, uint64_t id) const;
  // The same region whoever owns it; null if there is none.
  std::shared_ptr<Region> FindAny(uint64_t id) const;
  // Find, and holds off Free until the RegionUse is gone. `what` names the operation in Free's
  // error.
  absl::StatusOr<RegionUse> Use(uint64_t session, uint64_t id, std::string_view what);

  // Remembers that `session` maps a region of another session.
  void RecordMapping(uint64_t id, uint64_t session);

  // NOT_FOUND as Find; FAILED_PRECONDITION names an operation that uses it. `mapped_by`, if not
  // null, gets the other sessions that had mapped it.
  absl::Status Free(uint64_t session, uint64_t id, std::vector<uint64_t>* mapped_by = nullptr);
  // Everything of a session that has ended, in use or not: memory in use lives until its operation
  // ends. Also forgets what it had mapped. Returns the other sessions that had mapped some of it.
  std::vector<uint64_t> FreeAll(Owner owner);

  std::vector<std::shared_ptr<Region>> List(uint64_t session) const;

  // Regions, and bytes including what was charged.
  uint64_t region_count() const;
  uint64_t total_bytes() const;
  uint64_t SessionBytes(uint64_t session) const;
  Quotas quotas() const;
  // For what is asked from now on; what is held stays, also above a lower quota.
  void SetQuotas(const Quotas& quotas);

 private:
  struct Entry {
    std::shared_ptr<Region> region;
    std::shared_ptr<std::string> use;  // words for its last use; shared as long as it is in use
    std::vector<uint64_t> mapped_by;
  };
  struct SessionMemory {
    uint64_t bytes = 0;
    std::vector<uint64_t> regions;
  };

  absl::Status ChargeLocked(Owner owner, uint64_t bytes, std::string_view what);
  void ReleaseLocked(Owner owner, uint64_t bytes);

  mutable std::mutex mutex_;
  Quotas quotas_;
  uint64_t next_id_ = 1;
  uint64_t total_bytes_ = 0;
  std::unordered_map<uint64_t, Entry> regions_;
  std::unordered_map<uint64_t, SessionMemory> sessions_;
  std::unordered_map<uint32_t, uint64_t> tenants_;  // bytes
};

}  // namespace shunt::memory
