#include "daemon/event_signal.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "runtime/core/fd.h"

namespace shunt::daemon {
namespace {

// One context for the process, made on first use and never destroyed.
class Aio {
 public:
  Aio() {
    file_ = static_cast<int>(::syscall(SYS_memfd_create, "shunt-signal", 1u /* MFD_CLOEXEC */));
    const char byte = 0;
    usable_ = file_ >= 0 && ::pwrite(file_, &byte, 1, 0) == 1 &&
              ::syscall(SYS_io_setup, 8, &context_) == 0;
  }

  bool Signal(int fd) {
    if (!usable_) return false;
    std::lock_guard lock(mutex_);
    char byte;
    iocb read{};
    read.aio_lio_opcode = IOCB_CMD_PREAD;
    read.aio_fildes = static_cast<uint32_t>(file_);
    read.aio_buf = reinterpret_cast<uint64_t>(&byte);
    read.aio_nbytes = 1;
    read.aio_flags = IOCB_FLAG_RESFD;
    read.aio_resfd = static_cast<uint32_t>(fd);
    iocb* list[] = {&read};
    if (::syscall(SYS_io_submit, context_, 1, list) != 1) return false;
    // A read of memory has completed by now; its event makes room for the next.
    io_event event;
    ::syscall(SYS_io_getevents, context_, 1, 1, &event, nullptr);
    return true;
  }

 private:
  std::mutex mutex_;
  aio_context_t context_ = 0;
  int file_ = -1;
  bool usable_ = false;
};

}  // namespace

absl::Status CheckEventFd(int fd) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  char target[64] = {};
  const ssize_t length = ::readlink(path, target, sizeof(target) - 1);
  if (length < 0 || std::strcmp(target, "anon_inode:[eventfd]") != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor is \"", target, "\"; expected an eventfd"));
  }
  return absl::OkStatus();
}

void SignalClientEventFd(int fd) {
  static Aio* const aio = new Aio;
  if (aio->Signal(fd)) return;
  // No asynchronous I/O here (a container's filter): skip what would block. A full counter is
  // readable already.
  pollfd p{fd, POLLOUT, 0};
  if ((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 || ::poll(&p, 1, 0) == 1) SignalEventFd(fd);
}

}  // namespace shunt::daemon
