#include "runtime/storage/posix/leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/storage/posix/errors.h"

namespace shunt::storage {
namespace {

constexpr std::string_view kPrefix = "draft-";
constexpr size_t kDigits = 32;

}  // namespace

std::string MakeDraftName() {
  uint64_t random[2];
  SHUNT_CHECK(::getrandom(random, sizeof(random), 0) == sizeof(random));
  return absl::StrCat(absl::string_view(kPrefix.data(), kPrefix.size()),
                      absl::Hex(random[0], absl::kZeroPad16),
                      absl::Hex(random[1], absl::kZeroPad16));
}

bool IsDraftName(std::string_view name) {
  if (name.size() != kPrefix.size() + kDigits || !name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

absl::Status RemoveLeftovers(UniqueFd directory, std::string_view what) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(directory.get()), ::closedir);
  if (entries == nullptr) return FileError(errno, what);
  const int at = directory.Release();  // closedir closes it
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(entries.get());
    if (entry == nullptr) break;
    if (!IsDraftName(entry->d_name)) continue;
    // To be written: over NFS a lock is had on no other descriptor.
    UniqueFd fd(::openat(at, entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct ::stat info;
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;  // its writer lives
    if (::unlinkat(at, entry->d_name, 0) != 0 && errno != ENOENT) {
      return FileError(
          errno, absl::StrCat(absl::string_view(what.data(), what.size()), ": ", entry->d_name));
    }
  }
  return errno == 0 ? absl::OkStatus() : FileError(errno, what);
}

}  // namespace shunt::storage
