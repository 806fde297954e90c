// A store to be tested: one class for each, all with the same functions.
#pragma once

#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/storage/store.h"

namespace shunt::storage::testing {

using Buffer = std::vector<std::byte>;

inline Buffer Pattern(size_t bytes, uint64_t seed) {
  Buffer buffer(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::byte& byte : buffer) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<std::byte>(state >> 56);
  }
  return buffer;
}

class World {
 public:
  virtual ~World() = default;
  virtual Store& store() = 0;
  virtual std::string container() const = 0;
  // All objects that there are, and all that is left of drafts.
  virtual std::vector<std::string> Names() = 0;
  // Of a container that does not exist.
  virtual std::string unknown_container() const { return "nowhere"; }

  // Polls until the operation has ended.
  Completion Wait(uint64_t token) {
    const int64_t limit_ns = NowNs() + 60'000'000'000;
    for (;;) {
      const auto found = ended_.find(token);
      if (found != ended_.end()) {
        Completion completion = std::move(found->second);
        ended_.erase(found);
        return completion;
      }
      if (PollOnce() > 0) continue;
      SHUNT_CHECK(NowNs() < limit_ns);
      pollfd ready{.fd = store().fd(), .events = POLLIN, .revents = 0};
      SHUNT_CHECK(::poll(&ready, 1, 30'000) != 0);  // a wake-up was lost
    }
  }
  size_t PollOnce() {
    Completion batch[3];  // few, so that batches are used up
    const size_t count = store().Poll(absl::MakeSpan(batch));
    for (size_t i = 0; i < count; ++i) {
      const uint64_t token = batch[i].token;
      SHUNT_CHECK(ended_.emplace(token, std::move(batch[i])).second);
    }
    return count;
  }
  bool Ended(uint64_t token) const { return ended_.contains(token); }
  uint64_t NextToken() { return ++token_; }
  Completion Do(const std::function<void(uint64_t)>& post) {
    const uint64_t token = NextToken();
    post(token);
    return Wait(token);
  }

  Completion Open(const std::string& name, Access access = Access::kRead) {
    return Do([&](uint64_t token) {
      store().PostOpen({.container = container(), .name = name, .access = access}, token);
    });
  }
  Completion Begin(const std::string& name, uint64_t bytes, bool if_absent = false) {
    return Do([&](uint64_t token) {
      store().PostBegin(
          {.container = container(), .name = name, .bytes = bytes, .if_absent = if_absent}, token);
    });
  }
  Completion Read(std::vector<Piece> pieces, int64_t deadline_ns = kNeverNs) {
    return Do([&](uint64_t token) {
      store().PostRead({.pieces = std::move(pieces), .deadline_ns = deadline_ns}, token);
    });
  }
  Completion Write(std::vector<Piece> pieces, int64_t deadline_ns = kNeverNs) {
    return Do([&](uint64_t token) {
      store().PostWrite({.pieces = std::move(pieces), .deadline_ns = deadline_ns}, token);
    });
  }
  Completion Write(ObjectId object, Buffer& data, uint64_t offset = 0) {
    return Write({{.object = object, .offset = offset, .memory = absl::MakeSpan(data)}});
  }
  Completion Commit(ObjectId draft) {
    return Do([&](uint64_t token) { store().PostCommit(draft, kNeverNs, token); });
  }
  Completion Abort(ObjectId draft) {
    return Do([&](uint64_t token) { store().PostAbort(draft, token); });
  }
  Completion Sync(ObjectId object) {
    return Do([&](uint64_t token) { store().PostSync(object, kNeverNs, token); });
  }

  // Writes an object whole.
  void Put(const std::string& name, Buffer data) {
    const Completion begun = Begin(name, data.size());
    INFO(begun.status);
    REQUIRE(begun.status.ok());
    const Completion written = Write(begun.object, data);
    INFO(written.status);
    REQUIRE(written.status.ok());
    const Completion committed = Commit(begun.object);
    INFO(committed.status);
    REQUIRE(committed.status.ok());
  }
  Buffer Get(const std::string& name) {
    const Completion opened = Open(name);
    INFO(opened.status);
    REQUIRE(opened.status.ok());
    Buffer data(opened.bytes);
    const Completion read = Read({{.object = opened.object, .memory = absl::MakeSpan(data)}});
    INFO(read.status);
    REQUIRE(read.status.ok());
    REQUIRE(read.bytes == data.size());
    store().Close(opened.object);
    return data;
  }

 private:
  uint64_t token_ = 0;
  std::map<uint64_t, Completion> ended_;
};

}  // namespace shunt::storage::testing
