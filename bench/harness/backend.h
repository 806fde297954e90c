// A library under measurement, as one rank sees it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/control.h"
#include "bench/harness/operation.h"

namespace shunt::bench {

// One rank's side of an operation. In place `input` and `output` are related as NCCL says.
struct Call {
  Problem problem;
  int variant = 0;
  bool in_place = false;
  void* input = nullptr;
  void* output = nullptr;
  Memory memory = Memory::kHost;
  // Of memory on a GPU; see Command.
  int64_t graph_calls = 0;
  double after_kernel_us = 0;
};

// One per rank process; used by one thread.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // A buffer of the kind asked for; the default is malloc, whatever the kind. Contents undefined.
  virtual absl::StatusOr<void*> Allocate(Memory memory, size_t bytes);
  virtual void Free(Memory memory, void* buffer);

  // Between the host and a buffer of Allocate's kind: they are the same memory unless that says
  // otherwise.
  virtual bool HostReaches(Memory) const { return true; }
  virtual absl::Status Copy(void* destination, const void* source, size_t bytes);

  // Everything that a program would do once, outside its loop. UNIMPLEMENTED if the library has no
  // such operation. The call's buffers stay valid until the next Prepare.
  virtual absl::Status Prepare(const Call& call) = 0;
  // The prepared operation, blocking; false if it failed.
  virtual bool Run() = 0;
  // Nanoseconds for the prepared operation so many times in a row; -1 if one failed.
  virtual int64_t RunMany(int64_t times);
  // Words for the last failure of Run and RunMany.
  virtual std::string LastError() const { return ""; }

  // Where the prepared call's result begins: some peers put an in-place result elsewhere than NCCL.
  virtual const void* Result(const Call& call) const { return call.output; }
};

}  // namespace shunt::bench
