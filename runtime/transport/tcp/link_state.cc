// What the kernel says of a peer's connection.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "runtime/transport/tcp/state.h"

namespace shunt::transport {

PeerTransport::LinkState TcpTransport::link(PeerId id) const {
  LinkState state;
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(id);
  if (found == peers_.end() || !found->second->up || found->second->lost) return state;
  state.came_ns = found->second->came_ns;
  for (const auto& socket : found->second->sockets) {
    if (socket == nullptr || socket->closed || socket->bytes == nullptr) continue;
    const int fd = socket->bytes->fd();
    int held = 0, unsent = 0;  // the kernel holds what is not acknowledged, sent or not
    if (::ioctl(fd, SIOCOUTQ, &held) == 0 && ::ioctl(fd, SIOCOUTQNSD, &unsent) == 0) {
      state.unsent_bytes += static_cast<uint64_t>(std::max(0, unsent));
      state.unacknowledged_bytes += static_cast<uint64_t>(std::max(0, held - unsent));
    }
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      state.retransmits = std::max<uint32_t>(state.retransmits, info.tcpi_retransmits);
    }
  }
  return state;
}

}  // namespace shunt::transport
