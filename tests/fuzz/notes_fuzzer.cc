// What another node says of a communicator: any bytes. What is accepted encodes to a note that
// reads the same.
#include "runtime/core/check.h"
#include "runtime/exchange/notes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shunt::exchange;
  const auto note = Decode(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!note.has_value()) return 0;
  const auto again = Decode(Encode(*note, size + 64));
  SHUNT_CHECK(again.has_value() && *again == *note);
  return 0;
}
