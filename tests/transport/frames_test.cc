// How much a FrameWriter writes in one turn, and that what it writes is right however it is cut.
#include "runtime/transport/tcp/frames.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "runtime/core/check.h"
#include "runtime/transport/wire/crc32c.h"
#include "tests/transport/messages.h"

namespace shunt::transport::testing {
namespace {

// A socket that takes so many bytes before it blocks.
class Sink : public ByteStream {
 public:
  int fd() const override { return -1; }
  absl::StatusOr<size_t> Read(const iovec*, int) override { return 0; }
  absl::StatusOr<size_t> Write(const iovec* parts, int count) override {
    size_t wrote = 0;
    for (int i = 0; i < count; ++i) {
      const size_t here = std::min(parts[i].iov_len, takes);
      const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
      bytes.insert(bytes.end(), at, at + here);
      takes -= here;
      wrote += here;
    }
    return wrote;
  }
  size_t takes = ~size_t{0};
  Buffer bytes;
};

// A message that its receiver has granted, and the frames before it.
struct Bed {
  explicit Bed(size_t message_bytes) : message(Pattern(message_bytes, 1)) {
    engine.PeerUp(peer, 1);
    SHUNT_CHECK(engine.Open(1, {0}).ok());
    wire::Header open{
        .type = wire::Type::kOpen, .slots = 4, .notes = 4, .message_bytes = 100, .offset = 10};
    open.tag.communicator = 1;
    SHUNT_CHECK(engine.Arrive(peer, 0, open).ok());
    engine.PostSend(To(0, 0), Memory(absl::MakeConstSpan(message)), 0);
    wire::Header grant{.type = wire::Type::kGrant, .grant = 7, .message_bytes = message_bytes};
    grant.tag = To(0, 0).tag;
    grant.signature = To(0, 0).signature;
    grant.service_class = To(0, 0).service_class;
    SHUNT_CHECK(engine.Arrive(peer, 0, grant).ok());
  }
  FrameWriter::Outcome Write(size_t budget) {
    FrameWriter::Outcome outcome;
    CHECK(writer.Write(&sink, &engine, peer, 0, 1, true, budget, &outcome, nullptr).ok());
    return outcome;
  }
  bool sent() {
    Completion batch[4];
    const size_t count = engine.Take(absl::MakeSpan(batch));
    return std::any_of(batch, batch + count,
                       [](const Completion& c) { return c.event == Event::kSent; });
  }
  // The payload of all data frames, if every frame has the sum of its bytes.
  Buffer Payload() const {
    Buffer payload;
    const absl::Span<const std::byte> all = sink.bytes;
    for (size_t at = 0; at < all.size();) {
      wire::Header h;
      const auto header =
          std::span<const std::byte, wire::kHeaderBytes>(&all[at], wire::kHeaderBytes);
      REQUIRE(wire::Decode(header, 1, &h).ok());
      at += wire::kHeaderBytes;
      const auto body = all.subspan(at, h.payload_bytes);
      at += h.payload_bytes;
      REQUIRE(body.size() == h.payload_bytes);
      const uint32_t sum = wire::Crc32c(0, header.first(wire::kHeaderBytes - 4));
      REQUIRE(h.crc == wire::Crc32c(sum, {body.data(), body.size()}));
      if (h.type == wire::Type::kData) payload.insert(payload.end(), body.begin(), body.end());
    }
    return payload;
  }

  const Buffer message;
  Engine engine{Engine::Options{}};
  PeerState* peer = engine.AddPeer(0);
  FrameWriter writer;
  Sink sink;
};

TEST_CASE("a turn ends with its budget, though the socket takes more") {
  constexpr size_t kBudget = 256 << 10, kFrame = (256 << 10) + 4096;
  Bed bed(8 << 20);
  for (int turn = 0; turn < 5; ++turn) {
    const size_t before = bed.sink.bytes.size();
    const FrameWriter::Outcome outcome = bed.Write(kBudget);
    CHECK(outcome.went);
    CHECK(outcome.more);
    CHECK_FALSE(outcome.blocked);
    CHECK(bed.sink.bytes.size() - before >= kBudget);
    CHECK(bed.sink.bytes.size() - before <= kBudget + 2 * kFrame);
  }
  CHECK_FALSE(bed.sent());
  FrameWriter::Outcome outcome;
  for (int turn = 0; turn < 64 && (turn == 0 || outcome.more); ++turn) outcome = bed.Write(kBudget);
  CHECK_FALSE(outcome.more);
  CHECK_FALSE(outcome.blocked);
  CHECK(bed.sent());
  CHECK(Same(bed.Payload(), bed.message));
}

TEST_CASE(
    "a blocked socket is told from a turn that is over, and sums are right however it is cut") {
  Bed bed(1 << 20);
  size_t step = 1;
  for (int turn = 0; turn < 100'000 && !bed.sent(); ++turn) {
    bed.sink.takes = step;
    step = step * 7 % 9973 + 1;
    const FrameWriter::Outcome outcome = bed.Write(~size_t{0});
    CHECK(outcome.went);
    CHECK_FALSE(outcome.more);
  }
  CHECK(Same(bed.Payload(), bed.message));
}

}  // namespace
}  // namespace shunt::transport::testing
