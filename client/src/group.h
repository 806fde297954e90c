// The calls between shunt_group_begin and shunt_group_end.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "runtime/board/member.h"

namespace shunt::client {

// Belongs to one thread.
class Group {
 public:
  struct Entry {
    board::Call call;  // its deadline is set when the group is submitted
    int64_t timeout_ns = 0;
    std::optional<void*> stream = {};  // of a call on one
    int device = -1;                   // of its buffers; -1: no GPU's
  };

  Group() : owner_(std::this_thread::get_id()) {}

  std::thread::id owner() const { return owner_; }
  const std::vector<Entry>& entries() const { return entries_; }
  // The first call that was refused: the group as a whole is then not submitted.
  const absl::Status& refused() const { return refused_; }

  // Copies what the call points to besides its buffers. `world` is the length of its tables.
  void Add(Entry entry, int world) {
    board::Call& call = entry.call;
    for (const uint64_t** table :
         {&call.send_counts, &call.send_displs, &call.recv_counts, &call.recv_displs}) {
      if (*table != nullptr) *table = tables_.emplace_back(*table, *table + world).data();
    }
    entries_.push_back(entry);
  }
  void Refuse(absl::Status why) {
    if (refused_.ok()) refused_ = std::move(why);
  }

 private:
  const std::thread::id owner_;
  std::vector<Entry> entries_;
  std::deque<std::vector<uint64_t>> tables_;
  absl::Status refused_;
};

}  // namespace shunt::client
