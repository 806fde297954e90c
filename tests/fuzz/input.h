// Takes values off the front of a fuzzer's input; zeros when it is used up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace shunt::testing {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }

  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    Fill(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  void Fill(std::span<std::byte> out) {
    const size_t count = std::min(out.size(), left_);
    if (count == 0) return;
    std::memcpy(out.data(), data_, count);
    data_ += count;
    left_ -= count;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace shunt::testing
