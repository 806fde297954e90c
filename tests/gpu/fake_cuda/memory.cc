// Allocations and what is known of an address. Each is a memory file, so that it can cross.
#include "tests/gpu/fake_cuda/memory.h"

#include <cuda.h>
#include <sys/mman.h>

#include <cstring>
#include <map>

#include "tests/gpu/fake_cuda/pieces.h"
#include "tests/gpu/fake_cuda/state.h"
#include "tests/gpu/fake_cuda/stream.h"

namespace shunt::fake_cuda {

// Never destroyed, as all state here.
std::map<uint64_t, Piece>& Pieces() {
  static auto* const pieces = new std::map<uint64_t, Piece>;
  return *pieces;
}

Piece* PieceAt(uint64_t address) {
  auto after = Pieces().upper_bound(address);
  if (after == Pieces().begin()) return nullptr;
  Piece& piece = (--after)->second;
  return address - piece.base < piece.bytes ? &piece : nullptr;
}

bool Reachable(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(Lock());
  const Piece* const piece = PieceAt(address);
  return piece != nullptr && piece->accessible && bytes <= piece->bytes - (address - piece->base);
}

namespace {

CUresult Make(Piece::Kind kind, uint64_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(Lock());
  Piece piece;
  piece.kind = kind;
  piece.bytes = bytes;
  piece.device = Current()->device;
  piece.id = NextId();
  const bool counted = kind != Piece::Kind::kHost;
  if (counted && !Charge(piece.device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  piece.fd = ::memfd_create("fake_cuda", MFD_CLOEXEC);
  void* const memory =
      piece.fd < 0 || ::ftruncate(piece.fd, static_cast<off_t>(bytes)) != 0
          ? MAP_FAILED
          : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece.fd, 0);
  if (memory == MAP_FAILED) {
    if (piece.fd >= 0) ::close(piece.fd);
    if (counted) Refund(piece.device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  piece.base = reinterpret_cast<uint64_t>(memory);
  *address = piece.base;
  Pieces()[piece.base] = piece;
  return CUDA_SUCCESS;
}

CUresult Unmake(uint64_t address, bool host) {
  const std::lock_guard lock(Lock());
  const auto found = Pieces().find(address);
  if (found == Pieces().end()) return CUDA_ERROR_INVALID_VALUE;
  const Piece piece = found->second;
  const bool made = piece.kind == Piece::Kind::kDevice || piece.kind == Piece::Kind::kManaged ||
                    piece.kind == Piece::Kind::kPool;
  if (host ? piece.kind != Piece::Kind::kHost : !made) return CUDA_ERROR_INVALID_VALUE;
  Pieces().erase(found);
  ::munmap(reinterpret_cast<void*>(piece.base), piece.bytes);
  ::close(piece.fd);
  if (!host) Refund(piece.device, piece.bytes);
  return CUDA_SUCCESS;
}

// One attribute; what is not known stays zero.
CUresult Tell(CUpointer_attribute attribute, const Piece* piece, void* value) {
  const auto put = [value](auto known) {
    std::memcpy(value, &known, sizeof(known));
    return CUDA_SUCCESS;
  };
  const bool device = piece != nullptr && piece->OnDevice();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(piece == nullptr ? 0u
                 : device         ? static_cast<unsigned>(CU_MEMORYTYPE_DEVICE)
                                  : static_cast<unsigned>(CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(piece != nullptr && piece->kind == Piece::Kind::kManaged ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(piece != nullptr && piece->kind == Piece::Kind::kDevice ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(piece == nullptr                       ? 0ull
                 : piece->kind == Piece::Kind::kMapping ? piece->range_id
                                                        : piece->id);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(piece == nullptr ? -2 : piece->device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(piece == nullptr                       ? CUdeviceptr{0}
                 : piece->kind == Piece::Kind::kMapping ? CUdeviceptr{piece->range_base}
                                                        : CUdeviceptr{piece->base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(piece == nullptr                       ? size_t{0}
                 : piece->kind == Piece::Kind::kMapping ? size_t{piece->range_bytes}
                                                        : size_t{piece->bytes});
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(piece == nullptr ? CUdeviceptr{0} : CUdeviceptr{piece->base});
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(piece == nullptr ? size_t{0} : size_t{piece->bytes});
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(piece == nullptr ? 0ull : static_cast<unsigned long long>(piece->id));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(piece != nullptr && piece->kind == Piece::Kind::kPool ? uint64_t{1} : uint64_t{0});
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(CUdeviceptr{piece == nullptr ? 0 : piece->base});
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace shunt::fake_cuda

using namespace shunt::fake_cuda;

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  FAKE_ENTER(cuMemGetInfo, kContext);
  const std::lock_guard lock(Lock());
  const Device& device = Devices()[static_cast<size_t>(Current()->device)];
  *total_bytes = device.total_bytes;
  *free_bytes = device.total_bytes - device.used_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  FAKE_ENTER(cuMemAlloc, kUncaptured);
  return Make(Piece::Kind::kDevice, bytes, address);
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned int /*flags*/) {
  FAKE_ENTER(cuMemAllocManaged, kUncaptured);
  return Make(Piece::Kind::kManaged, bytes, address);
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream /*stream*/) {
  FAKE_ENTER(cuMemAllocAsync, kContext);
  return Make(Piece::Kind::kPool, bytes, address);
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned int /*flags*/) {
  FAKE_ENTER(cuMemHostAlloc, kUncaptured);
  CUdeviceptr address = 0;
  const CUresult result = Make(Piece::Kind::kHost, bytes, &address);
  *memory = reinterpret_cast<void*>(address);
  return result;
}

CUresult cuMemFree(CUdeviceptr address) {
  FAKE_ENTER(cuMemFree, kUncaptured);
  if (address == 0) return CUDA_SUCCESS;
  SynchronizeAll();  // as the real one: nothing that runs loses its memory
  return Unmake(address, false);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream raw) {
  FAKE_ENTER(cuMemFreeAsync, kContext);
  const std::shared_ptr<Stream> stream = FindStream(raw);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return static_cast<CUresult>(Submit(stream, [address](uint64_t*) {
    if (Unmake(address, false) != CUDA_SUCCESS) Lose(CUDA_ERROR_ILLEGAL_ADDRESS);
    return true;
  }));
}

CUresult cuMemFreeHost(void* memory) {
  FAKE_ENTER(cuMemFreeHost, kUncaptured);
  return Unmake(reinterpret_cast<uint64_t>(memory), true);
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  FAKE_ENTER(cuMemGetAddressRange, kContext);
  const std::lock_guard lock(Lock());
  const Piece* const piece = PieceAt(address);
  if (piece == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = piece->base;
  if (bytes != nullptr) *bytes = piece->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  FAKE_ENTER(cuPointerGetAttribute, kLive);
  const std::lock_guard lock(Lock());
  const Piece* const piece = PieceAt(address);
  return piece == nullptr ? CUDA_ERROR_INVALID_VALUE : Tell(attribute, piece, value);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  FAKE_ENTER(cuPointerGetAttributes, kLive);
  const std::lock_guard lock(Lock());
  const Piece* const piece = PieceAt(address);
  for (unsigned int i = 0; i < count; ++i) {
    if (const CUresult result = Tell(attributes[i], piece, values[i]); result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* memory, size_t bytes, unsigned int /*flags*/) {
  FAKE_ENTER(cuMemHostRegister, kUncaptured);
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  if (base == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(Lock());
  const auto after = Pieces().lower_bound(base);
  if (PieceAt(base) != nullptr || (after != Pieces().end() && after->first < base + bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  // What is not mapped cannot be pinned.
  const uint64_t first = base & ~uint64_t{4095};
  if (::msync(reinterpret_cast<void*>(first), base + bytes - first, MS_ASYNC) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Piece piece;
  piece.kind = Piece::Kind::kRegistered;
  piece.base = base;
  piece.bytes = bytes;
  piece.device = Current()->device;
  piece.id = NextId();
  Pieces()[base] = piece;
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* memory) {
  FAKE_ENTER(cuMemHostUnregister, kContext);
  const std::lock_guard lock(Lock());
  const auto found = Pieces().find(reinterpret_cast<uint64_t>(memory));
  if (found == Pieces().end() || found->second.kind != Piece::Kind::kRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  Pieces().erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* memory, unsigned int /*flags*/) {
  FAKE_ENTER(cuMemHostGetDevicePointer, kContext);
  const std::lock_guard lock(Lock());
  const Piece* const piece = PieceAt(reinterpret_cast<uint64_t>(memory));
  if (piece == nullptr || piece->OnDevice()) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<uint64_t>(memory);
  return CUDA_SUCCESS;
}
