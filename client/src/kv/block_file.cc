#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/kv/below.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/kv/posix_files.h"

namespace shunt::client::kv {
namespace {

constexpr std::chrono::seconds kOpenWithin(60);
// A batch on the slowest disk; what hangs longer is as good as gone.
constexpr std::chrono::seconds kWriteWithin(120);

}  // namespace

absl::Status Because(const absl::Status& status, const std::string& what) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

absl::StatusOr<std::unique_ptr<BlockFile>> BlockFile::Open(Mover* mover, const std::string& path,
                                                           uint64_t slots, uint64_t slot_bytes,
                                                           uint64_t* was_bytes) {
  SHUNT_ASSIGN_OR_RETURN(UniqueFd fd, shunt::tiers::OpenSlots(path, slots * slot_bytes, was_bytes));
  std::unique_ptr<BlockFile> file(new BlockFile(mover, path, slot_bytes, std::move(fd)));
  auto opened = File::Open(mover->session(), OpenFile{.root = {}, .path = {}, .writable = true},
                           file->fd_.get(), std::chrono::nanoseconds(kOpenWithin).count());
  if (!opened.ok()) return Because(opened.status(), absl::StrCat("open ", path));
  file->region_ = (*opened)->region_id();
  PrepareList request;
  request.sets.push_back({file->region_, 0, slots * slot_bytes, {}});
  SHUNT_ASSIGN_OR_RETURN(file->list_,
                         List::Prepare(mover->session(), request, {*std::move(opened)}));
  return file;
}

absl::Status BlockFile::Write(std::span<const Piece> pieces) {
  std::vector<Span> memory;
  std::vector<ring::PostedPiece> places;
  for (const Piece& piece : pieces) {
    memory.push_back({piece.data, piece.bytes});
    places.push_back({region_, piece.slot * slot_bytes_, piece.bytes});
  }
  const absl::Status written = Mover::Finish(
      mover_->Start(Way::kOutOfMemory, memory, list_, places, DeadlineAfterNs(kWriteWithin)));
  return written.ok() ? written : Because(written, absl::StrCat("write to ", path_));
}

absl::Status BlockFile::Sync() {
  // What the daemon has written lies in this file's pages, whoever wrote it.
  if (::fdatasync(fd_.get()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("sync ", path_));
}

absl::Status BlockFile::Read(std::span<const Wanted> blocks, int64_t deadline_ns) {
  std::vector<Span> memory;
  std::vector<ring::PostedPiece> places;
  for (const Wanted& block : blocks) {
    memory.push_back({block.data, block.bytes});
    places.push_back({region_, block.slot * slot_bytes_, block.bytes});
  }
  const absl::Status read =
      Mover::Finish(mover_->Start(Way::kIntoMemory, memory, list_, places, deadline_ns));
  return read.ok() ? read : Because(read, absl::StrCat("read from ", path_));
}

}  // namespace shunt::client::kv
