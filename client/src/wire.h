// The protobuf wire format, as far as the lease socket's messages need it: varints, strings and
// nested messages. Encoded by hand so that no protobuf runtime, whose versions do not mix, comes
// into a training job with this library. https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shunt::client {

// Appends fields to a string. Like protobuf's own encoder, fields with default values are left out.
class WireWriter {
 public:
  explicit WireWriter(std::string* out) : out_(out) {}

  void Varint(uint32_t field, uint64_t value) {
    if (value != 0) Put(field, value);
  }
  // Negative int32 and int64 values take ten bytes, as the format says.
  void Int(uint32_t field, int64_t value) { Varint(field, static_cast<uint64_t>(value)); }
  // A repeated field of numbers; nothing if there are none.
  template <typename Numbers>
  void Packed(uint32_t field, const Numbers& numbers) {
    if (numbers.empty()) return;
    std::string packed;
    WireWriter inner(&packed);
    for (const auto n : numbers) inner.Raw(n);
    Nested(field, packed);
  }
  void Bytes(uint32_t field, std::string_view bytes) {
    if (!bytes.empty()) Nested(field, bytes);
  }
  // A message that is present, also when it is empty.
  void Nested(uint32_t field, std::string_view encoded) {
    Raw(uint64_t{field} << 3 | 2);
    Raw(encoded.size());
    out_->append(encoded);
  }

 private:
  void Put(uint32_t field, uint64_t value) {
    Raw(uint64_t{field} << 3);
    Raw(value);
  }
  void Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_->push_back(static_cast<char>(value | 0x80));
    out_->push_back(static_cast<char>(value));
  }

  std::string* out_;
};

// Reads one message field by field. Unknown fields are the caller's to skip: just do not look at
// them.
class WireReader {
 public:
  explicit WireReader(std::string_view data) : data_(data) {}

  // Moves to the next field. False at the end, or where the bytes make no sense (ok() tells).
  bool Next();
  bool ok() const { return ok_; }

  uint32_t field() const { return field_; }
  // The field's value; 0 or "" if it has another wire type than asked for.
  uint64_t varint() const { return varint_; }
  uint64_t fixed64() const { return fixed64_; }
  std::string_view bytes() const { return bytes_; }

 private:
  bool Fail() {
    ok_ = false;
    return false;
  }
  bool ReadVarint(uint64_t* value);

  std::string_view data_;
  std::string_view bytes_;
  uint64_t varint_ = 0;
  uint64_t fixed64_ = 0;
  uint32_t field_ = 0;
  bool ok_ = true;
};

}  // namespace shunt::client
