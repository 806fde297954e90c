#include "runtime/kv/posix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::tiers {
namespace {

constexpr mode_t kFileMode = 0600;  // blocks are the user's data

// A read-only file system is no right to write.
absl::Status Failure(int err, const std::string& what) {
  const absl::Status status = ErrnoStatus(err, what);
  return err == EROFS ? absl::PermissionDeniedError(status.message()) : status;
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

class PosixFile final : public LogFile {
 public:
  PosixFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failure(errno, absl::StrCat("write ", path_));
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
  }
  absl::Status Cut(uint64_t bytes) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
    return Failure(errno, absl::StrCat("cut ", path_));
  }
  absl::Status Sync() override {
    if (::fdatasync(fd_.get()) == 0) return absl::OkStatus();
    return Failure(errno, absl::StrCat("sync ", path_));
  }

 private:
  const std::string path_;
  const UniqueFd fd_;
};

class PosixDirectory final : public LogDirectory {
 public:
  PosixDirectory(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  const std::string& path() const override { return path_; }

  absl::StatusOr<std::vector<std::byte>> Read(std::string_view name) override {
    SHUNT_ASSIGN_OR_RETURN(const UniqueFd fd, At(name, O_RDONLY));
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return Failed("look at", name);
    if (!S_ISREG(info.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(Whole(name), " is no regular file"));
    }
    std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
    size_t got = 0;
    while (got < bytes.size()) {
      const ssize_t n = ::read(fd.get(), bytes.data() + got, bytes.size() - got);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failed("read", name);
      if (n == 0) break;
      got += static_cast<size_t>(n);
    }
    bytes.resize(got);
    return bytes;
  }
  absl::StatusOr<std::unique_ptr<LogFile>> Open(std::string_view name) override {
    SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, At(name, O_RDWR));
    return std::make_unique<PosixFile>(Whole(name), std::move(fd));
  }
  absl::StatusOr<std::unique_ptr<LogFile>> Create(std::string_view name) override {
    SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, At(name, O_RDWR | O_CREAT | O_TRUNC));
    return std::make_unique<PosixFile>(Whole(name), std::move(fd));
  }
  absl::Status Rename(std::string_view from, std::string_view to) override {
    if (::renameat(fd_.get(), std::string(from).c_str(), fd_.get(), std::string(to).c_str()) != 0) {
      return Failed("rename", from);
    }
    return absl::OkStatus();
  }
  absl::Status Remove(std::string_view name) override {
    if (::unlinkat(fd_.get(), std::string(name).c_str(), 0) == 0 || errno == ENOENT) {
      return absl::OkStatus();
    }
    return Failed("remove", name);
  }
  absl::Status Sync() override {
    if (::fsync(fd_.get()) == 0) return absl::OkStatus();
    return Failure(errno, absl::StrCat("sync ", path_));
  }

 private:
  std::string Whole(std::string_view name) const { return absl::StrCat(path_, "/", View(name)); }
  absl::Status Failed(const char* what, std::string_view name) const {
    return Failure(errno, absl::StrCat(what, " ", Whole(name)));
  }
  absl::StatusOr<UniqueFd> At(std::string_view name, int flags) const {
    UniqueFd fd(
        ::openat(fd_.get(), std::string(name).c_str(), flags | O_CLOEXEC | O_NOFOLLOW, kFileMode));
    if (!fd.valid()) return Failed("open", name);
    return fd;
  }

  const std::string path_;
  const UniqueFd fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LogDirectory>> OpenLogDirectory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOTDIR) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no directory"));
  }
  if (!fd.valid()) return Failure(errno, absl::StrCat("open directory ", path));
  return std::make_unique<PosixDirectory>(path, std::move(fd));
}

absl::StatusOr<UniqueFd> LockDirectory(const std::string& path) {
  const std::string file = path + "/lock";
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!fd.valid()) return Failure(errno, absl::StrCat("open ", file));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return Failure(errno, absl::StrCat("lock ", file));
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is in use by another block store: expected a directory of this store's own"));
}

absl::StatusOr<UniqueFd> OpenSlots(const std::string& path, uint64_t bytes, uint64_t* was_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!fd.valid()) return Failure(errno, absl::StrCat("open ", path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return Failure(errno, absl::StrCat("look at ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file"));
  }
  *was_bytes = static_cast<uint64_t>(info.st_size);
  int failed = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (failed == 0 && ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) failed = errno;
  if (failed == 0 && ::fsync(fd.get()) != 0) failed = errno;
  if (failed != 0) {
    // What it took in vain is given back.
    (void)::ftruncate(fd.get(), info.st_size);
    return Failure(failed, absl::StrCat("make room for ", bytes, " bytes in ", path));
  }
  return fd;
}

}  // namespace shunt::tiers
