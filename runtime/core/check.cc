#include "runtime/core/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace shunt::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  char text[512];
  int length =
      std::snprintf(text, sizeof(text), "%s:%d: SHUNT_CHECK failed: %s\n", file, line, condition);
  if (length < 0) length = 0;
  if (length >= static_cast<int>(sizeof(text))) length = sizeof(text) - 1;
  // The result does not matter any more: the process ends either way.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, text, static_cast<size_t>(length));
  std::abort();
}

}  // namespace shunt::internal
