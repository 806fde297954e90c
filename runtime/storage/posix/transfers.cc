#include "runtime/storage/posix/transfers.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/storage/posix/errors.h"
#include "runtime/storage/posix/split.h"

namespace shunt::storage {
namespace {

// A file system may say for ever that it is to be tried again.
constexpr uint32_t kRefusalsMax = 16;
// Of the queue, for the urgent: a sixteenth of the places, a sixteenth of the turns for the others.
constexpr uint32_t kShare = 16;

}  // namespace

Pump::Pump(Engine* engine, uint32_t queue_depth, uint32_t io_bytes_max)
    : engine_(engine),
      io_bytes_max_(io_bytes_max),
      slots_(queue_depth),
      kept_(queue_depth / kShare) {
  for (uint32_t slot = queue_depth; slot-- > 0;) free_.push_back(slot);
}

void Pump::Add(Transfer* transfer) {
  transfer->queued = true;
  waiting_[static_cast<size_t>(transfer->urgency)].push_back(transfer);
}

void Pump::Stop(Transfer* transfer, absl::Status status) {
  if (transfer->status.ok()) transfer->status = std::move(status);
  DrainIfEnded(transfer);
}

void Pump::DrainIfEnded(Transfer* transfer) {
  if (!transfer->ended() || transfer->queued || transfer->drained) return;
  transfer->drained = true;
  drained_.push_back(transfer);
}

bool Pump::Run(const std::function<void(Transfer*)>& ended) {
  bool moved = false;
  for (IoResult result; engine_->Reap(&result);) {
    TakeIn(result);
    moved = true;
  }
  while (!again_.empty()) {
    Post(again_.back());
    again_.pop_back();
  }
  while (Transfer* const transfer = Pick()) {
    transfer->queued = false;
    if (transfer->status.ok() && PostNext(transfer)) {
      moved = true;
      Add(transfer);
    } else {
      DrainIfEnded(transfer);
    }
  }
  engine_->Flush();
  for (Transfer* transfer : std::exchange(drained_, {})) {
    moved = true;
    ended(transfer);
  }
  return moved;
}

Transfer* Pump::Pick() {
  // After so many of the urgent the others have one of the places that are kept, too.
  const bool keep = urgent_in_a_row_ < kShare - 1;
  const bool lowest_first = !keep || picks_ % kShare == kShare - 1;
  for (size_t i = 0; i < kUrgencies; ++i) {
    const size_t urgency = lowest_first ? kUrgencies - 1 - i : i;
    std::deque<Transfer*>& waiting = waiting_[urgency];
    if (waiting.empty()) continue;
    Transfer* const transfer = waiting.front();
    const bool more = transfer->status.ok() && transfer->next < transfer->pieces.size();
    const bool urgent = urgency == static_cast<size_t>(Urgency::kLatency);
    const size_t kept = keep && !urgent ? kept_ : 0;
    if (more && free_.size() <= kept) continue;
    waiting.pop_front();
    ++picks_;
    urgent_in_a_row_ = urgent ? urgent_in_a_row_ + 1 : 0;
    return transfer;
  }
  return nullptr;
}

// False if the transfer has nothing left to post.
bool Pump::PostNext(Transfer* transfer) {
  while (transfer->next < transfer->pieces.size()) {
    const FilePiece& piece = transfer->pieces[transfer->next];
    const uint64_t left = piece.memory.size() - transfer->next_bytes;
    if (left == 0) {
      ++transfer->next;
      transfer->next_bytes = 0;
      continue;
    }
    const uint64_t offset = piece.offset + transfer->next_bytes;
    std::byte* const memory = piece.memory.data() + transfer->next_bytes;
    File& file = piece.file->file();
    const Cut cut = NextCut(file.blocks, offset, memory, left, io_bytes_max_);
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = {.transfer = transfer,
                    .file = &file,
                    .direct = cut.direct,
                    .offset = offset,
                    .memory = memory,
                    .bytes = static_cast<uint32_t>(cut.bytes)};
    transfer->next_bytes += cut.bytes;
    ++transfer->in_flight;
    Post(slot);
    return true;
  }
  return false;
}

void Pump::Post(uint32_t slot) {
  const Slot& at = slots_[slot];
  engine_->Post({.fd = at.direct ? at.file->direct.get() : at.file->fd.get(),
                 .write = at.transfer->write,
                 .offset = at.offset,
                 .memory = at.memory,
                 .bytes = at.bytes,
                 .slow = at.file->slow || at.refusals > 0,
                 .id = slot});
}

void Pump::TakeIn(const IoResult& result) {
  const auto slot = static_cast<uint32_t>(result.id);
  Slot& at = slots_[slot];
  Transfer* const transfer = at.transfer;
  absl::Status status;
  if (result.result < 0) {
    const int err = -result.result;
    if (err == EINVAL && at.direct) {
      // The file system wants more of O_DIRECT than it says. From now on without.
      at.file->blocks.direct = false;
      at.direct = false;
      if (transfer->status.ok()) return again_.push_back(slot);
    } else if ((err == EINTR || err == EAGAIN) && ++at.refusals < kRefusalsMax) {
      // A file that is not to be waited for (O_NONBLOCK), which its client may set at any time: a
      // thread of the kernel's waits for it.
      if (transfer->status.ok()) return again_.push_back(slot);
    } else {
      status = FileError(
          err, absl::StrCat(at.file->label, ": ", at.bytes, " bytes at offset ", at.offset));
    }
  } else {
    const auto bytes = static_cast<uint32_t>(result.result);
    SHUNT_CHECK(bytes <= at.bytes);
    transfer->bytes += bytes;
    at.refusals = 0;
    at.offset += bytes;
    at.memory += bytes;
    at.bytes -= bytes;
    if (at.bytes > 0 && bytes > 0 && transfer->status.ok()) {
      at.direct = false;  // the rest need not begin at a block
      return again_.push_back(slot);
    }
    if (at.bytes > 0 && bytes == 0) {
      status = absl::AbortedError(absl::StrCat(at.file->label, " ends at byte ", at.offset,
                                               ", expected ", at.bytes,
                                               " bytes more: it was truncated meanwhile"));
    }
  }
  at = {};
  free_.push_back(slot);
  --transfer->in_flight;
  if (transfer->status.ok()) transfer->status = std::move(status);
  DrainIfEnded(transfer);
}

}  // namespace shunt::storage
