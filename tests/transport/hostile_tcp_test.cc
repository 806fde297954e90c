// A TcpTransport among strangers and peers that lie: each harms only itself.
#include <poll.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <random>

#include "runtime/core/clock.h"
#include "runtime/transport/tcp/byte_stream.h"
#include "runtime/transport/wire/bytes.h"
#include "tests/support/fds.h"
#include "tests/transport/messages.h"
#include "tests/transport/tcp_world.h"

namespace shunt::transport::testing {
namespace {

using wire::Header;
using wire::Type;

// A socket of the test's own, without a transport behind it.
class Raw {
 public:
  explicit Raw(uint16_t port) {
    auto fd = TcpConnect("127.0.0.1", port, TcpOptions{});
    SHUNT_CHECK(fd.ok());
    stream_ = MakePlainStream(std::move(*fd));
    pollfd p{stream_->fd(), POLLOUT, 0};
    SHUNT_CHECK(::poll(&p, 1, 5000) == 1);
  }
  void Send(absl::Span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
      const auto wrote = stream_->Write(&part, 1);
      if (!wrote.ok() || *wrote == 0) return;
      bytes.remove_prefix(*wrote);
    }
  }
  void Send(const wire::Hello& hello) {
    std::array<std::byte, wire::kHelloBytes> bytes;
    wire::Encode(hello, bytes);
    Send(absl::MakeConstSpan(bytes));
  }
  void Send(const Header& header, size_t payload = 0) {
    std::vector<std::byte> bytes(wire::kHeaderBytes + payload);
    wire::Encode(header, 1,
                 std::span<std::byte, wire::kHeaderBytes>(bytes.data(), wire::kHeaderBytes));
    Send(absl::MakeConstSpan(bytes));
  }
  // What is there; closed() if the other side has hung up.
  std::vector<std::byte> Receive() {
    std::vector<std::byte> bytes(64 << 10);
    const iovec part = {bytes.data(), bytes.size()};
    const auto read = stream_->Read(&part, 1);
    closed_ = closed_ || !read.ok();
    bytes.resize(read.ok() ? *read : 0);
    return bytes;
  }
  bool closed() {
    Receive();
    return closed_;
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  bool closed_ = false;
};

// A victim with an honest peer, node 2, and one, node 0, whose part the test plays.
struct Bed {
  explicit Bed(TcpOptions base = {}) {
    base.on_refused = [this](const absl::Status& why) { refused.emplace_back(why.message()); };
    victim = std::move(*TcpTransport::Create(NodeOptions(1, base)));
    base.on_refused = {};
    honest = std::move(*TcpTransport::Create(NodeOptions(2, base)));
    SHUNT_CHECK(victim->AddPeer(PeerInfo(1, 2, honest->port())).ok());
    SHUNT_CHECK(honest->AddPeer(PeerInfo(2, 1, victim->port())).ok());
    SHUNT_CHECK(victim->AddPeer(PeerInfo(1, 0, 0)).ok());
    SHUNT_CHECK(Until([&] { return Has(Event::kPeerUp, 2); }));
    SHUNT_CHECK(victim->Open(1, {0, 2}).ok() && honest->Open(1, {1}).ok());
  }
  bool Until(const std::function<bool()>& done) {
    const int64_t deadline = NowNs() + 10'000'000'000;
    for (;;) {
      Completion batch[16];
      size_t count;
      while ((count = victim->Poll(absl::MakeSpan(batch))) != 0) {
        for (size_t i = 0; i < count; ++i) log.push_back(batch[i]);
      }
      while ((count = honest->Poll(absl::MakeSpan(batch))) != 0) {
        for (size_t i = 0; i < count; ++i) honest_log.push_back(batch[i]);
      }
      if (done()) return true;
      if (NowNs() > deadline) return false;
      pollfd fds[2] = {{victim->fd(), POLLIN, 0}, {honest->fd(), POLLIN, 0}};
      ::poll(fds, 2, 1);  // the test's own sockets are looked at in between
    }
  }
  bool Has(Event event, PeerId peer) const {
    return std::any_of(log.begin(), log.end(),
                       [&](const Completion& c) { return c.event == event && c.peer == peer; });
  }
  std::string LostWords(PeerId peer) const {
    for (const Completion& c : log) {
      if (c.event == Event::kPeerLost && c.peer == peer) return c.text;
    }
    return "";
  }
  wire::Hello GoodHello() const {
    const TcpPeer me = PeerInfo(0, 1, 0);
    return {.incarnation = 1000,
            .expected_incarnation = 1001,
            .token = me.token_to_show,
            .cluster = "shunt",
            .from = NodeName(0),
            .to = NodeName(1)};
  }
  // Logs in as node 0.
  std::unique_ptr<Raw> LogIn() {
    auto raw = std::make_unique<Raw>(victim->port());
    raw->Send(GoodHello());
    SHUNT_CHECK(Until([&] { return Has(Event::kPeerUp, 0); }));
    return raw;
  }
  // The same over several connections, by stream.
  std::vector<std::unique_ptr<Raw>> LogIn(int streams) {
    std::vector<std::unique_ptr<Raw>> raws;
    wire::Hello hello = GoodHello();
    hello.streams = static_cast<uint8_t>(streams);
    for (int i = 0; i < streams; ++i) {
      hello.stream = static_cast<uint8_t>(i);
      raws.push_back(std::make_unique<Raw>(victim->port()));
      raws.back()->Send(hello);
    }
    SHUNT_CHECK(Until([&] { return Has(Event::kPeerUp, 0); }));
    return raws;
  }
  // The honest peer is served.
  bool Works() {
    static uint32_t slice = 0;
    ++slice;
    const Buffer data = Pattern(100'000, slice);
    Buffer got(data.size());
    victim->PostRecv(To(2, slice), absl::MakeSpan(got), slice);
    honest->PostSend(To(1, slice), data, slice);
    return Until([&] {
             return std::any_of(log.begin(), log.end(), [&](const Completion& c) {
               return c.event == Event::kReceived && c.token == slice && c.peer == 2;
             });
           }) &&
           got == data && !Has(Event::kPeerLost, 2);
  }

  std::vector<std::string> refused;
  std::unique_ptr<TcpTransport> victim, honest;
  std::vector<Completion> log, honest_log;
};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a hello that is wrong in one thing is refused with words") {
  struct Case {
    const char* words;
    std::function<void(wire::Hello*)> spoil;
  };
  const std::vector<Case> cases = {
      {"token", [](wire::Hello* h) { h->token[31] ^= std::byte{1}; }},
      {"cluster is other", [](wire::Hello* h) { h->cluster = "other"; }},
      {"receiver is node-109", [](wire::Hello* h) { h->to = "node-109"; }},
      {"incarnation of node-100 is 7", [](wire::Hello* h) { h->incarnation = 7; }},
      {"incarnation of node-101 is 8", [](wire::Hello* h) { h->expected_incarnation = 8; }},
      {"wire version: the peer speaks 2 to 3",
       [](wire::Hello* h) {
         h->versions = {2, 3};
       }},
      {"stream is 16", [](wire::Hello* h) { h->stream = h->streams = 16; }},
  };
  Bed bed;
  for (const Case& c : cases) {
    CAPTURE(c.words);
    wire::Hello hello = bed.GoodHello();
    c.spoil(&hello);
    Raw raw(bed.victim->port());
    raw.Send(hello);
    const size_t before = bed.refused.size();
    REQUIRE(bed.Until([&] { return bed.refused.size() > before; }));
    INFO(bed.refused.back());
    CHECK(Contains(bed.refused.back(), c.words));
    CHECK(Contains(bed.refused.back(), "127.0.0.1"));
    CHECK(bed.Until([&] { return raw.closed(); }));
  }
  // The one whose name was taken in vain can still come, once.
  auto raw = bed.LogIn();
  Raw again(bed.victim->port());
  again.Send(bed.GoodHello());
  REQUIRE(bed.Until([&] { return again.closed(); }));
  CHECK(!bed.Has(Event::kPeerLost, 0));
  CHECK(bed.Works());
}

TEST_CASE("the larger name may not connect") {
  Bed bed;
  wire::Hello hello = bed.GoodHello();
  hello.from = NodeName(2);
  hello.incarnation = 1002;
  hello.token = PeerInfo(2, 1, 0).token_to_show;
  Raw raw(bed.victim->port());
  raw.Send(hello);
  REQUIRE(bed.Until([&] { return raw.closed(); }));
  CHECK(Contains(bed.refused.back(), "smaller name"));
  CHECK(bed.Works());
}

TEST_CASE("random first bytes are refused") {
  Bed bed;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20; ++i) {
    Raw raw(bed.victim->port());
    Buffer noise(wire::kHelloBytes + 10);
    for (std::byte& b : noise) b = static_cast<std::byte>(random());
    if (i % 2 == 0) std::memcpy(noise.data(), "SHNT", 4);
    raw.Send(noise);
    REQUIRE(bed.Until([&] { return raw.closed(); }));
  }
  CHECK(bed.refused.size() == 20);
  CHECK(bed.victim->unauthenticated() == 0);
  CHECK(bed.Works());
}

TEST_CASE("strangers who say nothing are bounded, and go after a time") {
  TcpOptions options;
  options.unauthenticated_max = 4;
  options.handshake_timeout_ns = 300'000'000;
  Bed bed(options);
  const int before = ::shunt::testing::CountOpenFds();
  std::vector<std::unique_ptr<Raw>> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(std::make_unique<Raw>(bed.victim->port()));
    if (i % 2 == 0) strangers.back()->Send(Buffer(wire::kHelloBytes - 1));
  }
  CHECK(bed.Works());
  CHECK(bed.victim->unauthenticated() <= 4);
  auto raw = bed.LogIn();
  REQUIRE(bed.Until([&] { return bed.victim->unauthenticated() == 0; }));
  for (auto& stranger : strangers) CHECK(stranger->closed());
  strangers.clear();
  raw.reset();
  REQUIRE(bed.Until([&] { return bed.Has(Event::kPeerLost, 0); }));
  CHECK(::shunt::testing::CountOpenFds() == before);
  CHECK(bed.Works());
}

TEST_CASE("a node that connects before it is known waits for AddPeer") {
  TcpOptions options;
  auto listener = std::move(*TcpTransport::Create(NodeOptions(1, options)));
  auto connector = std::move(*TcpTransport::Create(NodeOptions(0, options)));
  REQUIRE(connector->AddPeer(PeerInfo(0, 1, listener->port())).ok());
  std::vector<Completion> log;
  const auto until = [&](const std::function<bool()>& done) {
    const int64_t deadline = NowNs() + 5'000'000'000;
    while (!done() && NowNs() < deadline) {
      for (TcpTransport* t : {listener.get(), connector.get()}) {
        Completion batch[4];
        const size_t count = t->Poll(absl::MakeSpan(batch));
        log.insert(log.end(), batch, batch + count);
      }
    }
    return done();
  };
  REQUIRE(until([&] { return listener->unauthenticated() == 1; }));
  REQUIRE(listener->AddPeer(PeerInfo(1, 0, 0)).ok());
  REQUIRE(until([&] { return log.size() == 2; }));
  CHECK(log[0].event == Event::kPeerUp);
  CHECK(log[1].event == Event::kPeerUp);
}

TEST_CASE("what a peer sends out of turn ends that peer only") {
  Header open{.type = Type::kOpen, .slots = 4, .notes = 4, .message_bytes = 100, .offset = 10};
  open.tag.communicator = 1;
  Header eager{.type = Type::kEager, .payload_bytes = 10, .message_bytes = 10};
  eager.tag = To(0, 900).tag;
  Header data{.type = Type::kData, .payload_bytes = 10, .grant = 99, .message_bytes = 10};
  data.tag = To(0, 1).tag;
  Header grant{.type = Type::kGrant, .grant = 99, .message_bytes = 100'000};
  grant.tag = To(0, 1).tag;
  Header credit{.type = Type::kCredit, .slots = 1};
  credit.tag.communicator = 1;
  Header close{.type = Type::kClose};
  close.tag.communicator = 1;
  Header note{.type = Type::kNote, .payload_bytes = 2000};
  note.tag.communicator = 1;
  struct Case {
    const char* words;
    std::function<void(Raw*)> say;
  };
  const std::vector<Case> cases = {
      {"magic is 0", [&](Raw* raw) { raw->Send(Buffer(wire::kHeaderBytes)); }},
      {"not open", [&](Raw* raw) { raw->Send(Header{.type = Type::kClose}); }},
      {"before both sides", [&](Raw* raw) { raw->Send(eager, 10); }},
      {"open already", [&](Raw* raw) { raw->Send(open), raw->Send(open); }},
      {"does not exist", [&](Raw* raw) { raw->Send(open), raw->Send(data, 10); }},
      {"came twice",
       [&](Raw* raw) { raw->Send(open), raw->Send(eager, 10), raw->Send(eager, 10); }},
      {"slots are taken",
       [&](Raw* raw) {
         raw->Send(open);
         for (uint32_t i = 0; i <= TcpOptions{}.engine.limits.eager_slots; ++i) {
           eager.tag.slice = i;
           raw->Send(eager, 10);
         }
       }},
      {"slots are taken, expected 2 free ones",
       [&](Raw* raw) {
         raw->Send(open);
         eager.payload_bytes = wire::kSlotBytes + 1;
         eager.message_bytes = wire::kSlotBytes + 1;
         for (uint32_t i = 0; i <= TcpOptions{}.engine.limits.eager_slots / 2; ++i) {
           eager.tag.slice = i;
           raw->Send(eager, eager.payload_bytes);
         }
       }},
      {"granted already", [&](Raw* raw) { raw->Send(open), raw->Send(grant), raw->Send(grant); }},
      {"returns 1 slots", [&](Raw* raw) { raw->Send(open), raw->Send(credit); }},
      {"after its close", [&](Raw* raw) { raw->Send(open), raw->Send(close), raw->Send(grant); }},
      {"2000 bytes, expected at most 1024",
       [&](Raw* raw) { raw->Send(open), raw->Send(note, 2000); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.words);
    Bed bed;
    auto raw = bed.LogIn();
    c.say(raw.get());
    REQUIRE(bed.Until([&] { return bed.Has(Event::kPeerLost, 0); }));
    INFO(bed.LostWords(0));
    CHECK(Contains(bed.LostWords(0), c.words));
    CHECK(Contains(bed.LostWords(0), NodeName(0)));
    CHECK(bed.Works());
  }
}

// A peer with two streams that has been granted a message of 100,000 bytes; a mover or the owner
// reads what comes on the second.
struct Granted {
  explicit Granted(int movers) : bed(TcpOptions{.movers = movers}), raws(bed.LogIn(2)) {
    Header open{.type = Type::kOpen, .slots = 4, .notes = 4, .message_bytes = 100, .offset = 10};
    open.tag.communicator = 1;
    raws[0]->Send(open);
    bed.victim->PostRecv(To(0, 1), absl::MakeSpan(got), 77);
    // Its grant is the last frame that comes.
    std::vector<std::byte> seen;
    SHUNT_CHECK(bed.Until([&] {
      const auto bytes = raws[0]->Receive();
      seen.insert(seen.end(), bytes.begin(), bytes.end());
      for (size_t at = wire::kHelloBytes; at + wire::kHeaderBytes <= seen.size();
           at += wire::kHeaderBytes) {
        Header h;
        SHUNT_CHECK(wire::Decode(std::span<const std::byte, wire::kHeaderBytes>(seen.data() + at,
                                                                                wire::kHeaderBytes),
                                 1, &h)
                        .ok());
        if (h.type == Type::kGrant) data.grant = h.grant;
      }
      return data.grant != 0;
    }));
    data.tag = To(0, 1).tag;
  }
  const Completion* received() const {
    const auto found = std::find_if(bed.log.begin(), bed.log.end(), [](const Completion& c) {
      return c.event == Event::kReceived && c.token == 77;
    });
    return found == bed.log.end() ? nullptr : &*found;
  }

  Buffer got = Buffer(100'000, std::byte{1});
  Bed bed;
  std::vector<std::unique_ptr<Raw>> raws;
  Header data{.type = Type::kData, .payload_bytes = 1000, .message_bytes = 100'000};
};

TEST_CASE("data that does not fit its grant ends the peer and its receive") {
  const int spoil = GENERATE(0, 1, 2, 3, 4);
  const int movers = GENERATE(0, 1);
  CAPTURE(spoil, movers);
  Granted granted(movers);
  Header data = granted.data;
  granted.raws[1]->Send(data, 1000);
  data.offset = 1000;
  switch (spoil) {
    case 0:  // twice
      data.offset = 0;
      break;
    case 1:  // a gap
      data.offset = 1001;
      break;
    case 2:  // beyond the end: the decoder's
      data.offset = 99'500;
      break;
    case 3:  // another message's length
      data.message_bytes = 110'000;
      break;
    case 4:  // another message's tag
      data.tag.slice = 2;
      break;
  }
  granted.raws[1]->Send(data, 1000);
  REQUIRE(granted.bed.Until([&] { return granted.bed.Has(Event::kPeerLost, 0); }));
  REQUIRE(granted.received() != nullptr);
  CHECK(granted.received()->code == absl::StatusCode::kUnavailable);
  CHECK(granted.bed.victim->counters(0).protocol_errors == 1);
  CHECK(granted.bed.Works());
}

TEST_CASE("what comes after the end of a peer's first stream still arrives") {
  const int movers = GENERATE(0, 1);
  CAPTURE(movers);
  Granted granted(movers);
  granted.raws[0].reset();
  Header data = granted.data;
  data.payload_bytes = 10'000;
  for (; data.offset < 100'000; data.offset += 10'000) {
    REQUIRE(granted.bed.Works());  // so that all before it has been seen
    granted.raws[1]->Send(data, data.payload_bytes);
  }
  granted.raws[1].reset();
  REQUIRE(granted.bed.Until([&] { return granted.bed.Has(Event::kPeerLost, 0); }));
  INFO(granted.bed.LostWords(0));
  CHECK(Contains(granted.bed.LostWords(0), "closed the connection"));
  REQUIRE(granted.received() != nullptr);
  CHECK(granted.received()->code == absl::StatusCode::kOk);
  CHECK(granted.got == Buffer(100'000));
}

TEST_CASE("a peer whose streams don't all end is lost after a heartbeat") {
  const int movers = GENERATE(0, 1);
  const int ends = GENERATE(0, 1);
  CAPTURE(movers, ends);
  Granted granted(movers);
  granted.raws[ends].reset();
  REQUIRE(granted.bed.Until([&] { return granted.bed.Has(Event::kPeerLost, 0); }));
  INFO(granted.bed.LostWords(0));
  CHECK(Contains(granted.bed.LostWords(0), ends == 0 ? "closed" : "reset"));
  REQUIRE(granted.received() != nullptr);
  CHECK(granted.received()->code == absl::StatusCode::kUnavailable);
  CHECK(granted.bed.Works());
}

TEST_CASE("random frames from a peer end that peer only") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 30; ++round) {
    Bed bed;
    auto raw = bed.LogIn();
    Buffer noise(10'000);
    for (std::byte& b : noise) b = static_cast<std::byte>(random());
    if (round % 2 == 0) {  // with a header that looks right at first
      wire::Put(noise.data(), wire::kMagic);
      wire::Put(noise.data() + 2, uint8_t{1});
      wire::Put(noise.data() + 3, static_cast<uint8_t>(random() % 14));
    }
    raw->Send(noise);
    REQUIRE(bed.Until([&] { return bed.Has(Event::kPeerLost, 0); }));
    CHECK(bed.Works());
  }
}

TEST_CASE("a peer that falls silent is lost after a time, in the middle of a frame too") {
  TcpOptions options;
  options.heartbeat_ns = 50'000'000;
  options.lost_after_ns = 400'000'000;
  Bed bed(options);
  auto raw = bed.LogIn();
  Header open{.type = Type::kOpen, .slots = 4, .notes = 4, .message_bytes = 100, .offset = 10};
  open.tag.communicator = 1;
  raw->Send(open);
  std::vector<std::byte> half(40);
  raw->Send(absl::MakeConstSpan(half));
  const int64_t start = NowNs();
  REQUIRE(bed.Until([&] { return bed.Has(Event::kPeerLost, 0); }));
  CHECK(NowNs() - start >= 300'000'000);
  CHECK(Contains(bed.LostWords(0), "silent for"));
  // Pings keep the honest one, though nothing was posted.
  CHECK(!bed.Has(Event::kPeerLost, 2));
  CHECK(bed.Works());
}

TEST_CASE("a peer that doesn't read keeps only its own messages waiting") {
  Bed bed;
  auto raw = bed.LogIn();
  Header open{
      .type = Type::kOpen, .slots = 1000, .notes = 1000, .message_bytes = 8192, .offset = 1000};
  open.tag.communicator = 1;
  raw->Send(open);
  const Buffer data(8192);
  for (uint32_t i = 0; i < 1000; ++i) bed.victim->PostSend(To(0, i), data, 5000 + i);
  for (int i = 0; i < 20; ++i) REQUIRE(bed.Works());
  bed.victim->Close(1);
  CHECK(bed.victim->Open(2, {2}).ok());
}

TEST_CASE("nobody listening is said in words") {
  TcpOptions options;
  auto connector = std::move(*TcpTransport::Create(NodeOptions(0, options)));
  uint16_t port;
  {
    auto gone = std::move(*TcpTransport::Create(NodeOptions(1, options)));
    port = gone->port();
  }
  REQUIRE(connector->AddPeer(PeerInfo(0, 1, port)).ok());
  Completion c;
  const int64_t deadline = NowNs() + 5'000'000'000;
  while (connector->Poll(absl::MakeSpan(&c, 1)) == 0 && NowNs() < deadline) {
  }
  CHECK(c.event == Event::kPeerLost);
  CHECK(Contains(c.text, "refused"));
  CHECK(Contains(c.text, NodeName(1)));
  connector->RemovePeer(1);
  CHECK(connector->AddPeer(PeerInfo(0, 1, port)).ok());
}

TEST_CASE("options that can't be are refused") {
  TcpOptions options;
  options.name = "n";
  CHECK(!TcpTransport::Create(TcpOptions{}).ok());
  options.streams = 17;
  CHECK(!TcpTransport::Create(options).ok());
  options.streams = 1;
  options.movers = 17;
  CHECK(Contains(std::string(TcpTransport::Create(options).status().message()),
                 "movers: 17, expected 0 to 16"));
  options.movers = 0;
  options.congestion = "nonesuch";
  CHECK(Contains(std::string(TcpTransport::Create(options).status().message()), "nonesuch"));
  options.congestion = "";
  options.listen_address = "localhost";
  CHECK(!TcpTransport::Create(options).ok());
}

}  // namespace
}  // namespace shunt::transport::testing
