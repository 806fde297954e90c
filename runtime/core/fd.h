// Owners of what the kernel lends: descriptors and mappings. Move-only; the destructor gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace shunt {

// Owns a file descriptor, or none (-1).
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // The caller owns the descriptor from now on.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  // Closes what it owned and owns `fd` instead. Keeps errno.
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// A second descriptor (close-on-exec) of the same open file.
absl::StatusOr<UniqueFd> Duplicate(int fd);

// A new memory file of exactly `bytes` zero bytes, close-on-exec, sealed so that nobody can shrink,
// grow or unseal it: a mapping of it cannot be made to fault by truncation. It can still be punched
// full of holes, which read as zeros. `name` shows in /proc only. bytes > 0.
absl::StatusOr<UniqueFd> MakeSealedMemfd(const char* name, size_t bytes);

// What a receiver checks before it maps a file from someone else: `fd` is a memory file with the
// shrink and grow seals, of at least `bytes`. INVALID_ARGUMENT says what is wrong.
absl::Status CheckSealedMemfd(int fd, size_t bytes);

// Non-blocking, close-on-exec, count 0.
absl::StatusOr<UniqueFd> MakeEventFd();
// Adds one. Never blocks: a full counter is already readable. Async-signal-safe.
void SignalEventFd(int fd);
// Sets the count to zero; returns what it was (0 if it was not signalled).
uint64_t DrainEventFd(int fd);

// A pidfd for `pid`, close-on-exec. NOT_FOUND if there is no such process.
absl::StatusOr<UniqueFd> OpenPidFd(int pid);

// A shared mapping of a file.
class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { Reset(); }

  // Maps bytes [offset, offset + bytes) of `fd`, which may be closed afterwards. `offset` is a
  // multiple of the page size, `bytes` > 0. No page is touched. Touching a page beyond the file's
  // end raises SIGBUS: the caller knows the file's size and that it is sealed.
  static absl::StatusOr<Mapping> Map(int fd, size_t bytes, Access access = Access::kReadWrite,
                                     size_t offset = 0);

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool valid() const { return data_ != nullptr; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }
  void Reset();

 private:
  Mapping(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace shunt
