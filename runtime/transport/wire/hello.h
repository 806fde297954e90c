// The first bytes on every connection, in each direction: who speaks, and the proof that the other
// side invited it. Fixed size, so that nothing of an unknown peer's choice is ever allocated.
//
//    0  4  magic 0x54_4e_48_53 ("SHNT")   24  32  token that the receiver issued to the sender
//    4  1  oldest wire version spoken     56  64  cluster name, zero-padded
//    5  1  newest                        120  64  sender's node name
//    6  1  stream                        184  64  receiver's node name
//    7  1  streams in all                248   8  zero
//    8  8  sender's incarnation
//   16  8  receiver's incarnation, as the sender knows it
//
// The side that connects speaks first. The answer's two versions are equal: the one chosen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shunt::transport::wire {

inline constexpr size_t kHelloBytes = 256;
inline constexpr size_t kNameBytesMax = 63;
inline constexpr int kStreamsMax = 16;

using Token = std::array<std::byte, 32>;

struct Versions {
  uint8_t oldest = 1;
  uint8_t newest = 1;
};
// What this build speaks: N and N - 1, so that a cluster can be upgraded node by node. (1 is the
// first.)
inline constexpr Versions kVersions{1, 1};

// The newest that both speak. FAILED_PRECONDITION if there is none.
absl::StatusOr<uint8_t> Negotiate(Versions ours, Versions theirs);

struct Hello {
  Versions versions = {};
  uint8_t stream = 0;
  uint8_t streams = 1;
  uint64_t incarnation = 0;
  uint64_t expected_incarnation = 0;
  Token token{};
  std::string cluster, from, to;  // names: 1 to kNameBytesMax bytes, none of them zero
};

// The names must be valid (CheckName).
void Encode(const Hello& hello, std::span<std::byte, kHelloBytes> out);
// INVALID_ARGUMENT names the field; never shows the token.
absl::StatusOr<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);
absl::Status CheckName(const std::string& what, const std::string& name);

// In time that doesn't depend on where they differ.
bool Equal(const Token& a, const Token& b);

}  // namespace shunt::transport::wire
