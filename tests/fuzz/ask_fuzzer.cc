// What another node asks for and says of transfers: any bytes. What is accepted encodes to what
// reads the same; an ask to the very same bytes.
#include <algorithm>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/pull/ask.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shunt::pull;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto note = DecodeNote(text); note.ok()) {
    const auto again = DecodeNote(Encode(*note, size + 64));
    SHUNT_CHECK(again.ok() && *again == *note);
  }
  std::vector<std::byte> bytes(kAskBytes);
  std::transform(data, data + std::min(size, bytes.size()), bytes.begin(),
                 [](uint8_t b) { return std::byte{b}; });
  if (const auto ask = DecodeAsk(bytes); ask.ok()) {
    std::vector<std::byte> again(kAskBytes);
    Encode(*ask, absl::MakeSpan(again));
    SHUNT_CHECK(again == bytes);
    SHUNT_CHECK(ask->array_bytes() <= kArrayBytesMax && ask->slices() > 0);
  }
  return 0;
}
