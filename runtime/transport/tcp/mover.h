// A thread that moves large payload, so that the transport's owner computes meanwhile, and a node
// sends and receives on several CPUs at once. It has streams of its own, of every peer:
//
//   owner      stream 0: control, messages below own_stream_bytes; completions, all decisions
//   mover m    streams 1 + m, 1 + m + movers, …: granted messages of own_stream_bytes and more
//
// All of them work on one engine, under the transport's lock, and leave it for the time of a system
// call (Gate).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/transport/tcp/state.h"

namespace shunt::transport {

class TcpTransport::Mover {
 public:
  static absl::StatusOr<std::unique_ptr<Mover>> Start(TcpTransport* transport);
  ~Mover();

  // Under the transport's lock:

  // From now on it reads from the socket, and writes to it when told so.
  void Adopt(std::shared_ptr<Socket> socket);
  void Write(Socket* socket);
  // There are sockets among its own that the owner has closed.
  void Forget();

 private:
  explicit Mover(TcpTransport* transport) : transport_(transport) {}
  void Run();
  void Serve(Socket* socket, bool readable, bool writable);
  void Ask();

  TcpTransport* const transport_;
  UniqueFd epoll_, wake_;
  // Under the transport's lock.
  std::vector<std::shared_ptr<Socket>> sockets_;
  std::vector<Socket*> to_write_;
  bool closed_some_ = false, stop_ = false;
  // Not under it, for a mover that looks for work is not to hold up those who work.
  std::atomic<bool> asked_ = false, sleeps_ = false;
  int64_t moved_ns_ = 0;  // its own thread's
  std::thread thread_;
};

}  // namespace shunt::transport
