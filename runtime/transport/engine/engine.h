// What all carriers share: matching, slots, grants, credits, stray headers, notes, closing. A
// carrier moves frames, and only that:
//
//   out   while (engine.Pull(peer, stream)) …      makes the next frame, in the order of classes
//         engine.sending(peer, stream)             the frames made, oldest first
//         engine.Sent(peer, stream)                the oldest has left
//   in    engine.Arrive(peer, stream, header)      begins a frame; an error is the peer's fault
//         engine.ForEachTarget(peer, stream, …)    where the rest of its payload goes
//         engine.Landed(peer, stream, bytes)       so much has been written there
//
// Payload pointers are asked for anew before each use, since Close takes buffers back: what was
// being received is then thrown away, what was being sent has been copied.
//
// Not thread-safe. Deterministic: the same calls give the same frames and completions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/transport/engine/state.h"
#include "runtime/transport/transport.h"

namespace shunt::transport {

class Engine {
 public:
  struct Options {
    Limits limits;
    uint32_t piece_bytes = 256 << 10;  // a message may be overtaken after so many
    uint32_t links_max = 1 << 16;      // communicators of one peer
    uint32_t control_max = 1 << 17;    // frames that wait for a peer that doesn't read
    uint32_t operations_kept = 1024;   // of a communicator, to know stray headers by
    // Granted messages of fewer bytes go with the control frames on stream 0, the others round the
    // other streams. 0: all go round all streams, by their slice.
    uint64_t own_stream_bytes = 0;
  };
  struct Work {
    PeerState* peer;
    int stream;
  };

  // `send_places_max`, `recv_places_max`: what the carrier can name (Limits).
  explicit Engine(const Options& options, size_t send_places_max = 1, size_t recv_places_max = 1)
      : options_(options) {
    options_.limits.send_places_max = send_places_max;
    options_.limits.recv_places_max = recv_places_max;
  }

  // As in Transport.
  absl::Status Open(uint64_t communicator, absl::Span<const PeerId> peers);
  void Close(uint64_t communicator);
  void PostSend(const Message& message, Memory memory, uint64_t token);
  void PostRecv(const Message& message, Memory memory, uint64_t token);
  absl::Status SendNote(PeerId peer, uint64_t communicator, absl::Span<const std::byte> note);
  size_t Take(absl::Span<Completion> out);
  bool has_completions() const { return !completions_.empty(); }
  bool has_work() const { return !work_.empty(); }
  // Called before buffers of a peer that lives are given back without being asked for. (Before
  // PeerLost the carrier has closed its sockets itself.)
  void set_before_giving_back(std::function<void(const PeerState*)> f) {
    before_giving_back_ = std::move(f);
  }
  PeerCounters counters(PeerId peer) const;
  const Limits& limits() const { return options_.limits; }

  // A peer may be posted to before it is up. Null if there is one of this number.
  PeerState* AddPeer(PeerId peer);
  PeerState* FindPeer(PeerId peer) const;
  void PeerUp(PeerState* peer, int streams);
  // Ends everything of the peer; nothing more is called for it. Idempotent.
  void PeerLost(PeerState* peer, const absl::Status& why);
  // Forgets a peer; one that is not lost is lost first.
  void RemovePeer(PeerId peer);

  // A peer and stream that may have something to send again; false if there is none.
  bool NextWork(Work* work);
  bool Pull(PeerState* peer, int stream);
  static std::deque<OutFrame>& sending(PeerState* peer, int stream) {
    return peer->streams[stream].sending;
  }
  void Sent(PeerState* peer, int stream);
  void Ping(PeerState* peer);

  absl::Status Arrive(PeerState* peer, int stream, const wire::Header& header);
  // Bytes of the payload that are still to come.
  static uint32_t Left(const PeerState* peer, int stream) {
    const InFrame& in = peer->streams[stream].in;
    return in.kind == InFrame::Kind::kNone ? 0 : in.header.payload_bytes - in.arrived;
  }
  // Whether they go anywhere: not if their buffer was taken back.
  static bool Lands(const PeerState* peer, int stream) {
    return peer->streams[stream].in.memory.bytes != 0;
  }
  // Calls `f(std::byte* place, size_t length)` for where the next `bytes` of them go, as
  // Memory::ForEachPlace.
  template <typename F>
  static void ForEachTarget(const PeerState* peer, int stream, uint64_t bytes, F&& f) {
    const InFrame& in = peer->streams[stream].in;
    if (in.memory.bytes != 0) in.memory.ForEachPlace(in.begin + in.arrived, bytes, f);
  }
  // Puts the next `bytes` there.
  static void Place(const PeerState* peer, int stream, const std::byte* from, uint64_t bytes) {
    const InFrame& in = peer->streams[stream].in;
    if (in.memory.bytes != 0) in.memory.CopyFrom(in.begin + in.arrived, from, bytes);
  }
  absl::Status Landed(PeerState* peer, int stream, uint32_t bytes);

 private:
  struct Communicator {
    explicit Communicator(size_t kept) : operations(kept) {}
    std::vector<PeerId> peers;
    Operations operations;
  };
  using SendId = Pool<SendState>::Id;
  using RecvId = Pool<RecvState>::Id;

  // posting.cc
  Link* LinkFor(const Message& message, absl::Status* status);
  static Link* AddLink(PeerState* peer, uint64_t communicator);
  static Link* FindLink(const PeerState* peer, uint64_t communicator);
  void StartSend(SendId id);
  void Announce(SendId id);
  void ServeUnannounced(Link* link);
  void UseGrant(SendId id, const Waiting& grant);
  void StartRecv(RecvId id);
  void RefuseSlotted(RecvId id);
  void Grant(RecvId id);
  void ServeUngranted(Link* link);
  void EndSend(SendId id, absl::StatusCode code);
  void EndRecv(RecvId id, absl::StatusCode code);
  void SendHeldNotes(Link* link);
  void Complete(Completion completion) { completions_.push_back(std::move(completion)); }

  static void CountStall(PeerState* peer) {
    ++peer->counters.credit_stalls;
    if (peer->tally != nullptr) peer->tally->credit_stalls.Add();
  }

  // arriving.cc
  absl::Status ArriveOnLink(PeerState* peer, int stream, const wire::Header& header);
  absl::Status OnOpen(PeerState* peer, const wire::Header& h);
  absl::Status OnClose(PeerState* peer, Link* link, const wire::Header& h);
  absl::Status OnEager(Link* link, const wire::Header& h, InFrame* in);
  absl::Status OnData(Link* link, const wire::Header& h, InFrame* in);
  absl::Status OnAnnounce(Link* link, const wire::Header& h);
  absl::Status OnGrant(Link* link, const wire::Header& h);
  absl::Status OnRefused(Link* link, const wire::Header& h);
  absl::Status OnReturned(Link* link, const wire::Header& h);
  absl::Status OnNote(Link* link, const wire::Header& h, InFrame* in);
  absl::Status FinishPayload(PeerState* peer, InFrame in);
  void FinishData(Link* link, const InFrame& in);
  void TellStray(Link* link, const wire::Header& h);
  void SlotsFree(Link* link, uint64_t message_bytes);

  // closing.cc
  void Withdraw(Link* link);
  static void CopyWhatLeaves(Link* link);
  void SendClose(Link* link);
  void CheckPeerClosed(Link* link);
  void EndAll(Link* link, absl::StatusCode code);
  void EraseLink(Link* link);

  // outgoing.cc
  void Control(Link* link, wire::Type type, const wire::Header& fields, Bytes payload = nullptr);
  void ControlTo(PeerState* peer, wire::Header header, Bytes payload);
  static uint32_t SlotsFor(uint64_t bytes);
  int StreamFor(const SendState& send);
  void Queue(SendId id, int stream);
  void List(PeerState* peer, int stream);
  bool PullControl(PeerState* peer);
  static void Attach(Link* link, wire::Header* header);
  void OweSlots(Link* link, uint32_t slots);
  void OweNote(Link* link);

  Options options_;
  std::function<void(const PeerState*)> before_giving_back_;
  uint64_t serial_ = 0;
  Pool<SendState> sends_;
  Pool<RecvState> recvs_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Communicator>> communicators_;
  absl::flat_hash_map<PeerId, std::unique_ptr<PeerState>> peers_;
  std::deque<Completion> completions_;
  std::deque<Work> work_;
};

}  // namespace shunt::transport
