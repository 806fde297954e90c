// Moves the pieces of transfers through an engine, no more reads and writes at a time than its
// queue depth. The most urgent go first; those of one urgency take turns, so that a small one does
// not wait for a large one. A few places are kept for the urgent, and one in so many goes to those
// who wait longest, so that nothing starves.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/storage/budget.h"
#include "runtime/storage/coverage.h"
#include "runtime/storage/posix/draft.h"
#include "runtime/storage/posix/engine.h"
#include "runtime/storage/posix/file.h"
#include "runtime/storage/store.h"

namespace shunt::storage {

// An open object or a draft. What is under way keeps it alive.
struct StoredFile {
  uint64_t id = 0;
  File opened;  // an object's
  std::optional<Draft> draft;
  Coverage written;                   // of a draft
  Charge charge;                      // what that takes
  uint32_t writes = 0;                // pieces that are being written
  bool broken = false;                // a write into the draft has failed
  std::function<void()> when_unused;  // called once, when the last of them has ended

  File& file() { return draft.has_value() ? draft->file() : opened; }
  // Before anybody hears that the draft has ended: the last reference may go later. Nobody writes
  // into it any more.
  void EndDraft() {
    draft.reset();
    written = Coverage();
    charge = Charge();
  }
};

struct FilePiece {
  std::shared_ptr<StoredFile> file;
  uint64_t offset = 0;
  absl::Span<std::byte> memory;
};

struct Transfer {
  uint64_t id = 0;
  uint64_t token = 0;
  bool write = false;
  Urgency urgency = Urgency::kBulk;
  std::vector<FilePiece> pieces;
  size_t next = 0;          // piece
  uint64_t next_bytes = 0;  // of it that are under way or done
  uint32_t in_flight = 0;
  uint64_t bytes = 0;  // done
  absl::Status status;
  bool queued = false;   // in Pump::waiting_
  bool drained = false;  // in Pump::drained_

  bool ended() const { return in_flight == 0 && (!status.ok() || next == pieces.size()); }
};

class Pump {
 public:
  Pump(Engine* engine, uint32_t queue_depth, uint32_t io_bytes_max);

  // The transfer is the caller's and stays until it has ended. It may have ended already.
  void Add(Transfer* transfer);
  // Posts nothing more of it. OK is the status of one that nothing has gone wrong with yet.
  void Stop(Transfer* transfer, absl::Status status);
  // Posts and takes in; calls `ended` for each that has ended. True if something moved.
  bool Run(const std::function<void(Transfer*)>& ended);

 private:
  // One read or write under way, or the rest of a short one.
  struct Slot {
    Transfer* transfer = nullptr;
    File* file = nullptr;
    bool direct = false;
    uint32_t refusals = 0;  // EAGAIN and EINTR, one after the other
    uint64_t offset = 0;
    std::byte* memory = nullptr;
    uint32_t bytes = 0;
  };
  // Whose turn it is; null if nobody is to be posted or drained now.
  Transfer* Pick();
  bool PostNext(Transfer* transfer);
  void Post(uint32_t slot);
  void TakeIn(const IoResult& result);
  void DrainIfEnded(Transfer* transfer);

  Engine* const engine_;
  const uint32_t io_bytes_max_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> again_;  // rests, to be posted first
  // With something to post, or ended; by urgency.
  std::array<std::deque<Transfer*>, kUrgencies> waiting_;
  uint64_t picks_ = 0;
  uint64_t urgent_in_a_row_ = 0;
  const size_t kept_;               // places that only kLatency takes
  std::vector<Transfer*> drained_;  // ended, and no longer waiting
};

}  // namespace shunt::storage
