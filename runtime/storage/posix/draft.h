// A file that is being written whole: nobody sees it before Commit, and after Commit all of it.
//
//   O_TMPFILE ─► write ─► fsync ─┬─ link to its name ──────────────────────► fsync of directory
//   (or a temporary name)        └─ link to a temporary name ─► rename over ─►
//                                   (if there is a file by its name)
//
// A process that dies leaves nothing where the file never had a name, else a temporary name that
// the next start removes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/storage/posix/file.h"
#include "runtime/storage/posix/options.h"
#include "runtime/storage/posix/root.h"

namespace shunt::storage {

// Blocks. One thread at a time.
class Draft {
 public:
  // Reserves the space: RESOURCE_EXHAUSTED if the disk, a quota or a limit has not so much.
  // PERMISSION_DENIED where another file system is mounted below the root: no rename reaches it.
  static absl::StatusOr<Draft> Begin(const Root& root, std::string_view name, uint64_t bytes,
                                     bool if_absent, const PosixOptions& options);
  Draft(Draft&& other) noexcept;
  Draft& operator=(Draft&&) = delete;
  // Leaves no trace of a draft that was not committed.
  ~Draft();

  File& file() { return file_; }
  // Once. ALREADY_EXISTS if it must not replace an object; nothing is left of it after an error,
  // but UNKNOWN: then it is there and might not outlive a loss of power.
  absl::Status Commit();

 private:
  Draft() = default;
  absl::Status OpenUnnamed(uint32_t mode);
  absl::Status OpenNamed(uint32_t mode);
  absl::Status Allocate(uint64_t bytes);
  absl::Status Publish();
  absl::Status GiveTemporaryName();
  absl::Status CheckTarget() const;
  absl::Status CheckMount() const;
  void Pass(DraftStep step) const;

  File file_;
  Root::Place place_;
  UniqueFd partial_;       // directory of temporary names
  std::string temporary_;  // the name there; empty if it has none
  bool if_absent_ = false;
  std::function<void(DraftStep)> hook_;
};

}  // namespace shunt::storage
