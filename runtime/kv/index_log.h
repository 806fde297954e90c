// The index on a disk: records appended to a file, which is written anew now and then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kv/files.h"
#include "runtime/kv/index_format.h"

namespace shunt::tiers {

// One thread at a time.
class IndexLog {
 public:
  static constexpr char kName[] = "index.log";

  // Reads the directory's index, or makes an empty one. `slots` is how many slots the file tier
  // has: blocks that lie further on are forgotten. FAILED_PRECONDITION: the file is no index, of
  // another version or of other slots; it is left as it is. `directory` outlives the log. The file
  // is written anew when it has more than twice the records that it needs, and `slack_records`.
  static absl::StatusOr<std::unique_ptr<IndexLog>> Open(LogDirectory* directory,
                                                        uint64_t slot_bytes, uint64_t slots,
                                                        uint64_t slack_records = 1024);

  // What was found to be wrong when it was opened, or "".
  const std::string& notes() const { return notes_; }
  const IndexContents& contents() const { return contents_; }
  uint64_t rewrites() const { return rewrites_; }

  // Whether what is on the disk is known; makes it so if it was not. What a failed Append was about
  // may be read at the next start until this has been OK: do not overwrite such slots before.
  absl::Status Repair() { return broken_ ? Rewrite() : absl::OkStatus(); }
  // All of them or, with an error, none. A process that is killed has them; a power cut may take
  // the last ones. INTERNAL: they do not follow from contents(), and nothing is written.
  absl::Status Append(std::span<const IndexRecord> records);
  // From now on a power cut takes nothing.
  absl::Status Sync();
  // A file of nothing but contents(), in the place of the present one; synced.
  absl::Status Rewrite();

 private:
  IndexLog(LogDirectory* directory, uint64_t slot_bytes, uint64_t slack_records)
      : directory_(directory), slot_bytes_(slot_bytes), slack_records_(slack_records) {}
  absl::Status Load(std::span<const std::byte> bytes, uint64_t slots);
  bool MostlyPast() const { return records_ > 2 * contents_.size() + slack_records_; }

  LogDirectory* const directory_;
  const uint64_t slot_bytes_;
  const uint64_t slack_records_;
  IndexHeader header_;
  IndexContents contents_;
  std::unique_ptr<LogFile> file_;
  std::string notes_;
  uint64_t records_ = 0;  // in the file
  uint64_t rewrites_ = 0;
  bool unsynced_ = false;
  bool broken_ = false;
};

}  // namespace shunt::tiers
