// What a store has done, counted by its name in the configuration: "files", "objects of NAME",
// "plugin NAME". Stores come and go with users and sessions, and the numbers only grow.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/counters.h"

namespace shunt::storage {

// Any thread.
struct StoreTally {
  Count succeeded, failed;  // reads, writes, opens, commits and so on
  Count bytes_read, bytes_written;
  Count retries;  // requests to a server that were made again
};

// Thread-safe. Names are the configuration's, so there are few.
class StoreTallies {
 public:
  // Shared, for a store that does not answer is left behind, with all that it may touch.
  std::shared_ptr<StoreTally> Of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<StoreTally>& tally = tallies_[name];
    if (tally == nullptr) tally = std::make_shared<StoreTally>();
    return tally;
  }
  std::vector<std::pair<std::string, std::shared_ptr<const StoreTally>>> List() const {
    const std::lock_guard lock(mutex_);
    return {tallies_.begin(), tallies_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<StoreTally>> tallies_;
};

}  // namespace shunt::storage
