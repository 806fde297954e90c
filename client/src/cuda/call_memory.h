// What a call's buffers are: memory of the host, or of a GPU, which then is registered.
#pragma once

#include "absl/status/statusor.h"
#include "client/src/call_check.h"
#include "client/src/communicator.h"
#include "runtime/board/member.h"

namespace shunt::client::cuda {

// The GPU that the buffers lie on, by its ordinal; -1 if they all lie on the host. Sides are those
// of the call; an all_to_all_v's have no blocks, and reach as far as its tables say.
// INVALID_ARGUMENT: GPU memory of a communicator that was joined without it; on a stream, memory
// that the daemon does not reach; and what DeviceMemory::Find says.
absl::StatusOr<int> CheckMemory(Communicator& communicator, const board::Call& call, Side in,
                                Side out, bool on_stream);

}  // namespace shunt::client::cuda
