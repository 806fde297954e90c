// What the owner of a posix store decides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shunt::storage {

enum class IoEngine : uint8_t {
  kAuto,     // io_uring, or threads where the kernel or a seccomp filter forbids it
  kUring,    // or an error
  kThreads,  // preads and pwrites
};

// Where a draft stands; each is passed once, in this order, if it is passed at all.
enum class DraftStep : uint8_t {
  kOpened,
  kAllocated,
  kSynced,
  kNamed,            // under its temporary name, complete (only if it replaces an object)
  kPublished,        // under its own name
  kDirectorySynced,  // and that is durable
};

struct PosixRoot {
  std::string name;  // OpenRequest::container
  std::string path;  // of a directory
};

struct PosixOptions {
  std::vector<PosixRoot> roots = {};
  IoEngine engine = IoEngine::kAuto;
  // Reads and writes at the kernel. Twice as many made a virtual disk read a tenth slower.
  uint32_t queue_depth = 32;
  uint32_t io_threads = 8;   // of kThreads
  uint32_t job_threads = 4;  // open, begin, commit, sync: what only blocking calls can do
  uint32_t io_bytes_max = 1 << 20;
  // O_DIRECT for whole blocks, where the file system has it.
  bool direct = true;
  // Drafts without a name (O_TMPFILE), where the file system has it.
  bool unnamed_drafts = true;
  uint32_t file_mode = 0640;  // of new files
  // Called on a thread of the store's: tests end the process there.
  std::function<void(DraftStep)> draft_hook = {};
};

}  // namespace shunt::storage
