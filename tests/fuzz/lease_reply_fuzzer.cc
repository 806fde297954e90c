// libshunt's decoder of what arrives on the lease socket.
#include <string_view>

#include "client/src/lease_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto reply = shunt::client::DecodeLeaseReply({reinterpret_cast<const char*>(data), size});
  // Every part of an accepted reply is really there.
  if (reply.ok()) {
    volatile size_t seen = reply->message.size() + reply->response.index();
    (void)seen;
  }
  return 0;
}
