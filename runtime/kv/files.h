// What a store does to its directory, as a seam: tests put a disk behind it that fails, or loses
// its power, at any step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::tiers {

// A file that is written. One thread at a time.
class LogFile {
 public:
  virtual ~LogFile() = default;
  // All of `bytes`, at `offset`. After a failure any part of them may be there.
  virtual absl::Status Write(uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Nothing is left behind `bytes`.
  virtual absl::Status Cut(uint64_t bytes) = 0;
  // What was written is on the disk. After a failure it is not known which part is.
  virtual absl::Status Sync() = 0;
};

class LogDirectory {
 public:
  virtual ~LogDirectory() = default;
  // For words.
  virtual const std::string& path() const = 0;
  // NOT_FOUND if there is none.
  virtual absl::StatusOr<std::vector<std::byte>> Read(std::string_view name) = 0;
  virtual absl::StatusOr<std::unique_ptr<LogFile>> Open(std::string_view name) = 0;
  // New, or emptied.
  virtual absl::StatusOr<std::unique_ptr<LogFile>> Create(std::string_view name) = 0;
  virtual absl::Status Rename(std::string_view from, std::string_view to) = 0;
  // OK also if there is none.
  virtual absl::Status Remove(std::string_view name) = 0;
  // Names are on the disk.
  virtual absl::Status Sync() = 0;
};

// Where blocks lie, slot by slot.
class SlotFile {
 public:
  struct Piece {
    uint64_t slot = 0;
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
  };
  virtual ~SlotFile() = default;
  virtual absl::Status Write(std::span<const Piece> pieces) = 0;
  virtual absl::Status Sync() = 0;
};

}  // namespace shunt::tiers
