// The example plugin, which plugin_test.py has built out of the tree: SHUNT_TEST_PLUGIN is its
// path.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "runtime/storage/plugin/plugin_store.h"
#include "tests/storage/world.h"

namespace shunt::storage::testing {

inline std::string PluginPath() {
  const char* const path = std::getenv("SHUNT_TEST_PLUGIN");
  SHUNT_CHECK(path != nullptr);
  return path;
}

class PluginWorld : public World {
 public:
  PluginWorld() {
    auto store = PluginStore::Load(PluginPath(), "");
    INFO(store.status());
    REQUIRE(store.ok());
    store_ = *std::move(store);
  }
  Store& store() override { return *store_; }
  std::string container() const override { return "memory"; }
  std::vector<std::string> Names() override {
    const Buffer list = Get(".names");
    const std::string text(reinterpret_cast<const char*>(list.data()), list.size());
    std::vector<std::string> names = absl::StrSplit(text, '\n', absl::SkipEmpty());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::unique_ptr<PluginStore> store_;
};

}  // namespace shunt::storage::testing
