// Moments at which operations are due, and one descriptor that tells of the next.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"

namespace shunt::storage {

class Timers {
 public:
  static absl::StatusOr<Timers> Make();

  // One moment for each id; a later call replaces it. kNeverNs clears it.
  void Set(uint64_t id, int64_t at_ns);
  void Clear(uint64_t id) { Set(id, kNeverNs); }
  // Takes out one that is due by `now_ns`; false if there is none.
  bool PopDue(int64_t now_ns, uint64_t* id);
  bool empty() const { return order_.empty(); }

  // Makes fd() readable from the earliest moment on, and not readable before. Call it after
  // changes, before fd() is waited for.
  void Arm();
  int fd() const { return fd_.get(); }

 private:
  explicit Timers(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::set<std::pair<int64_t, uint64_t>> order_;
  absl::flat_hash_map<uint64_t, int64_t> at_;
  int64_t armed_ns_ = kNeverNs;
};

}  // namespace shunt::storage
