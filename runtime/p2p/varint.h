// Internal to runtime/p2p: numbers in as few bytes as they need, 7 bits each, lowest first; the top
// bit says that another follows. Signed ones alternate: 0, -1, 1, -2, ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shunt::p2p {

constexpr uint64_t ZigZag(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t UnZigZag(uint64_t coded) {
  return static_cast<int64_t>(coded >> 1 ^ (~(coded & 1) + 1));
}

inline void PutVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
inline void PutFixed64(std::string* out, uint64_t value) {
  for (int i = 0; i < 64; i += 8) out->push_back(static_cast<char>(value >> i));
}

// Reads foreign bytes. After the first that is wrong (short, longer than it need be, beyond 64
// bits) it gives zeros, and bad() says so.
class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : left_(bytes) {}

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) return Fail();
      const auto byte = static_cast<uint8_t>(left_.front());
      left_.remove_prefix(1);
      if (shift == 63 && byte > 1) return Fail();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return byte == 0 && shift > 0 ? Fail() : value;
    }
    return Fail();
  }
  uint8_t Byte() {
    const std::string_view byte = Bytes(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  uint64_t Fixed64() {
    uint64_t value = 0;
    int shift = 0;
    for (const char c : Bytes(8)) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(c)) << shift;
      shift += 8;
    }
    return value;
  }
  std::string_view Bytes(size_t count) {
    if (count > left_.size()) {
      Fail();
      return {};
    }
    const std::string_view bytes = left_.substr(0, count);
    left_.remove_prefix(count);
    return bytes;
  }

  bool bad() const { return bad_; }
  size_t left() const { return left_.size(); }

 private:
  uint64_t Fail() {
    bad_ = true;
    left_ = {};
    return 0;
  }

  std::string_view left_;
  bool bad_ = false;
};

}  // namespace shunt::p2p
