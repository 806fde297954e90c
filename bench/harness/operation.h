// What a benchmark runs: the operations, their sizes as nccl-tests defines them, and where each
// element of a result comes from. Pure; knows neither Shunt nor any peer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/types.h"

namespace shunt::bench {

enum class Operation : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kAllToAllV,
  kGather,
  kScatter,
  kSendRecv,  // every rank sends to the next one and receives from the one before
  kBarrier,
};
inline constexpr int kOperationCount = 11;

std::string_view Name(Operation op);
std::optional<Operation> ParseOperation(std::string_view name);
std::optional<DataType> ParseDataType(std::string_view name);
std::optional<Redop> ParseRedop(std::string_view name);

bool Reduces(Operation op);
bool HasRoot(Operation op);
// False for the operations whose in-place form is not defined: all_to_all(v), send_recv, barrier.
bool HasInPlace(Operation op);

// One operation of a fixed size. `count` is the API's count in elements; for all_to_all_v the mean
// count per pair of ranks.
struct Problem {
  Operation op = Operation::kAllReduce;
  DataType dtype = DataType::kFloat32;
  Redop redop = Redop::kSum;
  int32_t root = 0;
  int32_t ranks = 1;
  uint64_t count = 0;
  uint64_t seed = 1;  // chooses the data
};

// The largest problem of at most `bytes` as nccl-tests counts them (the whole buffer, n * count,
// for all_gather, reduce_scatter, all_to_all, gather and scatter), but at least one element a rank.
Problem MakeProblem(Operation op, DataType dtype, int ranks, uint64_t bytes);
// The size S of a problem, in bytes; 0 for barrier.
uint64_t SizeBytes(const Problem& problem);
// busbw = algbw * this.
double BusFactor(Operation op, int ranks);

// Elements of a rank's input and output; 0 where the rank has none (the root's side only).
uint64_t InputElements(const Problem& problem, int rank);
uint64_t OutputElements(const Problem& problem, int rank);
// Where the in-place input starts in the output buffer (or the in-place output in the input
// buffer, whichever is smaller), in elements: NCCL's placement.
uint64_t InPlaceOffset(const Problem& problem, int rank);
// True if in place the output lies inside the input buffer (reduce_scatter, scatter at the root).
bool OutputInsideInput(Operation op);

// all_to_all_v: what `rank` exchanges with each other rank. The matrix is symmetric: the counts are
// those of the sends and of the receives, and so are the displacements.
struct VectorLayout {
  std::vector<uint64_t> counts;
  std::vector<uint64_t> displacements;
};
VectorLayout LayoutOf(const Problem& problem, int rank);

// A run of result elements. `source` < 0: reduced over all ranks' inputs at `source_offset`.
struct Segment {
  uint64_t offset = 0;
  uint64_t elements = 0;
  int32_t source = 0;
  uint64_t source_offset = 0;
};
// All that `rank` must find in its output. Empty if it has none.
std::vector<Segment> ExpectedOutput(const Problem& problem, int rank);

}  // namespace shunt::bench
