// The two decoders of what comes over a connection: any bytes. What is accepted encodes to the same
// bytes again.
#include <algorithm>
#include <array>

#include "runtime/core/check.h"
#include "runtime/transport/wire/header.h"
#include "runtime/transport/wire/hello.h"
#include "tests/fuzz/input.h"

using namespace shunt::transport;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shunt::testing::FuzzInput input(data, size);
  if (input.Take<uint8_t>() % 2 == 0) {
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
