// The tiers below memory, as the store's threads use them: they move bytes and know no order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/file.h"
#include "client/src/kv/mover.h"
#include "runtime/core/fd.h"
#include "runtime/kv/files.h"

namespace shunt::client::kv {

// A block, and the memory that it goes to.
struct Wanted {
  uint64_t slot = 0;  // of a file
  std::string key;    // of an object
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

// A file of slots that this process has opened and the daemon reads and writes. Reading and writing
// may go on at the same time; Write and Sync are one thread's.
class BlockFile final : public shunt::tiers::SlotFile {
 public:
  // `was_bytes` as in OpenSlots.
  static absl::StatusOr<std::unique_ptr<BlockFile>> Open(Mover* mover, const std::string& path,
                                                         uint64_t slots, uint64_t slot_bytes,
                                                         uint64_t* was_bytes);

  absl::Status Write(std::span<const Piece> pieces) override;
  absl::Status Sync() override;
  absl::Status Read(std::span<const Wanted> blocks, int64_t deadline_ns);

 private:
  BlockFile(Mover* mover, std::string path, uint64_t slot_bytes, UniqueFd fd)
      : mover_(mover), path_(std::move(path)), slot_bytes_(slot_bytes), fd_(std::move(fd)) {}

  Mover* const mover_;
  const std::string path_;
  const uint64_t slot_bytes_;
  const UniqueFd fd_;
  uint64_t region_ = 0;
  std::shared_ptr<const List> list_;
};

struct ObjectRead {
  absl::Status status;
  bool another = false;  // an object has its name, and is not the block
};

// One object for each block: its name is a prefix and the key in hexadecimal. Thread-safe.
class BlockObjects {
 public:
  // `place`: all but the key.
  BlockObjects(Mover* mover, ObjectPlace place, std::string prefix)
      : mover_(mover), place_(std::move(place)), prefix_(std::move(prefix)) {}

  // OK: the object is there, and durable.
  absl::Status Write(const std::string& key, const std::byte* data, uint64_t bytes);
  // An outcome for each. NOT_FOUND: there is no such object, or no such bucket or endpoint: the
  // server's answers do not tell.
  std::vector<ObjectRead> Read(std::span<const Wanted> blocks, int64_t deadline_ns);

 private:
  ObjectPlace Place(const std::string& key) const;
  void ReadOpened(std::span<const Wanted> blocks, std::span<const std::shared_ptr<File>> files,
                  int64_t deadline_ns, std::span<ObjectRead> outcomes);

  Mover* const mover_;
  const ObjectPlace place_;
  const std::string prefix_;
};

// Words of a failure of a tier, after what was tried.
absl::Status Because(const absl::Status& status, const std::string& what);

}  // namespace shunt::client::kv
