#include "runtime/transport/ucx/rail_wire.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/fnv.h"
#include "runtime/transport/wire/bytes.h"
#include "runtime/transport/wire/hello.h"

namespace shunt::transport {
namespace {

using wire::Get;
using wire::Put;

constexpr uint32_t kMagic = 0x58554853;
constexpr uint8_t kVersion = 1;

absl::Status Wrong(absl::string_view what, absl::string_view field, uint64_t value,
                   absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("rail ", what, ": ", field, " is ", value, ", expected ", expected));
}

void PutKey(std::byte* at, const RailKey& key) { std::memcpy(at, key.data(), sizeof(key)); }

RailKey GetKey(const std::byte* at) {
  RailKey key;
  std::memcpy(key.data(), at, sizeof(key));
  return key;
}

}  // namespace

uint64_t RailMeeting(const std::string& name, uint64_t incarnation, const std::string& other_name,
                     uint64_t other_incarnation) {
  std::string text[2] = {absl::StrCat(name, " ", incarnation),
                         absl::StrCat(other_name, " ", other_incarnation)};
  if (text[1] < text[0]) std::swap(text[0], text[1]);
  return Fnv1a(absl::StrCat(text[0], " ", text[1]));
}

std::string Encode(const RailHello& hello) {
  std::string text(kRailHelloBytes + hello.address.size(), '\0');
  auto* p = reinterpret_cast<std::byte*>(text.data());
  Put(p, kMagic);
  Put(p + 4, kVersion);
  Put(p + 5, static_cast<uint8_t>(hello.streams));
  Put(p + 8, hello.frames_waiting_max);
  PutKey(p + 16, hello.key);
  Put(p + 32, static_cast<uint32_t>(hello.address.size()));
  std::memcpy(p + kRailHelloBytes, hello.address.data(), hello.address.size());
  return text;
}

absl::StatusOr<RailHello> DecodeRailHello(std::span<const std::byte> bytes) {
  if (bytes.size() < kRailHelloBytes) {
    return Wrong("hello", "length", bytes.size(), absl::StrCat("at least ", kRailHelloBytes));
  }
  const std::byte* p = bytes.data();
  if (Get<uint32_t>(p) != kMagic) {
    return Wrong("hello", "magic", Get<uint32_t>(p), absl::StrCat(kMagic));
  }
  if (Get<uint8_t>(p + 4) != kVersion) {
    return Wrong("hello", "version", Get<uint8_t>(p + 4), absl::StrCat(kVersion));
  }
  RailHello hello;
  hello.streams = Get<uint8_t>(p + 5);
  if (hello.streams < 1 || hello.streams > wire::kStreamsMax) {
    return Wrong("hello", "streams", Get<uint8_t>(p + 5), absl::StrCat("1 to ", wire::kStreamsMax));
  }
  if (Get<uint16_t>(p + 6) != 0 || Get<uint32_t>(p + 12) != 0 || Get<uint32_t>(p + 36) != 0) {
    return Wrong("hello", "a byte that has no meaning", 1, "0");
  }
  hello.frames_waiting_max = Get<uint32_t>(p + 8);
  if (hello.frames_waiting_max < kRailFramesMin || hello.frames_waiting_max > kRailFramesMax) {
    return Wrong("hello", "frames that may wait", hello.frames_waiting_max,
                 absl::StrCat(kRailFramesMin, " to ", kRailFramesMax));
  }
  hello.key = GetKey(p + 16);
  const auto address = Get<uint32_t>(p + 32);
  if (address == 0 || address > kRailAddressBytesMax || address != bytes.size() - kRailHelloBytes) {
    return Wrong("hello", "address bytes", address,
                 absl::StrCat(bytes.size() - kRailHelloBytes, ", and 1 to ", kRailAddressBytesMax));
  }
  hello.address.assign(reinterpret_cast<const char*>(p + kRailHelloBytes), address);
  return hello;
}

void Encode(const RailHead& head, std::span<std::byte, kRailHeadBytes> out) {
  std::byte* p = out.data();
  PutKey(p, head.key);
  Put(p + 16, head.number);
  Put(p + 24, head.taken);
  Put(p + 32, head.stream);
  Put(p + 36, uint32_t{0});
  wire::Encode(head.header, kVersion, out.subspan<40, wire::kHeaderBytes>());
}

absl::Status DecodeRailHead(std::span<const std::byte> bytes, RailHead* out) {
  if (bytes.size() != kRailHeadBytes) {
    return Wrong("frame", "head's length", bytes.size(), absl::StrCat(kRailHeadBytes));
  }
  const std::byte* p = bytes.data();
  out->key = GetKey(p);
  out->number = Get<uint64_t>(p + 16);
  out->taken = Get<uint64_t>(p + 24);
  out->stream = Get<uint32_t>(p + 32);
  if (Get<uint32_t>(p + 36) != 0) return Wrong("frame", "bytes 36 to 39", 1, "0");
  absl::Status status =
      wire::Decode(std::span<const std::byte, wire::kHeaderBytes>(p + 40, wire::kHeaderBytes),
                   kVersion, &out->header);
  // The rail has checksums of its own.
  if (status.ok() && (out->header.flags & wire::kFlagCrc) != 0) {
    return Wrong("frame", "flags", out->header.flags, "none for a CRC");
  }
  return status;
}

void Encode(const RailWord& word, std::span<std::byte, kRailWordBytes> out) {
  std::byte* p = out.data();
  PutKey(p, word.key);
  Put(p + 16, word.taken);
  Put(p + 24, word.stream);
  Put(p + 28, static_cast<uint32_t>(word.kind));
}

absl::Status DecodeRailWord(std::span<const std::byte> bytes, RailWord* out) {
  if (bytes.size() != kRailWordBytes) {
    return Wrong("word", "length", bytes.size(), absl::StrCat(kRailWordBytes));
  }
  const std::byte* p = bytes.data();
  out->key = GetKey(p);
  out->taken = Get<uint64_t>(p + 16);
  out->stream = Get<uint32_t>(p + 24);
  const auto kind = Get<uint32_t>(p + 28);
  if (kind < 1 || kind > 3) return Wrong("word", "kind", kind, "1 to 3");
  out->kind = static_cast<RailWord::Kind>(kind);
  return absl::OkStatus();
}

RailKey KeyOf(std::span<const std::byte> bytes) {
  return bytes.size() < sizeof(RailKey) ? RailKey{} : GetKey(bytes.data());
}

}  // namespace shunt::transport
