#include "bench/perf/direct_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <latch>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

class Memory {
 public:
  explicit Memory(size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (ok()) ::munmap(data_, bytes_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  char* data() const { return static_cast<char*>(data_); }

 private:
  const size_t bytes_;
  void* const data_;
};

}  // namespace

absl::StatusOr<double> DirectIoUs(const std::string& path, const Cut& cut, const Side& side,
                                  int threads, bool write) {
  const UniqueFd fd(::open(path.c_str(), (write ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat(path, ": open with O_DIRECT"));
  Memory memory(cut.bytes());
  if (!memory.ok()) return ErrnoStatus(errno, absl::StrCat("mmap of ", cut.bytes(), " bytes"));
  if (write) {
    for (uint64_t i = 0; i < cut.bytes(); ++i) memory.data()[i] = static_cast<char>(ByteAt(i));
  }

  std::atomic<uint64_t> next{0};
  std::atomic<int> error{0};
  std::latch ready(threads + 1);
  const auto work = [&] {
    ready.arrive_and_wait();
    for (uint64_t i = next++; i < cut.pieces && error == 0; i = next++) {
      const uint64_t offset = side.id(i) * cut.piece_bytes;
      const iovec piece{memory.data() + offset, cut.piece_bytes};
      const auto at = static_cast<off_t>(offset);
      const ssize_t moved =
          write ? ::pwritev(fd.get(), &piece, 1, at) : ::preadv(fd.get(), &piece, 1, at);
      if (moved != static_cast<ssize_t>(cut.piece_bytes)) error = moved < 0 ? errno : EIO;
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  ready.arrive_and_wait();
  const int64_t begun = NowNs();
  for (std::thread& worker : workers) worker.join();
  if (write && ::fsync(fd.get()) != 0) error = errno;
  const int64_t ended = NowNs();
  if (error != 0) {
    return ErrnoStatus(error,
                       absl::StrCat(path, ": pieces of ", cut.piece_bytes, " bytes with O_DIRECT"));
  }
  return static_cast<double>(ended - begun) / 1e3;
}

}  // namespace shunt::bench
