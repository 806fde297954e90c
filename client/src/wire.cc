#include "client/src/wire.h"

namespace shunt::client {

bool WireReader::ReadVarint(uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (data_.empty()) return false;
    const auto byte = static_cast<uint8_t>(data_.front());
    data_.remove_prefix(1);
    if (shift < 64) result |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      *value = result;
      return true;
    }
  }
  return false;
}

bool WireReader::Next() {
  if (!ok_ || data_.empty()) return false;
  uint64_t tag;
  if (!ReadVarint(&tag)) return Fail();
  if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return Fail();
  field_ = static_cast<uint32_t>(tag >> 3);
  varint_ = 0;
  fixed64_ = 0;
  bytes_ = {};
  switch (tag & 7) {
    case 0:
      return ReadVarint(&varint_) || Fail();
    case 1:
    case 5: {
      const size_t size = (tag & 7) == 1 ? 8 : 4;
      if (data_.size() < size) return Fail();
      if (size == 8) {
        for (size_t i = 0; i < size; ++i) {
          fixed64_ |= uint64_t{static_cast<uint8_t>(data_[i])} << 8 * i;
        }
      }
      data_.remove_prefix(size);
      return true;
    }
    case 2: {
      uint64_t size;
      if (!ReadVarint(&size) || size > data_.size()) return Fail();
      bytes_ = data_.substr(0, size);
      data_.remove_prefix(size);
      return true;
    }
    default:
      return Fail();  // groups are not used
  }
}

}  // namespace shunt::client
