// Where failures leave the library: the calling thread's words, and the code that the function
// returns.
#pragma once

#include <cxxabi.h>

#include <string_view>

#include "absl/status/status.h"

namespace shunt::client {

// Remembers the words for shunt_last_error() and returns the code. `status` is not OK. Never
// throws.
int Fail(const absl::Status& status) noexcept;
int Fail(absl::StatusCode code, std::string_view words) noexcept;

inline int Result(const absl::Status& status) noexcept {
  return __builtin_expect(status.ok(), 1) ? 0 : Fail(status);
}

// The exception in flight as a failure.
int FailWithException() noexcept;

// Runs the body of a C function: nothing is thrown through it, but for a thread's cancellation.
template <typename Body>
int Guarded(Body&& body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return FailWithException();
  }
}

const char* LastError() noexcept;

}  // namespace shunt::client
