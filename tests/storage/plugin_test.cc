// What a plugin can get wrong.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/storage/plugin_world.h"
#include "tests/support/temp_dir.h"

namespace shunt::storage::testing {
namespace {

using absl::StatusCode;

// A table of functions that do nothing, but answer what a test says.
struct Faulty {
  std::vector<shunt_store_completion> answers;
  static Faulty* current;

  Faulty() { current = this; }
  shunt_store_plugin table{
      .size = sizeof(shunt_store_plugin),
      .version = SHUNT_STORE_PLUGIN_VERSION,
      .name = "faulty",
      .features = 0,
      .reserved = 0,
      .create = [](const char*, void** store, char*, size_t) -> uint32_t {
        *store = current;
        return SHUNT_STORE_OK;
      },
      .destroy = [](void*) {},
      .post_open = [](void*, const shunt_store_open*, uint64_t) {},
      .post_read = [](void*, const shunt_store_transfer*, uint64_t) {},
      .post_write = [](void*, const shunt_store_transfer*, uint64_t) {},
      .post_sync = [](void*, uint64_t, int64_t, uint64_t) {},
      .post_begin = [](void*, const shunt_store_begin*, uint64_t) {},
      .post_commit = [](void*, uint64_t, int64_t, uint64_t) {},
      .post_abort = [](void*, uint64_t, uint64_t) {},
      .close = [](void*, uint64_t) {},
      .cancel = [](void*, uint64_t) {},
      .poll = [](void* store, shunt_store_completion* out, size_t count) -> size_t {
        auto& answers = static_cast<Faulty*>(store)->answers;
        const size_t given = std::min(count, answers.size());
        std::copy_n(answers.begin(), given, out);
        answers.erase(answers.begin(), answers.begin() + static_cast<std::ptrdiff_t>(given));
        return given;
      },
      .fd = [](void*) { return -1; },
  };
};
Faulty* Faulty::current = nullptr;

shunt_store_completion Answer(uint64_t token, uint32_t code) {
  shunt_store_completion answer{};
  answer.token = token;
  answer.code = code;
  std::memset(answer.words, 'w', sizeof(answer.words));  // no zero byte
  return answer;
}

TEST_CASE("libraries that are no plugin are refused with words") {
  const shunt::testing::TempDir directory;
  std::ofstream(directory / "text.so") << "text";
  CHECK(PluginStore::Load("plugin.so", "").status().code() == StatusCode::kInvalidArgument);
  CHECK(PluginStore::Load(directory / "absent.so", "").status().code() == StatusCode::kNotFound);
  CHECK(PluginStore::Load(directory / "text.so", "").status().code() == StatusCode::kNotFound);
  const auto bad = PluginStore::Load(PluginPath(), "what");
  CHECK(bad.status().code() == StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(bad.status().message()),
             Catch::Contains(PluginPath()) && Catch::Contains("'what'"));
}

TEST_CASE("a library that others may change is refused, and so is one in a directory of theirs") {
  const shunt::testing::TempDir directory;
  const std::string inner = directory / "lib", library = inner + "/p.so";
  REQUIRE(::mkdir(inner.c_str(), 0755) == 0);
  std::filesystem::copy_file(PluginPath(), library);
  REQUIRE(::symlink(library.c_str(), (directory / "link.so").c_str()) == 0);
  const auto check = [](const std::string& path) { return PluginStore::Resolve(path).status(); };
  const auto refused = [&](const std::string& path, const std::string& words) {
    const absl::Status status = check(path);
    CHECK(status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(std::string(status.message()),
               Catch::Contains(words) && Catch::Contains("expected owner 0"));
    // Nobody makes a store of it, either.
    CHECK(PluginStore::Load(path, "").status() == status);
  };
  for (const ::mode_t mode : {0775, 0757}) {
    const std::string words = mode == 0775 ? "mode 0775" : "mode 0757";
    REQUIRE(::chmod(library.c_str(), mode) == 0);
    refused(library, "library " + library);
    refused(library, words);
    refused(directory / "link.so", "library " + library);
    REQUIRE(::chmod(library.c_str(), 0755) == 0);
    REQUIRE(::chmod(inner.c_str(), mode) == 0);
    refused(library, "directory " + inner + " has");
    refused(library, words);
    refused(directory / "link.so", "directory " + inner + " has");
    REQUIRE(::chmod(inner.c_str(), 0755) == 0);
  }
  REQUIRE(::chmod(directory.path().c_str(), 0777) == 0);
  refused(directory / "link.so", "mode 0777");
  CHECK(check(library).ok());
  REQUIRE(::chmod(directory.path().c_str(), 0700) == 0);
  CHECK(check(directory / "link.so").ok());
  if (::geteuid() != 0) return;  // who else may not give files away
  for (const std::string& place : {library, inner}) {
    REQUIRE(::chown(place.c_str(), 12345, 0) == 0);
    refused(library, place + " has owner 12345");
    REQUIRE(::chown(place.c_str(), 0, 0) == 0);
  }
}

TEST_CASE("tables of another version or with holes are refused") {
  const auto code = [](const shunt_store_plugin* table) {
    return PluginStore::Make(table, "").status().code();
  };
  CHECK(code(nullptr) == StatusCode::kFailedPrecondition);
  Faulty faulty;
  CHECK(code(&faulty.table) == StatusCode::kOk);
  shunt_store_plugin newer = faulty.table;
  newer.version = SHUNT_STORE_PLUGIN_VERSION + 1;
  CHECK(code(&newer) == StatusCode::kFailedPrecondition);
  shunt_store_plugin shorter = faulty.table;
  shorter.size -= 1;
  CHECK(code(&shorter) == StatusCode::kFailedPrecondition);
  shunt_store_plugin holes = faulty.table;
  holes.cancel = nullptr;
  CHECK(code(&holes) == StatusCode::kFailedPrecondition);
}

TEST_CASE("completions of nothing are dropped, odd ones made safe") {
  Faulty faulty;
  auto store = PluginStore::Make(&faulty.table, "");
  REQUIRE(store.ok());
  (*store)->PostOpen({.container = "c", .name = "n"}, 7);
  faulty.answers = {Answer(99, 0), Answer(7, 1000), Answer(7, 0)};
  Completion out[4];
  REQUIRE((*store)->Poll(absl::MakeSpan(out)) == 1);
  CHECK(out[0].token == 7);
  CHECK(out[0].status.code() == StatusCode::kInternal);
  CHECK(out[0].status.message().size() < 700);
  CHECK((*store)->stray_completions() == 2);
  (*store)->PostOpen({.descriptor = UniqueFd(::open("/dev/null", 0))}, 8);
  (*store)->PostOpen({.container = "c", .name = "n", .access = Access::kReadWrite}, 9);
  (*store)->PostSync(1, kNeverNs, 10);
  REQUIRE((*store)->Poll(absl::MakeSpan(out)) == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(out[i].token == 8u + i);  // as they were posted
    CHECK(out[i].status.code() == StatusCode::kUnimplemented);
  }
}

TEST_CASE("a plugin that makes no store, and says that it has, is refused") {
  Faulty faulty;
  faulty.table.create = [](const char*, void**, char*, size_t) -> uint32_t {
    return SHUNT_STORE_OK;
  };
  faulty.table.destroy = [](void*) { FAIL("nothing was made"); };
  const auto store = PluginStore::Make(&faulty.table, "");
  CHECK(store.status().code() == StatusCode::kInternal);
  CHECK_THAT(std::string(store.status().message()), Catch::Contains("'faulty'"));
}

TEST_CASE("a plugin's words come without their control characters") {
  Faulty faulty;
  auto store = PluginStore::Make(&faulty.table, "");
  REQUIRE(store.ok());
  (*store)->PostOpen({.container = "c", .name = "n"}, 7);
  shunt_store_completion answer{};
  answer.token = 7;
  answer.code = SHUNT_STORE_NOT_FOUND;
  std::strcpy(answer.words, "a\n\x1b[2Jb");
  faulty.answers = {answer};
  Completion out;
  REQUIRE((*store)->Poll(absl::MakeSpan(&out, 1)) == 1);
  CHECK(out.status.message() == "a??[2Jb");
}

}  // namespace
}  // namespace shunt::storage::testing
