// What a scrape shows, before anybody knows in which format: families of samples.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/counters.h"

namespace shunt::daemon::metrics {

enum class Type : uint8_t { kCounter, kGauge, kHistogram };

using Labels = std::vector<std::pair<std::string_view, std::string>>;

struct Sample {
  Labels labels;
  double value = 0;               // not of a histogram
  Durations::Snapshot durations;  // of a histogram only
};

struct Family {
  // A literal each: names and help are the code's own.
  std::string_view name;
  std::string_view help;
  Type type = Type::kGauge;
  std::vector<Sample> samples = {};

  void Add(Labels labels, double value) { samples.push_back({std::move(labels), value, {}}); }
  void Add(Labels labels, uint64_t value) { Add(std::move(labels), static_cast<double>(value)); }
  void Add(Labels labels, const Durations& durations) {
    samples.push_back({std::move(labels), 0, durations.Read()});
  }
};

// One that has no samples at present is shown all the same: it exists.
class Page {
 public:
  // Valid as long as the page.
  Family& Counter(std::string_view name, std::string_view help) {
    return Add(name, help, Type::kCounter);
  }
  Family& Gauge(std::string_view name, std::string_view help) {
    return Add(name, help, Type::kGauge);
  }
  Family& Histogram(std::string_view name, std::string_view help) {
    return Add(name, help, Type::kHistogram);
  }
  const std::deque<Family>& families() const { return families_; }

 private:
  Family& Add(std::string_view name, std::string_view help, Type type) {
    return families_.emplace_back(Family{name, help, type});
  }
  std::deque<Family> families_;
};

}  // namespace shunt::daemon::metrics
