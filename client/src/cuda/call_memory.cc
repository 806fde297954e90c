#include "client/src/cuda/call_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/src/cuda/device_memory.h"
#include "runtime/core/status.h"

namespace shunt::client::cuda {
namespace {

uint64_t TableBytes(const board::Call& call, const uint64_t* counts, const uint64_t* displs,
                    int world) {
  uint64_t elements = 0;
  for (int r = 0; r < world; ++r) {
    if (counts[r] != 0) elements = std::max(elements, displs[r] + counts[r]);
  }
  return elements * SizeOf(call.spec.dtype);
}

absl::Status CheckSide(Communicator& c, const board::Call& call, const char* name, const void* data,
                       uint64_t bytes, bool on_stream, int* device) {
  if (bytes == 0) return absl::OkStatus();
  const auto refused = [&](const auto&... words) {
    const std::string_view kind = Name(call.spec.kind);
    return absl::InvalidArgumentError(
        absl::StrCat(absl::string_view(kind.data(), kind.size()), ": '", name, "' at 0x",
                     absl::Hex(reinterpret_cast<uintptr_t>(data)), words...));
  };
  const RegionTable::Holder holder = c.session().regions().HolderOf(data);
  if (!c.device()) {
    if (holder.id != 0 ? holder.device : DeviceMemory::IsDevice(data)) {
      return refused(
          " is GPU memory, but the communicator was joined without SHUNT_JOIN_DEVICE "
          "(device=True in Python)");
    }
    return absl::OkStatus();
  }
  SHUNT_ASSIGN_OR_RETURN(const DeviceMemory::Found found,
                         c.session().device_memory().Find(data, bytes));
  if (found.device) {
    if (*device >= 0 && *device != found.ordinal) {
      return refused(" is on device ", found.ordinal, ", but 'in' is on device ", *device,
                     ": expected both on one");
    }
    *device = found.ordinal;
    return absl::OkStatus();
  }
  if (on_stream && !(holder.id != 0 && holder.Holds(data, bytes))) {
    return refused(
        " is host memory outside regions, which a call on a stream cannot use: "
        "expected memory of shunt_alloc or of a GPU");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CheckMemory(Communicator& c, const board::Call& call, Side in, Side out,
                                bool on_stream) {
  const int world = c.world_size();
  uint64_t in_bytes, out_bytes;
  if (call.spec.kind == OpKind::kAllToAllV) {
    in_bytes = TableBytes(call, call.send_counts, call.send_displs, world);
    out_bytes = TableBytes(call, call.recv_counts, call.recv_displs, world);
  } else {
    const uint64_t block = call.spec.count * SizeOf(call.spec.dtype);
    in_bytes = in.blocks * block;
    out_bytes = out.blocks * block;
  }
  int device = -1;
  SHUNT_RETURN_IF_ERROR(CheckSide(c, call, "in", in.data, in_bytes, on_stream, &device));
  if (out.data == in.data && out_bytes <= in_bytes && in_bytes != 0) return device;
  SHUNT_RETURN_IF_ERROR(CheckSide(c, call, "out", out.data, out_bytes, on_stream, &device));
  return device;
}

}  // namespace shunt::client::cuda
