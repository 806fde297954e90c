// SHUNT_CHECK: a broken invariant of our own code. The world's failures are absl::Status instead.
#pragma once

namespace shunt::internal {

// Prints one line to stderr and aborts. Async-signal-safe, allocates nothing.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace shunt::internal

// Always on, in every build. The condition must be cheap and without side effects.
#define SHUNT_CHECK(condition)                       \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::shunt::internal::CheckFailed(__FILE__, __LINE__, #condition))
