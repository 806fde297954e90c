// Regions of kind CUDA: allocations of clients on a GPU, which the GPU's worker has imported. To
// shuntd they are numbers.
//
//   Register ──► worker imports ──► DeviceRegion ◄── DeviceUse, of an operation
//
// The last reference to a region has the worker let go of it: no operation's command runs then.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client_fd.h"
#include "daemon/gpu/workers.h"
#include "daemon/session.h"
#include "runtime/core/fd.h"
#include "runtime/gpu/driver.h"
#include "runtime/memory/region_table.h"

namespace shunt::daemon {

// What never changes once it is registered.
struct DeviceRegion {
  ~DeviceRegion();

  uint64_t id = 0;
  memory::Owner owner;
  uint64_t bytes = 0;
  gpu::Uuid uuid{};
  std::shared_ptr<GpuWorker> worker;
  // One of them, for a worker that takes the place of one that ended.
  UniqueFd descriptor;
  gpu::IpcHandle handle{};
  bool is_ipc() const { return !descriptor.valid(); }

  // OUT_OF_RANGE, with the numbers, as Region::CheckRange.
  absl::Status CheckRange(uint64_t offset, uint64_t length) const;
};

// Says that an operation uses the region: it is not freed meanwhile.
struct DeviceUse {
  std::shared_ptr<DeviceRegion> region;
  std::shared_ptr<const std::string> use;  // what for; its holders are counted
};

// Thread-safe.
class DeviceRegions {
 public:
  using SessionPtr = std::shared_ptr<Session>;
  struct Options {
    uint64_t session_regions = 4096;
    uint64_t total_regions = 4096;  // each may be a descriptor
  };
  // `ids` numbers regions; both outlive this. `workers` may be null: no GPU is served.
  DeviceRegions(Options options, memory::RegionTable* ids, GpuWorkers* workers);

  // Calls `done` once, perhaps at once, perhaps on a thread of GpuWorkers. INVALID_ARGUMENT: what
  // was asked is none; UNIMPLEMENTED: no such GPU; FAILED_PRECONDITION: its worker cannot open it,
  // with what to do; RESOURCE_EXHAUSTED names the limit; UNAVAILABLE: the GPU is served no more.
  struct Request {
    std::string device_uuid;
    uint64_t bytes = 0;
    std::string ipc_handle;  // empty: by `descriptor`
    ClientFd descriptor;
  };
  using Registered = std::function<void(const absl::StatusOr<uint64_t>& id)>;
  void Register(const SessionPtr& session, Request request, Registered done);

  // NOT_FOUND as RegionTable's.
  absl::StatusOr<std::shared_ptr<DeviceRegion>> Find(uint64_t session, uint64_t id) const;
  absl::StatusOr<DeviceUse> Use(uint64_t session, uint64_t id, std::string words);
  bool Has(uint64_t session, uint64_t id) const { return Find(session, id).ok(); }
  // FAILED_PRECONDITION names what uses it.
  absl::Status Free(uint64_t session, uint64_t id);
  // All of it goes; what operations use goes when they end.
  void SessionGone(uint64_t session);
  std::vector<std::shared_ptr<DeviceRegion>> List(uint64_t session) const;
  uint64_t SessionBytes(uint64_t session) const;

 private:
  struct Entry {
    std::shared_ptr<DeviceRegion> region;
    std::shared_ptr<std::string> use;  // words for its last use; shared as long as it is in use
  };
  struct OfSession {
    std::unordered_map<uint64_t, Entry> regions;
    uint64_t importing = 0;
  };

  absl::Status Reserve(const Session& session);
  void CancelReservation(uint64_t session);
  absl::StatusOr<uint64_t> Take(const SessionPtr& session,
                                const std::shared_ptr<DeviceRegion>& region);
  void Import(const SessionPtr& session, const std::shared_ptr<Request>& request,
              const gpu::Uuid& uuid, const Registered& done);

  const Options options_;
  memory::RegionTable* const ids_;
  GpuWorkers* const workers_;
  mutable std::mutex mutex_;
  uint64_t total_ = 0;
  std::unordered_map<uint64_t, OfSession> sessions_;
};

}  // namespace shunt::daemon
