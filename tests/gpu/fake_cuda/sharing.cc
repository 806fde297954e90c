// Memory that crosses between processes: IPC handles and cuMemCreate's descriptors.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <string>

#include "tests/gpu/fake_cuda/pieces.h"
#include "tests/gpu/fake_cuda/state.h"

namespace shunt::fake_cuda {
namespace {

// In a CUipcMemHandle. The exporter's descriptor is opened through /proc: gone with the exporter,
// and not to be found from another container.
struct Ticket {
  char magic[8];
  int pid;
  int fd;
  int device;  // of the machine
  uint64_t bytes;
  uint64_t inode;
  uint64_t id;
};
static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'i', 'p', 'c', '1'};

// What cuMemCreate makes: named by number, counted by handles and mappings.
struct Allocation {
  int fd = -1;
  uint64_t bytes = 0;
  uint64_t id = 0;
  int device = 0;
  bool charged = false;
  unsigned handle_types = 0;
  int handles = 0;
  int mappings = 0;
};

std::map<uint64_t, Allocation>& Allocations() {
  static auto* const allocations = new std::map<uint64_t, Allocation>;
  return *allocations;
}

struct Range {
  uint64_t bytes = 0;
  uint64_t id = 0;
};

std::map<uint64_t, Range>& Ranges() {
  static auto* const ranges = new std::map<uint64_t, Range>;
  return *ranges;
}

const char kVmmName[] = "fake_cuda_vmm";

// With Lock() held.
void DropIfUnused(uint64_t number) {
  const auto found = Allocations().find(number);
  if (found->second.handles > 0 || found->second.mappings > 0) return;
  if (found->second.charged) Refund(found->second.device, found->second.bytes);
  ::close(found->second.fd);
  Allocations().erase(found);
}

bool Whole(uint64_t number) { return number != 0 && number % kGranularity == 0; }

// The device of this process with that number in the machine, or -1.
int DeviceOf(int physical) {
  for (size_t i = 0; i < Devices().size(); ++i) {
    if (Devices()[i].physical == physical) return static_cast<int>(i);
  }
  return -1;
}

bool Valid(const CUmemAllocationProp* properties) {
  return properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties->location.id >= 0 &&
         static_cast<size_t>(properties->location.id) < Devices().size();
}

}  // namespace
}  // namespace shunt::fake_cuda

using namespace shunt::fake_cuda;

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  FAKE_ENTER(cuIpcGetMemHandle, kContext);
  const std::lock_guard lock(Lock());
  const Piece* const piece = PieceAt(address);
  struct stat file {};
  if (piece == nullptr || piece->kind != Piece::Kind::kDevice || ::fstat(piece->fd, &file) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Ticket ticket{};
  std::memcpy(ticket.magic, kMagic, sizeof(kMagic));
  ticket.pid = ::getpid();
  ticket.fd = piece->fd;
  ticket.device = Devices()[static_cast<size_t>(piece->device)].physical;
  ticket.bytes = piece->bytes;
  ticket.inode = file.st_ino;
  ticket.id = piece->id;
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int /*flags*/) {
  FAKE_ENTER(cuIpcOpenMemHandle, kUncaptured);
  Ticket ticket;
  std::memcpy(&ticket, &handle, sizeof(ticket));
  if (std::memcmp(ticket.magic, kMagic, sizeof(kMagic)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (ticket.pid == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(Lock());
  for (auto& [base, piece] : Pieces()) {
    if (piece.kind == Piece::Kind::kImported && piece.exporter == ticket.pid &&
        piece.exporter_id == ticket.id) {
      ++piece.opened;
      *address = base;
      return CUDA_SUCCESS;
    }
  }
  const std::string path =
      "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat file {};
  if (fd < 0 || ::fstat(fd, &file) != 0 || file.st_ino != ticket.inode) {
    if (fd >= 0) ::close(fd);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const int device = DeviceOf(ticket.device);
  void* const memory =
      device < 0 || ticket.bytes > static_cast<uint64_t>(file.st_size)
          ? MAP_FAILED
          : ::mmap(nullptr, ticket.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  Piece piece;
  piece.kind = Piece::Kind::kImported;
  piece.base = reinterpret_cast<uint64_t>(memory);
  piece.bytes = ticket.bytes;
  piece.device = device;
  piece.id = NextId();
  piece.exporter = ticket.pid;
  piece.exporter_id = ticket.id;
  piece.opened = 1;
  Pieces()[piece.base] = piece;
  *address = piece.base;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  FAKE_ENTER(cuIpcCloseMemHandle, kContext);
  const std::lock_guard lock(Lock());
  const auto found = Pieces().find(address);
  if (found == Pieces().end() || found->second.kind != Piece::Kind::kImported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--found->second.opened > 0) return CUDA_SUCCESS;
  ::munmap(reinterpret_cast<void*>(found->second.base), found->second.bytes);
  Pieces().erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags /*option*/) {
  FAKE_ENTER(cuMemGetAllocationGranularity, kInit);
  if (!Valid(properties)) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  FAKE_ENTER(cuMemCreate, kLive);
  if (!Valid(properties) || !Whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(Lock());
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.device = properties->location.id;
  allocation.handle_types = static_cast<unsigned>(properties->requestedHandleTypes);
  allocation.handles = 1;
  allocation.charged = true;
  if (!Charge(allocation.device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  allocation.fd = ::memfd_create(kVmmName, MFD_CLOEXEC);
  if (allocation.fd < 0 || ::ftruncate(allocation.fd, static_cast<off_t>(bytes)) != 0) {
    if (allocation.fd >= 0) ::close(allocation.fd);
    Refund(allocation.device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  allocation.id = NextId();
  Allocations()[allocation.id] = allocation;
  *handle = allocation.id;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_ENTER(cuMemRelease, kInit);
  const std::lock_guard lock(Lock());
  const auto found = Allocations().find(handle);
  if (found == Allocations().end() || found->second.handles == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.handles;
  DropIfUnused(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  FAKE_ENTER(cuMemRetainAllocationHandle, kLive);
  const std::lock_guard lock(Lock());
  const Piece* const piece = PieceAt(reinterpret_cast<uint64_t>(address));
  if (piece == nullptr || piece->kind != Piece::Kind::kMapping) return CUDA_ERROR_INVALID_VALUE;
  ++Allocations()[piece->allocation].handles;
  *handle = piece->allocation;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  FAKE_ENTER(cuMemGetAllocationPropertiesFromHandle, kLive);
  const std::lock_guard lock(Lock());
  const auto found = Allocations().find(handle);
  if (found == Allocations().end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = found->second.device;
  properties->requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(found->second.handle_types);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_ENTER(cuMemExportToShareableHandle, kLive);
  const std::lock_guard lock(Lock());
  const auto found = Allocations().find(handle);
  if (found == Allocations().end() || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      flags != 0 || (found->second.handle_types & type) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = ::fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(shareable, &fd, sizeof(fd));
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  FAKE_ENTER(cuMemImportFromShareableHandle, kLive);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const int given = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(given);
  struct stat file {};
  if (::readlink(link.c_str(), name, sizeof(name) - 1) < 0 ||
      std::strstr(name, kVmmName) == nullptr || ::fstat(given, &file) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = ::fcntl(given, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::lock_guard lock(Lock());
  Allocation allocation;
  allocation.fd = fd;
  allocation.bytes = static_cast<uint64_t>(file.st_size);
  allocation.handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  allocation.handles = 1;
  allocation.id = NextId();
  Allocations()[allocation.id] = allocation;
  *handle = allocation.id;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t /*alignment*/,
                             CUdeviceptr /*hint*/, unsigned long long flags) {
  FAKE_ENTER(cuMemAddressReserve, kLive);
  if (!Whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(Lock());
  *address = reinterpret_cast<uint64_t>(memory);
  Ranges()[*address] = {bytes, NextId()};
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  FAKE_ENTER(cuMemAddressFree, kInit);
  const std::lock_guard lock(Lock());
  const auto found = Ranges().find(address);
  if (found == Ranges().end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto inside = Pieces().lower_bound(address);
  if (inside != Pieces().end() && inside->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(reinterpret_cast<void*>(address), bytes);
  Ranges().erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  FAKE_ENTER(cuMemMap, kLive);
  const std::lock_guard lock(Lock());
  const auto allocation = Allocations().find(handle);
  auto range = Ranges().upper_bound(address);
  if (allocation == Allocations().end() || range == Ranges().begin() || offset != 0 || flags != 0 ||
      !Whole(bytes) || bytes != allocation->second.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  --range;
  const auto next = Pieces().lower_bound(address);
  if (bytes > range->second.bytes || address - range->first > range->second.bytes - bytes ||
      PieceAt(address) != nullptr || (next != Pieces().end() && next->first < address + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             allocation->second.fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Piece piece;
  piece.kind = Piece::Kind::kMapping;
  piece.accessible = false;
  piece.base = address;
  piece.bytes = bytes;
  piece.device = allocation->second.device;
  piece.id = allocation->second.id;
  piece.allocation = handle;
  piece.range_base = range->first;
  piece.range_bytes = range->second.bytes;
  piece.range_id = range->second.id;
  Pieces()[address] = piece;
  ++allocation->second.mappings;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  FAKE_ENTER(cuMemUnmap, kInit);
  const std::lock_guard lock(Lock());
  const auto found = Pieces().find(address);
  if (found == Pieces().end() || found->second.kind != Piece::Kind::kMapping ||
      found->second.bytes != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const uint64_t allocation = found->second.allocation;
  Pieces().erase(found);
  --Allocations()[allocation].mappings;
  DropIfUnused(allocation);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  FAKE_ENTER(cuMemSetAccess, kLive);
  const std::lock_guard lock(Lock());
  const auto found = Pieces().find(address);
  if (found == Pieces().end() || found->second.kind != Piece::Kind::kMapping ||
      found->second.bytes != bytes || count == 0 ||
      access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || access->location.id < 0 ||
      static_cast<size_t>(access->location.id) >= Devices().size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.accessible = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ::mprotect(reinterpret_cast<void*>(address), bytes,
             found->second.accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
  return CUDA_SUCCESS;
}
