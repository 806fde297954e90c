// The C interface's GPU memory.
#include "absl/strings/str_cat.h"
#include "client/src/cuda/device_memory.h"
#include "client/src/error.h"
#include "client/src/handles.h"

using shunt::client::Fail;
using shunt::client::Guarded;
using shunt::client::Result;

namespace {

absl::Status Check(const shunt_session* session, const void* pointer) {
  if (session == nullptr) return absl::InvalidArgumentError("session is null");
  if (pointer == nullptr) return absl::InvalidArgumentError("pointer is null");
  return session->impl->CheckProcess();
}

}  // namespace

extern "C" {

int shunt_register(shunt_session* session, const void* pointer) {
  return Guarded([&] {
    absl::Status status = Check(session, pointer);
    if (status.ok()) status = session->impl->device_memory().Register(pointer);
    return Result(status);
  });
}

int shunt_deregister(shunt_session* session, const void* pointer) {
  return Guarded([&] {
    absl::Status status = Check(session, pointer);
    if (status.ok()) status = session->impl->device_memory().Deregister(pointer);
    return Result(status);
  });
}

int shunt_alloc_device(shunt_session* session, int32_t device, size_t bytes, void** pointer) {
  return Guarded([&]() -> int {
    if (pointer == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "pointer is null");
    *pointer = nullptr;
    if (absl::Status s = Check(session, pointer); !s.ok()) return Fail(s);
    if (bytes == 0) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  "an allocation of 0 bytes, expected at least 1");
    }
    auto memory = session->impl->device_memory().Allocate(device, bytes);
    if (!memory.ok()) return Fail(memory.status());
    *pointer = *memory;
    return SHUNT_OK;
  });
}

int shunt_free_device(shunt_session* session, void* pointer) {
  return Guarded([&] {
    absl::Status status = Check(session, pointer);
    if (status.ok()) status = session->impl->device_memory().Free(pointer);
    return Result(status);
  });
}

}  // extern "C"
