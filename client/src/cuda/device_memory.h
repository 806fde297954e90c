// A session's GPU memory: which of this process' CUDA allocations the daemon knows, and by which
// region.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/driver.h"

namespace shunt::client {

class Session;

namespace cuda {

// Thread-safe. Owned by its session. Loads the CUDA driver when it is first asked about memory that
// may be a GPU's. The unit is the allocation: what a descriptor or an IPC handle names as a whole.
class DeviceMemory {
 public:
  explicit DeviceMemory(Session* session) : session_(session) {}
  // What Allocate made and nobody freed is freed, unless in a forked child.
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // The four of shunt.h.
  absl::Status Register(const void* pointer);
  absl::Status Deregister(const void* pointer);
  absl::StatusOr<void*> Allocate(int device, uint64_t bytes);
  absl::Status Free(const void* pointer);

  // Where [pointer, pointer + bytes) of a call lies. GPU memory is registered if it is not.
  struct Found {
    bool device = false;  // in a region, on the GPU `ordinal`; else somewhere on the host
    int ordinal = -1;
  };
  // INVALID_ARGUMENT for a range that one allocation does not hold, FAILED_PRECONDITION for memory
  // that cannot be shared.
  absl::StatusOr<Found> Find(const void* pointer, uint64_t bytes);
  // Whether CUDA says that the GPU holds `pointer`. Registers nothing.
  static bool IsDevice(const void* pointer);

 private:
  struct Entry {
    uint64_t bytes = 0;
    uint64_t buffer_id = 0;
    uint64_t region_id = 0;
    int device = -1;
    uint32_t count = 0;      // of Register; none: it was registered for a call
    bool allocated = false;  // by Allocate
  };
  using Entries = std::map<gpu::DevicePtr, Entry>;  // by the allocation's address

  // With the lock held.

  // The entry of the allocation that holds `pointer`, made if there is none. A stale one, whose
  // address has got other memory, is given up before.
  absl::StatusOr<Entries::iterator> Ensure(gpu::Driver* driver, gpu::DevicePtr pointer,
                                           const gpu::PointerFacts& facts);
  absl::StatusOr<uint64_t> Announce(gpu::Driver* driver, const gpu::PointerFacts& facts);
  // The entry that holds `pointer`, by address alone.
  Entries::iterator Holding(gpu::DevicePtr pointer);
  absl::Status Forget(Entries::iterator at);
  absl::StatusOr<std::string> UuidOf(gpu::Driver* driver, int device);

  Session* const session_;
  std::mutex mutex_;
  Entries entries_;
  std::vector<std::pair<int, std::string>> uuids_;  // by ordinal
};

}  // namespace cuda
}  // namespace shunt::client
