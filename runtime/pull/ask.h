// What daemons say to one another about a transfer between their nodes.
//
//   initiator                                     owner of the section
//   ask (a message of kAskBytes, then its ids) ──► what is asked for is looked up and checked
//   pull: slices ◄─────────────────────────────── its pieces
//   push: slices ───────────────────────────────► its pieces
//   note: done  ◄──── from who has all of it ────► the notification goes to the agent
//   note: stop  ◄──── from who gives it up ──────► both move no more than they have granted
//
// Numbers are little-endian. Foreign bytes: a decoder takes nothing but what an encoder makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/transport/transport.h"

namespace shunt::pull {

inline constexpr size_t kAskBytes = 2048;
inline constexpr uint32_t kSliceBytesMin = 4 << 10;
inline constexpr uint32_t kSliceBytesMax = 1 << 20;
// Of runs, ids or raw pieces behind one ask.
inline constexpr uint64_t kArrayBytesMax = 16 << 20;

// As ring::PostedForm.
enum class Form : uint8_t { kAll = 0, kRuns = 1, kIds32 = 2, kIds64 = 3, kRaw = 4 };
size_t ElementBytes(Form form);

struct Ask {
  bool push = false;  // the initiator is the source
  transport::Class service_class = transport::Class::kBulk;
  bool notify = false;
  Form form = Form::kAll;
  uint32_t tenant = 0;       // for whom
  uint32_t slice_bytes = 0;  // the last slice may be shorter
  uint64_t bytes = 0;
  // Of the section that was fetched.
  uint64_t incarnation = 0;
  uint64_t version = 0;
  // Of the selection: elements of the array that follows, and how ids name pieces.
  uint64_t count = 0;
  uint64_t unit = 1;
  uint64_t repeats = 1;
  uint64_t repeat_step = 0;
  std::string agent = {};
  std::string section = {};
  std::string from = {};  // the asking agent; may be empty
  std::string notification = {};
  bool operator==(const Ask&) const = default;

  uint64_t array_bytes() const { return count * ElementBytes(form); }
  uint64_t slices() const { return (bytes + slice_bytes - 1) / slice_bytes; }
};

// INVALID_ARGUMENT for texts that are too long to be sent.
absl::Status CheckTexts(const Ask& ask);
// `ask` has texts and numbers in their bounds. `out` has kAskBytes.
void Encode(const Ask& ask, absl::Span<std::byte> out);
// INVALID_ARGUMENT, in words.
absl::StatusOr<Ask> DecodeAsk(absl::Span<const std::byte> bytes);

struct Note {
  enum class Kind : uint8_t { kDone = 1, kStop = 2 };
  Kind kind = Kind::kDone;
  uint64_t number = 0;       // of the transfer
  bool by_receiver = false;  // the transfer was asked for by the node that gets this note
  // Of a stop.
  bool answer = false;    // to the other side's
  uint32_t frontier = 0;  // slices that the sender has granted or sent
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string words;
  bool operator==(const Note&) const = default;
};

// Words that are too long are cut.
std::string Encode(const Note& note, size_t bytes_max);
absl::StatusOr<Note> DecodeNote(std::string_view bytes);

}  // namespace shunt::pull
