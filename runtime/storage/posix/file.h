// An open regular file, with a second descriptor for O_DIRECT where that works.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/storage/posix/split.h"
#include "runtime/storage/store.h"

namespace shunt::storage {

struct File {
  UniqueFd fd;
  UniqueFd direct;  // the same file, O_DIRECT; or none
  Blocks blocks;
  bool writable = false;
  bool slow = true;    // its file system may wait for others than the machine's own disks
  std::string label;   // for errors: its path
  uint64_t bytes = 0;  // when it was opened
};

// Checks a descriptor from a client: a regular file, opened for `access`, not for appending.
// INVALID_ARGUMENT or PERMISSION_DENIED otherwise. The client keeps its own; the flags of the open
// file, which both share, are not changed.
absl::StatusOr<File> OpenDescriptor(UniqueFd fd, Access access, bool direct);

// Takes over a descriptor that the store itself opened. INVALID_ARGUMENT unless it is a regular
// file.
absl::StatusOr<File> AdoptFile(UniqueFd fd, bool writable, bool direct, std::string label);

// Opens the second descriptor. A file system without O_DIRECT leaves the file as it is.
void AddDirect(File* file);

// True unless it is one of the file systems that keep their data on this machine.
bool MayWaitForOthers(int fd);

// So that reads and writes wait for the disk.
void ClearNonBlocking(int fd);

// What the file's size is now, as far as this machine knows. Never blocks: no server of a network
// file system is asked, and no process behind FUSE.
uint64_t SizeNow(const File& file);

}  // namespace shunt::storage
