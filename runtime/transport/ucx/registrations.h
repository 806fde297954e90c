// Registrations of memory with a network card, cached: registering pins pages and costs more than
// moving a piece. The owner says which memory stays where it is; that is registered in blocks when
// it is first used, and the block that was used longest ago goes when there are too many.
//
//   memory    |--------- block 0 ---------|--------- block 1 ---------|-- block 2 --|
//   entries   [.............................+overlap]
//                                         [.............................+overlap]
//
// A block reaches over its end by `overlap`, so a range no longer than that lies in the block in
// which it begins. Knows nothing of the card. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/transport/link_tally.h"

namespace shunt::transport {

class Registrations {
 public:
  struct Options {
    uint64_t bytes_max = uint64_t{2} << 30;
    uint32_t entries_max = 1024;
    size_t block_bytes = 64 << 20;
    size_t overlap_bytes = 1 << 20;
    RegistrationTally* tally = nullptr;  // where others read the counters; null: nowhere
  };
  struct Counters {
    uint64_t entries = 0, bytes = 0;  // now
    uint64_t hits = 0, misses = 0, evictions = 0;
    uint64_t failures = 0;  // the card or the system refused
    uint64_t full = 0;      // all entries were in use, or one alone is more than bytes_max
  };
  // Null from `add`: it can't be registered.
  struct Card {
    std::function<void*(std::byte* at, size_t bytes)> add;
    std::function<void(void* handle)> remove;
  };
  struct Entry {
    void* handle = nullptr;

   private:
    friend class Registrations;
    std::byte* begin = nullptr;
    size_t bytes = 0;
    std::byte* memory = nullptr;  // which it is of
    int users = 0;
    std::list<Entry*>::iterator place = {};
  };

  Registrations(const Options& options, Card card) : options_(options), card_(std::move(card)) {}
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  // The memory must stay mapped as it is until Remove. ALREADY_EXISTS if it overlaps other memory.
  absl::Status Add(absl::Span<std::byte> memory);
  // Registers it no longer. NOT_FOUND; FAILED_PRECONDITION if a part of it is in use.
  absl::Status Remove(const std::byte* begin);

  // Null if the range is in no memory of Add, or can't be registered now. Must be released.
  Entry* Acquire(const std::byte* at, size_t bytes);
  void Release(Entry* entry);

  const Counters& counters() const { return counters_; }

 private:
  using Key = std::pair<std::byte*, size_t>;  // memory, block
  bool MakeRoom(size_t bytes);
  void Drop(Entry* entry);
  void Tell() const;

  Options options_;
  Card card_;
  Counters counters_;
  std::map<std::byte*, size_t> memories_;  // begin, length
  std::map<Key, Entry> entries_;
  std::list<Entry*> unused_;  // the one that was used longest ago first
};

}  // namespace shunt::transport
