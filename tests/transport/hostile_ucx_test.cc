// A UcxTransport and a peer that lies: it has met the victim over TCP as it should, and then does
// with the rail what it likes. It is lost, with words, and nobody else is.
#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "runtime/core/clock.h"
#include "runtime/transport/ucx/ucx_worker.h"
#include "tests/transport/messages.h"
#include "tests/transport/ucx_world.h"

namespace shunt::transport::testing {
namespace {

using wire::Header;
using wire::Type;

// Node 0, played by the test: TCP and UCX are real, what they say is not.
class Liar : public UcxWorker::Owner {
 public:
  explicit Liar(uint16_t victim_port, const std::function<void(std::string*)>& spoil_hello = {}) {
    UcxOptions options;
    options.transports = TestTransports();
    worker_ = std::move(*UcxWorker::Create(options, this));
    TcpOptions tcp = NodeOptions(0, Patient({}));
    tcp.engine.limits.note_bytes_max = 64 << 10;
    tcp_ = std::move(*TcpTransport::Create(tcp));
    SHUNT_CHECK(tcp_->AddPeer(PeerInfo(0, 1, victim_port)).ok());
    const uint64_t meeting = RailMeeting(NodeName(0), 1000, NodeName(1), 1001);
    SHUNT_CHECK(tcp_->Open(meeting, {1}).ok());
    std::string hello = Encode(RailHello{
        .streams = 1, .frames_waiting_max = 16, .key = {1, 2}, .address = worker_->address()});
    if (spoil_hello) spoil_hello(&hello);
    SHUNT_CHECK(tcp_->SendNote(1, meeting, AsBytes(hello)).ok());
  }
  ~Liar() override {
    if (endpoint_ != nullptr) worker_->Close(endpoint_);
  }
  void Poll() {
    Completion batch[4];
    for (size_t i = tcp_->Poll(absl::MakeSpan(batch)); i > 0; --i) {
      if (batch[i - 1].event != Event::kNote) continue;
      const std::string& text = batch[i - 1].text;
      const auto hello =
          DecodeRailHello({reinterpret_cast<const std::byte*>(text.data()), text.size()});
      SHUNT_CHECK(hello.ok());
      key = hello->key;
      endpoint_ = *worker_->Connect(hello->address, nullptr);
      Send(RailWord{.key = key, .kind = RailWord::Kind::kProbe});
    }
    while (worker_->Progress()) {
    }
    if (std::exchange(probed_, false)) {
      Send(RailWord{.key = key, .kind = RailWord::Kind::kAnswer});
    }
  }
  void Send(const RailWord& word) {
    std::vector<std::byte> bytes(kRailWordBytes);
    Encode(word, std::span<std::byte, kRailWordBytes>(bytes));
    Send(UcxWorker::Kind::kWord, std::move(bytes), 0, false);
  }
  void Send(const RailHead& head, size_t payload = 0, bool fetch = false) {
    std::vector<std::byte> bytes(kRailHeadBytes);
    Encode(head, std::span<std::byte, kRailHeadBytes>(bytes));
    Send(UcxWorker::Kind::kFrame, std::move(bytes), payload, fetch);
  }
  void Send(UcxWorker::Kind kind, std::vector<std::byte> head, size_t payload, bool fetch) {
    calls_.push_back(std::make_unique<Call>());
    Call* call = calls_.back().get();
    call->head = std::move(head);
    call->payload.resize(payload);
    SHUNT_CHECK(
        worker_->Send(endpoint_, kind, call->head, call->payload, nullptr, fetch, call).ok());
  }
  RailHead Frame(uint64_t number, Type type = Type::kPing) const {
    RailHead head;
    head.key = key;
    head.number = number;
    head.header.type = type;
    return head;
  }
  RailKey key{};

 private:
  struct Call : UcxWorker::Call {
    std::vector<std::byte> head, payload;
  };
  bool OnMessage(UcxWorker::Kind, std::span<const std::byte> bytes, std::span<const std::byte>,
                 UcxWorker::Offer*, size_t) override {
    RailWord word;
    probed_ = probed_ || (DecodeRailWord(bytes, &word).ok() && word.kind == RailWord::Kind::kProbe);
    return false;
  }
  void OnSent(UcxWorker::Call*, const absl::Status&) override {}
  void OnFetched(UcxWorker::Call*, const absl::Status&) override {}
  void OnFailed(void*, const absl::Status&) override {}

  std::vector<std::unique_ptr<Call>> calls_;  // outlive the worker
  std::unique_ptr<UcxWorker> worker_;
  std::unique_ptr<TcpTransport> tcp_;
  UcxWorker::Endpoint* endpoint_ = nullptr;
  bool probed_ = false;
};

// The victim is node 1; node 2 is honest.
struct Bed {
  explicit Bed(const std::function<void(std::string*)>& spoil_hello = {}) {
    UcxOptions base;
    base.transports = TestTransports();
    base.frames_waiting_max = 8;
    base.bootstrap = Patient({});
    base.bootstrap = NodeOptions(1, base.bootstrap);
    victim = std::move(*UcxTransport::Create(base));
    base.bootstrap = NodeOptions(2, base.bootstrap);
    honest = std::move(*UcxTransport::Create(base));
    liar = std::make_unique<Liar>(victim->port(), spoil_hello);
    SHUNT_CHECK(victim->AddPeer(PeerInfo(1, 2, honest->port())).ok());
    SHUNT_CHECK(honest->AddPeer(PeerInfo(2, 1, victim->port())).ok());
    SHUNT_CHECK(victim->AddPeer(PeerInfo(1, 0, 0)).ok());
    SHUNT_CHECK(victim->Open(1, {0, 2}).ok() && honest->Open(1, {1}).ok());
    SHUNT_CHECK(Until([&] {
      return Has(Event::kPeerUp, 2) && (Has(Event::kPeerUp, 0) || Has(Event::kPeerLost, 0));
    }));
  }
  bool Until(const std::function<bool()>& done) {
    const int64_t deadline_ns = NowNs() + 20'000'000'000;
    for (;;) {
      liar->Poll();
      Take(victim.get(), &log);
      Take(honest.get(), &honest_log);
      if (done()) return true;
      if (NowNs() > deadline_ns) return false;
      pollfd fds[2] = {{victim->fd(), POLLIN, 0}, {honest->fd(), POLLIN, 0}};
      ::poll(fds, 2, 1);  // the liar is looked at in between
    }
  }
  static void Take(UcxTransport* transport, Log* to) {
    Completion batch[8];
    while (const size_t count = transport->Poll(absl::MakeSpan(batch))) {
      to->insert(to->end(), batch, batch + count);
    }
  }
  bool Has(Event event, PeerId peer) const {
    return std::any_of(log.begin(), log.end(),
                       [&](const Completion& c) { return c.event == event && c.peer == peer; });
  }
  std::string LossOfLiar() {
    if (!Until([&] { return Has(Event::kPeerLost, 0); })) return "not lost";
    for (const Completion& c : log) {
      if (c.event == Event::kPeerLost && c.peer == 0) return c.text;
    }
    return "";
  }
  // Messages still go to and from the honest peer.
  void CheckHonest() {
    const Buffer data = Pattern(200'000, 3);
    Buffer got(data.size());
    victim->PostRecv(To(2, 77), absl::MakeSpan(got), 77);
    honest->PostSend(To(1, 77), data, 77);
    REQUIRE(Until([&] {
      return std::any_of(log.begin(), log.end(), [](const Completion& c) {
        return c.event == Event::kReceived && c.token == 77;
      });
    }));
    CHECK(got == data);
    CHECK(!Has(Event::kPeerLost, 2));
  }
  std::unique_ptr<UcxTransport> victim, honest;
  std::unique_ptr<Liar> liar;
  Log log, honest_log;
};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a peer that sends beyond its window is lost, and the honest one is not") {
  Bed bed;
  // Number 0 never comes, so nothing is taken and the window stays where it is.
  for (uint64_t number = 1; number < 8; ++number) bed.liar->Send(bed.liar->Frame(number));
  bed.liar->Send(bed.liar->Frame(8));
  const std::string words = bed.LossOfLiar();
  CAPTURE(words);
  CHECK(Contains(words, "frame 8 of stream 0, expected one of 8 from 0"));
  CHECK(bed.victim->counters(0).protocol_errors == 1);
  bed.CheckHonest();
}

TEST_CASE("what breaks the rail's rules loses the peer, with words") {
  struct Lie {
    const char* words;
    std::function<void(Liar*)> tell;
  };
  const Lie lie = GENERATE(values<Lie>({
      {"came twice",
       [](Liar* liar) {
         liar->Send(liar->Frame(3));
         liar->Send(liar->Frame(3));
       }},
      {"stream is 5, expected less than 1",
       [](Liar* liar) {
         RailHead head = liar->Frame(0);
         head.stream = 5;
         liar->Send(head);
       }},
      {"says it took 99 frames",
       [](Liar* liar) { liar->Send(RailWord{.key = liar->key, .taken = 99}); }},
      {"has a payload of 7 bytes, expected 0", [](Liar* liar) { liar->Send(liar->Frame(0), 7); }},
      {"to be fetched, at least 1024",
       [](Liar* liar) {
         RailHead head = liar->Frame(0, Type::kNote);
         head.header.tag.communicator = 1;
         head.header.payload_bytes = 20;
         liar->Send(head, 20, true);
       }},
      {"head's length is 16",
       [](Liar* liar) {
         std::vector<std::byte> bytes(16);
         std::memcpy(bytes.data(), liar->key.data(), 16);
         liar->Send(UcxWorker::Kind::kFrame, bytes, 0, false);
       }},
      {"kind is 9",
       [](Liar* liar) {
         liar->Send(RailWord{.key = liar->key, .kind = static_cast<RailWord::Kind>(9)});
       }},
      {"grant 12345 does not exist",
       [](Liar* liar) {
         RailHead open = liar->Frame(0, Type::kOpen);
         open.header.tag.communicator = 1;
         open.header.offset = 10;
         liar->Send(open);
         RailHead data = liar->Frame(1, Type::kData);
         data.header.tag.communicator = 1;
         data.header.grant = 12345;
         data.header.message_bytes = data.header.payload_bytes = 2000;
         liar->Send(data, 2000, true);
       }},
  }));
  Bed bed;
  lie.tell(bed.liar.get());
  const std::string words = bed.LossOfLiar();
  CAPTURE(words);
  CHECK(Contains(words, lie.words));
  CHECK(Contains(words, NodeName(0)));
  bed.CheckHonest();
}

TEST_CASE("a message that shows no key of a peer is refused and counted, and harms nobody") {
  Bed bed;
  RailHead head = bed.liar->Frame(0);
  head.key = {7, 7};
  bed.liar->Send(head);
  bed.liar->Send(UcxWorker::Kind::kWord, std::vector<std::byte>(3), 0, false);
  head.header.type = Type::kNote;
  head.header.payload_bytes = 5000;
  bed.liar->Send(head, 5000, true);
  REQUIRE(bed.Until([&] { return bed.victim->statistics().messages_refused == 3; }));
  bed.CheckHonest();
  CHECK(!bed.Has(Event::kPeerLost, 0));
}

TEST_CASE("a hello that makes no sense loses the peer before anything of UCX's is asked") {
  Bed bed([](std::string* hello) { (*hello)[0] ^= 1; });
  CHECK(Contains(bed.LossOfLiar(), "rail hello: magic"));
  bed.CheckHonest();
}

TEST_CASE("nothing listens but the meeting's own socket, and UCX's TCP is refused") {
  UcxOptions options;
  options.transports = TestTransports();
  options.bootstrap = NodeOptions(1);
  const auto listening = [] {
    int count = 0;
    DIR* fds = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(fds)) {
      int listens = 0;
      socklen_t bytes = sizeof(listens);
      if (::getsockopt(std::atoi(entry->d_name), SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) ==
          0) {
        count += listens;
      }
    }
    ::closedir(fds);
    return count;
  };
  const int before = listening();
  auto transport = UcxTransport::Create(options);
  REQUIRE(transport.ok());
  CHECK(listening() == before + 1);
  for (const char* transports : {"tcp", "all", "rc,tcp", "^tcp", "", "ud"}) {
    options.transports = transports;
    CHECK(UcxTransport::Create(options).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("receives into memory that was added use its registration") {
  UcxWorld world(2);
  world.OpenAll(1);
  Buffer memory(1 << 20), elsewhere(100'000);
  const Buffer data = Pattern(100'000, 1);
  REQUIRE(world.ucx(1).AddMemory(absl::MakeSpan(memory)).ok());
  for (uint32_t i = 0; i < 4; ++i) {
    const absl::Span<std::byte> into =
        i == 3 ? absl::MakeSpan(elsewhere) : absl::MakeSpan(memory).subspan(i * 100'000, 100'000);
    world.at(1).PostRecv(To(0, i), into, i);
    world.at(0).PostSend(To(1, i), data, i);
    REQUIRE(world.Code(1, Event::kReceived, i) == absl::StatusCode::kOk);
    CHECK(std::equal(into.begin(), into.end(), data.begin()));
  }
  const UcxStatistics statistics = world.ucx(1).statistics();
  CHECK(statistics.fetches == 4);
  CHECK(statistics.fetches_registered == 3);
  CHECK(statistics.registrations.misses == 1);
  CHECK(statistics.registrations.hits == 2);
  CHECK(statistics.registrations.bytes == 1 << 20);
  CHECK(world.ucx(1).RemoveMemory(memory.data()).ok());
  CHECK(world.ucx(1).statistics().registrations.bytes == 0);
}

TEST_CASE("whenever a receiver closes, nothing lands in its buffer afterwards") {
  UcxWorld world(2);
  const Buffer data = Pattern(2 << 20, 1);
  const Buffer mark(data.size(), std::byte{7});
  Buffer got(data.size());
  for (uint64_t communicator = 1; communicator <= 40; ++communicator) {
    world.OpenAll(communicator);
    world.at(1).PostRecv(To(0, 0, communicator), absl::MakeSpan(got), communicator);
    world.at(0).PostSend(To(1, 0, communicator), data, communicator);
    const uint64_t polls = communicator % 20;
    world.UntilSome([&, polled = uint64_t{0}]() mutable { return ++polled > polls; });
    world.at(1).Close(communicator);
    std::copy(mark.begin(), mark.end(), got.begin());
    world.at(0).Close(communicator);
    world.Settle();
    REQUIRE(std::equal(got.begin(), got.end(), mark.begin()));
  }
}

TEST_CASE("a removed peer's number and name can be used again") {
  UcxWorld world(2);
  world.OpenAll(1);
  Buffer data(300'000), got(300'000);
  world.at(0).PostRecv(To(1, 0), absl::MakeSpan(got), 0);
  world.Settle();
  world.ucx(0).RemovePeer(1);
  REQUIRE(world.WaitCount(0, Event::kPeerLost, 1));
  CHECK(world.Code(0, Event::kReceived, 0) == absl::StatusCode::kUnavailable);
  REQUIRE(world.WaitCount(1, Event::kPeerLost, 1));
  world.ucx(1).RemovePeer(0);
  REQUIRE(world.ucx(0).AddPeer(PeerInfo(0, 1, world.ucx(1).port())).ok());
  REQUIRE(world.ucx(1).AddPeer(PeerInfo(1, 0, world.ucx(0).port())).ok());
  world.OpenAll(2);
  world.at(0).PostRecv(To(1, 0, 2), absl::MakeSpan(got), 5);
  world.at(1).PostSend(To(0, 0, 2), data, 5);
  const auto code = world.Code(0, Event::kReceived, 5);
  for (int node = 0; node < 2; ++node) {
    for (const Completion& c : world.log(node)) UNSCOPED_INFO(node << ": " << c.text);
  }
  CHECK(code == absl::StatusCode::kOk);
}

}  // namespace
}  // namespace shunt::transport::testing
