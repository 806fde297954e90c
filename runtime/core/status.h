// Helpers around absl::Status. A message names the object, the value seen and the value expected.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/check.h"

namespace shunt {

// The status for a failed system call: "WHAT: strerror (ERRNO NAME)". `err` is errno's value, not
// 0. Codes: what a caller can act on differs (NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED for
// memory, descriptors and space, UNAVAILABLE for a peer that is gone, ...); everything else is
// INTERNAL.
absl::Status ErrnoStatus(int err, std::string_view what);

}  // namespace shunt

#define SHUNT_STATUS_CONCAT_(a, b) a##b
#define SHUNT_STATUS_CONCAT(a, b) SHUNT_STATUS_CONCAT_(a, b)

// Returns from the enclosing function if `expression`, an absl::Status, is not OK.
#define SHUNT_RETURN_IF_ERROR(expression)                                                    \
  do {                                                                                       \
    if (::absl::Status shunt_status = (expression); !shunt_status.ok()) return shunt_status; \
  } while (false)

// SHUNT_ASSIGN_OR_RETURN(auto x, F()): the value of a StatusOr, or return its error. A declaration
// with a comma at top level (std::pair<A, B>) needs an alias.
#define SHUNT_ASSIGN_OR_RETURN(lhs, expression) \
  SHUNT_ASSIGN_OR_RETURN_(SHUNT_STATUS_CONCAT(shunt_or_, __LINE__), lhs, expression)
#define SHUNT_ASSIGN_OR_RETURN_(temporary, lhs, expression)  \
  auto temporary = (expression);                             \
  if (!temporary.ok()) return std::move(temporary).status(); \
  lhs = *std::move(temporary)
