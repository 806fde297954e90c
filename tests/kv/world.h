// A store on a shuntd of its own, and blocks whose bytes follow from their keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/include/shunt/client.h"
#include "client/include/shunt/kv.h"
#include "tests/client/harness.h"
#include "tests/support/temp_dir.h"

namespace shunt::testing {

inline constexpr uint64_t kBlockBytes = 8192;

inline Session OpenSession(const std::string& socket) {
  return Session(Session::Options{socket, "kv"});
}

// Of any length from 1 to kBlockBytes, mostly not of whole pages.
inline std::string ContentOf(const std::string& key, bool whole = false) {
  std::mt19937_64 random(std::hash<std::string>()(key));
  std::string bytes(whole ? kBlockBytes : 1 + random() % kBlockBytes, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

inline std::vector<std::string> Keys(int from, int to) {
  std::vector<std::string> keys;
  for (int i = from; i < to; ++i) keys.push_back("block " + std::to_string(i));
  return keys;
}
inline std::vector<std::string_view> Views(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

// Puts and gets by key, through memory of `room` blocks.
class StoreClient {
 public:
  StoreClient(const std::string& socket, const kv::Options& options, uint64_t room = 64)
      : session(OpenSession(socket)),
        memory(session.Allocate<char>(room * kBlockBytes)),
        store(std::make_unique<kv::Store>(session, options)) {}

  char* At(size_t i) { return memory.data() + i * kBlockBytes; }

  // Fills the memory with the keys' contents; the call has the results.
  kv::Call StartPut(const std::vector<std::string>& keys,
                    std::chrono::nanoseconds timeout = std::chrono::seconds(30)) {
    std::vector<kv::Block> blocks;
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::string content = ContentOf(keys[i]);
      std::copy(content.begin(), content.end(), At(i));
      blocks.push_back({keys[i], At(i), content.size()});
    }
    return store->Put(blocks, timeout);
  }
  void Put(const std::vector<std::string>& keys) { StartPut(keys).Wait(); }

  // The tiers that had them, or SHUNT_KV_NONE; wrong bytes are an error.
  std::vector<shunt_kv_tier> Get(const std::vector<std::string>& keys) {
    std::vector<kv::Block> blocks;
    for (size_t i = 0; i < keys.size(); ++i) {
      std::fill(At(i), At(i) + kBlockBytes, '\x55');
      blocks.push_back({keys[i], At(i), kBlockBytes});
    }
    const auto results = store->Get(blocks, std::chrono::seconds(30)).Wait();
    std::vector<shunt_kv_tier> tiers;
    for (size_t i = 0; i < keys.size(); ++i) {
      tiers.push_back(results[i].tier);
      if (results[i].code == SHUNT_NOT_FOUND) continue;
      Expect(results[i].code == SHUNT_OK, "code " + std::to_string(results[i].code));
      const std::string content = ContentOf(keys[i]);
      Expect(results[i].bytes == content.size(), keys[i] + " has another length");
      Expect(std::equal(content.begin(), content.end(), At(i)), keys[i] + " has other bytes");
      Expect(std::all_of(At(i) + content.size(), At(i) + kBlockBytes,
                         [](char c) { return c == '\x55'; }),
             keys[i] + " was written beyond its length");
    }
    return tiers;
  }
  std::vector<shunt_kv_tier> Where(const std::vector<std::string>& keys) {
    return store->Lookup(Views(keys));
  }
  shunt_kv_facts Stats() { return store->Stats(); }

  Session session;
  Buffer<char> memory;
  std::unique_ptr<kv::Store> store;
};

inline kv::Options MemoryOnly(uint64_t slots) {
  kv::Options options;
  options.block_bytes = kBlockBytes;
  options.memory_bytes = slots * kBlockBytes;
  return options;
}
inline kv::Options WithFile(uint64_t slots, const std::string& directory, uint64_t file_slots) {
  kv::Options options = MemoryOnly(slots);
  options.directory = directory;
  options.file_bytes = file_slots * kBlockBytes;
  return options;
}

inline std::vector<shunt_kv_tier> All(size_t count, shunt_kv_tier tier) {
  return std::vector<shunt_kv_tier>(count, tier);
}

inline void ExpectError(int code, const std::vector<std::string>& parts,
                        const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    Expect(error.code() == code,
           std::string("expected ") + shunt_code_name(code) + ", got " + error.what());
    for (const std::string& part : parts) {
      Expect(std::string(error.what()).find(part) != std::string::npos,
             "no \"" + part + "\" in \"" + error.what() + "\"");
    }
    return;
  }
  throw Wrong(std::string("no failure, expected ") + shunt_code_name(code));
}

}  // namespace shunt::testing
