// The submission and completion rings of a session: one shared memory object, single producer and
// single consumer each way. The client pushes submissions, the daemon pushes completions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shunt::ring {

inline constexpr uint32_t kMagic = 0x53485247;  // "SHRG"
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kMaxEntries = 4096;

enum class Opcode : uint32_t {
  kNop = 0,
  // See operation (communicator, channel, sequence) through; completed when it has ended.
  kServe = 1,
  // News of an operation that the daemon may be seeing through. No completion.
  kKick = 2,
  // A transfer, which is completed when it has ended. `communicator_id` is the region and
  // `sequence` the offset of its TransferPost; `deadline_ns` is the transfer's.
  kTransfer = 3,
};

// Whether the daemon owes a completion.
constexpr bool Completes(uint32_t opcode) {
  return opcode == static_cast<uint32_t>(Opcode::kServe) ||
         opcode == static_cast<uint32_t>(Opcode::kTransfer);
}

struct alignas(64) Submission {
  uint64_t token;  // returned in the completion
  uint32_t opcode;
  uint32_t channel;
  uint64_t communicator_id;
  uint64_t sequence;
  int64_t deadline_ns;  // CLOCK_MONOTONIC
  // kServe on a communicator with GPU memory: where the caller's stream meets the operation
  // (runtime/gpu/worker/protocol.h, GateWords). Region 0: no stream.
  uint64_t gate_region;
  uint64_t gate_offset;
  uint32_t gate_generation;
  uint32_t pad;
};
static_assert(sizeof(Submission) == 64);

struct Completion {
  uint64_t token;
  int32_t code;  // google.rpc.Code
  uint32_t reserved;
};
static_assert(sizeof(Completion) == 16);

struct Header {
  uint32_t magic;
  uint32_t version;
  uint32_t entries;  // power of two; both rings
  uint32_t pad;
  alignas(64) std::atomic<uint32_t> sq_tail;  // client writes
  alignas(64) std::atomic<uint32_t> sq_head;  // daemon writes
  alignas(64) std::atomic<uint32_t> cq_tail;  // daemon writes
  alignas(64) std::atomic<uint32_t> cq_head;  // client writes
  // 1: the daemon sleeps; a submitter that takes it back to 0 writes the doorbell eventfd.
  alignas(64) std::atomic<uint32_t> daemon_sleeps;
  // Bumped when a region that this session mapped from another has been freed: unmap what is stale.
  std::atomic<uint32_t> regions_freed;
  // 1: the client sleeps on cq_tail (a futex word); the daemon wakes it after a completion.
  std::atomic<uint32_t> client_sleeps;
};
static_assert(sizeof(Header) == 6 * 64);

// Header, then submissions, then completions. Whole pages, so that the object can be mapped.
constexpr size_t BytesFor(uint32_t entries) {
  return (sizeof(Header) + entries * (sizeof(Submission) + sizeof(Completion)) + 4095) &
         ~size_t{4095};
}

}  // namespace shunt::ring
