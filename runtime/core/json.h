// Writing JSON.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace shunt {

// A JSON value that is being written: text, number, boolean, list or object, in the order given.
class Json {
 public:
  static Json Object() { return Json("{", "}"); }
  static Json List() { return Json("[", "]"); }

  template <typename T>
  Json& Add(std::string_view key, const T& value) {
    Key(key);
    return Append(value);
  }
  template <typename T>
  Json& Append(const T& value) {
    Separate();
    if constexpr (std::is_same_v<T, Json>) {
      body_ += value.Text();
    } else if constexpr (std::is_same_v<T, bool>) {
      body_ += value ? "true" : "false";
    } else if constexpr (std::is_floating_point_v<T>) {
      Number(value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      body_ += std::to_string(value);
    } else {
      Quote(value);
    }
    return *this;
  }
  std::string Text() const { return open_ + body_ + close_; }

 private:
  Json(const char* open, const char* close) : open_(open), close_(close) {}
  void Key(std::string_view key);
  void Separate();
  void Quote(std::string_view text);
  void Number(double value);

  std::string open_, body_, close_;
  bool keyed_ = false;
};

}  // namespace shunt
