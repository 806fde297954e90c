// The header that every frame between two daemons begins with, byte by byte (little-endian):
//
//    0  2  magic 0x4853 ("SH")           40  8  signature
//    2  1  wire version, as negotiated   48  8  grant id
//    3  1  type                          56  8  message bytes
//    4  1  class                         64  8  offset
//    5  1  flags                         72  2  notes returned
//    6  2  eager slots returned          74  2  zero
//    8  4  payload bytes that follow     76  4  CRC32C of bytes 0–75 and the payload, or zero
//   12  4  channel
//   16  8  communicator                 A field that its type has no use for is zero: the decoder
//   24  8  sequence                     refuses anything else, so that a later version may use it.
//   32  4  step
//   36  4  slice
//
//   type           from      meaning
//   open           both      the communicator is open here: `slots`, `notes` to begin with,
//   `message
//                            bytes` an eager message may have, `offset` headers that may wait
//   close          both      nothing of it follows; `offset` data frames have been sent in all
//   eager          sender    a whole message, into as many slots as it needs, at least one
//   announce       sender    a message that waits for a grant
//   grant          receiver  a buffer of `message bytes` for the message
//   data           sender    bytes [offset, offset + payload) of a granted message, in order
//   refuse message receiver  the announced message has the wrong length
//   refuse grant   sender    the granted buffer has the wrong length
//   withdraw       receiver  the grant is void: the message came in a slot
//   credit         receiver  slots and notes returned, when no other frame carried them
//   note           both      a few bytes of news
//   ping           both      a sign of life
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/transport/transport.h"

namespace shunt::transport::wire {

inline constexpr size_t kHeaderBytes = 80;
inline constexpr uint16_t kMagic = 0x4853;
// What a slot holds: a longer eager message takes several.
inline constexpr uint32_t kSlotBytes = 8 << 10;
// The most bytes that may follow one header. Senders cut at less.
inline constexpr uint32_t kPayloadBytesMax = 1 << 20;

enum class Type : uint8_t {
  kOpen = 1,
  kClose = 2,
  kEager = 3,
  kAnnounce = 4,
  kGrant = 5,
  kData = 6,
  kRefuseMessage = 7,
  kRefuseGrant = 8,
  kWithdraw = 9,
  kCredit = 10,
  kNote = 11,
  kPing = 12,
};
inline constexpr int kTypeCount = 12;

std::string_view Name(Type type);

inline constexpr uint8_t kFlagCrc = 1;        // the last field is a CRC32C
inline constexpr uint8_t kFlagAnnounced = 2;  // data: the message has been announced

struct Header {
  Type type = Type::kPing;
  Class service_class = Class::kLatency;
  uint8_t flags = 0;
  uint16_t slots = 0;
  uint16_t notes = 0;
  uint32_t payload_bytes = 0;
  Tag tag = {};
  Signature signature = 0;
  uint64_t grant = 0;
  uint64_t message_bytes = 0;
  uint64_t offset = 0;
  uint32_t crc = 0;
  bool operator==(const Header&) const = default;
};

void Encode(const Header& header, uint8_t version, std::span<std::byte, kHeaderBytes> out);

// Checks every field for itself and against the type; what depends on the state of the connection
// is the engine's to check. INVALID_ARGUMENT names the field, its value and what was expected.
absl::Status Decode(std::span<const std::byte, kHeaderBytes> bytes, uint8_t version, Header* out);

// The checks of Decode that don't concern the encoding.
absl::Status Check(const Header& header);

}  // namespace shunt::transport::wire
