#include "runtime/p2p/transfer_plan.h"

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/p2p/overlap.h"

namespace shunt::p2p {

absl::StatusOr<std::shared_ptr<const TransferPlan>> TransferPlan::Make(Selection source,
                                                                       Selection destination) {
  if (source.payload_bytes() != destination.payload_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the source has ", source.payload_bytes(), " bytes, the destination ",
                     destination.payload_bytes(), "; expected the same"));
  }
  SHUNT_RETURN_IF_ERROR(CheckOverlap(source, destination));
  return std::shared_ptr<const TransferPlan>(
      new TransferPlan(std::move(source), std::move(destination)));
}

}  // namespace shunt::p2p
