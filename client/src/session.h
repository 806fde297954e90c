// A session: the lease, the submission ring and the regions of one process, until it is closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/fork_guard.h"
#include "client/src/lease_connection.h"
#include "client/src/region_table.h"
#include "client/src/submission_ring.h"
#include "runtime/core/fd.h"
#include "runtime/ring/layout.h"

namespace shunt::gpu {
class Driver;
}  // namespace shunt::gpu

namespace shunt::client {

class Communicator;
class Notifications;
class Transfers;

namespace cuda {
class DeviceMemory;
class Watcher;
}  // namespace cuda

// Thread-safe. Kept alive by its handle, its communicators and their operations.
class Session final : public std::enable_shared_from_this<Session>, private ForkTarget {
 public:
  struct Options {
    std::string socket;  // the daemon's; the lease socket lies beside it
    std::string name;
  };

  static absl::StatusOr<std::shared_ptr<Session>> Open(const Options& options);
  ~Session();

  // Ends the session at the daemon. What waits ends with UNAVAILABLE; memory stays mapped until the
  // last owner of the session is gone.
  void Close();

  uint64_t id() const { return id_; }
  // OK in the process that opened the session, FAILED_PRECONDITION in its forked children.
  absl::Status CheckProcess() const;
  bool InForkedChild() const { return generation_ != ForkGeneration(); }

  // ---- Memory

  // A region of its own: mapped, resident, zeroed. `bytes` > 0.
  absl::StatusOr<void*> Allocate(size_t bytes);
  // FAILED_PRECONDITION if an operation uses it, NOT_FOUND if no region begins at `data`.
  absl::Status Free(const void* data);
  RegionTable& regions() { return regions_; }
  // A region that only its owner knows: not among regions(), and mapped as long as it likes.
  absl::StatusOr<RegionTable::OwnRegion> MakeRegion(size_t bytes);
  // FAILED_PRECONDITION names the operation or the transfer in flight that uses the region.
  absl::Status CheckUnused(uint64_t region_id);
  cuda::DeviceMemory& device_memory() { return *device_memory_; }
  // A fellow member's region, mapped on first use; null if the daemon does not give it.
  RegionTable::Memory PeerRegion(uint64_t region_id);
  // True if peers have freed regions since their mappings were last dropped.
  bool HasStaleRegions() const {
    return ring_->regions_freed() != regions_freed_seen_.load(std::memory_order_relaxed);
  }
  // Unmaps the peers' regions unless an operation besides the caller's is active. The caller's must
  // not have looked anything up yet.
  void DropStaleRegions();

  // ---- For communicators

  LeaseConnection& lease() { return *lease_; }
  // See SubmissionRing::Submit.
  absl::Status Submit(const ring::Submission& submission) { return ring_->Submit(submission); }
  // What calls on streams need: started by the first of them.
  absl::StatusOr<std::shared_ptr<cuda::Watcher>> StreamWatcher(gpu::Driver* driver);
  void Add(Communicator* communicator);
  void Remove(Communicator* communicator);

  // ---- For transfers

  SubmissionRing& ring() { return *ring_; }
  Transfers& transfers() { return *transfers_; }
  Notifications& notifications() { return *notifications_; }

 private:
  explicit Session(std::unique_ptr<LeaseConnection> lease);

  absl::Status Start(const Options& options);
  void OnForkChild() override;

  const uint32_t generation_ = ForkGeneration();
  const int32_t pid_;
  std::unique_ptr<LeaseConnection> lease_;
  uint64_t id_ = 0;
  std::atomic<bool> closed_{false};

  std::unique_ptr<Notifications> notifications_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<SubmissionRing> ring_;

  RegionTable regions_;
  std::atomic<uint32_t> regions_freed_seen_{0};

  std::mutex communicators_mutex_;
  std::vector<Communicator*> communicators_;

  std::unique_ptr<cuda::DeviceMemory> device_memory_;
  std::mutex watcher_mutex_;
  std::shared_ptr<cuda::Watcher> watcher_;
};

// When a request must be answered that the daemon answers at once. Generous: it may be swapped out.
int64_t RequestDeadlineNs();

}  // namespace shunt::client
