// A store of blocks in C++, over shunt_kv.h, which says what each call does.
//
//   shunt::kv::Store store(session, {.block_bytes = 1 << 20, .memory_bytes = 1 << 30});
//   store.Put({{"key", memory, 1 << 20}}).Wait();
//   std::vector<shunt_kv_result> got = store.Get({{"key", memory, 1 << 20}}).Wait();
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shunt/client.h"
#include "shunt_kv.h"

namespace shunt::kv {

struct Options {
  uint64_t block_bytes = 0;
  uint64_t memory_bytes = 0;
  std::string directory{};  // "": no file tier
  uint64_t file_bytes = 0;
  std::string object_endpoint{};  // "": no objects
  std::string object_bucket{};
  std::string object_prefix{};
  uint64_t object_bytes = 0;
  ObjectCredentials object_credentials{};
};

// A block and the memory, from Session::Allocate, that it comes from or goes to.
struct Block {
  std::string_view key;
  void* pointer = nullptr;
  uint64_t bytes = 0;
};

// A put, get or flush under way. Destroying it waits for its end.
class Call {
 public:
  Call(Call&& other) noexcept
      : session_(std::move(other.session_)),
        call_(std::exchange(other.call_, nullptr)),
        blocks_(other.blocks_) {}
  Call& operator=(Call&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(call_, other.call_);
    std::swap(blocks_, other.blocks_);
    return *this;
  }
  ~Call() { shunt_kv_call_release(call_); }

  // True when it has ended well; throws if it has failed.
  bool Done() {
    int done = 0;
    ThrowIfError(shunt_kv_call_poll(call_, &done));
    return done != 0;
  }
  // Until it has ended; throws if it fails. A timeout is a DEADLINE_EXCEEDED too, and it goes on.
  // The results of a put or get, one for each block.
  std::vector<shunt_kv_result> Wait(
      std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) {
    ThrowIfError(shunt_kv_call_wait(call_, timeout.count()));
    return Results();
  }
  // Of one that has ended, well or not.
  std::vector<shunt_kv_result> Results() {
    std::vector<shunt_kv_result> results(blocks_);
    if (blocks_ > 0) ThrowIfError(shunt_kv_call_results(call_, results.data(), blocks_));
    return results;
  }
  // For poll() and friends; owned by this object.
  int Fd() {
    int fd = -1;
    ThrowIfError(shunt_kv_call_fd(call_, &fd));
    return fd;
  }

 private:
  friend class Store;
  Call(shunt::internal::SessionHandle session, uint64_t blocks)
      : session_(std::move(session)), blocks_(blocks) {}

  shunt::internal::SessionHandle session_;
  shunt_kv_call* call_ = nullptr;
  uint64_t blocks_ = 0;
};

// Closes when it is destroyed.
class Store {
 public:
  Store(Session& session, const Options& options) : session_(session.session_) {
    const auto text = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
    shunt_kv_options o{};
    o.struct_size = sizeof(o);
    o.block_bytes = options.block_bytes;
    o.memory_bytes = options.memory_bytes;
    o.directory = text(options.directory);
    o.file_bytes = options.file_bytes;
    o.object_endpoint = text(options.object_endpoint);
    o.object_bucket = text(options.object_bucket);
    o.object_prefix = text(options.object_prefix);
    o.object_bytes = options.object_bytes;
    o.object_access_key_id = text(options.object_credentials.access_key_id);
    o.object_secret_access_key = text(options.object_credentials.secret_access_key);
    o.object_session_token = text(options.object_credentials.session_token);
    ThrowIfError(shunt_kv_open(session_.get(), &o, &store_));
  }
  Store(Store&& other) noexcept
      : session_(std::move(other.session_)), store_(std::exchange(other.store_, nullptr)) {}
  Store& operator=(Store&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(store_, other.store_);
    return *this;
  }
  ~Store() { shunt_kv_close(store_); }

  std::string notes() const { return shunt_kv_notes(store_); }

  // A timeout of 0 means 60 s, max() none.
  Call Put(const std::vector<Block>& blocks, std::chrono::nanoseconds timeout = {}) {
    return Start(shunt_kv_put, blocks, timeout);
  }
  Call Get(const std::vector<Block>& blocks, std::chrono::nanoseconds timeout = {}) {
    return Start(shunt_kv_get, blocks, timeout);
  }
  Call Flush(std::chrono::nanoseconds timeout = {}) {
    const shunt_kv_call_options o = With(timeout);
    Call call(session_, 0);
    ThrowIfError(shunt_kv_flush(store_, &o, &call.call_));
    return call;
  }

  // The tier of each key, or SHUNT_KV_NONE.
  std::vector<shunt_kv_tier> Lookup(const std::vector<std::string_view>& keys) {
    const std::vector<shunt_kv_key> plain = Plain(keys);
    std::vector<shunt_kv_tier> tiers(keys.size());
    ThrowIfError(shunt_kv_lookup(store_, plain.data(), plain.size(), tiers.data(), nullptr));
    return tiers;
  }
  // How many keys from the first on are there.
  uint64_t Prefix(const std::vector<std::string_view>& keys) {
    const std::vector<shunt_kv_key> plain = Plain(keys);
    uint64_t prefix = 0;
    ThrowIfError(shunt_kv_lookup(store_, plain.data(), plain.size(), nullptr, &prefix));
    return prefix;
  }
  // How many of them were there.
  uint64_t Erase(const std::vector<std::string_view>& keys) {
    const std::vector<shunt_kv_key> plain = Plain(keys);
    uint64_t erased = 0;
    ThrowIfError(shunt_kv_erase(store_, plain.data(), plain.size(), &erased));
    return erased;
  }
  shunt_kv_facts Stats() {
    shunt_kv_facts facts{};
    facts.struct_size = sizeof(facts);
    ThrowIfError(shunt_kv_stats(store_, &facts));
    return facts;
  }
  shunt_kv* get() const { return store_; }

 private:
  static shunt_kv_call_options With(std::chrono::nanoseconds timeout) {
    return {sizeof(shunt_kv_call_options), timeout.count()};
  }
  static std::vector<shunt_kv_key> Plain(const std::vector<std::string_view>& keys) {
    std::vector<shunt_kv_key> plain;
    for (const std::string_view key : keys) plain.push_back({key.data(), key.size()});
    return plain;
  }
  template <typename Function>
  Call Start(Function function, const std::vector<Block>& blocks,
             std::chrono::nanoseconds timeout) {
    std::vector<shunt_kv_block> plain;
    for (const Block& b : blocks) {
      plain.push_back({{b.key.data(), b.key.size()}, b.pointer, b.bytes});
    }
    const shunt_kv_call_options o = With(timeout);
    Call call(session_, blocks.size());
    ThrowIfError(function(store_, plain.data(), plain.size(), &o, nullptr, &call.call_));
    return call;
  }

  shunt::internal::SessionHandle session_;
  shunt_kv* store_ = nullptr;
};

}  // namespace shunt::kv
