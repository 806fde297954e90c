// The daemon's end of a ring whose memory a hostile client writes to between all calls: any bytes
// anywhere.
#include <cstring>
#include <deque>

#include "runtime/core/check.h"
#include "runtime/ring/ring.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/input.h"

using shunt::ring::Opcode;
using shunt::ring::RingServer;
using shunt::ring::Submission;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shunt::testing::FuzzInput input(data, size);
  const uint32_t entries = 2u << (input.Take<uint8_t>() % 4);
  const size_t bytes = shunt::ring::BytesFor(entries);
  const shunt::testing::GuardedMemory memory(bytes);
  shunt::ring::Initialize(memory.data(), entries);
  RingServer server(memory.data(), entries);
  std::deque<uint64_t> owed;  // tokens of operations popped and not completed

  while (!input.empty()) {
    switch (input.Take<uint8_t>() % 6) {
      case 0: {  // the client overwrites something
        const size_t offset = input.Take<uint16_t>() % bytes;
        const size_t length = std::min<size_t>(input.Take<uint8_t>() % 65, bytes - offset);
        input.Fill({memory.data() + offset, length});
        break;
      }
      case 1: {  // the client submits as it should
        auto* header = reinterpret_cast<shunt::ring::Header*>(memory.data());
        const uint32_t tail = header->sq_tail.load();
        Submission entry{};
        entry.token = input.Take<uint8_t>();
        entry.opcode =
            static_cast<uint32_t>(entry.token % 2 == 0 ? Opcode::kServe : Opcode::kTransfer);
        std::memcpy(memory.data() + sizeof(*header) + (tail & (entries - 1)) * sizeof(entry),
                    &entry, sizeof(entry));
        header->sq_tail.store(tail + 1);
        break;
      }
      case 2: {
        const uint32_t before = server.outstanding();
        Submission entry{};
        const auto popped = server.Pop(&entry);
        if (!popped.ok()) return 0;  // the session ends here
        const bool owes = *popped && shunt::ring::Completes(entry.opcode);
        SHUNT_CHECK(server.outstanding() == before + (owes ? 1 : 0));
        SHUNT_CHECK(server.outstanding() <= entries);
        if (owes) owed.push_back(entry.token);
        break;
      }
      case 3:
        if (owed.empty()) break;
        server.Complete(owed.front(), input.Take<int8_t>());
        owed.pop_front();
        SHUNT_CHECK(server.outstanding() == owed.size());
        break;
      case 4:
        if (!server.MayNotSleep()) server.Awake();
        break;
      case 5:
        server.RegionFreed();
        break;
    }
  }
  return 0;
}
