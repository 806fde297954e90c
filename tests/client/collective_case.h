// One collective call with data whose result is known bit for bit, run and checked by one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/include/shunt.h"
#include "runtime/core/types.h"
#include "tests/client/harness.h"

namespace shunt::testing {

enum class Where {
  kRegion,
  kMalloc,
  kMixed,        // one side each, by turns
  kDevice,       // on a GPU
  kDeviceMixed,  // on a GPU or in a region, side by side and rank by rank
};
enum class Mode { kBlocking, kAsync, kGroup, kStream };

struct Case {
  OpKind kind = OpKind::kAllReduce;
  DataType dtype = DataType::kFloat32;
  Redop redop = Redop::kSum;
  uint64_t count = 0;  // for all_to_all_v: about this many for each pair
  int root = 0;
  Where where = Where::kRegion;
  Mode mode = Mode::kBlocking;
  bool in_place = false;
  uint64_t salt = 0;  // other data for every case

  std::string Describe() const;
};

// True if the kind has an in-place form.
bool MayRunInPlace(OpKind kind);

// A rank with buffers for cases: regions, and memory from malloc.
class CaseRunner {
 public:
  // `bytes`: of the largest input or output.
  // `on_device`: also on GPU 0, whose memory must be the host's; `stream` is for kStream.
  CaseRunner(const Rank& rank, size_t bytes, bool on_device = false, void* stream = nullptr);
  ~CaseRunner();

  // Throws Wrong if the call fails, or one bit of its result or of the memory around it is wrong.
  // Send and receive run as a ring.
  void Run(const Case& c);

 private:
  struct Buffer {
    std::byte* region = nullptr;
    std::byte* device = nullptr;
    std::vector<std::byte> heap;
    std::byte* At(Where where) {
      return where == Where::kRegion ? region : where == Where::kDevice ? device : heap.data();
    }
  };

  void RunAllToAllV(const Case& c, std::byte* in, std::byte* out);
  int Submit(const Case& c, const void* in, void* out, const shunt_call* call, shunt_op** op);
  void Finish(const Case& c, const std::vector<int>& codes, const std::vector<shunt_op*>& ops);

  const Rank rank_;
  const size_t bytes_;
  void* const stream_;
  Buffer in_;
  Buffer out_;
};

}  // namespace shunt::testing
