// The regions that this process can name: its session's own, found by address, in host memory that
// is mapped here or in a GPU's; and those of fellow members that it has mapped, found by id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/src/spin_shared_mutex.h"
#include "runtime/board/member.h"
#include "runtime/core/fd.h"

namespace shunt::client {

// Thread-safe. Lookups cost some ten nanoseconds.
class RegionTable {
 public:
  struct OwnRegion {
    uint64_t id = 0;
    Mapping mapping;
  };
  struct Memory {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
  };

  void AddOwn(OwnRegion region);
  // Memory of a GPU: this process' CPU cannot reach it. Addresses of GPUs and of the host are
  // apart.
  void AddDevice(uint64_t id, uint64_t address, uint64_t bytes);
  // False if no device region has this id.
  bool RemoveDevice(uint64_t id);
  // Takes out the host region that begins at `data`; nothing if there is none.
  std::optional<OwnRegion> RemoveOwn(const void* data);
  // The region that wholly holds [p, p + bytes); {0, 0} if none.
  board::RegionRef Find(const void* p, size_t bytes) const;
  // The region that holds `p`: id 0 if none. For callers that ask for many places in a row.
  struct Holder {
    uint64_t id = 0;
    const std::byte* begin = nullptr;
    uint64_t bytes = 0;
    bool device = false;
    // Whether [p, p + size) lies in it.
    bool Holds(const void* p, uint64_t size) const {
      const uint64_t offset = Offset(p);
      return offset < bytes && size <= bytes - offset;
    }
    uint64_t Offset(const void* p) const {
      return reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(begin);
    }
  };
  Holder HolderOf(const void* p) const;
  // The id of the own host region that begins at `data`; 0 if none.
  uint64_t OwnId(const void* data) const;
  // An own host region's memory; null if there is none with this id.
  Memory Own(uint64_t id) const;
  // The size of an own region, of a GPU's too; 0 if there is none with this id.
  uint64_t BytesOf(uint64_t id) const;

  // A fellow member's region; null if it is not mapped.
  Memory Peer(uint64_t id) const;
  // If another thread was first, `mapping` is dropped.
  Memory AddPeer(uint64_t id, Mapping mapping);
  // Unmaps all peers' regions if `idle()`, asked under the lock, says that nobody has pointers into
  // them.
  template <typename Idle>
  bool DropPeers(Idle&& idle) {
    std::vector<PeerRegion> dropped;  // unmapped outside the lock
    mutex_.lock();
    const bool drop = idle();
    if (drop) dropped.swap(peers_);
    mutex_.unlock();
    return drop;
  }

 private:
  struct PeerRegion {
    uint64_t id = 0;
    Mapping mapping;
  };

  struct OwnMemory {
    uint64_t id = 0;
    Memory memory;
  };

  // A range of addresses, for lookups.
  struct Range {
    uintptr_t begin = 0;
    uint64_t bytes = 0;
    uint64_t id = 0;
    bool device = false;
  };

  // With the lock held; null if no range holds `address`.
  const Range* RangeOf(uintptr_t address) const;
  void AddRange(const Range& range);

  mutable SpinSharedMutex mutex_;
  std::vector<Range> ranges_;         // of all own regions, by address
  std::vector<OwnRegion> own_;        // on the host
  std::vector<OwnMemory> own_by_id_;  // the same, by id
  std::vector<PeerRegion> peers_;     // by id
};

}  // namespace shunt::client
