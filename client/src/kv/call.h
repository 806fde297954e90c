// One put, get or flush of a block store, from its start to its outcome.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/kv/types.h"

namespace shunt::client::kv {

struct BlockResult {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::optional<shunt::tiers::Tier> tier;
  uint64_t bytes = 0;
};

// Thread-safe. Shared by its handle and the store's threads; needs neither in the end.
class Call {
 public:
  Call(size_t blocks, int64_t deadline_ns) : deadline_ns_(deadline_ns), results_(blocks) {}

  // ---- For who has made the call

  bool Poll();
  // False if it has not ended at `deadline_ns`.
  bool Wait(int64_t deadline_ns);
  // Of one that has ended.
  absl::Status Outcome();
  std::vector<BlockResult> Results();
  absl::StatusOr<int> EventFd();

  // ---- For the store

  int64_t deadline_ns() const { return deadline_ns_; }
  void Set(size_t block, const BlockResult& result);
  // The first failure is the call's outcome.
  void Fail(const absl::Status& status);
  void End();

 private:
  const int64_t deadline_ns_;
  std::mutex mutex_;  // the rest
  std::condition_variable ended_changed_;
  std::vector<BlockResult> results_;
  absl::Status outcome_;
  bool ended_ = false;
  UniqueFd event_;
};

}  // namespace shunt::client::kv
