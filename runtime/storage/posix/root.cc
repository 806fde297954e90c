#include "runtime/storage/posix/root.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/core/status.h"
#include "runtime/storage/check.h"
#include "runtime/storage/posix/errors.h"
#include "runtime/storage/posix/leftovers.h"

namespace shunt::storage {
namespace {

constexpr size_t kNameBytesMax = 4095;  // PATH_MAX without its zero

absl::StatusOr<std::vector<std::string>> Components(std::string_view name) {
  SHUNT_RETURN_IF_ERROR(CheckName("file name", name, kNameBytesMax));
  std::vector<std::string> parts = absl::StrSplit(absl::string_view(name.data(), name.size()), '/');
  for (const std::string& part : parts) {
    // One name for each file: what is the same file must be seen to be.
    if (part.empty() || part == "." || part == "..") {
      return absl::InvalidArgumentError(absl::StrCat(
          "file name '", absl::CHexEscape(absl::string_view(name.data(), name.size())),
          "' has the component '", part, "', expected a relative path of plain names"));
    }
    // Anywhere: a directory below this root may be a root too, whose start clears it of drafts.
    if (part == kPartialDirectory) {
      return absl::PermissionDeniedError(
          absl::StrCat("file name '", absl::CHexEscape(absl::string_view(name.data(), name.size())),
                       "': '", part,
                       "' is reserved for files that are not complete, expected "
                       "another name"));
    }
  }
  return parts;
}

// Why opening `leaf` failed. A link is told apart: its errno is that of a missing directory.
absl::Status OpenFailed(int err, int directory, const std::string& leaf, const std::string& label) {
  struct ::stat info;
  if ((err == ELOOP || err == ENOTDIR) &&
      ::fstatat(directory, leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(info.st_mode)) {
    return absl::PermissionDeniedError(absl::StrCat(
        label, ": '", absl::CHexEscape(leaf), "' is a symbolic link, expected none below a root"));
  }
  return FileError(err, label);
}

}  // namespace

absl::StatusOr<Root> Root::Open(std::string name, std::string path) {
  const std::string what = absl::StrCat("root '", name, "' at ", path);
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return FileError(errno, what);
  Root root(std::move(name), std::move(path), std::move(directory));
  UniqueFd partial(::openat(root.directory_.get(), kPartialDirectory,
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (partial.valid()) {
    if (const absl::Status status = root.CheckPartialDirectory(partial.get()); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), " (", root.path_, ")"));
    }
    SHUNT_RETURN_IF_ERROR(RemoveLeftovers(std::move(partial), what));
  } else if (errno != ENOENT) {
    return FileError(errno, absl::StrCat(what, ": ", kPartialDirectory));
  }
  return root;
}

std::string Root::LabelOf(std::string_view name) const {
  return absl::StrCat(name_, "/", absl::CHexEscape(absl::string_view(name.data(), name.size())));
}

absl::StatusOr<Root::Place> Root::Find(std::string_view name) const {
  SHUNT_ASSIGN_OR_RETURN(const std::vector<std::string> parts, Components(name));
  Place place;
  place.leaf = parts.back();
  // A descriptor of its own, so that the root's is not closed with it.
  place.directory.Reset(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!place.directory.valid()) return FileError(errno, absl::StrCat("root '", name_, "'"));
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    UniqueFd next(::openat(place.directory.get(), parts[i].c_str(),
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid()) return OpenFailed(errno, place.directory.get(), parts[i], LabelOf(name));
    place.directory = std::move(next);
  }
  return place;
}

absl::StatusOr<File> Root::OpenFile(std::string_view name, Access access, bool direct) const {
  SHUNT_ASSIGN_OR_RETURN(const Place place, Find(name));
  const bool writable = access == Access::kReadWrite;
  // Without O_NONBLOCK a FIFO would wait here for its other end, and a file for who has a lease.
  UniqueFd fd(
      ::openat(place.directory.get(), place.leaf.c_str(),
               (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid()) return OpenFailed(errno, place.directory.get(), place.leaf, LabelOf(name));
  ClearNonBlocking(fd.get());
  return AdoptFile(std::move(fd), writable, direct, LabelOf(name));
}

absl::StatusOr<UniqueFd> Root::OpenPartialDirectory() const {
  const std::string what = absl::StrCat(name_, "/", kPartialDirectory);
  if (::mkdirat(directory_.get(), kPartialDirectory, 0700) != 0 && errno != EEXIST) {
    return FileError(errno, what);
  }
  UniqueFd fd(::openat(directory_.get(), kPartialDirectory,
                       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return FileError(errno, what);
  SHUNT_RETURN_IF_ERROR(CheckPartialDirectory(fd.get()));
  return fd;
}

// Who may write there could put another file in a draft's place. The root's own owner could anyway.
absl::Status Root::CheckPartialDirectory(int fd) const {
  const std::string what = absl::StrCat(name_, "/", kPartialDirectory);
  struct ::stat info, root;
  if (::fstat(fd, &info) != 0 || ::fstat(directory_.get(), &root) != 0) {
    return FileError(errno, what);
  }
  const bool ours = info.st_uid == ::geteuid() || info.st_uid == root.st_uid;
  if (ours && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(what, " belongs to user ", info.st_uid,
                   absl::StrFormat(" with mode %o", info.st_mode & 07777), ", expected user ",
                   ::geteuid(), " and no writing by others"));
}

}  // namespace shunt::storage
