// Two agents on a shuntd of their own, each with a block cache under the name "kv".
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "client/include/shunt/client.h"
#include "tests/client/harness.h"

namespace shunt::testing {

// A name that no other agent of this test run has.
inline std::string FreshAgent(const std::string& role) { return role + "-" + FreshName(); }

inline Session Open(const TestDaemon& daemon, const std::string& name = "test") {
  return Session(Session::Options{daemon.socket(), name});
}

// An agent with `blocks` blocks of `block_bytes` in one region; each byte tells where it is.
struct Cache {
  Cache(const TestDaemon& daemon, const std::string& role, uint64_t blocks_, uint64_t block_bytes_,
        uint8_t salt_, shunt_access access = SHUNT_ACCESS_READ_WRITE)
      : session(Open(daemon, role)),
        memory(session.Allocate<uint8_t>(blocks_ * block_bytes_)),
        agent(session.Agent(FreshAgent(role))),
        kv(agent.Publish("kv", {Blocks(memory.data(), block_bytes_, blocks_)}, access)),
        block_bytes(block_bytes_),
        blocks(blocks_),
        salt(salt_) {
    for (uint64_t i = 0; i < memory.size(); ++i) memory[i] = At(i);
  }

  // What byte `i` was in the beginning.
  uint8_t At(uint64_t i) const { return static_cast<uint8_t>((i * 131 + i / 251) ^ salt); }

  Session session;
  Buffer<uint8_t> memory;
  Agent agent;
  List kv;
  uint64_t block_bytes;
  uint64_t blocks;
  uint8_t salt;
};

// The destination's blocks `to` must hold the source's `from`, in this order, and all else what it
// held before.
inline void ExpectMoved(const Cache& destination, const std::vector<uint64_t>& to,
                        const Cache& source, const std::vector<uint64_t>& from) {
  std::vector<uint8_t> expected(destination.memory.size());
  for (uint64_t i = 0; i < expected.size(); ++i) expected[i] = destination.At(i);
  std::vector<uint8_t> payload;
  for (const uint64_t block : from) {
    for (uint64_t i = 0; i < source.block_bytes; ++i) {
      payload.push_back(source.At(block * source.block_bytes + i));
    }
  }
  uint64_t at = 0;
  for (const uint64_t block : to) {
    for (uint64_t i = 0; i < destination.block_bytes; ++i) {
      expected[block * destination.block_bytes + i] = payload.at(at++);
    }
  }
  Expect(at == payload.size(), "the test's sides differ in length");
  for (uint64_t i = 0; i < expected.size(); ++i) {
    if (destination.memory[i] != expected[i]) {
      throw Wrong("byte " + std::to_string(i) + " (block " +
                  std::to_string(i / destination.block_bytes) + ") is " +
                  std::to_string(destination.memory[i]) + ", expected " +
                  std::to_string(expected[i]));
    }
  }
}

// `call` must throw Error with this code and these words.
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
