// Many transports in one process, on a network with virtual time and faults. Deterministic: the
// same calls with the same seed give the same events at the same times.
//
// An endpoint's Poll moves nothing that takes time: time passes in Step. A connection keeps order,
// as TCP does, whatever the jitter; each direction of it carries one frame at a time. Where
// endpoints have ports, their connections take turns at those, frame by frame:
//
//   a ─┐ out                                in ┌─ c     a frame begins to come in a latency after
//      ├────────► latency ────────────────────►┤        it began to go out, and is passed on while
//   b ─┘                                       └─ d     it comes; the network between has room
//
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/transport/engine/engine.h"
#include "runtime/transport/fake/port.h"
#include "runtime/transport/transport.h"

namespace shunt::transport {

class FakeNetwork {
 public:
  struct Options {
    uint64_t seed = 1;
    int64_t latency_ns = 10'000;
    int64_t jitter_ns = 0;                  // added to it, uniformly
    double bytes_per_second = 10e9;         // each direction of a connection
    int64_t lost_after_ns = 3'000'000'000;  // of silence
    int streams = 1;
    // Each byte of payload takes the time of so many: long messages at the price of short ones.
    double payload_scale = 1;
    Engine::Options engine;
  };

  explicit FakeNetwork(const Options& options);
  ~FakeNetwork();
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  // Numbered from 0. To every other endpoint, endpoint i is the peer i.
  int AddEndpoint();
  Transport& endpoint(int index);
  // Before anything is sent.
  void SetPorts(int index, const PortRate& out, const PortRate& in);
  PortUse out_use(int index) const;
  PortUse in_use(int index) const;
  // Both are up for one another a latency later.
  void Connect(int a, int b);
  bool Connected(int a, int b) const;

  // Does the next event; false if there is none.
  bool Step();
  // The moment of the next event; -1 if there is none.
  int64_t next_ns() const { return events_.empty() ? -1 : events_.top().time_ns; }
  // An endpoint that may have something to poll, each once since it was told; false if there is
  // none. Whoever has many need not poll them all.
  bool NextTouched(int* index);
  // Does all events up to that moment and makes it now.
  void RunUntil(int64_t ns);
  int64_t now_ns() const { return now_ns_; }
  uint64_t frames() const { return frames_; }

  // Frames between the two wait. If it lasts lost_after_ns, each loses the other.
  void Partition(int a, int b);
  void Heal(int a, int b);
  // A process that dies: its peers see it a latency later. One whose machine dies is silent: they
  // see it after lost_after_ns.
  void Kill(int index, bool silent = false);

 private:
  class Endpoint;
  struct Connection;
  struct Event {
    int64_t time_ns = 0;
    uint64_t order = 0;  // of scheduling, among equals
    enum class Kind : uint8_t { kUp, kDeliver, kFree, kPort, kSilent, kReset } kind = Kind::kUp;
    uint32_t connection = 0;  // kPort: the endpoint
    uint8_t side = 0;         // kDeliver, kReset: who receives; kFree: who may send again
    uint8_t stream = 0;
    uint64_t epoch = 0;  // kSilent: which partition
    bool operator>(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : order > other.order;
    }
  };

  void Schedule(int64_t time_ns, Event event);
  void Do(const Event& event);
  void Flush(Endpoint* endpoint);
  void SendNext(uint32_t connection, int side, int stream);
  // The same if it is its turn at the endpoint's port.
  void Transmit(uint32_t connection, int side, int stream);
  void ServePort(Endpoint* endpoint);
  void Touch(Endpoint* endpoint);
  void Deliver(Connection& connection, int side, int stream);
  void Lose(Connection& connection, int side, const absl::Status& why);
  Connection* Find(int a, int b) const;

  Options options_;
  std::mt19937_64 random_;
  int64_t now_ns_ = 0;
  uint64_t order_ = 0;
  uint64_t frames_ = 0;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Connection>> connections_;
  absl::flat_hash_map<uint64_t, uint32_t> by_pair_;
  std::deque<int> touched_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace shunt::transport
