// libshunt's decoder of what arrives on the lease socket.
#include <string_view>
#include <variant>

#include "client/src/lease_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto reply = shunt::client::DecodeLeaseReply({reinterpret_cast<const char*>(data), size});
  // Every part of an accepted reply is really there.
  if (reply.ok()) {
    volatile size_t seen = reply->message.size() + reply->response.index();
    if (const auto* taken = std::get_if<shunt::client::NotificationsTaken>(&reply->response)) {
      for (const auto& n : taken->notifications) seen = seen + n.from.size() + n.payload.size();
    }
    if (const auto* fetched = std::get_if<shunt::client::SectionFetched>(&reply->response)) {
      seen = seen + fetched->node.size() + fetched->incarnation;
    }
    (void)seen;
  }
  return 0;
}
