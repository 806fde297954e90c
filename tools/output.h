// What shuntctl prints: records as an aligned table, or as JSON (runtime/core/json.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/json.h"
#include "tools/terminal.h"

namespace shunt::tools {

// Columns as wide as their widest cell; numbers, and what a header begins with '>' for, to the
// right. Text from clients is made printable by who adds it.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }
  // With colours: the header is bold, words of the columns STATE and RESULT are coloured.
  std::string Text(const Style& style = Style()) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Printable(std::string_view text);
// "1.5 GiB".
std::string SizeText(uint64_t bytes);
// "1.5 GiB/s"; "-" for none.
std::string RateText(double bytes_per_second);
// "100 Gbit/s"; "-" for 0.
std::string BitRateText(uint64_t bits_per_second);
// "12.3 us".
std::string TimeText(double seconds);
// "12 %"; "-" if there is nothing to compare with.
std::string PartText(double part, double whole);
// "2 d 3 h", "5 min 1 s", "0.3 s".
std::string AgeText(double seconds);

}  // namespace shunt::tools
