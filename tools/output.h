// What shuntctl prints: records, as an aligned table or as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace shunt::tools {

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

  std::string open_, body_, close_;
  bool keyed_ = false;
};

// Columns as wide as their widest cell; numbers to the right. Text from clients is made printable.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Printable(std::string_view text);
// "1.5 GiB".
std::string SizeText(uint64_t bytes);
// "2 d 3 h", "5 min 1 s", "0.3 s".
std::string AgeText(double seconds);

}  // namespace shunt::tools
