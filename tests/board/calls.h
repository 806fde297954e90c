// Calls with known data: every rank can tell what every other puts in, so each checks its own
// result, bit for bit, against a statement of the operation that shares nothing with the code under
// test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/board/member.h"
#include "tests/board/world.h"

namespace shunt::testing {

enum class Memory : uint8_t {
  kRegion,
  kPlain,
  kMixed,      // even ranks' in regions, odd ranks' plain
  kInRegion,   // inputs in regions, outputs plain
  kOutRegion,  // the other way round
};

struct Case {
  OpKind kind = OpKind::kAllReduce;
  uint64_t count = 0;
  DataType dtype = DataType::kFloat32;
  Redop redop = Redop::kSum;
  int root = 0;
  Memory memory = Memory::kRegion;
  bool in_place = false;
  int source = 0, destination = 1;  // kSend: which pair
  uint64_t seed = 0;                // of the data

  std::string Text() const;
};

// The element that `rank` puts in at `index`, in the low bytes. Never a NaN.
uint64_t InputElement(const Case& c, int rank, uint64_t index);
// Elements that `from` sends to `to` in an all_to_all_v: some are zero.
uint64_t VCount(const Case& c, int from, int to);

// One rank's buffers and arguments of one case at a time.
class CaseRunner {
 public:
  // `slot` of `slots` equal parts of the rank's region is for this runner's buffers.
  CaseRunner(World* world, int rank, int slot = 0, int slots = 1);

  // Fills buffers and builds the call. False if the rank has no part in it (a pair's other ranks).
  bool Prepare(const Case& c);
  const board::Call& call() const { return call_; }
  board::Call& call() { return call_; }
  std::byte* out() const { return out_; }
  // "" if the output is right and nothing around it has been touched.
  std::string Check();

  // Prepare, Run and Check; complains to the world.
  void RunAndCheck(const Case& c);

 private:
  void Place(uint64_t in_bytes, uint64_t out_bytes);
  void FillInput(uint64_t in_elements);
  std::vector<std::byte> Expected() const;

  World* world_;
  int rank_;
  std::byte* region_;
  size_t region_bytes_;
  std::vector<std::byte> plain_in_, plain_out_;
  Case case_;
  board::Call call_;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  uint64_t out_bytes_ = 0;
  std::vector<uint64_t> send_counts_, send_displs_, recv_counts_, recv_displs_;
};

}  // namespace shunt::testing
