#include "client/src/cuda/device_memory.h"

#include <array>
#include <span>

#include "absl/strings/str_cat.h"
#include "client/src/cuda/context_scope.h"
#include "client/src/cuda/process.h"
#include "client/src/session.h"
#include "runtime/core/status.h"

namespace shunt::client::cuda {
namespace {

using Kind = gpu::PointerFacts::Kind;

gpu::DevicePtr Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

std::string HexOf(gpu::DevicePtr pointer) { return absl::StrCat("0x", absl::Hex(pointer)); }

std::string RangeText(gpu::DevicePtr base, uint64_t bytes) {
  return absl::StrCat(bytes, " bytes at ", HexOf(base));
}

// OK for what can be told to the daemon.
absl::Status CheckSharable(gpu::DevicePtr pointer, const gpu::PointerFacts& facts) {
  const std::string where = HexOf(pointer);
  switch (facts.kind) {
    case Kind::kNone:
      return absl::InvalidArgumentError(
          absl::StrCat(where,
                       " is no CUDA memory, expected memory of cudaMalloc, cuMemCreate or "
                       "shunt_alloc_device"));
    case Kind::kHost:
      return absl::InvalidArgumentError(absl::StrCat(
          where,
          " is host memory (cudaMallocHost, cudaHostRegister), expected memory of a GPU; "
          "memory of shunt_alloc needs no registration"));
    case Kind::kArray:
      return absl::InvalidArgumentError(
          absl::StrCat(where, " is a CUDA array, expected linear memory"));
    case Kind::kManaged:
      return absl::FailedPreconditionError(absl::StrCat(
          where,
          " is managed memory (cudaMallocManaged), which no other process can open: use "
          "memory of cudaMalloc or shunt_alloc_device"));
    case Kind::kDevice:
      break;
  }
  if (facts.pool) {
    return absl::FailedPreconditionError(absl::StrCat(
        where,
        " is of a memory pool (cudaMallocAsync), whose allocations cannot be shared one by "
        "one: use memory of cudaMalloc or shunt_alloc_device"));
  }
  if (!facts.vmm && !facts.ipc_capable) {
    return absl::FailedPreconditionError(
        absl::StrCat(where,
                     ": CUDA gives no handle of this memory to other processes: use memory "
                     "of cudaMalloc or shunt_alloc_device"));
  }
  return absl::OkStatus();
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (session_->InForkedChild()) return;
  for (const auto& [base, entry] : entries_) {
    if (!entry.allocated) continue;
    auto driver = LoadDriver();
    if (!driver.ok()) return;
    const ContextScope scope(*driver, entry.device);
    if (scope.status().ok()) (void)(*driver)->FreeVmm(base, entry.bytes);
  }
}

bool DeviceMemory::IsDevice(const void* pointer) {
  auto driver = LoadDriver();
  if (!driver.ok()) return false;
  auto facts = (*driver)->Facts(Address(pointer));
  return facts.ok() && facts->kind == Kind::kDevice;
}

DeviceMemory::Entries::iterator DeviceMemory::Holding(gpu::DevicePtr pointer) {
  auto at = entries_.upper_bound(pointer);
  if (at == entries_.begin()) return entries_.end();
  --at;
  return pointer - at->first < at->second.bytes ? at : entries_.end();
}

absl::StatusOr<std::string> DeviceMemory::UuidOf(gpu::Driver* driver, int device) {
  for (const auto& [ordinal, uuid] : uuids_) {
    if (ordinal == device) return uuid;
  }
  SHUNT_ASSIGN_OR_RETURN(const gpu::DeviceFacts facts, driver->Describe(device));
  std::string uuid(reinterpret_cast<const char*>(facts.uuid.data()), facts.uuid.size());
  uuids_.emplace_back(device, uuid);
  return uuid;
}

absl::StatusOr<uint64_t> DeviceMemory::Announce(gpu::Driver* driver,
                                                const gpu::PointerFacts& facts) {
  RegisterDevice request;
  SHUNT_ASSIGN_OR_RETURN(request.device_uuid, UuidOf(driver, facts.device));
  request.size_bytes = facts.bytes;
  const ContextScope scope(driver, facts.device);
  SHUNT_RETURN_IF_ERROR(scope.status());
  const CaptureLeave leave(driver);
  UniqueFd exported;
  if (facts.vmm) {
    SHUNT_ASSIGN_OR_RETURN(exported, driver->ExportVmm(facts.base));
  } else {
    SHUNT_ASSIGN_OR_RETURN(const gpu::IpcHandle handle, driver->ExportIpc(facts.base));
    request.ipc_handle.assign(reinterpret_cast<const char*>(handle.data()), handle.size());
  }
  const int fd = exported.get();
  SHUNT_ASSIGN_OR_RETURN(
      const LeaseConnection::Reply reply,
      session_->lease().Call(request, RequestDeadlineNs(),
                             facts.vmm ? std::span<const int>(&fd, 1) : std::span<const int>()));
  const auto* registered = std::get_if<DeviceRegistered>(&reply.message.response);
  if (registered == nullptr || registered->region_id == 0) {
    return absl::InternalError("shuntd's reply to RegisterDevice has no region");
  }
  return registered->region_id;
}

absl::StatusOr<DeviceMemory::Entries::iterator> DeviceMemory::Ensure(
    gpu::Driver* driver, gpu::DevicePtr pointer, const gpu::PointerFacts& facts) {
  if (const auto known = Holding(pointer); known != entries_.end() && known->first == facts.base &&
                                           known->second.buffer_id == facts.buffer_id &&
                                           known->second.bytes == facts.bytes) {
    return known;
  }
  SHUNT_RETURN_IF_ERROR(CheckSharable(pointer, facts));
  if (pointer - facts.base >= facts.bytes) {
    return absl::InternalError(absl::StrCat("CUDA says that ", HexOf(pointer), " lies in ",
                                            RangeText(facts.base, facts.bytes)));
  }
  // Whatever was known of these addresses has been freed.
  for (auto at = entries_.lower_bound(facts.base); at != entries_.end();) {
    if (at->first >= facts.base + facts.bytes) break;
    SHUNT_RETURN_IF_ERROR(Forget(at++));
  }
  if (const auto before = Holding(facts.base); before != entries_.end()) {
    SHUNT_RETURN_IF_ERROR(Forget(before));
  }
  SHUNT_ASSIGN_OR_RETURN(const uint64_t region, Announce(driver, facts));
  session_->regions().AddDevice(region, facts.base, facts.bytes);
  return entries_
      .emplace(facts.base,
               Entry{facts.bytes, facts.buffer_id, region, facts.device, 0, /*allocated=*/false})
      .first;
}

absl::Status DeviceMemory::Forget(Entries::iterator at) {
  const auto [base, entry] = *at;
  SHUNT_RETURN_IF_ERROR(session_->CheckUnused(entry.region_id));
  // Out of the table first: an operation that starts now must not find it.
  session_->regions().RemoveDevice(entry.region_id);
  auto reply = session_->lease().Call(FreeRegion{entry.region_id}, RequestDeadlineNs());
  if (!reply.ok() && !absl::IsUnavailable(reply.status()) && !absl::IsNotFound(reply.status())) {
    session_->regions().AddDevice(entry.region_id, base, entry.bytes);
    return reply.status();
  }
  entries_.erase(at);
  return absl::OkStatus();
}

absl::Status DeviceMemory::Register(const void* pointer) {
  SHUNT_ASSIGN_OR_RETURN(gpu::Driver* const driver, LoadDriver());
  SHUNT_ASSIGN_OR_RETURN(const gpu::PointerFacts facts, driver->Facts(Address(pointer)));
  std::lock_guard lock(mutex_);
  SHUNT_ASSIGN_OR_RETURN(const auto at, Ensure(driver, Address(pointer), facts));
  ++at->second.count;
  return absl::OkStatus();
}

absl::Status DeviceMemory::Deregister(const void* pointer) {
  std::lock_guard lock(mutex_);
  const auto at = Holding(Address(pointer));
  if (at == entries_.end()) {
    return absl::NotFoundError(
        absl::StrCat(HexOf(Address(pointer)), " lies in no registered allocation"));
  }
  Entry& entry = at->second;
  if (entry.allocated && entry.count <= 1) {
    return absl::FailedPreconditionError(absl::StrCat(HexOf(Address(pointer)),
                                                      " is memory of shunt_alloc_device, which is "
                                                      "registered until shunt_free_device"));
  }
  if (entry.count > 1) {
    --entry.count;
    return absl::OkStatus();
  }
  return Forget(at);
}

absl::StatusOr<void*> DeviceMemory::Allocate(int device, uint64_t bytes) {
  SHUNT_ASSIGN_OR_RETURN(gpu::Driver* const driver, LoadDriver());
  SHUNT_ASSIGN_OR_RETURN(const int devices, driver->DeviceCount());
  if (device < 0 || device >= devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, ", expected 0 to ", devices - 1));
  }
  const ContextScope scope(driver, device);
  SHUNT_RETURN_IF_ERROR(scope.status());
  SHUNT_ASSIGN_OR_RETURN(const gpu::Driver::Exportable made,
                         driver->AllocateExportable(device, bytes));
  const auto enter = [&]() -> absl::Status {
    SHUNT_ASSIGN_OR_RETURN(const gpu::PointerFacts facts, driver->Facts(made.address));
    std::lock_guard lock(mutex_);
    SHUNT_ASSIGN_OR_RETURN(const auto at, Ensure(driver, made.address, facts));
    at->second.count = 1;
    at->second.allocated = true;
    return absl::OkStatus();
  };
  if (absl::Status entered = enter(); !entered.ok()) {
    (void)driver->FreeVmm(made.address, made.bytes);
    return entered;
  }
  return reinterpret_cast<void*>(made.address);  // NOLINT(performance-no-int-to-ptr)
}

absl::Status DeviceMemory::Free(const void* pointer) {
  SHUNT_ASSIGN_OR_RETURN(gpu::Driver* const driver, LoadDriver());
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(Address(pointer));
  if (at == entries_.end() || !at->second.allocated) {
    return absl::NotFoundError(
        absl::StrCat("no memory of shunt_alloc_device begins at ", HexOf(Address(pointer))));
  }
  const Entry entry = at->second;
  SHUNT_RETURN_IF_ERROR(Forget(at));
  const ContextScope scope(driver, entry.device);
  SHUNT_RETURN_IF_ERROR(scope.status());
  return driver->FreeVmm(Address(pointer), entry.bytes);
}

absl::StatusOr<DeviceMemory::Found> DeviceMemory::Find(const void* pointer, uint64_t bytes) {
  const RegionTable::Holder holder = session_->regions().HolderOf(pointer);
  if (holder.id != 0 && !holder.device) return Found{};
  auto loaded = LoadDriver();
  if (!loaded.ok()) return Found{};  // then it is no GPU's
  gpu::Driver* const driver = *loaded;
  const gpu::DevicePtr address = Address(pointer);
  SHUNT_ASSIGN_OR_RETURN(const gpu::PointerFacts facts, driver->Facts(address));
  // Pinned host memory is the host's.
  if (holder.id == 0 && (facts.kind == Kind::kNone || facts.kind == Kind::kHost)) return Found{};
  std::lock_guard lock(mutex_);
  SHUNT_ASSIGN_OR_RETURN(const auto at, Ensure(driver, address, facts));
  const auto& [base, entry] = *at;
  if (bytes > entry.bytes - (address - base)) {
    const gpu::DevicePtr next = base + entry.bytes;
    const auto behind = driver->Facts(next);
    const bool more = behind.ok() && behind->kind == Kind::kDevice;
    return absl::InvalidArgumentError(absl::StrCat(
        "a buffer of ", RangeText(address, bytes), " reaches beyond its allocation of ",
        RangeText(base, entry.bytes),
        more ? absl::StrCat(" into another one, of ", RangeText(behind->base, behind->bytes),
                            ": expected a buffer within one allocation")
             : ""));
  }
  return Found{true, entry.device};
}

}  // namespace shunt::client::cuda
