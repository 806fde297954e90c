// An engine with two peers: one sends any frames that pass the decoder, the owner posts, polls and
// closes meanwhile. Buffers that are not posted are never written to.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/transport/engine/engine.h"
#include "tests/fuzz/input.h"

using namespace shunt::transport;

namespace {

constexpr size_t kBuffers = 8;

// Lengths are a byte of input each, times `unit`.
struct Setting {
  uint32_t unit;
  Limits limits;
};
constexpr Setting kSettings[] = {
    {1, {.eager_bytes = 64, .eager_slots = 2, .headers_waiting_max = 4, .note_bytes_max = 32}},
    // Messages that take several slots.
    {40, {.eager_bytes = 10'000, .eager_slots = 4, .headers_waiting_max = 4, .note_bytes_max = 80}},
};

Tag SmallTag(uint8_t bits) {
  return {.communicator = 1 + (bits & 1u),
          .sequence = (bits >> 1) & 1u,
          .channel = 0,
          .step = 0,
          .slice = (bits >> 2) & 3u};
}

// In one place, or in two.
Memory Cut(absl::Span<std::byte> bytes, uint8_t bits) {
  if ((bits & 0x40) == 0 || bytes.empty()) return Memory(bytes);
  const size_t first = bytes.size() / 3;
  const iovec places[] = {{bytes.data(), first}, {bytes.data() + first, bytes.size() - first}};
  return Memory(absl::MakeConstSpan(places));
}

void Run(const Setting& setting, const uint8_t* data, size_t size) {
  shunt::testing::FuzzInput input(data, size);
  const auto take_bytes = [&] { return setting.unit * input.Take<uint8_t>(); };
  const std::vector<std::byte> untouched(256 * setting.unit, std::byte{0xaa});
  std::vector<std::byte> source(256 * setting.unit);
  Engine::Options options;
  options.limits = setting.limits;
  options.piece_bytes = 50 * setting.unit;
  options.links_max = 4;
  options.control_max = 64;
  Engine engine(options, 2, 2);
  PeerState* peer = engine.AddPeer(0);
  constexpr int kStreams = 2;
  engine.PeerUp(peer, kStreams);
  bool lost = false;
  std::array<std::vector<std::byte>, kBuffers> buffers;
  std::array<bool, kBuffers> posted{};
  std::array<uint64_t, kBuffers> communicator{};
  for (auto& buffer : buffers) buffer = untouched;
  std::vector<uint64_t> grants;  // that the engine sent
  const auto settle = [&](size_t i) {
    posted[i] = false;
    buffers[i] = untouched;
  };
  const auto poll = [&] {
    Completion batch[4];
    const size_t count = engine.Take(absl::MakeSpan(batch));
    for (size_t i = 0; i < count; ++i) {
      if (batch[i].event != Event::kReceived) continue;
      const uint64_t token = batch[i].token;
      SHUNT_CHECK(token < kBuffers && posted[token]);
      settle(token);
    }
  };

  while (!input.empty()) {
    switch (input.Take<uint8_t>() % 8) {
      case 0:
      case 1: {  // a frame
        if (lost) break;
        const int stream = input.Take<uint8_t>() % kStreams;
        if (const uint32_t left = Engine::Left(peer, stream); left > 0) {
          const uint32_t bytes = 1 + take_bytes() % left;
          Engine::ForEachTarget(peer, stream, bytes, [](std::byte* place, size_t here) {
            std::memset(place, 0xbb, here);
            return true;
          });
          if (absl::Status status = engine.Landed(peer, stream, bytes); !status.ok()) {
            engine.PeerLost(peer, status);
            lost = true;
          }
          break;
        }
        wire::Header h;
        h.type = static_cast<wire::Type>(1 + input.Take<uint8_t>() % wire::kTypeCount);
        const auto bits = input.Take<uint8_t>();
        h.tag = SmallTag(bits);
        h.signature = (bits >> 5) & 1u;
        h.service_class = static_cast<Class>(input.Take<uint8_t>() % 3);
        h.payload_bytes = take_bytes();
        h.message_bytes = input.Take<uint8_t>() % 2 == 0 ? h.payload_bytes : take_bytes();
        h.offset = take_bytes();
        h.slots = input.Take<uint8_t>() % 4;
        h.notes = input.Take<uint8_t>() % 4;
        h.flags = input.Take<uint8_t>() % 2 == 0 ? 0 : wire::kFlagAnnounced;
        const auto grant = input.Take<uint8_t>();
        h.grant = grants.empty() || grant % 4 == 0 ? grant : grants[grant % grants.size()];
        // What its type has no use for is zero, or nothing would ever pass.
        const bool message = h.type == wire::Type::kEager || h.type == wire::Type::kAnnounce ||
                             h.type == wire::Type::kGrant || h.type == wire::Type::kData;
        const bool tagged = message || h.type == wire::Type::kRefuseMessage ||
                            h.type == wire::Type::kRefuseGrant || h.type == wire::Type::kWithdraw;
        if (!tagged) h.tag = {.communicator = h.tag.communicator};
        if (!message) h.signature = 0, h.service_class = Class::kLatency;
        if (!message && h.type != wire::Type::kOpen) h.message_bytes = 0;
        if (h.type != wire::Type::kData) h.flags = 0;
        if (h.type != wire::Type::kData && h.type != wire::Type::kOpen &&
            h.type != wire::Type::kClose) {
          h.offset = 0;
        }
        if (h.type != wire::Type::kData && h.type != wire::Type::kEager &&
            h.type != wire::Type::kNote) {
          h.payload_bytes = 0;
        }
        if (!message && h.type != wire::Type::kOpen && h.type != wire::Type::kCredit &&
            h.type != wire::Type::kNote) {
          h.slots = h.notes = 0;
        }
        if (h.type != wire::Type::kGrant && h.type != wire::Type::kData &&
            h.type != wire::Type::kRefuseGrant && h.type != wire::Type::kWithdraw) {
          h.grant = 0;
        }
        if (h.type == wire::Type::kPing) h = wire::Header{};
        if (!wire::Check(h).ok()) break;
        if (absl::Status status = engine.Arrive(peer, stream, h); !status.ok()) {
          engine.PeerLost(peer, status);
          lost = true;
        }
        break;
      }
      case 2: {  // a receive
        const size_t i = input.Take<uint8_t>() % kBuffers;
        if (posted[i]) break;
        posted[i] = true;
        Message m;
        const auto bits = input.Take<uint8_t>();
        m.tag = SmallTag(bits);
        m.signature = (bits >> 5) & 1u;
        communicator[i] = m.tag.communicator;
        const size_t bytes = take_bytes();
        engine.PostRecv(m, Cut(absl::MakeSpan(buffers[i]).subspan(0, bytes), bits), i);
        break;
      }
      case 3: {  // a send
        Message m;
        const auto bits = input.Take<uint8_t>();
        m.tag = SmallTag(bits);
        m.signature = (bits >> 5) & 1u;
        engine.PostSend(m, Cut(absl::MakeSpan(source).subspan(0, take_bytes()), bits), 0);
        break;
      }
      case 4:
        (void)engine.Open(1 + input.Take<uint8_t>() % 2, {0});
        break;
      case 5: {
        const uint64_t closed = 1 + input.Take<uint8_t>() % 2;
        engine.Close(closed);
        for (size_t i = 0; i < kBuffers; ++i) {
          if (posted[i] && communicator[i] == closed) {
            // One that was refused has its completion still; it is dropped with the others.
            settle(i);
          }
        }
        break;
      }
      case 6: {  // frames leave
        if (lost) break;
        const int stream = input.Take<uint8_t>() % kStreams;
        while (engine.Pull(peer, stream)) {
          const OutFrame& frame = Engine::sending(peer, stream).back();
          SHUNT_CHECK(wire::Check(frame.header).ok());
          if (frame.header.type == wire::Type::kGrant) grants.push_back(frame.header.grant);
        }
        for (uint8_t i = input.Take<uint8_t>() % 8; i > 0; --i) {
          if (Engine::sending(peer, stream).empty()) break;
          const OutFrame& frame = Engine::sending(peer, stream).front();
          std::vector<std::byte> payload(frame.header.payload_bytes);
          frame.memory.CopyTo(frame.begin, payload.data(), payload.size());
          engine.Sent(peer, stream);
        }
        Engine::Work work;
        while (engine.NextWork(&work)) {
        }
        break;
      }
      case 7:
        if (input.Take<uint8_t>() % 4 == 0) {
          (void)engine.SendNote(0, 1 + input.Take<uint8_t>() % 2, {});
        }
        poll();
        break;
    }
    for (size_t i = 0; i < kBuffers; ++i) {
      if (posted[i]) continue;
      SHUNT_CHECK(std::memcmp(buffers[i].data(), untouched.data(), untouched.size()) == 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const Setting& setting : kSettings) Run(setting, data, size);
  return 0;
}
