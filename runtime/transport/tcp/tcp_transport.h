// Messages over TCP. Before anything else both sides of a connection show the token that the other
// issued over the control plane; what fails that is closed, and harms nobody.
//
//   A ("a", the smaller name)                 B ("b")
//   AddPeer(b): connects, says hello ───────► checks versions, names, incarnations, token
//   checks the same         ◄──────────────── answers with its own hello
//   kPeerUp when all streams have done so     kPeerUp
//
// One thread owns it, and is helped by movers (mover.h). Connecting again after kPeerLost is the
// owner's: RemovePeer, then AddPeer with another id and other tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/transport/engine/engine.h"
#include "runtime/transport/peer_transport.h"
#include "runtime/transport/tcp/frames.h"
#include "runtime/transport/tcp/options.h"

namespace shunt::transport {

class TcpTransport : public PeerTransport {
 public:
  // Listens. INVALID_ARGUMENT for options that can't be; ALREADY_EXISTS if the port is taken.
  static absl::StatusOr<std::unique_ptr<TcpTransport>> Create(const TcpOptions& options);
  ~TcpTransport() override;

  uint16_t port() const override { return port_; }

  void Renew(uint64_t incarnation) override { options_.incarnation = incarnation; }
  absl::Status AddPeer(const TcpPeer& peer) override;
  void RemovePeer(PeerId id) override;
  LinkState link(PeerId peer) const override;

  absl::Status Open(uint64_t communicator, absl::Span<const PeerId> peers) override {
    const std::lock_guard lock(mutex_);
    return engine_.Open(communicator, peers);
  }
  void Close(uint64_t communicator) override;
  void PostSend(const Message& message, absl::Span<const std::byte> data, uint64_t token) override {
    const std::lock_guard lock(mutex_);
    engine_.PostSend(message, Memory(data), token);
  }
  void PostRecv(const Message& message, absl::Span<std::byte> buffer, uint64_t token) override {
    const std::lock_guard lock(mutex_);
    engine_.PostRecv(message, Memory(buffer), token);
  }
  void PostSend(const Message& message, absl::Span<const iovec> places, uint64_t token) override {
    const std::lock_guard lock(mutex_);
    engine_.PostSend(message, Memory(places), token);
  }
  void PostRecv(const Message& message, absl::Span<const iovec> places, uint64_t token) override {
    const std::lock_guard lock(mutex_);
    engine_.PostRecv(message, Memory(places), token);
  }
  absl::Status SendNote(PeerId peer, uint64_t communicator,
                        absl::Span<const std::byte> note) override {
    const std::lock_guard lock(mutex_);
    return engine_.SendNote(peer, communicator, note);
  }
  size_t Poll(absl::Span<Completion> out) override;
  int fd() const override { return epoll_.get(); }
  PeerCounters counters(PeerId peer) const override {
    const std::lock_guard lock(mutex_);
    return engine_.counters(peer);
  }
  const Limits& limits() const override { return engine_.limits(); }

  // Sockets that have not shown a token yet.
  int unauthenticated() const { return static_cast<int>(strangers_.size()); }

 private:
  struct Socket;
  struct Peer;
  class Mover;

  explicit TcpTransport(const TcpOptions& options);
  absl::Status Start();
  absl::Status CheckOptions() const;

  // handshake.cc
  void Accept();
  void AcceptOne(UniqueFd fd);
  absl::Status StartConnecting(Peer* peer);
  void Handshake(Socket* socket, uint32_t events);
  absl::Status ReadHello(Socket* socket);
  absl::Status SayHello(Socket* socket, const Peer& peer, wire::Versions versions);
  absl::Status CheckHello(const wire::Hello& hello, const Peer& peer) const;
  // OK also if it has to wait for AddPeer.
  absl::Status Admit(Socket* socket);
  void Ready(Socket* socket);
  void Refuse(Socket* socket, const absl::Status& why);

  // tcp_transport.cc
  void OnEvents(Socket* socket, uint32_t events);
  void ReadFrom(Socket* socket);
  void WriteTo(Socket* socket);
  void WriteAll();
  void Watch(Socket* socket, uint32_t events);
  void Lose(Peer* peer, const absl::Status& why);
  void CloseSocket(Socket* socket);
  // Until the kernel is done with all buffers that other threads have named to it.
  static void AwaitSystemCalls(const Peer& peer);
  // No more of this socket. Its peer goes with the last one, a heartbeat after the first, or at
  // once if it broke a rule.
  void Fail(Socket* socket, const absl::Status& why);
  void LoseFailed();
  // What movers have for the owner; on a mover's thread.
  void TellOwner();
  void Tick();
  void ArmTimer();

  TcpOptions options_;
  mutable std::mutex mutex_;  // everything below; of options_ movers read what does not change
  Engine engine_;
  UniqueFd epoll_, listener_, timer_, told_fd_;
  uint16_t port_ = 0;
  int64_t now_ns_ = 0;   // of this Poll
  bool looked_ = false;  // all that was readable has been read, and the owner has not waited since
  bool timer_armed_ = false;
  bool listener_paused_ = false;
  absl::flat_hash_map<PeerId, std::unique_ptr<Peer>> peers_;
  absl::flat_hash_map<std::string, PeerId> by_name_;  // peers that are not lost
  std::vector<std::shared_ptr<Socket>> strangers_;    // accepted, oldest first
  std::vector<std::shared_ptr<Socket>> closed_;       // until the end of this Poll
  bool told_ = false;                                 // told_fd_ is readable
  std::vector<PeerId> failed_;                        // of sockets that failed since the last look
  std::vector<std::unique_ptr<Mover>> movers_;        // last: they end before what they work on
};

}  // namespace shunt::transport
