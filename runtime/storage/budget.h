// Memory that a store takes for somebody: parts of an object that wait for their last bytes, notes
// of which bytes of a draft were written. Whoever owns the store says who pays.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::storage {

// Takes so many bytes until the last reference to the result is gone, on any thread. `what` is for
// its error, RESOURCE_EXHAUSTED. Null: nobody counts.
using Budget =
    std::function<absl::StatusOr<std::shared_ptr<void>>(uint64_t bytes, std::string_view what)>;

// What one draft has taken of a budget. Not thread-safe.
class Charge {
 public:
  explicit Charge(Budget budget = {}) : budget_(std::move(budget)) {}

  // Pays for `bytes` in all, if it has not yet. More than was asked is taken, so that it is seldom.
  absl::Status Cover(uint64_t bytes, std::string_view what);
  // Pays for `bytes` more, which the result gives back.
  absl::StatusOr<std::shared_ptr<void>> Take(uint64_t bytes, std::string_view what) const {
    if (!budget_) return std::shared_ptr<void>();
    return budget_(bytes, what);
  }

 private:
  Budget budget_;
  uint64_t covered_ = kFree;
  std::vector<std::shared_ptr<void>> taken_;

  // So little is not counted.
  static constexpr uint64_t kFree = 16 << 10;
};

}  // namespace shunt::storage
