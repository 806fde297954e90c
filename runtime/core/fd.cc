#include "runtime/core/fd.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) {
    const int saved = errno;
    // Never repeated on EINTR: Linux has freed the number by then, and another thread may have it.
    ::close(fd_);
    errno = saved;
  }
  fd_ = fd;
}

absl::StatusOr<UniqueFd> Duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return ErrnoStatus(errno, absl::StrCat("duplicating descriptor ", fd));
  return UniqueFd(copy);
}

absl::StatusOr<UniqueFd> MakeSealedMemfd(const char* name, size_t bytes) {
  if (bytes == 0 || bytes > static_cast<size_t>(std::numeric_limits<off_t>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory file \"", name, "\": size ", bytes, " bytes is out of range"));
  }
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("creating memory file \"", name, "\""));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno,
                       absl::StrCat("sizing memory file \"", name, "\" to ", bytes, " bytes"));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sealing memory file \"", name, "\""));
  }
  return fd;
}

absl::Status CheckSealedMemfd(int fd, size_t bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is not a memory file that can be sealed"));
  }
  if ((seals & kSizeSeals) != kSizeSeals) {
    return absl::InvalidArgumentError(absl::StrCat("memory file ", fd, " has seals ", seals,
                                                   ", expected at least ", kSizeSeals,
                                                   " (shrink and grow)"));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "reading a memory file's size");
  if (static_cast<uint64_t>(info.st_size) < bytes) {
    return absl::InvalidArgumentError(absl::StrCat("memory file ", fd, " has ", info.st_size,
                                                   " bytes, expected at least ", bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> MakeEventFd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "creating an eventfd");
  return fd;
}

void SignalEventFd(int fd) {
  const uint64_t one = 1;
  const int saved = errno;
  while (::write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  errno = saved;
}

uint64_t DrainEventFd(int fd) {
  uint64_t count = 0;
  ssize_t got;
  do {
    got = ::read(fd, &count, sizeof(count));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof(count)) ? count : 0;
}

absl::StatusOr<UniqueFd> OpenPidFd(int pid) {
  // By number, because older C libraries lack the wrapper. The kernel sets close-on-exec.
  const long fd = ::syscall(SYS_pidfd_open, pid, 0);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("opening a pidfd of process ", pid));
  return UniqueFd(static_cast<int>(fd));
}

absl::StatusOr<Mapping> Mapping::Map(int fd, size_t bytes, Access access, size_t offset) {
  const int protection = access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return ErrnoStatus(
        errno, absl::StrCat("mapping ", bytes, " bytes of descriptor ", fd, " at offset ", offset));
  }
  return Mapping(static_cast<std::byte*>(data), bytes);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::Reset() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace shunt
