// The control socket's end in the worker: memory of clients' comes and goes, in the order of the
// requests. Each is answered before the next is looked at.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/worker/protocol.h"

namespace shunt::gpu {

// Of the thread whose current context is the device's. Lets go of what is imported when it goes.
class Control {
 public:
  // `socket`: non-blocking. shuntd always reads its replies.
  Control(Driver* driver, DeviceFacts device, UniqueFd socket);

  ~Control();
  Control(const Control&) = delete;

  // Leaves all that is imported to the end of the process.
  void Abandon() { memory_.clear(); }

  int fd() const { return socket_.get(); }
  enum class Served { kNothing, kOne, kClosed };
  // Answers at most one request. DATA_LOSS: the context is lost, and the request is answered so.
  absl::StatusOr<Served> Serve();

 private:
  struct Memory {
    MemoryKind kind;
    uint64_t bytes;
    DevicePtr address;
    Mapping mapping;  // kHost
  };

  absl::Status Send(const Reply& reply);
  absl::Status Handle(const Request& request, UniqueFd fd, Reply* reply);
  absl::Status Import(const Request& request, UniqueFd fd, Reply* reply);
  absl::StatusOr<Memory> Open(const Request& request, UniqueFd fd);
  absl::StatusOr<Memory> OpenIpc(const Request& request);
  absl::Status Check(const Memory& memory);
  absl::Status Forget(uint64_t id);
  absl::Status Close(Memory* memory);
  absl::Status About(Reply* reply);

  Driver* const driver_;
  const DeviceFacts device_;
  const UniqueFd socket_;
  absl::flat_hash_map<uint64_t, Memory> memory_;
};

}  // namespace shunt::gpu
