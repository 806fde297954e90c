// Gates: where a stream of this process and the daemon's worker meet (GateWords), in host memory
// that both sides reach and the driver has pinned.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/region_table.h"
#include "runtime/board/member.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/worker/protocol.h"

namespace shunt::client::cuda {

// Thread-safe. Regions are taken from the daemon when they are needed. Their memory outlives the
// session: a stream may come to its gate later. For ever, if it has not written its trigger yet;
// else until 64 further regions' sessions have ended.
class Gates {
 public:
  using MakeRegion = std::function<absl::StatusOr<RegionTable::OwnRegion>(size_t bytes)>;

  Gates(gpu::Driver* driver, MakeRegion make_region);
  ~Gates();
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;

  struct Gate {
    uint32_t index = 0;
    uint32_t generation = 0;  // 1 of repeating ones
    gpu::GateWords* words = nullptr;
    gpu::DevicePtr device = 0;  // the same words, for the stream
    board::RegionRef place;

    gpu::DevicePtr trigger() const { return device; }
    gpu::DevicePtr done() const { return device + sizeof(uint32_t); }
  };

  // For one call. Some context must be current if a region has to be made. UNAVAILABLE after
  // ReleaseAll.
  absl::StatusOr<Gate> Take();
  // Of a call that has succeeded, or whose stream never heard of it.
  void Give(const Gate& gate);
  // Of one that has failed: the stream may yet come by, and must not find another call's words.
  // Nobody else writes to them any more.
  void GiveLate(const Gate& gate);

  // For a call that a graph repeats.
  absl::StatusOr<Gate> TakeRepeating();
  void GiveRepeating(const Gate& gate);

  // Lets the stream of a call pass, now or when it comes.
  static void Release(const Gate& gate);
  // One turn of a repeating one whose other side is gone.
  static void ReleaseTurn(const Gate& gate);
  // Every call's stream passes, and no call begins any more.
  void ReleaseAll();

 private:
  enum class Use : uint8_t { kFree, kOnce, kLate, kRepeating, kRepeatingFree };
  struct Slot {
    uint32_t generation = 0;
    Use use = Use::kFree;
  };
  struct Chunk {
    RegionTable::OwnRegion region;
    gpu::DevicePtr device = 0;
  };

  // With the lock held.
  Gate GateOf(uint32_t index) const;
  absl::Status Grow();
  bool Passed(uint32_t index) const;
  bool AllPassed() const;

  const uint32_t fork_generation_;
  gpu::Driver* const driver_;
  const MakeRegion make_region_;

  mutable std::mutex mutex_;
  std::vector<Chunk> chunks_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> late_;
  std::vector<uint32_t> free_repeating_;
  bool released_ = false;
};

}  // namespace shunt::client::cuda
