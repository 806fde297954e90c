// What passes between this node and another, counted by the other's name: connections come and go,
// and the numbers only grow. The carriers add to it; whoever has made the LinkTallies reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/counters.h"
#include "runtime/transport/transport.h"

namespace shunt::transport {

// Payload by its class, with the headers that it travels with; the rest is control.
enum class Traffic : uint8_t { kLatency, kBulk, kBackground, kControl };
inline constexpr size_t kTraffics = 4;
constexpr std::string_view Name(Traffic traffic) {
  constexpr std::string_view kNames[kTraffics] = {"latency", "bulk", "background", "control"};
  return kNames[static_cast<size_t>(traffic)];
}

// Any thread; nothing here waits for anything.
class LinkTally {
 public:
  explicit LinkTally(std::string name) : name(std::move(name)) {}

  void Sent(Traffic traffic, uint64_t bytes) { sent[static_cast<size_t>(traffic)].Add(bytes); }
  void Received(Traffic traffic, uint64_t bytes) {
    received[static_cast<size_t>(traffic)].Add(bytes);
  }

  const std::string name;
  std::array<Count, kTraffics> sent, received;  // bytes
  Count credit_stalls, protocol_errors, losses;
  // Measured when its connection was made, and since; 0: not yet.
  Level bytes_per_s, rtt_ns;
};

// Of the cache of registrations with the network cards (ucx/registrations.h).
struct RegistrationTally {
  Level entries, bytes;  // now
  Level hits, misses, evictions, failures, full;
};

// Thread-safe. A tally stays as long as this.
class LinkTallies {
 public:
  RegistrationTally registrations;

  // Other nodes' daemons give their names themselves: beyond so many they share one.
  static constexpr size_t kNamesMax = 1024;
  static constexpr char kOther[] = "other";

  LinkTally* Of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = tallies_.find(name);
    if (found != tallies_.end()) return found->second.get();
    const std::string& kept = tallies_.size() < kNamesMax ? name : other_;
    std::unique_ptr<LinkTally>& tally = tallies_[kept];
    if (tally == nullptr) tally = std::make_unique<LinkTally>(kept);
    return tally.get();
  }

  // By name.
  std::vector<const LinkTally*> List() const {
    const std::lock_guard lock(mutex_);
    std::vector<const LinkTally*> all;
    for (const auto& [name, tally] : tallies_) all.push_back(tally.get());
    return all;
  }

 private:
  const std::string other_ = kOther;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<LinkTally>> tallies_;
};

}  // namespace shunt::transport
