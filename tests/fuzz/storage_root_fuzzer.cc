// File names from clients: whatever they are, only what lies below the root is reached.
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "runtime/core/check.h"
#include "runtime/storage/posix/leftovers.h"
#include "runtime/storage/posix/root.h"
#include "tests/support/temp_dir.h"

namespace {

using shunt::storage::Access;
using shunt::storage::Root;

ino_t InodeOf(int fd) {
  struct stat info;
  SHUNT_CHECK(::fstat(fd, &info) == 0);
  return info.st_ino;
}
ino_t InodeOf(const std::string& path) {
  struct stat info;
  SHUNT_CHECK(::stat(path.c_str(), &info) == 0);
  return info.st_ino;
}

// Files "a" and "d/a", links out of the root of both kinds, a reserved directory with a file.
struct Tree {
  shunt::testing::TempDir directory;
  Root root;
  std::set<ino_t> files, directories;

  static Tree& Get() {
    static Tree tree;
    return tree;
  }

 private:
  Tree() : root(Make()) {
    files = {InodeOf(directory / "r/a"), InodeOf(directory / "r/d/a")};
    directories = {InodeOf(directory / "r"), InodeOf(directory / "r/d")};
  }
  Root Make() {
    for (const char* name : {"r", "r/d", "r/.shunt-partial"}) {
      std::filesystem::create_directory(directory / name);
    }
    for (const char* name : {"a", "r/a", "r/d/a", "r/.shunt-partial/a"}) {
      std::ofstream(directory / name) << name;
    }
    std::filesystem::create_symlink("../a", directory / "r/l");
    std::filesystem::create_symlink("..", directory / "r/m");
    return *Root::Open("r", directory / "r");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view name(reinterpret_cast<const char*>(data), size);
  const Tree& tree = Tree::Get();
  if (const auto place = tree.root.Find(name); place.ok()) {
    SHUNT_CHECK(tree.directories.contains(InodeOf(place->directory.get())));
    SHUNT_CHECK(place->leaf.find('/') == std::string::npos && place->leaf != "..");
  }
  if (const auto file = tree.root.OpenFile(name, Access::kRead, /*direct=*/false); file.ok()) {
    SHUNT_CHECK(tree.files.contains(InodeOf(file->fd.get())));
  }
  if (shunt::storage::IsDraftName(name)) SHUNT_CHECK(name.size() == 38 && name[5] == '-');
  return 0;
}
