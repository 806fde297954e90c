#include "tools/sim/quantity.h"

#include <charconv>
#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"

namespace shunt::tools {
namespace {

struct Unit {
  std::string_view name;
  double value;
};

// The number that the text begins with, and the rest without blanks; false if there is none.
bool Split(std::string_view text, double* number, std::string_view* unit) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  if (error != std::errc() || !std::isfinite(*number)) return false;
  *unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit->empty() && unit->front() == ' ') unit->remove_prefix(1);
  return true;
}

template <size_t N>
const Unit* Find(const Unit (&units)[N], std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

constexpr Unit kByteRates[] = {
    {"B/s", 1},     {"kB/s", 1e3},    {"MB/s", 1e6},       {"GB/s", 1e9},
    {"TB/s", 1e12}, {"KiB/s", 1024.}, {"MiB/s", 1048576.}, {"GiB/s", 1073741824.},
};
constexpr Unit kBitRates[] = {
    {"bit", 1. / 8}, {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}, {"tbit", 1e12 / 8}};
constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}};
constexpr Unit kSizes[] = {
    {"", 1},        {"B", 1},          {"kB", 1e3},          {"MB", 1e6},
    {"GB", 1e9},    {"K", 1024.},      {"M", 1048576.},      {"G", 1073741824.},
    {"KiB", 1024.}, {"MiB", 1048576.}, {"GiB", 1073741824.}, {"TiB", 1099511627776.}};

absl::Status Expected(const char* words) { return absl::InvalidArgumentError(words); }

}  // namespace

absl::StatusOr<double> ParseRate(std::string_view text) {
  double number;
  std::string_view name;
  if (Split(text, &number, &name)) {
    if (const Unit* unit = Find(kByteRates, name)) return number * unit->value;
    // Bits in any case: B alone says whether bytes are meant.
    std::string bits(name);
    absl::AsciiStrToLower(&bits);
    if (bits.ends_with("/s")) bits.resize(bits.size() - 2);
    if (const Unit* unit = Find(kBitRates, bits)) return number * unit->value;
  }
  return Expected("expected a rate such as \"250 Mbit/s\" or \"50 GB/s\"");
}

absl::StatusOr<double> ParseSeconds(std::string_view text) {
  double number;
  std::string_view name;
  if (Split(text, &number, &name)) {
    if (const Unit* unit = Find(kTimes, name)) return number * unit->value;
  }
  return Expected("expected a time such as \"30us\" or \"1.5 ms\"");
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  double number;
  std::string_view name;
  if (Split(text, &number, &name)) {
    const Unit* unit = Find(kSizes, name);
    // Beyond 2^53 a double does not hold every whole number, and nobody has such memory.
    if (unit != nullptr && number * unit->value <= 0x1p53) {
      return static_cast<uint64_t>(number * unit->value);
    }
  }
  return Expected("expected a size such as \"64KiB\", \"16M\" or 512");
}

absl::StatusOr<double> ParseNumber(std::string_view text) {
  double number;
  std::string_view rest;
  if (Split(text, &number, &rest) && rest.empty()) return number;
  return Expected("expected a number");
}

absl::StatusOr<int64_t> ParseInteger(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return Expected("expected a whole number");
}

}  // namespace shunt::tools
