// The only file that knows liburing.
#include <liburing.h>
#include <sys/uio.h>

#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/fd.h"
#include "runtime/core/status.h"
#include "runtime/storage/posix/engine.h"

namespace shunt::storage {
namespace {

constexpr unsigned kBuffersMax = 256;
constexpr size_t kBufferBytesMax = size_t{1} << 30;  // the kernel's, for one registered buffer

class UringEngine : public Engine {
 public:
  UringEngine() = default;
  ~UringEngine() override {
    if (up_) ::io_uring_queue_exit(&ring_);
  }

  absl::Status Start(uint32_t queue_depth, int wake_fd) {
    io_uring_params params{};
    // Completions are taken in at this thread's next system call instead of by interrupting it
    // (Linux 5.19).
    params.flags = IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    int result = ::io_uring_queue_init_params(queue_depth, &ring_, &params);
    if (result == -EINVAL) {
      params = {};
      params.flags = IORING_SETUP_CLAMP;
      result = ::io_uring_queue_init_params(queue_depth, &ring_, &params);
    }
    if (result < 0) return Forbidden(-result, "io_uring_setup");
    up_ = true;
    wake_fd_ = wake_fd;
    result = ::io_uring_register_eventfd(&ring_, wake_fd);
    if (result < 0) return Forbidden(-result, "io_uring_register(eventfd)");
    // Older kernels have no table that can change; then no memory is registered.
    if (::io_uring_register_buffers_sparse(&ring_, kBuffersMax) == 0) {
      for (unsigned slot = kBuffersMax; slot-- > 0;) free_slots_.push_back(slot);
    }
    return absl::OkStatus();
  }

  const char* name() const override { return "io_uring"; }

  void Post(const Io& io) override {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
      Flush();
      sqe = ::io_uring_get_sqe(&ring_);
    }
    SHUNT_CHECK(sqe != nullptr);
    const int buffer = BufferOf(io);
    if (buffer >= 0 && io.write) {
      ::io_uring_prep_write_fixed(sqe, io.fd, io.memory, io.bytes, io.offset, buffer);
    } else if (buffer >= 0) {
      ::io_uring_prep_read_fixed(sqe, io.fd, io.memory, io.bytes, io.offset, buffer);
    } else if (io.write) {
      ::io_uring_prep_write(sqe, io.fd, io.memory, io.bytes, io.offset);
    } else {
      ::io_uring_prep_read(sqe, io.fd, io.memory, io.bytes, io.offset);
    }
    if (io.slow) ::io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    ::io_uring_sqe_set_data64(sqe, io.id);
  }

  void Flush() override {
    while (::io_uring_sq_ready(&ring_) > 0) {
      const int result = ::io_uring_submit(&ring_);
      // Out of memory, or completions are to be taken in first: the next Flush tries again.
      if (result == -EAGAIN || result == -EBUSY) return SignalEventFd(wake_fd_);
      SHUNT_CHECK(result > 0 || result == -EINTR);
    }
  }

  bool Reap(IoResult* result) override {
    io_uring_cqe* cqe = nullptr;
    if (::io_uring_peek_cqe(&ring_, &cqe) != 0 || cqe == nullptr) return false;
    *result = {.id = ::io_uring_cqe_get_data64(cqe), .result = cqe->res};
    ::io_uring_cqe_seen(&ring_, cqe);
    return true;
  }

  // In parts that the kernel takes. What it does not take, for want of locked memory or because
  // a file lies behind it, goes unregistered; so does a part of which some is registered already.
  void AddMemory(absl::Span<std::byte> memory) override {
    for (size_t at = 0; at < memory.size() && !free_slots_.empty(); at += kBufferBytesMax) {
      const absl::Span<std::byte> part = memory.subspan(at, kBufferBytesMax);
      const auto above = buffers_.upper_bound(part.data());
      if (above != buffers_.end() && above->second.begin < part.data() + part.size()) continue;
      const unsigned slot = free_slots_.back();
      if (!Register(slot, part)) return;
      free_slots_.pop_back();
      buffers_[part.data() + part.size()] = {part.data(), slot};
    }
  }

  void RemoveMemory(absl::Span<std::byte> memory) override {
    auto buffer = buffers_.upper_bound(memory.data());
    while (buffer != buffers_.end() && buffer->second.begin < memory.data() + memory.size()) {
      SHUNT_CHECK(Register(buffer->second.slot, {}));
      free_slots_.push_back(buffer->second.slot);
      buffer = buffers_.erase(buffer);
    }
  }

 private:
  static absl::Status Forbidden(int err, const char* what) {
    const absl::Status status = ErrnoStatus(err, what);
    const bool forbidden = err == ENOSYS || err == EPERM || err == EACCES || err == ENOMEM;
    return forbidden ? absl::UnimplementedError(status.message()) : status;
  }

  bool Register(unsigned slot, absl::Span<std::byte> memory) {
    const iovec part{memory.data(), memory.size()};
    const __u64 no_tag = 0;
    return ::io_uring_register_buffers_update_tag(&ring_, slot, &part, &no_tag, 1) == 1;
  }

  // The slot of the registered buffer that holds all of the memory, or -1.
  int BufferOf(const Io& io) const {
    const auto buffer = buffers_.upper_bound(io.memory);
    if (buffer == buffers_.end() || io.memory < buffer->second.begin) return -1;
    return io.memory + io.bytes <= buffer->first ? static_cast<int>(buffer->second.slot) : -1;
  }

  struct Buffer {
    std::byte* begin = nullptr;
    unsigned slot = 0;
  };
  io_uring ring_{};
  bool up_ = false;
  int wake_fd_ = -1;
  std::map<std::byte*, Buffer> buffers_;  // by their ends
  std::vector<unsigned> free_slots_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeUringEngine(uint32_t queue_depth, int wake_fd) {
  auto engine = std::make_unique<UringEngine>();
  SHUNT_RETURN_IF_ERROR(engine->Start(queue_depth, wake_fd));
  return engine;
}

}  // namespace shunt::storage
