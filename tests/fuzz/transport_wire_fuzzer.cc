// The decoders of what comes over a connection or a rail: any bytes. What is accepted encodes to
// the same bytes again.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/transport/ucx/rail_wire.h"
#include "runtime/transport/wire/header.h"
#include "runtime/transport/wire/hello.h"
#include "tests/fuzz/input.h"

using namespace shunt::transport;

namespace {

// A message of any length.
template <typename Message, size_t kBytes>
void Rail(const std::vector<std::byte>& bytes,
          absl::Status (*decode)(std::span<const std::byte>, Message*)) {
  Message message;
  if (!decode(bytes, &message).ok()) return;
  std::array<std::byte, kBytes> again{};
  Encode(message, std::span<std::byte, kBytes>(again));
  SHUNT_CHECK(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shunt::testing::FuzzInput input(data, size);
  const int what = input.Take<uint8_t>() % 5;
  if (what >= 2) {
    std::vector<std::byte> bytes(input.Take<uint8_t>());
    input.Fill(bytes);
    if (what == 2) {
      const auto hello = DecodeRailHello(bytes);
      if (!hello.ok()) return 0;
      const std::string again = Encode(*hello);
      SHUNT_CHECK(again.size() == bytes.size());
      SHUNT_CHECK(std::memcmp(again.data(), bytes.data(), bytes.size()) == 0);
    } else if (what == 3) {
      Rail<RailHead, kRailHeadBytes>(bytes, &DecodeRailHead);
    } else {
      Rail<RailWord, kRailWordBytes>(bytes, &DecodeRailWord);
    }
  } else if (what == 0) {
    std::array<std::byte, wire::kHeaderBytes> bytes{}, again{};
    input.Fill(bytes);
    wire::Header header;
    if (!wire::Decode(bytes, 1, &header).ok()) return 0;
    SHUNT_CHECK(wire::Check(header).ok());
    SHUNT_CHECK(header.payload_bytes <= wire::kPayloadBytesMax);
    wire::Encode(header, 1, again);
    SHUNT_CHECK(bytes == again);
  } else {
    std::array<std::byte, wire::kHelloBytes> bytes{}, again{};
    input.Fill(bytes);
    const auto hello = wire::DecodeHello(bytes);
    if (!hello.ok()) return 0;
    wire::Encode(*hello, again);
    SHUNT_CHECK(bytes == again);
  }
  return 0;
}
