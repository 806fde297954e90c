// Counts this process's open descriptors, to see that nothing leaks.
#pragma once

#include <filesystem>

namespace shunt::testing {

inline int CountOpenFds() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

}  // namespace shunt::testing
