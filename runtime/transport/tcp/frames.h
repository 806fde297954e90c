// Frames over one byte stream, for one stream of one peer: headers are decoded and encoded here,
// payload goes straight between the socket and the buffers that the engine names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/transport/engine/engine.h"
#include "runtime/transport/tcp/byte_stream.h"
#include "runtime/transport/tcp/gate.h"
#include "runtime/transport/wire/header.h"

namespace shunt::transport {

class FrameReader {
 public:
  FrameReader();
  // Reads what is there, about `budget` bytes at most. `*came` is set if anything was. An error is
  // the peer's fault or its end. `gate`: null if no other thread works on the engine.
  absl::Status Read(ByteStream* bytes, Engine* engine, PeerState* peer, int stream, uint8_t version,
                    size_t budget, bool* came, Gate* gate);

 private:
  absl::Status Parse(Engine* engine, PeerState* peer, int stream, uint8_t version);
  void Sum(const std::byte* at, size_t bytes);
  // Of the payload that came first of so many bytes.
  void SumPlaced(size_t read);
  absl::Status Land(Engine* engine, PeerState* peer, int stream, uint32_t bytes);

  std::unique_ptr<std::byte[]> staging_;
  size_t begin_ = 0, end_ = 0;
  std::vector<iovec> parts_;
  bool check_crc_ = false;
  uint32_t crc_ = 0, crc_expected_ = 0;
};

class FrameWriter {
 public:
  struct Outcome {
    bool went = false;     // anything
    bool blocked = false;  // there is more, for when the socket is writable again
    bool more = false;     // there may be more, for the next turn
  };
  // Writes what the socket takes, about `budget` bytes at most. `gate` as in Read.
  absl::Status Write(ByteStream* bytes, Engine* engine, PeerState* peer, int stream,
                     uint8_t version, bool crc, size_t budget, Outcome* outcome, Gate* gate);

 private:
  std::deque<std::array<std::byte, wire::kHeaderBytes>> headers_;  // of engine's `sending`
  size_t written_ = 0;                                             // bytes of the first frame
  struct ToSum {
    Memory memory;
    uint64_t begin, bytes;
  };
  std::vector<ToSum> to_sum_;  // for when the engine is others'
  std::vector<iovec> parts_;
};

}  // namespace shunt::transport
