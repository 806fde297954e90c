#include "client/src/error.h"

#include <exception>
#include <new>
#include <string>

namespace shunt::client {
namespace {

std::string& Words() {
  thread_local std::string words;
  return words;
}

}  // namespace

int Fail(absl::StatusCode code, std::string_view words) noexcept {
  try {
    Words().assign(words);
  } catch (...) {
    Words().clear();  // out of memory: the code must do
  }
  return static_cast<int>(code);
}

int Fail(const absl::Status& status) noexcept {
  const auto words = status.message();
  return Fail(status.code(), std::string_view(words.data(), words.size()));
}

int FailWithException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Fail(absl::StatusCode::kResourceExhausted, "this process is out of memory");
  } catch (const std::exception& e) {
    return Fail(absl::StatusCode::kInternal, e.what());
  } catch (...) {
    return Fail(absl::StatusCode::kInternal, "an exception of unknown type");
  }
}

const char* LastError() noexcept { return Words().c_str(); }

}  // namespace shunt::client
