// The last sections of other nodes that were fetched here: to fetch one again costs what has
// changed.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "daemon/transfer/agent_table.h"

namespace shunt::daemon {

// On one thread.
class SectionCache {
 public:
  struct Key {
    std::string node;
    uint64_t incarnation = 0;  // of the node
    std::string agent;
    std::string section;
    uint32_t tenant = 0;  // for whom: the same name may be another agent's to another user
    auto operator<=>(const Key&) const = default;
  };
  struct Limits {
    size_t entries_max = 1024;
    size_t bytes_max = 16 << 20;  // about, with what is made of the sections
  };

  SectionCache() : SectionCache(Limits()) {}
  explicit SectionCache(Limits limits) : limits_(limits) {}

  // Null if there is none.
  std::shared_ptr<const Published> Find(const Key& key);
  // What is to be used: `fresh`, or the same version that was here before. Who holds an older one
  // is told by its CheckCurrent.
  std::shared_ptr<const Published> Put(const Key& key, std::shared_ptr<Published> fresh);

  size_t size() const { return order_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<Published> published;
    size_t bytes = 0;
  };
  using Order = std::list<Entry>;  // the last used first

  void Drop(Order::iterator entry);

  const Limits limits_;
  Order order_;
  std::map<Key, Order::iterator> by_key_;
  size_t bytes_ = 0;
};

}  // namespace shunt::daemon
