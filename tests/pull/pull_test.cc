// Transfers between nodes, over a network in virtual time and over TCP: right bytes, one end for
// each, and nothing left of any.
#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>
#include <numeric>
#include <random>
#include <tuple>

#include "runtime/p2p/prepared_list.h"
#include "runtime/pull/pull_engine.h"
#include "tests/transport/messages.h"
#include "tests/transport/tcp_world.h"
#include "tests/transport/world.h"

namespace shunt::pull {
namespace {

using transport::Class;
using transport::Completion;
using transport::Event;
using transport::PeerId;
using transport::testing::Buffer;
using transport::testing::FakePortsWorld;
using transport::testing::FakeStreamsWorld;
using transport::testing::FakeWorld;
using transport::testing::Pattern;
using transport::testing::Same;
using transport::testing::TcpMoversWorld;
using transport::testing::TcpWorld;

constexpr uint64_t kTokens = 0xffffffffull << 32;
constexpr uint64_t kBlock = 4096;

// One node's memory, as blocks, and its engine.
struct Node {
  // Every other node names its blocks to the transport, and every other copies them together.
  Node(transport::Transport* transport, size_t blocks, uint64_t seed, p2p::WorkPool* pool)
      : memory(Pattern(blocks * kBlock, seed)) {
    p2p::Section section;
    section.name = "kv";
    section.regions = {{1, memory.size()}};
    section.sets = {{1, 0, kBlock, {{{blocks, static_cast<int64_t>(kBlock)}}}}};
    list = *p2p::PreparedList::Prepare(section, seed);
    PullEngine::Options options;
    options.transport = transport;
    options.pool = pool;
    options.token_base = kTokens;
    options.grant_bytes = 64 << 10;
    options.gathered_bytes = 64 << 10;
    options.place_bytes = seed % 2 == 0 ? kBlock : 2 * kBlock;
    options.post = [this](std::function<void()> f) {
      const std::lock_guard lock(mutex);
      mail.push_back(std::move(f));
    };
    options.resolve = [this](PeerId, FlowId flow, const Ask& ask, std::vector<std::byte> array,
                             PullEngine::Resolved resolved) {
      asked.push_back(flow);
      if (ask.section != "kv") {
        return resolved(absl::NotFoundError("no section \"" + ask.section + "\""));
      }
      auto side = SideOf(ask, array);
      if (!side.ok()) return resolved(side.status());
      PullEngine::Incoming incoming{*std::move(side), [this, ask](const absl::Status& status) {
                                      ends.push_back(status);
                                      if (status.ok() && ask.notify) {
                                        notifications.push_back(ask.notification);
                                      }
                                    }};
      if (!late && ask.tenant != late_tenant) return resolved(std::move(incoming));
      waiting.push_back([resolved, incoming = std::make_shared<PullEngine::Incoming>(
                                       std::move(incoming))] { resolved(std::move(*incoming)); });
    };
    options.broken = [this](PeerId, const std::string&) { ++broken; };
    engine = std::make_unique<PullEngine>(std::move(options));
  }

  absl::StatusOr<Side> SideOf(const Ask& ask, const std::vector<std::byte>& array) {
    const auto* ids = reinterpret_cast<const uint32_t*>(array.data());
    auto selection = ask.form == Form::kAll
                         ? p2p::Selection::All(list)
                         : p2p::Selection::Ids(list, absl::MakeConstSpan(ids, ask.count));
    if (!selection.ok()) return selection.status();
    return Side{*std::move(selection), {memory.data()}, nullptr};
  }
  Side Blocks(const std::vector<uint32_t>& ids) {
    return {*p2p::Selection::Ids(list, absl::MakeConstSpan(ids)), {memory.data()}, nullptr};
  }
  bool RunMail() {
    std::vector<std::function<void()>> some;
    {
      const std::lock_guard lock(mutex);
      some.swap(mail);
    }
    for (const auto& f : some) f();
    return !some.empty();
  }

  Buffer memory;
  std::shared_ptr<const p2p::PreparedList> list;
  std::unique_ptr<PullEngine> engine;
  std::mutex mutex;
  std::vector<std::function<void()>> mail;
  int broken = 0;
  bool deaf = false;                  // the test plays its part
  int heard = 0;                      // notes, then
  bool late = false;                  // what peers ask for is not looked up at once
  uint32_t late_tenant = UINT32_MAX;  // nor what they ask for on behalf of this one
  std::vector<std::function<void()>> waiting;
  std::vector<FlowId> asked;
  std::vector<absl::Status> ends;  // of what others have asked for
  std::vector<std::string> notifications;
};

template <typename World>
struct Bed {
  explicit Bed(int count = 2, size_t blocks = 256, p2p::WorkPool* pool = nullptr) : world(count) {
    for (int i = 0; i < count; ++i) {
      nodes.push_back(
          std::make_unique<Node>(&world.at(i), blocks, 1 + static_cast<uint64_t>(i), pool));
    }
    REQUIRE(Until([&] {
      return std::all_of(up.begin(), up.end(), [&](int n) { return n == count - 1; }) &&
             up.size() == static_cast<size_t>(count);
    }));
  }
  ~Bed() {
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!dead[i]) nodes[i]->engine->Stop();
    }
  }
  static uint64_t Communicator(size_t a, size_t b) {
    return 100 + std::min(a, b) * 10 + std::max(a, b);
  }

  bool Turn() {
    bool any = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (dead[i]) continue;
      any |= nodes[i]->RunMail();
      Completion batch[16];
      while (const size_t count = world.at(static_cast<int>(i)).Poll(absl::MakeSpan(batch))) {
        any = true;
        for (size_t k = 0; k < count; ++k) On(i, batch[k]);
      }
      nodes[i]->engine->Pump();
    }
    return any;
  }
  void On(size_t node, const Completion& c) {
    PullEngine& engine = *nodes[node]->engine;
    if (nodes[node]->deaf) {
      if (c.event == Event::kNote) ++nodes[node]->heard;
      return;
    }
    switch (c.event) {
      case Event::kPeerUp:
        engine.PeerUp(c.peer, Communicator(node, c.peer), node < c.peer);
        ++up[node];
        break;
      case Event::kPeerLost:
        engine.PeerLost(c.peer, c.text);
        lost += c.text;
        break;
      case Event::kNote:
        engine.OnNote(c);
        break;
      case Event::kStray:
        break;  // an ask beyond those that are waited for
      default:
        engine.OnCompletion(c);
    }
  }
  bool Until(const std::function<bool()>& done) {
    up.resize(nodes.size());
    dead.resize(nodes.size());
    const int64_t deadline = NowNs() + 20'000'000'000;
    while (!done()) {
      if (Turn()) continue;
      if (done()) break;
      if (NowNs() > deadline || !Wait()) return false;
    }
    return true;
  }
  bool Wait() {
    if constexpr (std::is_base_of_v<TcpWorld, World>) {
      std::vector<pollfd> fds;
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (!dead[i]) fds.push_back({world.at(static_cast<int>(i)).fd(), POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), 1);  // work of the pool comes without a descriptor
      return true;
    } else {
      return world.Pump();
    }
  }
  void Kill(size_t node) {
    dead[node] = true;
    world.Kill(static_cast<int>(node));
  }

  struct Result {
    int ended = 0;
    absl::Status status;
  };
  FlowId Begin(size_t from, PeerId to, Ask ask, const std::vector<uint32_t>& here,
               const std::vector<uint32_t>& there, Result* result) {
    ask.agent = "a";
    if (ask.section.empty()) ask.section = "kv";
    ask.form = Form::kIds32;
    ask.count = there.size();
    if (ask.slice_bytes == 0) ask.slice_bytes = 3 * kBlock;
    ask.bytes = here.size() * kBlock;
    PullEngine::Outgoing outgoing{
        to, ask, {}, nodes[from]->Blocks(here), [result](const absl::Status& status) {
          ++result->ended;
          result->status = status;
        }};
    outgoing.array.resize(there.size() * 4);
    std::memcpy(outgoing.array.data(), there.data(), outgoing.array.size());
    const FlowId id = nodes[from]->engine->NewId();
    nodes[from]->engine->Start(id, std::move(outgoing));
    return id;
  }
  absl::Status Move(size_t from, PeerId to, const Ask& ask, const std::vector<uint32_t>& here,
                    const std::vector<uint32_t>& there) {
    Result result;
    Begin(from, to, ask, here, there, &result);
    REQUIRE(Until([&] { return result.ended != 0; }));
    return result.status;
  }
  // Nothing is left anywhere.
  bool Empty() {
    return Until([&] {
      return std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) {
        return dead[static_cast<size_t>(&node - nodes.data())] || node->engine->flows() == 0;
      });
    });
  }

  std::string lost;
  std::vector<bool> dead;
  std::vector<int> up;
  std::vector<std::unique_ptr<Node>> nodes;
  World world;
};

std::vector<uint32_t> Numbers(uint32_t first, uint32_t count, uint32_t step = 1) {
  std::vector<uint32_t> numbers(count);
  for (uint32_t i = 0; i < count; ++i) numbers[i] = first + i * step;
  return numbers;
}

void Copy(Buffer* to, const std::vector<uint32_t>& to_ids, const Buffer& from,
          const std::vector<uint32_t>& from_ids) {
  for (size_t i = 0; i < to_ids.size(); ++i) {
    std::copy_n(from.begin() + from_ids[i] * kBlock, kBlock, to->begin() + to_ids[i] * kBlock);
  }
}

using Worlds = std::tuple<FakeWorld, FakeStreamsWorld, FakePortsWorld, TcpWorld, TcpMoversWorld>;

TEMPLATE_LIST_TEST_CASE("a pull and a push move the named blocks and no others", "", Worlds) {
  Bed<TestType> bed;
  const std::vector<uint32_t> here = {5,  0,  200, 7,  8,  9,  10, 11, 12,
                                      13, 14, 99,  40, 41, 42, 43, 2};
  const std::vector<uint32_t> there = Numbers(250, 17, static_cast<uint32_t>(-15));
  for (const bool push : {false, true}) {
    const Buffer before[2] = {bed.nodes[0]->memory, bed.nodes[1]->memory};
    Buffer expected[2] = {before[0], before[1]};
    if (push) {
      Copy(&expected[1], there, before[0], here);
    } else {
      Copy(&expected[0], here, before[1], there);
    }
    Ask ask;
    ask.push = push;
    ask.notify = true;
    ask.notification = push ? "pushed" : "pulled";
    REQUIRE(bed.Move(0, 1, ask, here, there).ok());
    CHECK(Same(bed.nodes[0]->memory, expected[0]));
    CHECK(Same(bed.nodes[1]->memory, expected[1]));
    REQUIRE(bed.Empty());
    CHECK(bed.nodes[1]->notifications.back() == ask.notification);
  }
  CHECK(bed.nodes[1]->notifications.size() == 2);
  CHECK(bed.nodes[1]->ends == std::vector<absl::Status>(2));
}

TEMPLATE_LIST_TEST_CASE("what is refused on the other node ends there and here, in words", "",
                        Worlds) {
  Bed<TestType> bed;
  const Buffer before = bed.nodes[0]->memory;
  Ask ask;
  ask.push = GENERATE(false, true);
  ask.section = "other";
  const absl::Status status = bed.Move(0, 1, ask, Numbers(0, 100), Numbers(0, 100));
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(status.message() == "no section \"other\"");
  REQUIRE(bed.Empty());
  CHECK(bed.Move(0, 1, Ask{.push = ask.push}, Numbers(0, 2), {5, 256}).code() ==
        absl::StatusCode::kOutOfRange);
  // Pieces of another length than what was asked for.
  CHECK(bed.Move(0, 1, Ask{.push = ask.push}, Numbers(0, 2), {5, 6, 7}).code() ==
        absl::StatusCode::kInvalidArgument);
  REQUIRE(bed.Empty());
  CHECK(Same(bed.nodes[0]->memory, before));
  CHECK(Same(bed.nodes[1]->memory, Pattern(256 * kBlock, 2)));
  CHECK(bed.Move(0, 1, Ask{.push = ask.push}, Numbers(0, 100), Numbers(0, 100)).ok());
}

TEMPLATE_LIST_TEST_CASE("either side may give up at any time, and others go on", "", Worlds) {
  const uint64_t seed = GENERATE(range(1, 6));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  p2p::WorkPool pool({.threads = 2});
  Bed<TestType> bed(3, 512, random() % 2 == 0 ? &pool : nullptr);
  bed.nodes[1]->late = true;
  struct Moved {
    size_t from;
    PeerId to;
    FlowId flow;
    bool push, cancelled = false;
    std::vector<uint32_t> here, there;
    typename Bed<TestType>::Result result;
  };
  std::vector<std::unique_ptr<Moved>> all;
  // Each reads a part of the memory that nobody writes, and writes one that nobody else touches.
  std::array<uint32_t, 3> written = {256, 256, 256};
  for (int i = 0; i < 90; ++i) {
    auto moved = std::make_unique<Moved>();
    moved->from = random() % 3;
    moved->to = static_cast<PeerId>((moved->from + 1 + random() % 2) % 3);
    moved->push = random() % 2 == 0;
    const auto count = static_cast<uint32_t>(1 + random() % 7);
    uint32_t& next = written[moved->push ? moved->to : moved->from];
    if (next + count > 512) continue;
    std::vector<uint32_t>& sink = moved->push ? moved->there : moved->here;
    std::vector<uint32_t>& source = moved->push ? moved->here : moved->there;
    sink = Numbers(next, count);
    next += count;
    for (uint32_t k = 0; k < count; ++k) source.push_back(static_cast<uint32_t>(random() % 256));
    Ask ask;
    ask.push = moved->push;
    ask.slice_bytes = static_cast<uint32_t>(kBlock * (1 + random() % 3));
    ask.service_class = static_cast<Class>(random() % 3);
    ask.notify = random() % 3 == 0;
    moved->flow = bed.Begin(moved->from, moved->to, ask, moved->here, moved->there, &moved->result);
    all.push_back(std::move(moved));
    for (uint64_t turns = random() % 4; turns > 0; --turns) bed.Turn(), bed.Wait();
    if (random() % 3 == 0) {
      Moved& victim = *all[random() % all.size()];
      bed.nodes[victim.from]->engine->Cancel(victim.flow, absl::CancelledError("enough"));
      victim.cancelled = true;
    }
    Node& other = *bed.nodes[random() % 3];
    if (random() % 4 == 0 && !other.asked.empty()) {
      other.engine->Cancel(other.asked[random() % other.asked.size()],
                           absl::UnavailableError("the agent has ended"));
    }
    if (random() % 2 == 0) {
      for (const auto& f : std::exchange(bed.nodes[1]->waiting, {})) f();
    }
  }
  REQUIRE(bed.Until([&] {
    for (const auto& f : std::exchange(bed.nodes[1]->waiting, {})) f();
    return std::all_of(all.begin(), all.end(), [](const auto& m) { return m->result.ended != 0; });
  }));
  bed.nodes[1]->late = false;
  REQUIRE(bed.Empty());
  int whole = 0;
  for (const auto& moved : all) {
    CHECK(moved->result.ended == 1);
    const absl::Status& status = moved->result.status;
    if (!status.ok()) {
      const bool expected = (moved->cancelled && status.code() == absl::StatusCode::kCancelled) ||
                            status.code() == absl::StatusCode::kUnavailable;
      CHECK(expected);
      // Each block holds what was there, what was to come, or zeros: nobody else's bytes.
      const size_t sink = moved->push ? moved->to : moved->from;
      const size_t source = moved->push ? moved->from : moved->to;
      const std::vector<uint32_t>& to = moved->push ? moved->there : moved->here;
      const std::vector<uint32_t>& from = moved->push ? moved->here : moved->there;
      const Buffer before = Pattern(512 * kBlock, 1 + sink), zeros(kBlock);
      for (size_t i = 0; i < to.size(); ++i) {
        const auto block = bed.nodes[sink]->memory.begin() + to[i] * kBlock;
        const bool known =
            std::equal(zeros.begin(), zeros.end(), block) ||
            std::equal(block, block + kBlock, before.begin() + to[i] * kBlock) ||
            std::equal(block, block + kBlock, bed.nodes[source]->memory.begin() + from[i] * kBlock);
        CHECK(known);
      }
      continue;
    }
    ++whole;
    const Buffer& source = bed.nodes[moved->push ? moved->from : moved->to]->memory;
    const Buffer& sink = bed.nodes[moved->push ? moved->to : moved->from]->memory;
    const std::vector<uint32_t>& from = moved->push ? moved->here : moved->there;
    const std::vector<uint32_t>& to = moved->push ? moved->there : moved->here;
    for (size_t i = 0; i < to.size(); ++i) {
      REQUIRE(std::equal(sink.begin() + to[i] * kBlock, sink.begin() + (to[i] + 1) * kBlock,
                         source.begin() + from[i] * kBlock));
    }
  }
  CHECK(whole > 0);
  // What nobody wrote is as it was.
  for (size_t i = 0; i < 3; ++i) {
    const Buffer before = Pattern(512 * kBlock, 1 + i);
    CHECK(std::equal(before.begin(), before.begin() + 256 * kBlock, bed.nodes[i]->memory.begin()));
    CHECK(std::equal(before.begin() + written[i] * kBlock, before.end(),
                     bed.nodes[i]->memory.begin() + written[i] * kBlock));
  }
}

TEMPLATE_LIST_TEST_CASE("a lost node ends what was asked of it, by name of the reason", "",
                        Worlds) {
  Bed<TestType> bed(3);
  bed.nodes[2]->late = true;
  typename Bed<TestType>::Result results[4], other;
  for (int i = 0; i < 4; ++i) {
    Ask ask;
    ask.push = i % 2 == 0;
    bed.Begin(0, 2, ask, Numbers(static_cast<uint32_t>(i) * 20, 20), Numbers(0, 20), &results[i]);
    bed.Begin(2, 0, ask, Numbers(0, 20), Numbers(static_cast<uint32_t>(4 + i) * 20, 20), &other);
  }
  REQUIRE(bed.Until([&] { return bed.nodes[2]->asked.size() == 4; }));
  bed.Kill(2);
  const bool over = bed.Until([&] { return bed.nodes[0]->engine->flows() == 0; });
  CAPTURE(bed.lost, bed.nodes[0]->engine->flows());
  REQUIRE(over);
  for (const auto& result : results) {
    CHECK(result.ended == 1);
    CHECK(result.status.code() == absl::StatusCode::kUnavailable);
    CHECK(result.status.message().find("is lost (") != std::string::npos);
  }
  CHECK(bed.Move(0, 1, {}, Numbers(0, 50), Numbers(3, 50)).ok());
  CHECK(bed.Move(0, 2, {}, Numbers(0, 1), Numbers(0, 1)).code() == absl::StatusCode::kUnavailable);
}

// The connection to a node that lives may break and be made again, under the same name.
TEMPLATE_LIST_TEST_CASE("a lost peer leaves nothing open, so that it can come back", "", Worlds) {
  Bed<TestType> bed(3);
  bed.nodes[1]->late = true;
  typename Bed<TestType>::Result first;
  bed.Begin(0, 1, {}, Numbers(0, 60), Numbers(0, 60), &first);
  REQUIRE(bed.Until([&] { return bed.nodes[1]->asked.size() == 1; }));
  for (size_t i = 0; i < 2; ++i) bed.nodes[i]->engine->PeerLost(static_cast<PeerId>(1 - i), "test");
  for (const auto& f : std::exchange(bed.nodes[1]->waiting, {})) f();
  CHECK(first.ended == 1);
  CHECK(first.status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(bed.Empty());
  // The one that comes back has another number, as node 2 has.
  for (int i = 0; i < 2; ++i) CHECK(bed.world.at(i).Open(bed.Communicator(0, 1), {2}).ok());
}

// What a daemon that lies says, with an honest one listening.
TEMPLATE_LIST_TEST_CASE("a peer that breaks the protocol is dropped with words, and harms no other",
                        "", Worlds) {
  const int lie = GENERATE(0, 1, 2, 3, 4, 5);
  CAPTURE(lie);
  Bed<TestType> bed(3);
  transport::Transport& liar = bed.world.at(2);
  const uint64_t communicator = bed.Communicator(0, 2);
  bed.nodes[2]->engine->Stop();
  bed.nodes[2]->deaf = true;
  REQUIRE(liar.Open(communicator + 1000, {0}).ok());
  typename Bed<TestType>::Result result;
  // Node 0's end of it was closed by the stop: it comes back, as after a broken connection.
  bed.nodes[0]->engine->PeerLost(2, "test");
  bed.nodes[0]->engine->PeerUp(2, communicator + 1000, true);
  const FlowId flow = bed.Begin(0, 2, {}, Numbers(0, 60), Numbers(0, 60), &result);
  PullEngine& victim = *bed.nodes[0]->engine;
  int64_t now_ns = 0;
  const auto pass = [&](int64_t ns) {
    for (const int64_t end_ns = now_ns + ns; now_ns < end_ns;) victim.Tick(now_ns += 500'000'000);
  };
  constexpr int64_t kSilenceNs = 10'000'000'000;
  const auto note = [&](const Note& n) {
    const std::string bytes = Encode(n, 1024);
    REQUIRE(liar.SendNote(0, communicator + 1000, transport::testing::AsBytes(bytes)).ok());
  };
  std::vector<std::byte> ask(2 * kAskBytes);
  Note stop;
  stop.kind = Note::Kind::kStop;
  stop.number = 1;
  stop.code = absl::StatusCode::kCancelled;
  const auto send = [&](uint64_t number, size_t at) {
    transport::Message message;
    message.peer = 0;
    message.tag = {communicator + 1000, number, 2, 2, 0};
    message.signature = 0x7368756e7470756c;
    message.service_class = Class::kLatency;
    liar.PostSend(message, absl::MakeConstSpan(ask).subspan(at, kAskBytes), number);
  };
  switch (lie) {
    case 0:  // two asks that are none, at once
      send(1, 0);
      send(2, kAskBytes);
      break;
    case 1:
      REQUIRE(liar.SendNote(0, communicator + 1000, transport::testing::AsBytes("nonsense")).ok());
      send(1, 0);
      break;
    case 2:  // of what it was asked for, more than it can have sent
      stop.by_receiver = true;
      stop.frontier = 1'000'000;
      note(stop);
      break;
    case 3: {  // of an ask to come, and then the ask
      stop.frontier = 1'000'000;
      note(stop);
      Ask big{.push = true, .slice_bytes = kSliceBytesMin, .bytes = uint64_t{1} << 42};
      big.agent = "a";
      big.section = "kv";
      Encode(big, absl::MakeSpan(ask).subspan(0, kAskBytes));
      send(1, 0);
      break;
    }
    case 4:  // nothing, to a stop
      pass(kSilenceNs);
      victim.Cancel(flow, absl::CancelledError("enough"));
      pass(kSilenceNs);
      REQUIRE(result.ended == 0);
      pass(1'000'000'000);
      break;
    case 5:  // that it will send some more, and doesn't
      pass(kSilenceNs);
      stop.by_receiver = true;
      stop.frontier = 2;
      note(stop);
      REQUIRE(bed.Until([&] { return bed.nodes[2]->heard == 1; }));  // the answer
      pass(kSilenceNs);
      REQUIRE(result.ended == 0);
      pass(1'000'000'000);
      break;
  }
  REQUIRE(bed.Until([&] { return result.ended == 1; }));
  if (lie >= 4) {  // its end had been decided already
    CHECK(result.status.code() == absl::StatusCode::kCancelled);
  } else {
    CHECK(result.status.code() == absl::StatusCode::kUnavailable);
    CHECK(result.status.message().find("broke the protocol") != std::string::npos);
  }
  REQUIRE(bed.Until([&] { return bed.nodes[0]->engine->flows() == 0; }));
  CHECK(bed.nodes[0]->broken == 1);
  CHECK(bed.Move(0, 1, {}, Numbers(0, 50), Numbers(3, 50)).ok());
}

using TwoWorlds = std::tuple<FakeWorld, TcpWorld>;

TEMPLATE_LIST_TEST_CASE("more transfers than may run at a time wait, the urgent ones first", "",
                        TwoWorlds) {
  Bed<TestType> bed(2, 512);
  std::vector<typename Bed<TestType>::Result> results(300);
  std::vector<int> order;
  for (uint32_t i = 0; i < 300; ++i) {
    Ask ask;
    ask.service_class = i == 299 ? Class::kLatency : Class::kBulk;
    bed.Begin(0, 1, ask, {256 + i % 200}, {i % 200}, &results[i]);
  }
  int before = 0;
  REQUIRE(bed.Until([&] {
    if (results[299].ended == 0) {
      before = static_cast<int>(std::count_if(results.begin(), results.end(),
                                              [](const auto& r) { return r.ended != 0; }));
    }
    return std::all_of(results.begin(), results.end(), [](const auto& r) { return r.ended == 1; });
  }));
  for (const auto& result : results) CHECK(result.status.ok());
  CHECK(before < 200);
  REQUIRE(bed.Empty());
}

TEMPLATE_LIST_TEST_CASE("who asks for much holds up no other user, and no urgent transfer", "",
                        TwoWorlds) {
  Bed<TestType> bed(2, 512);
  bed.nodes[1]->late_tenant = 7;
  constexpr uint32_t kMany = 200;
  std::vector<typename Bed<TestType>::Result> results(kMany + 2);
  for (uint32_t i = 0; i < kMany + 2; ++i) {
    Ask ask;
    ask.tenant = i >= kMany ? 8 : 7;
    ask.service_class = i == kMany + 1 ? Class::kLatency : Class::kBulk;
    bed.Begin(0, 1, ask, {256 + i}, {i}, &results[i]);
  }
  REQUIRE(bed.Until([&] { return results[kMany].ended == 1 && results[kMany + 1].ended == 1; }));
  CHECK(results[kMany].status.ok());
  CHECK(results[kMany + 1].status.ok());
  CHECK(std::none_of(results.begin(), results.begin() + kMany,
                     [](const auto& r) { return r.ended != 0; }));
  auto& waiting = bed.nodes[1]->waiting;
  REQUIRE(bed.Until([&] { return waiting.size() == 64; }));
  bed.nodes[1]->late_tenant = UINT32_MAX;
  for (const auto& f : std::exchange(waiting, {})) f();
  REQUIRE(bed.Empty());
  for (const auto& result : results) CHECK(result.status.ok());
}

TEST_CASE("what waits is begun in turn, and each asker has one thing running in any case") {
  FairQueue<int> queue({.running = 3, .running_at_most = 5, .cost = 10});
  const auto begin = [&] { return queue.Begin().value_or(-1); };
  for (int i = 0; i < 4; ++i) queue.Push(1, 1, 10 + i);
  CHECK(begin() == 10);
  queue.Push(2, 8, 20);
  queue.Push(2, 8, 21);
  CHECK(begin() == 11);  // it had its turn before the other came
  CHECK(begin() == 20);
  CHECK(begin() == -1);  // three run
  queue.Push(3, 99, 30);
  queue.Push(4, 0, 40);
  queue.Push(5, 0, 50);
  CHECK(begin() == 30);
  CHECK(begin() == 40);
  CHECK(begin() == -1);  // five, of whatever asker
  queue.Done(3, 99);
  CHECK(begin() == 50);
  queue.Done(4, 0);
  queue.Done(5, 0);
  queue.Done(1, 1);
  CHECK(begin() == 12);  // not 21, which would cost asker 2 more than it may
  CHECK(queue.Remove([](int i) { return i == 13; }) == 13);
  CHECK(queue.Remove([](int i) { return i == 13; }) == std::nullopt);
  queue.Done(2, 8);
  CHECK(begin() == 21);
  CHECK(begin() == -1);
  queue.Push(1, 0, 14);
  std::vector<int> left;
  queue.ForEach([&](int i) { left.push_back(i); });
  CHECK(left == std::vector<int>{14});
}

TEST_CASE("an ask comes out as it went in, and no other bytes are one") {
  Ask ask;
  ask.push = true;
  ask.service_class = Class::kBackground;
  ask.notify = true;
  ask.form = Form::kIds64;
  ask.tenant = 1000;
  ask.slice_bytes = 65536;
  ask.bytes = 1 << 30;
  ask.incarnation = 0x1234567890abcdef;
  ask.version = 7;
  ask.count = 100;
  ask.unit = 3;
  ask.repeats = 80;
  ask.repeat_step = 4096;
  ask.agent = std::string(255, 'a');
  ask.section = "kv";
  ask.from = "b";
  ask.notification = std::string(1024, 'n');
  std::vector<std::byte> bytes(kAskBytes);
  Encode(ask, absl::MakeSpan(bytes));
  REQUIRE(DecodeAsk(bytes).ok());
  CHECK(*DecodeAsk(bytes) == ask);
  bytes.back() = std::byte{1};
  CHECK(!DecodeAsk(bytes).ok());
  const auto refused = [&](auto spoil) {
    Ask bad = ask;
    spoil(&bad);
    Encode(bad, absl::MakeSpan(bytes));
    return !DecodeAsk(bytes).ok();
  };
  CHECK(refused([](Ask* a) { a->bytes = 0; }));
  CHECK(refused([](Ask* a) { a->slice_bytes = 1; }));
  CHECK(refused([](Ask* a) { a->slice_bytes = (1 << 20) + 1; }));
  CHECK(refused([](Ask* a) { a->count = uint64_t{1} << 62; }));
  CHECK(refused([](Ask* a) { a->count = 0; }));
  CHECK(refused([](Ask* a) { a->agent.clear(); }));
  CHECK(refused([](Ask* a) { a->notify = false; }));
  CHECK(!DecodeAsk(std::vector<std::byte>(kAskBytes)).ok());
}

TEST_CASE("a note comes out as it went in, its words cut to what fits") {
  Note stop;
  stop.kind = Note::Kind::kStop;
  stop.number = 77;
  stop.by_receiver = true;
  stop.frontier = 12;
  stop.code = absl::StatusCode::kNotFound;
  stop.words = "gone";
  CHECK(*DecodeNote(Encode(stop, 1024)) == stop);
  stop.words = std::string(5000, 'w');
  const std::string cut = Encode(stop, 1024);
  CHECK(cut.size() == 1024);
  CHECK(DecodeNote(cut)->words == std::string(1024 - 18, 'w'));
  Note done;
  done.number = 1;
  CHECK(*DecodeNote(Encode(done, 1024)) == done);
  CHECK(!DecodeNote("").ok());
  CHECK(!DecodeNote(cut.substr(0, 100)).ok());
  CHECK(!DecodeNote(Encode(done, 1024) + "x").ok());
}

}  // namespace
}  // namespace shunt::pull
