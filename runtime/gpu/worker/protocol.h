// What shuntd and a GPU worker say to each other. Both are parts of one installation, and shuntd
// starts the worker: the layouts have no versions. The worker believes what shuntd says; shuntd
// believes of the worker that its numbers name what it asked for.
//
//   control socket   SOCK_SEQPACKET: Request (descriptors attached) ──► , ◄── Reply, in order
//   command ring     shared memory:  Command ──► , ◄── Done; a doorbell eventfd each way
//
// The worker gets both as descriptors when it starts; see worker.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shunt::gpu {

// ---- Control

enum class RequestKind : uint32_t {
  kImport = 1,   // memory becomes known by `memory`
  kRelease = 2,  // and is forgotten; never while a command that names it is under way
  kAbout = 3,    // what the worker runs on
};

enum class MemoryKind : uint32_t {
  kHost = 1,  // descriptor: a sealed memfd. Mapped, and registered with the driver
  kVmm = 2,   // descriptor: an exported cuMemCreate allocation
  kIpc = 3,   // `handle`: a CUipcMemHandle
};

struct Request {
  uint64_t id;  // returned in the reply
  RequestKind kind;
  MemoryKind memory_kind;
  uint64_t memory;  // a number of shuntd's
  uint64_t bytes;   // of the allocation
  std::byte handle[64];
};

struct Reply {
  uint64_t id;
  int32_t code;  // google.rpc.Code
  uint32_t pad;
  uint64_t address;       // as kernels of this worker see it
  uint64_t host_address;  // kHost: as its CPU sees it
  uint64_t bytes;         // that may be used
  // kAbout
  std::byte uuid[16];
  uint64_t total_bytes;
  uint64_t used_bytes;  // of the GPU, by this process: what its context takes; 0: not known
  char name[64];
  char text[512];  // words for a failure
};

// ---- Commands

inline constexpr uint32_t kCommandSlots = 256;
inline constexpr int kGatesMax = 128;  // ranks of one node
// Copy runs that wait in shared memory: shuntd writes a batch, a kernel reads it over PCIe.
inline constexpr uint32_t kRunBatches = 16;
inline constexpr uint32_t kRunsPerBatch = 16384;
// A longer one is cut by who writes it.
inline constexpr uint32_t kRunBytesMax = 64 << 10;

struct Run {
  uint64_t source;  // addresses as the worker's kernels see them
  uint64_t destination;
  uint64_t bytes;  // 1 to kRunBytesMax
};

// Where a client's stream and the worker meet: two words in host memory of the client's.
//   once     trigger >= generation starts it (compared as a signed difference); done = generation
//            ends it
//   repeats  trigger == 1 starts it, and the worker takes it back to 0; done = 1 ends it, and the
//            client's stream takes that back
// Anybody may write anything there: a bad word delays or hurries its own writer's operation, no
// more.
struct GateWords {
  std::atomic<uint32_t> trigger;
  std::atomic<uint32_t> done;
};

struct Gate {
  uint64_t words;         // GateWords as the worker's CPU sees them; 0: no gate, begins at once
  uint64_t device_words;  // the same as its kernels see them
  uint32_t generation;
  uint32_t pad;
};

struct Place {
  uint64_t in;  // device addresses; 0: none
  uint64_t out;
  std::byte scalar[8];  // kPremulSum
};

enum class CommandKind : uint32_t {
  kCollective = 1,  // of a node's ranks, all in memory that the worker knows
  kMove = 2,        // `runs` copy runs of batch `batch`
  kCopy = 3,        // one long piece, by copy engine: places[0]
  kCancel =
      4,  // of command `target`: its gates are released and it ends, unless its kernel runs already
};

enum CommandFlags : uint32_t {
  kRepeats = 1,  // stays until it is cancelled, and has no Done before
};

// Commands of one lane (not 0) begin in their order, each after the one before has ended. Those of
// lane 0 wait for their gates alone.
struct Command {
  uint64_t id;  // never used again
  CommandKind kind;
  uint32_t flags;
  uint64_t lane;
  uint64_t target;
  // kCollective: CollectiveSpec
  uint8_t op_kind, dtype, redop, pad;
  int32_t root;
  uint64_t count;
  // kMove, kCopy
  uint32_t batch, runs;
  uint64_t bytes;
  uint32_t gates;   // entries in use; gate i is rank i's
  uint32_t places;  // likewise
  Gate gate[kGatesMax];
  Place place[kGatesMax];
};

struct Done {
  uint64_t id;
  int32_t code;  // google.rpc.Code; CANCELLED if it never began
  uint32_t pad;
};

struct Ring {
  alignas(64) std::atomic<uint32_t> command_tail;  // shuntd
  alignas(64) std::atomic<uint32_t> command_head;  // worker
  alignas(64) std::atomic<uint32_t> done_tail;     // worker
  alignas(64) std::atomic<uint32_t> done_head;     // shuntd
  // 1: the other side sleeps; who takes it back to 0 signals its eventfd.
  alignas(64) std::atomic<uint32_t> worker_sleeps;
  alignas(64) std::atomic<uint32_t> shuntd_sleeps;
  // Counts up while the worker's loop turns: a stuck one is told from a busy one.
  alignas(64) std::atomic<uint64_t> turns;
  alignas(64) Command command[kCommandSlots];
  // Commands under way, repeating ones apart, are at most kCommandSlots: a Done always has a place.
  Done done[kCommandSlots];
  alignas(64) Run run[kRunBatches][kRunsPerBatch];
};

}  // namespace shunt::gpu
