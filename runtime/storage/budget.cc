#include "runtime/storage/budget.h"

#include <algorithm>

#include "runtime/core/status.h"

namespace shunt::storage {

absl::Status Charge::Cover(uint64_t bytes, std::string_view what) {
  if (bytes <= covered_ || !budget_) return absl::OkStatus();
  const uint64_t more = std::max(bytes - covered_, covered_);
  SHUNT_ASSIGN_OR_RETURN(std::shared_ptr<void> taken, budget_(more, what));
  taken_.push_back(std::move(taken));
  covered_ += more;
  return absl::OkStatus();
}

}  // namespace shunt::storage
