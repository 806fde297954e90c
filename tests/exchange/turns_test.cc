// Which message leaves where few may leave at a time.
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/exchange/exchange.h"

namespace shunt::exchange {
namespace {

// Keeps what is posted; the test says what ends.
class Posted : public transport::Transport {
 public:
  absl::Status Open(uint64_t, absl::Span<const transport::PeerId>) override {
    return absl::OkStatus();
  }
  void Close(uint64_t) override {}
  void PostSend(const transport::Message& message, absl::Span<const std::byte>,
                uint64_t token) override {
    sends.push_back({message.tag.slice, token});
  }
  void PostRecv(const transport::Message& message, absl::Span<std::byte>, uint64_t token) override {
    recvs.push_back({message.tag.slice, token});
  }
  void PostSend(const transport::Message& message, absl::Span<const iovec>,
                uint64_t token) override {
    sends.push_back({message.tag.slice, token});
  }
  void PostRecv(const transport::Message& message, absl::Span<const iovec>,
                uint64_t token) override {
    recvs.push_back({message.tag.slice, token});
  }
  absl::Status SendNote(transport::PeerId, uint64_t, absl::Span<const std::byte>) override {
    return absl::OkStatus();
  }
  size_t Poll(absl::Span<transport::Completion>) override { return 0; }
  int fd() const override { return -1; }
  transport::PeerCounters counters(transport::PeerId) const override { return {}; }
  const transport::Limits& limits() const override { return limits_; }

  struct Post {
    uint32_t slice;
    uint64_t token;
  };
  std::vector<Post> sends, recvs;

 private:
  transport::Limits limits_;
};

TEST_CASE("of slices that wait to send the earliest is the first, whatever place it has") {
  constexpr uint32_t kSlices = 12, kWindow = 4;
  const NodeMap map = *NodeMap::Make({0, 1});
  std::vector<uint32_t> in(2 * kSlices), out(2 * kSlices);
  const transport::PeerId peers[] = {0, 1};
  Exchange::Setup setup;
  setup.shape.map = &map;
  setup.shape.call.kind = OpKind::kAllToAll;
  setup.shape.call.dtype = DataType::kUint32;
  setup.shape.call.count = kSlices;
  setup.shape.net = {OpKind::kAllToAll, Algorithm::kPairwise, 2};
  setup.shape.slices = kSlices;
  setup.program = Exchange::ProgramOf(setup.shape.net, 0);
  setup.local = {{reinterpret_cast<const std::byte*>(in.data()),
                  reinterpret_cast<std::byte*>(out.data()), Scalar{}}};
  setup.peers = peers;
  setup.window = kWindow;
  setup.sends_max = 1;
  Posted transport;
  BufferPool pool(0);
  Exchange exchange(std::move(setup), &transport, &pool, 0);
  exchange.Start();

  // All receives but one slice's end as they are posted: that one stays in its place while others
  // come and go.
  constexpr uint32_t kLate = 2;
  size_t received = 0;
  uint64_t late = ~0ull;
  for (uint32_t sent = 0; sent < kSlices; ++sent) {
    for (; received < transport.recvs.size(); ++received) {
      const Posted::Post post = transport.recvs[received];
      if (post.slice == kLate) {
        late = post.token;
      } else {
        exchange.OnCompletion({.event = transport::Event::kReceived, .token = post.token});
      }
    }
    REQUIRE(transport.sends.size() == sent + 1);
    CHECK(transport.sends[sent].slice == sent);
    exchange.OnCompletion({.event = transport::Event::kSent, .token = transport.sends[sent].token});
  }
  for (; received < transport.recvs.size(); ++received) {
    exchange.OnCompletion(
        {.event = transport::Event::kReceived, .token = transport.recvs[received].token});
  }
  CHECK_FALSE(exchange.done());
  exchange.OnCompletion({.event = transport::Event::kReceived, .token = late});
  CHECK(exchange.done());
  CHECK(exchange.status().ok());
}

}  // namespace
}  // namespace shunt::exchange
