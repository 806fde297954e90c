#include "runtime/kv/index_log.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::tiers {
namespace {

constexpr char kNewName[] = "index.new";

uint64_t RandomId() {
  std::random_device source;
  return static_cast<uint64_t>(source()) << 32 | source();
}

uint64_t Place(uint64_t number) { return kIndexHeaderBytes + number * kIndexRecordBytes; }

}  // namespace

absl::StatusOr<std::unique_ptr<IndexLog>> IndexLog::Open(LogDirectory* directory,
                                                         uint64_t slot_bytes, uint64_t slots,
                                                         uint64_t slack_records) {
  std::unique_ptr<IndexLog> log(new IndexLog(directory, slot_bytes, slack_records));
  const auto bytes = directory->Read(kName);
  if (absl::IsNotFound(bytes.status())) {
    SHUNT_RETURN_IF_ERROR(log->Rewrite());
    log->rewrites_ = 0;
    return log;
  }
  SHUNT_RETURN_IF_ERROR(bytes.status());
  SHUNT_RETURN_IF_ERROR(log->Load(*bytes, slots));
  return log;
}

absl::Status IndexLog::Load(std::span<const std::byte> bytes, uint64_t slots) {
  const std::string path = absl::StrCat(directory_->path(), "/", kName);
  auto replayed = Replay(bytes);
  if (!replayed.ok()) {
    return absl::Status(
        replayed.status().code(),
        absl::StrCat(path, ": ", replayed.status().message(),
                     "; it is left as it is: give another directory, or remove it"));
  }
  if (replayed->header.slot_bytes != slot_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": its blocks have up to ", replayed->header.slot_bytes, " bytes, expected ",
        slot_bytes_, "; it is left as it is: give another directory, or remove it"));
  }
  header_ = replayed->header;
  records_ = replayed->records;
  contents_ = std::move(replayed->contents);
  SHUNT_RETURN_IF_ERROR(directory_->Remove(kNewName));
  SHUNT_ASSIGN_OR_RETURN(file_, directory_->Open(kName));
  // Or a power cut may bring back the file that had this name before, if a process was killed
  // between its rename and its sync: without what is appended from now on.
  SHUNT_RETURN_IF_ERROR(directory_->Sync());
  if (!replayed->why_stopped.empty()) {
    notes_ = absl::StrCat(path, ": cut ", replayed->why_stopped);
    // Or the next records would be followed by old ones.
    SHUNT_RETURN_IF_ERROR(file_->Cut(Place(records_)));
  }
  // A process that was killed may have left records that are not on the disk yet: slots that they
  // un-name must not be overwritten before they are.
  SHUNT_RETURN_IF_ERROR(file_->Sync());
  uint64_t beyond = 0;
  for (IndexRecord record : contents_.All()) {
    if (record.tier != Tier::kFile || record.slot < slots) continue;
    record.names = false;
    SHUNT_CHECK(contents_.Apply(record).ok());
    ++beyond;
  }
  if (beyond == 0) return absl::OkStatus();
  absl::StrAppend(&notes_, notes_.empty() ? "" : "; ", path, ": forgot ", beyond,
                  " blocks that lie behind the ", slots, " slots that there are now");
  return Rewrite();
}

absl::Status IndexLog::Append(std::span<const IndexRecord> records) {
  if (records.empty()) return absl::OkStatus();
  // The next start would cut the file there.
  if (absl::Status follows = contents_.Follow(records); !follows.ok()) {
    return absl::InternalError(absl::StrCat(directory_->path(), "/", kName,
                                            ": a record that cannot follow: ", follows.message()));
  }
  // A file that is longer than it need be is no reason to fail.
  if (MostlyPast() && !broken_) (void)Rewrite();
  SHUNT_RETURN_IF_ERROR(Repair());
  std::vector<std::byte> bytes;
  bytes.reserve(records.size() * kIndexRecordBytes);
  for (const IndexRecord& record : records) {
    AppendRecord(header_, records_ + bytes.size() / kIndexRecordBytes, record, &bytes);
  }
  if (absl::Status written = file_->Write(Place(records_), bytes); !written.ok()) {
    broken_ = true;
    return written;
  }
  unsynced_ = true;
  records_ += records.size();
  for (const IndexRecord& record : records) SHUNT_CHECK(contents_.Apply(record).ok());
  return absl::OkStatus();
}

absl::Status IndexLog::Sync() {
  SHUNT_RETURN_IF_ERROR(Repair());
  if (!unsynced_) return absl::OkStatus();
  if (absl::Status synced = file_->Sync(); !synced.ok()) {
    // The kernel may now hold for written what is not: only a new file helps.
    broken_ = true;
    return synced;
  }
  unsynced_ = false;
  return absl::OkStatus();
}

absl::Status IndexLog::Rewrite() {
  const uint64_t id = RandomId();
  const auto header = EncodeHeader(slot_bytes_, id);
  SHUNT_ASSIGN_OR_RETURN(const IndexHeader decoded, DecodeHeader(header));
  std::vector<std::byte> bytes(header.begin(), header.end());
  uint64_t records = 0;
  for (const IndexRecord& record : contents_.All()) {
    AppendRecord(decoded, records++, record, &bytes);
  }
  SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<LogFile> file, directory_->Create(kNewName));
  SHUNT_RETURN_IF_ERROR(file->Write(0, bytes));
  SHUNT_RETURN_IF_ERROR(file->Sync());
  // From here until the directory is synced either file may be the one that is read next: what is
  // appended to the new one before that would be lost with it.
  broken_ = true;
  SHUNT_RETURN_IF_ERROR(directory_->Rename(kNewName, kName));
  SHUNT_RETURN_IF_ERROR(directory_->Sync());
  file_ = std::move(file);
  header_ = decoded;
  records_ = records;
  unsynced_ = false;
  broken_ = false;
  ++rewrites_;
  return absl::OkStatus();
}

}  // namespace shunt::tiers
