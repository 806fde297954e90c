// Label values that others choose: each is a series for as long as a database keeps it, so only so
// many have one of their own at a time. Whoever comes when all are taken shares one.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "runtime/core/utf8.h"

namespace shunt::daemon::metrics {

// Not thread-safe.
class CappedNames {
 public:
  static constexpr char kOther[] = "other";

  explicit CappedNames(size_t most) : most_(most) {}

  // `name` as a label's value, or "other".
  std::string Of(const std::string& name) {
    std::string printable = Printable(name);
    if (names_.contains(printable)) return printable;
    if (names_.size() >= most_) return kOther;
    names_.insert(printable);
    return printable;
  }
  // The others are free for whoever comes next. `living`: as they were given to Of.
  void Retain(const std::set<std::string>& living) {
    std::set<std::string> printable;
    for (const std::string& name : living) printable.insert(Printable(name));
    std::erase_if(names_, [&](const std::string& name) { return !printable.contains(name); });
  }

 private:
  const size_t most_;
  std::set<std::string> names_;
};

}  // namespace shunt::daemon::metrics
