#include "runtime/storage/plugin/trusted.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/core/status.h"

namespace shunt::storage {
namespace {

constexpr ::mode_t kNotOurs = S_IWGRP | S_IWOTH;

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status CheckPlace(const char* kind, const std::string& path) {
  struct ::stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("store plugin: looking at ", kind, " ", path));
  }
  const ::uid_t me = ::geteuid();
  if ((info.st_uid == 0 || info.st_uid == me) && (info.st_mode & kNotOurs) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrFormat(
      "store plugin: %s %s has owner %d and mode %04o, expected owner 0%s and no writing by "
      "group or others",
      kind, path, info.st_uid, info.st_mode & 07777, me == 0 ? "" : absl::StrCat(" or ", me)));
}

}  // namespace

absl::Status CheckTrusted(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("store plugin: looking for library ", path));
  }
  SHUNT_RETURN_IF_ERROR(CheckPlace("directory", DirectoryOf(path)));
  SHUNT_RETURN_IF_ERROR(CheckPlace("directory", DirectoryOf(real.get())));
  return CheckPlace("library", real.get());
}

}  // namespace shunt::storage
