// The least that an all_reduce of few bytes between nodes costs: recursive doubling over blocking
// sockets, nothing around it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"

namespace shunt::bench {

// Ranks above the largest power of two hand their vector to a rank below it and get the sum back;
// the others exchange whole vectors with the rank whose number differs in one bit, for every bit.
// One thread.
class TcpDoubling {
 public:
  // What two ranks may have on the way to one another at once without reading.
  static constexpr size_t kBytesMax = 64 << 10;

  // Connects to the ranks that it will exchange with; they meet through files in `directory`.
  // Blocks until they are there, at most 30 s.
  static absl::StatusOr<TcpDoubling> Connect(int rank, int ranks, const std::string& address,
                                             const std::string& directory);

  // Sums `count` floats over all ranks, in place. False if a connection broke.
  bool AllReduce(float* data, size_t count);

 private:
  bool Send(int round, const float* data, size_t count);
  bool ReceiveInto(int round, float* data, size_t count);
  bool Exchange(int round, float* data, size_t count);

  int rank_ = 0;
  int power_ = 1;                // ranks that exchange
  std::vector<UniqueFd> peers_;  // by round; the fold's is the last one
  std::vector<float> scratch_;
};

}  // namespace shunt::bench
