// Keeps what an operation's pointers point into.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "runtime/core/check.h"
#include "runtime/memory/region_table.h"

namespace shunt::daemon {

// Regions that the operation at hand has resolved: their mappings stay while it runs, also if their
// owner dies meanwhile. One for each thread; scopes never nest.
class PinScope {
 public:
  PinScope() { current = this; }
  ~PinScope() { current = nullptr; }
  PinScope(const PinScope&) = delete;
  PinScope& operator=(const PinScope&) = delete;

  static void Pin(std::shared_ptr<memory::Region> region) {
    SHUNT_CHECK(current != nullptr);
    if (current->pinned_.empty() || current->pinned_.back() != region) {
      current->pinned_.push_back(std::move(region));
    }
  }
  // For an operation that outlasts the scope.
  std::vector<std::shared_ptr<memory::Region>> Take() const {
    return {pinned_.begin(), pinned_.end()};
  }

 private:
  inline static thread_local PinScope* current = nullptr;
  absl::InlinedVector<std::shared_ptr<memory::Region>, 8> pinned_;
};

}  // namespace shunt::daemon
