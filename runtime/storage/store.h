// Files and objects as ends of a transfer. One interface for all stores (posix/, s3/, plugin/),
// held to one conformance suite.
//
//   read, write in place            write whole
//   PostOpen ──► object             PostBegin ──► draft
//   PostRead / PostWrite (pieces)   PostWrite (pieces, each byte once)
//   PostSync                        PostCommit: appears whole, durable    or PostAbort: no trace
//   Close                           (either ends the draft)
//
// A store is passive: nothing happens but in its functions, and no function blocks. What was posted
// ends with exactly one completion, errors too. Words of an error name the object, the value seen
// and the value expected; they hold no secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"
#include "runtime/storage/budget.h"

namespace shunt::storage {

// An open object or a draft; numbered by the store, never 0, never used again for another one.
using ObjectId = uint64_t;

// A range of one object, and the memory that it is read into or written from. Writes only read it.
struct Piece {
  ObjectId object = 0;
  uint64_t offset = 0;
  absl::Span<std::byte> memory;
};

enum class Access : uint8_t { kRead, kReadWrite };

struct OpenRequest {
  // Either a file that the client has opened. The store checks what it was opened for.
  UniqueFd descriptor = {};
  // Or a name: of a configured root and a path below it, of a bucket and a key.
  std::string container = {};
  std::string name = {};
  Access access = Access::kRead;
  int64_t deadline_ns = kNeverNs;  // as NowNs
};

struct BeginRequest {
  std::string container = {};
  std::string name = {};
  uint64_t bytes = 0;      // of the whole object
  bool if_absent = false;  // commit fails with ALREADY_EXISTS if there is an object by that name
  int64_t deadline_ns = kNeverNs;
  Budget budget = {};  // who pays for memory that the draft needs
};

// What goes first where there is more than a store does at a time.
enum class Urgency : uint8_t { kLatency, kBulk, kBackground };
inline constexpr size_t kUrgencies = 3;

// Pieces may be of many objects, in any order. Those of one write don't overlap.
struct TransferRequest {
  std::vector<Piece> pieces = {};
  int64_t deadline_ns = kNeverNs;
  Urgency urgency = Urgency::kBulk;
};

struct Completion {
  uint64_t token = 0;
  absl::Status status = {};
  uint64_t bytes = 0;   // read, written; PostOpen: the object's size now
  ObjectId object = 0;  // PostOpen, PostBegin
};

struct Features {
  bool descriptors = false;  // OpenRequest::descriptor
  bool in_place = false;     // Access::kReadWrite, PostSync
};

// Not thread-safe: one thread owns a store and is the only one to call it. Destroying it cancels
// what is under way, aborts drafts, and waits until no memory is touched any more.
class Store {
 public:
  virtual ~Store() = default;

  virtual Features features() const = 0;

  // Tokens are the caller's; those in flight differ. UNIMPLEMENTED for what features() lacks.
  virtual void PostOpen(OpenRequest request, uint64_t token) = 0;
  // Moves all pieces or fails; after a failure the memory of a read, and the ranges of a write in
  // place, hold anything. OUT_OF_RANGE beyond the object's end: writes in place don't extend it.
  // ABORTED the object shrank or was replaced meanwhile. The memory is the store's until the
  // completion.
  virtual void PostRead(TransferRequest request, uint64_t token) = 0;
  // Also into drafts. A draft whose write failed can only be aborted; its error may come at the
  // commit.
  virtual void PostWrite(TransferRequest request, uint64_t token) = 0;
  // Makes what was written in place durable.
  virtual void PostSync(ObjectId object, int64_t deadline_ns, uint64_t token) = 0;

  virtual void PostBegin(BeginRequest request, uint64_t token) = 0;
  // FAILED_PRECONDITION if a write is under way or bytes are missing. Ends the draft, whatever its
  // result: then either the new object is there and durable, or what was there before; UNKNOWN or
  // DEADLINE_EXCEEDED say that it is not known which of them.
  virtual void PostCommit(ObjectId draft, int64_t deadline_ns, uint64_t token) = 0;
  // Writes under way are cancelled first.
  virtual void PostAbort(ObjectId draft, uint64_t token) = 0;

  // Forgets the object once what is posted on it has ended; a draft is aborted.
  virtual void Close(ObjectId object) = 0;

  // Asks that the operation end soon. Its completion tells how it ended: CANCELLED, or as it would
  // have. Memory of a transfer is the caller's from that completion on, not before; the same goes
  // for deadlines (DEADLINE_EXCEEDED). Unknown tokens are ignored.
  virtual void Cancel(uint64_t token) = 0;

  // Memory that many transfers will use: a store may register it with the kernel. A hint; any other
  // memory works too. RemoveMemory before it is unmapped, by the same address; no transfer uses it
  // then.
  virtual void AddMemory(absl::Span<std::byte> memory) { static_cast<void>(memory); }
  virtual void RemoveMemory(absl::Span<std::byte> memory) { static_cast<void>(memory); }

  // Moves what can be moved and fills `out` with what has ended; its result is how many.
  virtual size_t Poll(absl::Span<Completion> out) = 0;
  // Readable when Poll may have something to do; deadlines are among its reasons. Before waiting
  // for it, Poll until it returns 0: neither posts nor completions in hand make it readable.
  virtual int fd() const = 0;
};

}  // namespace shunt::storage
