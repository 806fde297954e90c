// A connection as a stream of bytes, and the few socket calls around it. TLS would be another
// ByteStream: nothing above knows what the bytes go through.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/transport/tcp/options.h"

namespace shunt::transport {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual int fd() const = 0;
  // Bytes moved, 0 if it would block. UNAVAILABLE if the other side has closed.
  virtual absl::StatusOr<size_t> Read(const iovec* parts, int count) = 0;
  virtual absl::StatusOr<size_t> Write(const iovec* parts, int count) = 0;
};

std::unique_ptr<ByteStream> MakePlainStream(UniqueFd fd);

// All non-blocking and close-on-exec.
absl::StatusOr<UniqueFd> TcpListen(const std::string& address, uint16_t port);
// Connecting goes on: the socket is writable when it has been decided, and ConnectResult says how.
absl::StatusOr<UniqueFd> TcpConnect(const std::string& address, uint16_t port,
                                    const TcpOptions& options);
absl::Status ConnectResult(int fd);
absl::Status SetSocketOptions(int fd, const TcpOptions& options);
// The kernel's idea of it, smoothed; 0 if it has none.
uint64_t RoundTripNs(int fd);
uint16_t LocalPort(int fd);
std::string RemoteAddress(int fd);  // as "address:port", for messages

}  // namespace shunt::transport
