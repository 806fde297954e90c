#include "runtime/storage/posix/draft.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/storage/posix/errors.h"
#include "runtime/storage/posix/leftovers.h"

namespace shunt::storage {
namespace {

// Whether the file can't be made without a name here: file systems say it in these ways.
bool NoUnnamedFiles(int err) { return err == EOPNOTSUPP || err == EISDIR || err == ENOENT; }

}  // namespace

Draft::Draft(Draft&& other) noexcept
    : file_(std::move(other.file_)),
      place_(std::move(other.place_)),
      partial_(std::move(other.partial_)),
      temporary_(std::exchange(other.temporary_, {})),
      if_absent_(other.if_absent_),
      hook_(std::move(other.hook_)) {}

Draft::~Draft() {
  if (!temporary_.empty()) ::unlinkat(partial_.get(), temporary_.c_str(), 0);
}

void Draft::Pass(DraftStep step) const {
  if (hook_) hook_(step);
}

absl::StatusOr<Draft> Draft::Begin(const Root& root, std::string_view name, uint64_t bytes,
                                   bool if_absent, const PosixOptions& options) {
  Draft draft;
  draft.hook_ = options.draft_hook;
  draft.if_absent_ = if_absent;
  draft.file_.label = root.LabelOf(name);
  draft.file_.writable = true;
  SHUNT_ASSIGN_OR_RETURN(draft.place_, root.Find(name));
  SHUNT_RETURN_IF_ERROR(draft.CheckTarget());
  SHUNT_ASSIGN_OR_RETURN(draft.partial_, root.OpenPartialDirectory());
  SHUNT_RETURN_IF_ERROR(draft.CheckMount());
  absl::Status opened = absl::UnimplementedError("");
  if (options.unnamed_drafts) opened = draft.OpenUnnamed(options.file_mode);
  if (absl::IsUnimplemented(opened)) opened = draft.OpenNamed(options.file_mode);
  SHUNT_RETURN_IF_ERROR(opened);
  draft.Pass(DraftStep::kOpened);
  SHUNT_RETURN_IF_ERROR(draft.Allocate(bytes));
  draft.Pass(DraftStep::kAllocated);
  draft.file_.slow = MayWaitForOthers(draft.file_.fd.get());
  if (options.direct) AddDirect(&draft.file_);
  return draft;
}

// What is there by the draft's name may only be a file that it replaces.
absl::Status Draft::CheckTarget() const {
  struct ::stat info;
  if (::fstatat(place_.directory.get(), place_.leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : FileError(errno, file_.label);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.label, " is not a regular file, expected a file or nothing"));
  }
  if (if_absent_) {
    return absl::AlreadyExistsError(
        absl::StrCat(file_.label, " exists, expected no object by that name"));
  }
  return absl::OkStatus();
}

// Now, rather than at the commit. A bind mount has the device that it shows, and refuses too.
absl::Status Draft::CheckMount() const {
  struct ::statx at[2];
  const int fds[2] = {place_.directory.get(), partial_.get()};
  for (int i = 0; i < 2; ++i) {
    // A filter that forbids this leaves it to the commit.
    if (::statx(fds[i], "", AT_EMPTY_PATH, STATX_MNT_ID, &at[i]) != 0) return absl::OkStatus();
  }
  if (at[0].stx_dev_major == at[1].stx_dev_major && at[0].stx_dev_minor == at[1].stx_dev_minor &&
      at[0].stx_mnt_id == at[1].stx_mnt_id) {
    return absl::OkStatus();
  }
  return FileError(EXDEV, absl::StrCat(file_.label, " lies in another file system than ",
                                       kPartialDirectory, " of its root, expected the same"));
}

absl::Status Draft::OpenUnnamed(uint32_t mode) {
  file_.fd.Reset(::openat(place_.directory.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode));
  if (file_.fd.valid()) return absl::OkStatus();
  if (NoUnnamedFiles(errno)) return absl::UnimplementedError("");
  return FileError(errno, absl::StrCat(file_.label, ": a new file in its directory"));
}

absl::Status Draft::OpenNamed(uint32_t mode) {
  for (;;) {
    const std::string name = MakeDraftName();
    file_.fd.Reset(::openat(partial_.get(), name.c_str(),
                            O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file_.fd.valid()) {
      if (errno == EEXIST) continue;
      return FileError(errno, absl::StrCat(file_.label, ": a temporary file for it"));
    }
    temporary_ = name;
    // Between creation and lock another process that starts may have taken it for a leftover.
    if (::flock(file_.fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        ::unlinkat(partial_.get(), name.c_str(), 0);  // if it has not been removed yet
        continue;
      }
      return FileError(errno, absl::StrCat(file_.label, ": a lock on its temporary file"));
    }
    struct ::stat info;
    if (::fstat(file_.fd.get(), &info) == 0 && info.st_nlink == 1) return absl::OkStatus();
  }
}

absl::Status Draft::Allocate(uint64_t bytes) {
  file_.bytes = bytes;
  if (bytes == 0) return absl::OkStatus();
  const std::string what = absl::StrCat(file_.label, ": ", bytes, " bytes for it");
  if (bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    return FileError(EFBIG, what);
  }
  const auto length = static_cast<off_t>(bytes);
  int result = ::fallocate(file_.fd.get(), 0, 0, length);
  // Without reservations a full disk is seen while writing.
  if (result != 0 && errno == EOPNOTSUPP) result = ::ftruncate(file_.fd.get(), length);
  return result == 0 ? absl::OkStatus() : FileError(errno, what);
}

absl::Status Draft::Commit() {
  if (::fsync(file_.fd.get()) != 0) return FileError(errno, absl::StrCat(file_.label, ": fsync"));
  Pass(DraftStep::kSynced);
  SHUNT_RETURN_IF_ERROR(Publish());
  Pass(DraftStep::kPublished);
  if (::fsync(place_.directory.get()) != 0) {
    return absl::UnknownError(absl::StrCat(
        FileError(errno, absl::StrCat(file_.label, ": fsync of its directory")).message(),
        "; the file is there and might not outlive a loss of power"));
  }
  Pass(DraftStep::kDirectorySynced);
  return absl::OkStatus();
}

absl::Status Draft::Publish() {
  const std::string self = absl::StrCat("/proc/self/fd/", file_.fd.get());
  const int directory = place_.directory.get();
  const char* leaf = place_.leaf.c_str();
  if (temporary_.empty()) {
    if (::linkat(AT_FDCWD, self.c_str(), directory, leaf, AT_SYMLINK_FOLLOW) == 0) {
      return absl::OkStatus();
    }
    if (errno != EEXIST || if_absent_) return FileError(errno, file_.label);
  }
  SHUNT_RETURN_IF_ERROR(CheckTarget());
  if (temporary_.empty()) SHUNT_RETURN_IF_ERROR(GiveTemporaryName());
  Pass(DraftStep::kNamed);
  const unsigned flags = if_absent_ ? RENAME_NOREPLACE : 0;
  int result = ::renameat2(partial_.get(), temporary_.c_str(), directory, leaf, flags);
  if (result != 0 && if_absent_ && errno == EINVAL) {
    // A file system without that flag; a link does not replace either, and the temporary name goes
    // with the draft.
    if (::linkat(partial_.get(), temporary_.c_str(), directory, leaf, 0) == 0) {
      return absl::OkStatus();
    }
  }
  if (result != 0) return FileError(errno, file_.label);
  temporary_.clear();
  return absl::OkStatus();
}

absl::Status Draft::GiveTemporaryName() {
  const std::string what = absl::StrCat(file_.label, ": a temporary name for it");
  const std::string self = absl::StrCat("/proc/self/fd/", file_.fd.get());
  if (::flock(file_.fd.get(), LOCK_EX | LOCK_NB) != 0) return FileError(errno, what);
  for (;;) {
    const std::string name = MakeDraftName();
    if (::linkat(AT_FDCWD, self.c_str(), partial_.get(), name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      return absl::OkStatus();
    }
    if (errno != EEXIST) return FileError(errno, what);
  }
}

}  // namespace shunt::storage
