#include "runtime/transport/tcp/frames.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "runtime/transport/wire/bytes.h"
#include "runtime/transport/wire/crc32c.h"

namespace shunt::transport {
namespace {

// What is read before its header is known is copied once more: enough for a burst of small frames,
// little of a large one.
constexpr size_t kStagingBytes = 32 << 10;
// A payload with more than this to come is read into place, and only the next header with it.
constexpr size_t kDirectBytes = 8 << 10;
constexpr int kFramesMax = 32;
// Of one system call.
constexpr size_t kPartsMax = 1024;
constexpr size_t kCrcAt = wire::kHeaderBytes - 4;

void PutSum(std::array<std::byte, wire::kHeaderBytes>* header, const Memory& memory, uint64_t begin,
            uint64_t bytes) {
  uint32_t sum = wire::Crc32c(0, std::span(*header).first(kCrcAt));
  memory.ForEachPlace(begin, bytes, [&](const std::byte* place, size_t here) {
    sum = wire::Crc32c(sum, {place, here});
    return true;
  });
  wire::Put(header->data() + kCrcAt, sum);
}

}  // namespace

FrameReader::FrameReader() : staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)) {}

absl::Status FrameReader::Read(ByteStream* bytes, Engine* engine, PeerState* peer, int stream,
                               uint8_t version, size_t budget, bool* came, Gate* gate) {
  while (budget > 0) {
    // All whole frames in the staging buffer have been taken.
    std::memmove(staging_.get(), staging_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const size_t left = Engine::Left(peer, stream);
    parts_.clear();
    size_t direct = 0, wanted = 0;
    if (left > kDirectBytes && Engine::Lands(peer, stream)) {
      Engine::ForEachTarget(peer, stream, left, [&](std::byte* place, size_t here) {
        parts_.push_back({place, here});
        direct += here;
        return parts_.size() < kPartsMax - 1;
      });
      wanted = direct;
      if (direct == left) {
        parts_.push_back({staging_.get(), wire::kHeaderBytes});
        wanted += wire::kHeaderBytes;
      }
    } else {
      wanted = kStagingBytes - end_;
      parts_.push_back({staging_.get() + end_, wanted});
    }
    absl::StatusOr<size_t> read;
    {
      const Gate::Opened opened(gate);
      read = bytes->Read(parts_.data(), static_cast<int>(parts_.size()));
      // Now: once the gate is shut, the buffer may be its owner's again.
      if (read.ok() && direct > 0) SumPlaced(*read);
    }
    if (gate != nullptr && gate->closed()) return absl::OkStatus();
    if (!read.ok()) return read.status();
    if (*read == 0) return absl::OkStatus();
    *came = true;
    budget -= std::min(budget, *read);
    const size_t placed = std::min(*read, direct);
    if (placed > 0) {
      absl::Status status = Land(engine, peer, stream, static_cast<uint32_t>(placed));
      if (!status.ok()) return status;
    }
    end_ += *read - placed;
    if (absl::Status status = Parse(engine, peer, stream, version); !status.ok()) return status;
    if (*read < wanted) return absl::OkStatus();  // that was all
  }
  return absl::OkStatus();
}

absl::Status FrameReader::Parse(Engine* engine, PeerState* peer, int stream, uint8_t version) {
  while (begin_ < end_) {
    const uint32_t left = Engine::Left(peer, stream);
    if (left > 0) {
      const auto here = static_cast<uint32_t>(std::min<size_t>(left, end_ - begin_));
      const std::byte* at = staging_.get() + begin_;
      Engine::Place(peer, stream, at, here);
      begin_ += here;
      Sum(at, here);
      absl::Status status = Land(engine, peer, stream, here);
      if (!status.ok()) return status;
      continue;
    }
    if (end_ - begin_ < wire::kHeaderBytes) break;
    const std::span<const std::byte, wire::kHeaderBytes> bytes(staging_.get() + begin_,
                                                               wire::kHeaderBytes);
    begin_ += wire::kHeaderBytes;
    wire::Header header;
    if (absl::Status status = wire::Decode(bytes, version, &header); !status.ok()) {
      CountProtocolError(peer);
      return status;
    }
    check_crc_ = (header.flags & wire::kFlagCrc) != 0;
    if (check_crc_) {
      crc_ = wire::Crc32c(0, bytes.first(kCrcAt));
      crc_expected_ = header.crc;
      if (header.payload_bytes == 0 && crc_ != crc_expected_) {
        CountProtocolError(peer);
        return absl::DataLossError(
            absl::StrCat("frame: CRC32C is ", crc_, ", expected ", crc_expected_));
      }
    }
    if (absl::Status status = engine->Arrive(peer, stream, header); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void FrameReader::Sum(const std::byte* at, size_t bytes) {
  if (check_crc_ && bytes > 0) crc_ = wire::Crc32c(crc_, {at, bytes});
}

void FrameReader::SumPlaced(size_t read) {
  for (const iovec& part : parts_) {
    if (part.iov_base == staging_.get()) return;  // the next header
    const size_t here = std::min(read, part.iov_len);
    Sum(static_cast<const std::byte*>(part.iov_base), here);
    read -= here;
  }
}

absl::Status FrameReader::Land(Engine* engine, PeerState* peer, int stream, uint32_t bytes) {
  if (check_crc_ && bytes == Engine::Left(peer, stream) && crc_ != crc_expected_) {
    CountProtocolError(peer);
    return absl::DataLossError(
        absl::StrCat("frame: CRC32C is ", crc_, ", expected ", crc_expected_));
  }
  return engine->Landed(peer, stream, bytes);
}

absl::Status FrameWriter::Write(ByteStream* bytes, Engine* engine, PeerState* peer, int stream,
                                uint8_t version, bool crc, size_t budget, Outcome* outcome,
                                Gate* gate) {
  std::deque<OutFrame>& sending = Engine::sending(peer, stream);
  while (budget > 0) {
    // A piece at a time, so that what matters more can overtake the rest; small ones together.
    size_t pending = 0;
    for (const OutFrame& frame : sending) pending += frame.header.payload_bytes;
    while (static_cast<int>(sending.size()) < kFramesMax && pending < (128 << 10) &&
           engine->Pull(peer, stream)) {
      pending += sending.back().header.payload_bytes;
    }
    if (sending.empty()) return absl::OkStatus();
    const size_t known = headers_.size();
    to_sum_.clear();
    while (headers_.size() < sending.size()) {
      OutFrame& frame = sending[headers_.size()];
      if (crc) {
        frame.header.flags |= wire::kFlagCrc;
        to_sum_.push_back({frame.memory, frame.begin, frame.header.payload_bytes});
      }
      headers_.emplace_back();
      wire::Encode(frame.header, version, headers_.back());
    }

    parts_.clear();
    size_t wanted = 0;
    size_t skip = written_;
    const auto add = [&](std::byte* at, size_t length) {
      const size_t done = std::min(skip, length);
      skip -= done;
      if (length == done) return true;
      parts_.push_back({at + done, length - done});
      wanted += length - done;
      return parts_.size() < kPartsMax;
    };
    for (size_t i = 0; i < sending.size() && parts_.size() < kPartsMax; ++i) {
      if (!add(headers_[i].data(), wire::kHeaderBytes)) break;
      sending[i].memory.ForEachPlace(sending[i].begin, sending[i].header.payload_bytes, add);
    }
    absl::StatusOr<size_t> wrote;
    {
      const Gate::Opened opened(gate);
      // Now, when it holds up nobody; what is named stays where it is as long as the gate is open.
      for (size_t i = 0; i < to_sum_.size(); ++i) {
        PutSum(&headers_[known + i], to_sum_[i].memory, to_sum_[i].begin, to_sum_[i].bytes);
      }
      wrote = bytes->Write(parts_.data(), static_cast<int>(parts_.size()));
    }
    if (gate != nullptr && gate->closed()) return absl::OkStatus();
    if (!wrote.ok()) return wrote.status();
    if (*wrote > 0) outcome->went = true;
    budget -= std::min(budget, *wrote);
    written_ += *wrote;
    while (!sending.empty()) {
      const size_t length = wire::kHeaderBytes + sending.front().header.payload_bytes;
      if (written_ < length) break;
      written_ -= length;
      headers_.pop_front();
      engine->Sent(peer, stream);
    }
    if (*wrote < wanted) {
      outcome->blocked = true;
      return absl::OkStatus();
    }
  }
  outcome->more = true;
  return absl::OkStatus();
}

}  // namespace shunt::transport
