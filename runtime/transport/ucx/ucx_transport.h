// Messages over RDMA, by way of UCX. Nothing of UCX's listens to strangers: two nodes first meet
// over TCP, as TcpTransport's do, and tell each other there how their rails are reached.
//
//   A                                          B
//   AddPeer(b) ◄───── TCP: tokens, heartbeats ─────► AddPeer(a)
//   hello: key, UCX address ◄──── TCP ────► hello
//   probe, answer ◄────────────── rail ───────────► probe, answer        then kPeerUp
//   piece: copied to staging memory
//          └── frame, rail ──────────────────► its turn: reads the piece (RDMA) into the buffer
//          staging memory is free ◄───────────┘   that the receive granted
//
// The receiver alone decides where bytes land, and a peer can read nothing of this node but the
// staging memory of its own connection. Frames wait for their turn in windows (frames_waiting_max);
// a peer that sends more is lost. So is one that is silent on the rail, or on TCP, for
// bootstrap.lost_after_ns.
//
// Close and RemovePeer wait for RDMA reads of pieces that land in the buffers they give back (at
// most close_wait_ns; usually microseconds). One thread owns it; it starts none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"
#include "runtime/transport/engine/engine.h"
#include "runtime/transport/peer_transport.h"
#include "runtime/transport/tcp/tcp_transport.h"
#include "runtime/transport/ucx/options.h"
#include "runtime/transport/ucx/rail_wire.h"
#include "runtime/transport/ucx/ucx_worker.h"

namespace shunt::transport {

class UcxTransport : public PeerTransport, private UcxWorker::Owner {
 public:
  // Listens for peers' TCP connections. INVALID_ARGUMENT for options that can't be, NOT_FOUND if
  // there is no RDMA device and the transports need one, ALREADY_EXISTS if the port is taken.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(const UcxOptions& options);
  ~UcxTransport() override;

  uint16_t port() const override { return bootstrap_->port(); }
  void Renew(uint64_t incarnation) override { bootstrap_->Renew(incarnation); }

  // As in TcpTransport. kPeerUp comes when the rail has carried a word each way.
  absl::Status AddPeer(const TcpPeer& peer) override;
  void RemovePeer(PeerId id) override;
  // Of the TCP connection that says whether the peer is there.
  LinkState link(PeerId peer) const override { return bootstrap_->link(peer); }

  // Receives into this memory use registrations that last (Registrations has the codes); those into
  // other memory register the piece, for as long as it lands. It must stay mapped, the same pages
  // at the same place, until RemoveMemory. A peer whose UCX was tampered with can make ours hand
  // out the right to write to what is registered: the piece, or here a whole block.
  absl::Status AddMemory(absl::Span<std::byte> memory) { return registrations_->Add(memory); }
  absl::Status RemoveMemory(const std::byte* begin) { return registrations_->Remove(begin); }

  absl::Status Open(uint64_t communicator, absl::Span<const PeerId> peers) override {
    return engine_.Open(communicator, peers);
  }
  void Close(uint64_t communicator) override;
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
  size_t Poll(absl::Span<Completion> out) override;
  int fd() const override { return epoll_.get(); }
  PeerCounters counters(PeerId peer) const override { return engine_.counters(peer); }
  const Limits& limits() const override { return engine_.limits(); }

  UcxStatistics statistics() const;

 private:
  struct Peer;
  struct Lane;
  struct Post;
  struct Landing;
  struct Waiting;

  explicit UcxTransport(const UcxOptions& options);
  absl::Status Start();

  // meeting.cc: from AddPeer to kPeerUp
  void PollBootstrap();
  void SayHello(Peer* peer);
  absl::Status OnHello(Peer* peer, const std::string& text);
  void Up(Peer* peer);

  // outgoing.cc
  void WriteAll();
  void WriteTo(Peer* peer, int stream);
  void PostFrame(Peer* peer, int stream);
  void SendWord(Peer* peer, int stream, RailWord::Kind kind);
  void Launch(Post* post, UcxWorker::Kind kind, size_t head_bytes,
              std::span<const std::byte> payload, const UcxWorker::Memory* memory, bool fetch);
  Post* NewPost(Peer* peer, int stream);
  void Finish(Post* post);
  void MakeStaging(Lane* lane);
  void OnSent(UcxWorker::Call* call, const absl::Status& status) override;

  // incoming.cc
  bool OnMessage(UcxWorker::Kind kind, std::span<const std::byte> head,
                 std::span<const std::byte> payload, UcxWorker::Offer* offer,
                 size_t bytes) override;
  absl::Status OnWord(Peer* peer, std::span<const std::byte> bytes);
  absl::Status OnFrame(Peer* peer, std::span<const std::byte> bytes,
                       std::span<const std::byte> payload, UcxWorker::Offer* offer,
                       size_t payload_bytes, bool* kept);
  absl::Status Taken(Peer* peer, uint32_t stream, uint64_t taken);
  void TakeAll();
  void TakeFrom(Peer* peer, int stream);
  absl::Status Take(Peer* peer, int stream, const wire::Header& header, const std::byte* payload,
                    UcxWorker::Offer* offer);
  void CountTaken(Peer* peer, int stream);
  void OnFetched(UcxWorker::Call* call, const absl::Status& status) override;

  // losing.cc
  void OnFailed(void* context, const absl::Status& why) override;
  void Fail(Peer* peer, const absl::Status& why);
  void ServeLosses();
  void CutOff(Peer* peer);
  void WaitForLandings(const std::function<bool(const Landing&)>& which);
  void Bury(std::unique_ptr<Peer> peer);
  bool Reap();  // true if none is left
  void FreeStaging(Peer* peer);
  void Tick();

  void ArmTimer(int64_t wake_ns);
  void Rest();

  UcxOptions options_;
  Engine engine_;
  std::unique_ptr<UcxWorker> worker_;
  std::unique_ptr<Registrations> registrations_;
  std::unique_ptr<TcpTransport> bootstrap_;
  UniqueFd epoll_, timer_;
  UcxStatistics statistics_;
  bool polling_ = false;
  int64_t now_ns_ = 0;  // of this Poll
  int64_t next_tick_ns_ = kNeverNs;
  int64_t timer_at_ns_ = kNeverNs;
  int64_t nap_ns_ = 0;  // how long to wait for UCX when it can't be waited for
  PeerId next_bootstrap_id_ = 0;
  absl::flat_hash_map<PeerId, std::unique_ptr<Peer>> peers_;
  absl::flat_hash_map<PeerId, Peer*> by_bootstrap_id_;
  absl::flat_hash_map<RailKey, Peer*> by_key_;
  std::vector<std::unique_ptr<Peer>> buried_;    // removed; UCX still has something of theirs
  std::vector<std::pair<Peer*, int>> writable_;  // streams that were held up and are not
  std::vector<std::pair<Peer*, int>> takeable_;  // streams that have frames, or a landed one
  std::vector<Peer*> losing_;
  std::vector<std::unique_ptr<Post>> posts_;  // all there are
  std::vector<Post*> idle_posts_;
};

}  // namespace shunt::transport
