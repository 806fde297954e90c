#include "runtime/transport/ucx/registrations.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"

namespace shunt::transport {

Registrations::~Registrations() {
  for (auto& [key, entry] : entries_) card_.remove(entry.handle);
}

absl::Status Registrations::Add(absl::Span<std::byte> memory) {
  const auto after = memories_.lower_bound(memory.data());
  const bool next_overlaps =
      after != memories_.end() && after->first < memory.data() + memory.size();
  const bool previous_overlaps = after != memories_.begin() &&
                                 std::prev(after)->first + std::prev(after)->second > memory.data();
  if (memory.empty() || next_overlaps || previous_overlaps) {
    return absl::AlreadyExistsError(absl::StrCat(
        "memory of ", memory.size(), " bytes at ", reinterpret_cast<uintptr_t>(memory.data()),
        ": is empty or overlaps memory that was added before, expected neither"));
  }
  memories_.emplace(memory.data(), memory.size());
  return absl::OkStatus();
}

absl::Status Registrations::Remove(const std::byte* begin) {
  const auto memory = memories_.find(const_cast<std::byte*>(begin));
  if (memory == memories_.end()) {
    return absl::NotFoundError(absl::StrCat("memory at ", reinterpret_cast<uintptr_t>(begin),
                                            ": expected one that was added"));
  }
  const auto first = entries_.lower_bound(Key{memory->first, 0});
  auto last = first;
  for (; last != entries_.end() && last->first.first == begin; ++last) {
    if (last->second.users != 0) {
      return absl::FailedPreconditionError(absl::StrCat("memory of ", memory->second, " bytes at ",
                                                        reinterpret_cast<uintptr_t>(begin),
                                                        ": is being received into"));
    }
  }
  for (auto each = first; each != last;) Drop(&(each++)->second);
  memories_.erase(memory);
  return absl::OkStatus();
}

Registrations::Entry* Registrations::Acquire(const std::byte* at, size_t bytes) {
  auto memory = memories_.upper_bound(const_cast<std::byte*>(at));
  if (memory == memories_.begin()) return nullptr;
  --memory;
  const auto offset = static_cast<size_t>(at - memory->first);
  if (offset >= memory->second || bytes > memory->second - offset ||
      bytes > options_.overlap_bytes) {
    return nullptr;
  }
  const size_t block = offset / options_.block_bytes;
  const Key key{memory->first, block};
  if (const auto found = entries_.find(key); found != entries_.end()) {
    ++counters_.hits;
    Tell();
    Entry* entry = &found->second;
    if (entry->users++ == 0) unused_.erase(entry->place);
    return entry;
  }
  ++counters_.misses;
  const size_t begin = block * options_.block_bytes;
  const size_t length =
      std::min(options_.block_bytes + options_.overlap_bytes, memory->second - begin);
  if (!MakeRoom(length)) {
    ++counters_.full;
    Tell();
    return nullptr;
  }
  void* handle = card_.add(memory->first + begin, length);
  if (handle == nullptr) {
    ++counters_.failures;
    Tell();
    return nullptr;
  }
  Entry& entry = entries_[key];
  entry.handle = handle;
  entry.begin = memory->first + begin;
  entry.bytes = length;
  entry.memory = memory->first;
  entry.users = 1;
  ++counters_.entries;
  counters_.bytes += length;
  Tell();
  return &entry;
}

void Registrations::Release(Entry* entry) {
  SHUNT_CHECK(entry->users > 0);
  if (--entry->users == 0) entry->place = unused_.insert(unused_.end(), entry);
}

void Registrations::Tell() const {
  if (options_.tally == nullptr) return;
  options_.tally->entries.Set(counters_.entries);
  options_.tally->bytes.Set(counters_.bytes);
  options_.tally->hits.Set(counters_.hits);
  options_.tally->misses.Set(counters_.misses);
  options_.tally->evictions.Set(counters_.evictions);
  options_.tally->failures.Set(counters_.failures);
  options_.tally->full.Set(counters_.full);
}

// False if what is in use doesn't leave enough.
bool Registrations::MakeRoom(size_t bytes) {
  const auto fits = [&] {
    return counters_.entries < options_.entries_max && bytes <= options_.bytes_max &&
           counters_.bytes <= options_.bytes_max - bytes;
  };
  while (!fits()) {
    if (unused_.empty() || bytes > options_.bytes_max) return false;
    ++counters_.evictions;
    Drop(unused_.front());
  }
  return true;
}

void Registrations::Drop(Entry* entry) {
  unused_.erase(entry->place);
  card_.remove(entry->handle);
  --counters_.entries;
  counters_.bytes -= entry->bytes;
  Tell();
  entries_.erase(
      Key{entry->memory, static_cast<size_t>(entry->begin - entry->memory) / options_.block_bytes});
}

}  // namespace shunt::transport
