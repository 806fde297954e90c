// What two nodes tell each other around the frames of wire/header.h, byte by byte (little-endian).
//
// The hello, once, over the authenticated connection:
//    0  4  magic 0x58_55_48_53 ("SHUX")    16  16  key: names this connection on the rail
//    4  1  version, 1                      32   4  bytes of UCX's address that follow
//    5  1  streams                         36   4  zero
//    6  2  zero                            40   …  the address
//    8  4  frames that may wait
//   12  4  zero
//
// A frame's head, over the rail, before its payload:
//    0  16  key, as the receiver gave it   32   4  stream
//   16   8  number in its stream, from 0   36   4  zero
//   24   8  frames taken, in all, of the   40  80  header
//           stream in the other direction
//
// A word, over the rail, without payload:
//    0  16  key                            24   4  stream
//   16   8  frames taken                   28   4  kind: 1 probe, 2 answer, 3 taken
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/transport/wire/header.h"

namespace shunt::transport {

// Random, told to one peer over the authenticated connection: who shows it is that peer.
using RailKey = std::array<uint64_t, 2>;

// The communicator over TCP in which two nodes say hello: both sides compute the same number, from
// the names and incarnations of both.
uint64_t RailMeeting(const std::string& name, uint64_t incarnation, const std::string& other_name,
                     uint64_t other_incarnation);

inline constexpr size_t kRailHelloBytes = 40;
inline constexpr size_t kRailAddressBytesMax = 32 << 10;
inline constexpr uint32_t kRailFramesMin = 2, kRailFramesMax = 4096;

struct RailHello {
  int streams = 1;
  uint32_t frames_waiting_max = 0;
  RailKey key{};
  std::string address;
};
std::string Encode(const RailHello& hello);
// INVALID_ARGUMENT names the field; never shows the key.
absl::StatusOr<RailHello> DecodeRailHello(std::span<const std::byte> bytes);

// The least payload that may be offered for fetching. UCX reads no less than a few dozen bytes; it
// would turn to a protocol in which the sender writes.
inline constexpr size_t kRailFetchBytesMin = 1024;

inline constexpr size_t kRailHeadBytes = 40 + wire::kHeaderBytes;

struct RailHead {
  RailKey key{};
  uint64_t number = 0;
  uint64_t taken = 0;
  uint32_t stream = 0;
  wire::Header header;
};
void Encode(const RailHead& head, std::span<std::byte, kRailHeadBytes> out);
absl::Status DecodeRailHead(std::span<const std::byte> bytes, RailHead* out);

inline constexpr size_t kRailWordBytes = 32;

struct RailWord {
  enum class Kind : uint32_t { kProbe = 1, kAnswer = 2, kTaken = 3 };
  RailKey key{};
  uint64_t taken = 0;
  uint32_t stream = 0;
  Kind kind = Kind::kTaken;
};
void Encode(const RailWord& word, std::span<std::byte, kRailWordBytes> out);
absl::Status DecodeRailWord(std::span<const std::byte> bytes, RailWord* out);

// The key that a message begins with; zero if it is too short for one.
RailKey KeyOf(std::span<const std::byte> bytes);

}  // namespace shunt::transport
