// Frames over one byte stream, for one stream of one peer: headers are decoded and encoded here,
// payload goes straight between the socket and the buffers that the engine names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "runtime/transport/engine/engine.h"
#include "runtime/transport/tcp/byte_stream.h"
#include "runtime/transport/wire/header.h"

namespace shunt::transport {

class FrameReader {
 public:
  FrameReader();
  // Reads what is there, about `budget` bytes at most. `*came` is set if anything was. An error is
  // the peer's fault or its end.
  absl::Status Read(ByteStream* bytes, Engine* engine, PeerState* peer, int stream, uint8_t version,
                    size_t budget, bool* came);

 private:
  absl::Status Parse(Engine* engine, PeerState* peer, int stream, uint8_t version);
  absl::Status Land(Engine* engine, PeerState* peer, int stream, const std::byte* at,
                    uint32_t bytes);

  std::unique_ptr<std::byte[]> staging_;
  size_t begin_ = 0, end_ = 0;
  bool check_crc_ = false;
  uint32_t crc_ = 0, crc_expected_ = 0;
};

class FrameWriter {
 public:
  // Writes what the socket takes. `*blocked`: there is more, for when it is writable again.
  absl::Status Write(ByteStream* bytes, Engine* engine, PeerState* peer, int stream,
                     uint8_t version, bool crc, bool* blocked, bool* went);

 private:
  std::deque<std::array<std::byte, wire::kHeaderBytes>> headers_;  // of engine's `sending`
  size_t written_ = 0;                                             // bytes of the first frame
};

}  // namespace shunt::transport
