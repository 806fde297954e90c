#include "runtime/transport/fake/network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"

namespace shunt::transport {

// One endpoint's engine.
class FakeNetwork::Endpoint : public Transport {
 public:
  Endpoint(FakeNetwork* network, int index, const Engine::Options& options)
      : network_(network), index_(index), engine_(options, kPlacesMax, kPlacesMax) {}

  absl::Status Open(uint64_t communicator, absl::Span<const PeerId> peers) override {
    return engine_.Open(communicator, peers);
  }
  void Close(uint64_t communicator) override { engine_.Close(communicator); }
  void PostSend(const Message& message, absl::Span<const std::byte> data, uint64_t token) override {
    engine_.PostSend(message, Memory(data), token);
  }
  void PostRecv(const Message& message, absl::Span<std::byte> buffer, uint64_t token) override {
    engine_.PostRecv(message, Memory(buffer), token);
  }
  void PostSend(const Message& message, absl::Span<const iovec> places, uint64_t token) override {
    engine_.PostSend(message, Memory(places), token);
  }
  void PostRecv(const Message& message, absl::Span<const iovec> places, uint64_t token) override {
    engine_.PostRecv(message, Memory(places), token);
  }
  absl::Status SendNote(PeerId peer, uint64_t communicator,
                        absl::Span<const std::byte> note) override {
    return engine_.SendNote(peer, communicator, note);
  }
  size_t Poll(absl::Span<Completion> out) override {
    network_->Flush(this);
    return engine_.Take(out);
  }
  // Virtual time has no descriptor.
  int fd() const override { return -1; }
  PeerCounters counters(PeerId peer) const override { return engine_.counters(peer); }
  const Limits& limits() const override { return engine_.limits(); }

  Engine& engine() { return engine_; }
  int index() const { return index_; }
  bool dead = false;
  bool touched = false;
  Port out, in;
  // Who waits for the port out: connection, side, stream.
  struct Turn {
    uint32_t connection;
    uint8_t side, stream;
  };
  std::deque<Turn> turns;

 private:
  FakeNetwork* network_;
  int index_;
  Engine engine_;
};

namespace {
uint64_t PairKey(int a, int b) {
  return uint64_t{static_cast<uint32_t>(std::min(a, b))} << 32 |
         static_cast<uint32_t>(std::max(a, b));
}
}  // namespace

// Both directions of a pair; side 0 is the endpoint with the smaller number.
struct FakeNetwork::Connection {
  struct InFlight {
    wire::Header header;
    Bytes payload;
  };
  struct Direction {
    bool busy = false;   // a frame is being put on the wire
    bool waits = false;  // for its turn at the port
    int64_t last_arrival_ns = 0;
    std::deque<InFlight> wire;  // sent, oldest first
    size_t held = 0;            // of those, due but behind a partition
  };
  struct Side {
    int endpoint = 0;
    PeerState* peer = nullptr;  // what this side knows the other as
    bool lost = false;
    std::vector<Direction> out;  // by stream
  };
  Side sides[2];
  bool up = false;
  bool partitioned = false;
  uint64_t epoch = 0;
};

FakeNetwork::FakeNetwork(const Options& options) : options_(options), random_(options.seed) {}
FakeNetwork::~FakeNetwork() = default;

int FakeNetwork::AddEndpoint() {
  const auto index = static_cast<int>(endpoints_.size());
  endpoints_.push_back(std::make_unique<Endpoint>(this, index, options_.engine));
  return index;
}

Transport& FakeNetwork::endpoint(int index) { return *endpoints_[index]; }

void FakeNetwork::SetPorts(int index, const PortRate& out, const PortRate& in) {
  endpoints_[index]->out = Port(out);
  endpoints_[index]->in = Port(in);
}

PortUse FakeNetwork::out_use(int index) const { return endpoints_[index]->out.use(); }
PortUse FakeNetwork::in_use(int index) const { return endpoints_[index]->in.use(); }

void FakeNetwork::Touch(Endpoint* endpoint) {
  if (endpoint->touched) return;
  endpoint->touched = true;
  touched_.push_back(endpoint->index());
}

bool FakeNetwork::NextTouched(int* index) {
  if (touched_.empty()) return false;
  *index = touched_.front();
  touched_.pop_front();
  endpoints_[*index]->touched = false;
  return true;
}

void FakeNetwork::Connect(int a, int b) {
  SHUNT_CHECK(a != b && Find(a, b) == nullptr);
  auto connection = std::make_unique<Connection>();
  const int ends[2] = {std::min(a, b), std::max(a, b)};
  for (int side = 0; side < 2; ++side) {
    Connection::Side& s = connection->sides[side];
    s.endpoint = ends[side];
    s.peer = endpoints_[ends[side]]->engine().AddPeer(static_cast<PeerId>(ends[1 - side]));
    SHUNT_CHECK(s.peer != nullptr);
    s.out = std::vector<Connection::Direction>(options_.streams);
  }
  const auto index = static_cast<uint32_t>(connections_.size());
  connections_.push_back(std::move(connection));
  by_pair_[PairKey(a, b)] = index;
  Schedule(now_ns_ + options_.latency_ns, {.kind = Event::Kind::kUp, .connection = index});
}

FakeNetwork::Connection* FakeNetwork::Find(int a, int b) const {
  const auto found = by_pair_.find(PairKey(a, b));
  return found == by_pair_.end() ? nullptr : connections_[found->second].get();
}

bool FakeNetwork::Connected(int a, int b) const { return Find(a, b) != nullptr; }

void FakeNetwork::Schedule(int64_t time_ns, Event event) {
  event.time_ns = time_ns;
  event.order = order_++;
  events_.push(event);
}

bool FakeNetwork::Step() {
  if (events_.empty()) return false;
  const Event event = events_.top();
  events_.pop();
  now_ns_ = event.time_ns;
  Do(event);
  return true;
}

void FakeNetwork::RunUntil(int64_t ns) {
  while (!events_.empty() && events_.top().time_ns <= ns) Step();
  now_ns_ = std::max(now_ns_, ns);
}

void FakeNetwork::Do(const Event& event) {
  if (event.kind == Event::Kind::kPort) {
    ServePort(endpoints_[event.connection].get());
    return;
  }
  Connection& connection = *connections_[event.connection];
  switch (event.kind) {
    case Event::Kind::kUp:
      if (connection.sides[0].lost || connection.sides[1].lost) break;
      connection.up = true;
      for (Connection::Side& side : connection.sides) {
        endpoints_[side.endpoint]->engine().PeerUp(side.peer, options_.streams);
        Touch(endpoints_[side.endpoint].get());
        Flush(endpoints_[side.endpoint].get());
      }
      break;
    case Event::Kind::kFree:
      connection.sides[event.side].out[event.stream].busy = false;
      SendNext(event.connection, event.side, event.stream);
      break;
    case Event::Kind::kPort:
      break;  // above
    case Event::Kind::kDeliver: {
      Connection::Direction& direction = connection.sides[1 - event.side].out[event.stream];
      if (connection.partitioned) {
        ++direction.held;
      } else {
        Deliver(connection, event.side, event.stream);
      }
      break;
    }
    case Event::Kind::kSilent:
      if (connection.epoch != event.epoch) break;  // healed meanwhile
      for (int side = 0; side < 2; ++side) {
        Lose(connection, side,
             absl::UnavailableError(absl::StrCat("peer ", connection.sides[1 - side].endpoint,
                                                 ": silent for ", options_.lost_after_ns, " ns")));
      }
      break;
    case Event::Kind::kReset:
      Lose(connection, event.side,
           absl::UnavailableError(absl::StrCat("peer ", connection.sides[1 - event.side].endpoint,
                                               ": closed the connection")));
      break;
  }
}

// Puts what an endpoint has to say on its idle connections.
void FakeNetwork::Flush(Endpoint* endpoint) {
  Engine::Work work;
  while (endpoint->engine().NextWork(&work)) {
    const int self = endpoint->index();
    const int other = static_cast<int>(work.peer->id);
    const uint32_t index = by_pair_[PairKey(self, other)];
    SendNext(index, self < other ? 0 : 1, work.stream);
  }
}

// The connections with something to say take turns.
void FakeNetwork::ServePort(Endpoint* endpoint) {
  while (!endpoint->turns.empty() && endpoint->out.free_ns() <= now_ns_) {
    const Endpoint::Turn turn = endpoint->turns.front();
    endpoint->turns.pop_front();
    connections_[turn.connection]->sides[turn.side].out[turn.stream].waits = false;
    Transmit(turn.connection, turn.side, turn.stream);
  }
}

void FakeNetwork::SendNext(uint32_t index, int side, int stream) {
  Connection::Side& from = connections_[index]->sides[side];
  Endpoint& endpoint = *endpoints_[from.endpoint];
  Connection::Direction& direction = from.out[stream];
  if (direction.busy || direction.waits) return;
  if (endpoint.out.limits() && (endpoint.out.free_ns() > now_ns_ || !endpoint.turns.empty())) {
    direction.waits = true;
    endpoint.turns.push_back({index, static_cast<uint8_t>(side), static_cast<uint8_t>(stream)});
    return;
  }
  Transmit(index, side, stream);
}

void FakeNetwork::Transmit(uint32_t index, int side, int stream) {
  Connection& connection = *connections_[index];
  Connection::Side& from = connection.sides[side];
  Endpoint& endpoint = *endpoints_[from.endpoint];
  Connection::Direction& direction = from.out[stream];
  if (direction.busy || !connection.up || from.lost || endpoint.dead) return;
  if (!endpoint.engine().Pull(from.peer, stream)) return;
  OutFrame& frame = Engine::sending(from.peer, stream).front();
  Connection::InFlight in_flight;
  in_flight.header = frame.header;
  if (frame.owned != nullptr) {
    in_flight.payload = std::move(frame.owned);
  } else if (frame.header.payload_bytes != 0) {
    in_flight.payload = std::make_unique_for_overwrite<std::byte[]>(frame.header.payload_bytes);
    frame.memory.CopyTo(frame.begin, in_flight.payload.get(), frame.header.payload_bytes);
  }
  ++frames_;
  const double bytes =
      static_cast<double>(wire::kHeaderBytes) + frame.header.payload_bytes * options_.payload_scale;
  auto duration_ns = static_cast<int64_t>(bytes / options_.bytes_per_second * 1e9);
  if (endpoint.out.limits()) {
    duration_ns = std::max(duration_ns, endpoint.out.Take(now_ns_, bytes));
    Schedule(endpoint.out.free_ns(),
             {.kind = Event::Kind::kPort, .connection = static_cast<uint32_t>(endpoint.index())});
  }
  int64_t latency_ns = options_.latency_ns;
  if (options_.jitter_ns > 0) {
    latency_ns += static_cast<int64_t>(random_() % static_cast<uint64_t>(options_.jitter_ns));
  }
  int64_t arrival_ns = now_ns_ + duration_ns + latency_ns;
  if (Port& in = endpoints_[connection.sides[1 - side].endpoint]->in; in.limits()) {
    in.Take(std::max(now_ns_ + latency_ns, in.free_ns()), bytes);
    arrival_ns = std::max(arrival_ns, in.free_ns());
  }
  arrival_ns = direction.last_arrival_ns = std::max(arrival_ns, direction.last_arrival_ns);
  direction.wire.push_back(std::move(in_flight));
  direction.busy = true;
  endpoint.engine().Sent(from.peer, stream);
  Touch(&endpoint);
  Event event{.kind = Event::Kind::kDeliver,
              .connection = index,
              .side = static_cast<uint8_t>(1 - side),
              .stream = static_cast<uint8_t>(stream)};
  Schedule(arrival_ns, event);
  event.kind = Event::Kind::kFree;
  event.side = static_cast<uint8_t>(side);
  Schedule(now_ns_ + duration_ns, event);
}

void FakeNetwork::Deliver(Connection& connection, int side, int stream) {
  Connection::Side& to = connection.sides[side];
  Connection::Direction& direction = connection.sides[1 - side].out[stream];
  SHUNT_CHECK(!direction.wire.empty());
  const Connection::InFlight frame = std::move(direction.wire.front());
  direction.wire.pop_front();
  Endpoint& endpoint = *endpoints_[to.endpoint];
  if (to.lost || endpoint.dead) return;
  absl::Status status = wire::Check(frame.header);
  if (status.ok()) status = endpoint.engine().Arrive(to.peer, stream, frame.header);
  if (status.ok() && frame.header.payload_bytes != 0) {
    const uint32_t bytes = frame.header.payload_bytes;
    Engine::Place(to.peer, stream, frame.payload.get(), bytes);
    status = endpoint.engine().Landed(to.peer, stream, bytes);
  }
  if (!status.ok()) {
    // As a daemon would: hang up.
    Lose(connection, side, status);
    Schedule(now_ns_ + options_.latency_ns,
             {.kind = Event::Kind::kReset,
              .connection =
                  by_pair_[PairKey(connection.sides[0].endpoint, connection.sides[1].endpoint)],
              .side = static_cast<uint8_t>(1 - side)});
    return;
  }
  Touch(&endpoint);
  Flush(&endpoint);
}

void FakeNetwork::Lose(Connection& connection, int side, const absl::Status& why) {
  Connection::Side& s = connection.sides[side];
  if (s.lost) return;
  s.lost = true;
  Endpoint& endpoint = *endpoints_[s.endpoint];
  if (!endpoint.dead) endpoint.engine().PeerLost(s.peer, why);
  Touch(&endpoint);
}

void FakeNetwork::Partition(int a, int b) {
  Connection* connection = Find(a, b);
  SHUNT_CHECK(connection != nullptr);
  if (connection->partitioned) return;
  connection->partitioned = true;
  ++connection->epoch;
  const auto index = by_pair_[PairKey(a, b)];
  Schedule(now_ns_ + options_.lost_after_ns,
           {.kind = Event::Kind::kSilent, .connection = index, .epoch = connection->epoch});
}

void FakeNetwork::Heal(int a, int b) {
  Connection* connection = Find(a, b);
  SHUNT_CHECK(connection != nullptr);
  if (!connection->partitioned) return;
  connection->partitioned = false;
  ++connection->epoch;
  for (int side = 0; side < 2; ++side) {
    for (int stream = 0; stream < options_.streams; ++stream) {
      Connection::Direction& direction = connection->sides[1 - side].out[stream];
      for (; direction.held > 0; --direction.held) Deliver(*connection, side, stream);
    }
  }
}

void FakeNetwork::Kill(int index, bool silent) {
  endpoints_[index]->dead = true;
  for (uint32_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = *connections_[i];
    for (int side = 0; side < 2; ++side) {
      if (connection.sides[1 - side].endpoint != index) continue;
      if (silent) {
        Partition(index, connection.sides[side].endpoint);
        continue;
      }
      // After what is on the wire already.
      int64_t time_ns = now_ns_ + options_.latency_ns;
      for (const Connection::Direction& direction : connection.sides[1 - side].out) {
        time_ns = std::max(time_ns, direction.last_arrival_ns);
      }
      Schedule(time_ns,
               {.kind = Event::Kind::kReset, .connection = i, .side = static_cast<uint8_t>(side)});
    }
  }
}

}  // namespace shunt::transport
