// The stores that run on this machine.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/storage/posix/posix_store.h"
#include "tests/storage/world.h"
#include "tests/support/temp_dir.h"
#ifdef SHUNT_TEST_S3
#include "tests/storage/s3_world.h"
#endif
#ifdef SHUNT_TEST_PLUGIN
#include "tests/storage/plugin_world.h"
#endif

namespace shunt::storage::testing {

class PosixWorld : public World {
 public:
  explicit PosixWorld(PosixOptions options = {}) : options_(std::move(options)) {
    options_.roots = {{.name = "root", .path = directory_.path()}};
    Restart();
  }
  Store& store() override { return *store_; }
  PosixStore& posix() { return *store_; }
  std::string container() const override { return "root"; }
  std::vector<std::string> Names() override {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      if (entry.is_directory()) continue;
      names.push_back(std::filesystem::relative(entry.path(), directory_.path()).string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string Path(const std::string& name) const { return directory_ / name; }
  const std::string& directory() const { return directory_.path(); }
  void Stop() { store_.reset(); }
  void Restart() {
    store_.reset();
    auto store = PosixStore::Make(options_);
    INFO(store.status());
    REQUIRE(store.ok());
    store_ = *std::move(store);
  }

 private:
  const shunt::testing::TempDir directory_;
  PosixOptions options_;
  std::unique_ptr<PosixStore> store_;
};

// io_uring where this machine lets us.
class PosixUringWorld : public PosixWorld {
 public:
  PosixUringWorld() : PosixWorld({.engine = IoEngine::kAuto, .io_bytes_max = 64 << 10}) {}
};

class PosixThreadsWorld : public PosixWorld {
 public:
  PosixThreadsWorld() : PosixWorld({.engine = IoEngine::kThreads, .io_bytes_max = 64 << 10}) {}
};

// A file system that has neither O_DIRECT nor O_TMPFILE, and a queue of one.
class PosixPlainWorld : public PosixWorld {
 public:
  PosixPlainWorld() : PosixWorld({.queue_depth = 1, .direct = false, .unnamed_drafts = false}) {}
};

#ifdef SHUNT_TEST_S3
using Worlds = std::tuple<S3World>;
#elif defined(SHUNT_TEST_PLUGIN)
using Worlds = std::tuple<PluginWorld>;
#else
using Worlds = std::tuple<PosixUringWorld, PosixThreadsWorld, PosixPlainWorld>;
#endif

}  // namespace shunt::storage::testing
