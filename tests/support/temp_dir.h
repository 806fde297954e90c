// A fresh directory that is removed with all its contents. Its path is short enough for unix
// sockets.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/core/check.h"

namespace shunt::testing {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/shunt-test-XXXXXX";
    SHUNT_CHECK(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace shunt::testing
