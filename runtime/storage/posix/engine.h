// Single reads and writes of files, many at once. One interface for io_uring and for threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace shunt::storage {

struct Io {
  int fd = -1;
  bool write = false;
  uint64_t offset = 0;
  std::byte* memory = nullptr;
  uint32_t bytes = 0;
  // Not to be tried on the owner's thread first, where it might wait for others than the disk.
  bool slow = false;
  uint64_t id = 0;
};

struct IoResult {
  uint64_t id = 0;
  int result = 0;  // bytes, or a negative errno
};

// One thread owns it. The owner keeps to the queue depth that it was made with.
class Engine {
 public:
  virtual ~Engine() = default;  // nothing is in flight then
  virtual const char* name() const = 0;
  virtual void Post(const Io& io) = 0;
  // What was posted leaves here, so that many go in one system call.
  virtual void Flush() = 0;
  virtual bool Reap(IoResult* result) = 0;
  // Memory that many will use; a hint.
  virtual void AddMemory(absl::Span<std::byte> memory) = 0;
  virtual void RemoveMemory(absl::Span<std::byte> memory) = 0;
};

// Both add to the event descriptor `wake_fd`, which outlives them, when there is something to reap.
// RESOURCE_EXHAUSTED if not even one thread can be had.
absl::StatusOr<std::unique_ptr<Engine>> MakeThreadEngine(uint32_t threads, int wake_fd);
// UNIMPLEMENTED if the build, the kernel or a seccomp filter has no io_uring.
absl::StatusOr<std::unique_ptr<Engine>> MakeUringEngine(uint32_t queue_depth, int wake_fd);

}  // namespace shunt::storage
