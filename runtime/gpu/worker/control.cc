#include "runtime/gpu/worker/control.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"

namespace shunt::gpu {
namespace {

void SetText(std::string_view text, std::span<char> out) {
  const size_t bytes = std::min(text.size(), out.size() - 1);
  std::copy_n(text.begin(), bytes, out.begin());
  out[bytes] = '\0';
}

}  // namespace

Control::Control(Driver* driver, DeviceFacts device, UniqueFd socket)
    : driver_(driver), device_(std::move(device)), socket_(std::move(socket)) {}

Control::~Control() {
  for (auto& [id, memory] : memory_) Close(&memory).IgnoreError();
}

absl::StatusOr<Control::Served> Control::Serve() {
  Request request{};
  auto bytes = std::as_writable_bytes(std::span(&request, 1));
  absl::StatusOr<Received> received = RecvWithFds(socket_.get(), bytes, /*max_fds=*/1);
  // A broken connection is a closed one: shuntd has gone.
  if (absl::IsUnavailable(received.status())) return Served::kClosed;
  if (!received.ok()) return received.status();
  if (received->closed) return Served::kClosed;
  if (received->would_block) return Served::kNothing;
  if (received->bytes != sizeof(Request)) {
    return absl::InternalError(absl::StrCat("a request of shuntd's has ", received->bytes,
                                            " bytes, expected ", sizeof(Request)));
  }
  UniqueFd fd = received->fds.empty() ? UniqueFd() : std::move(received->fds.front());
  Reply reply{};
  reply.id = request.id;
  const absl::Status status = Handle(request, std::move(fd), &reply);
  reply.code = static_cast<int32_t>(status.code());
  SetText(std::string_view(status.message().data(), status.message().size()), reply.text);
  const absl::Status sent = Send(reply);
  if (absl::IsDataLoss(status)) return status;
  if (absl::IsUnavailable(sent)) return Served::kClosed;
  if (!sent.ok()) return sent;
  return Served::kOne;
}

absl::Status Control::Send(const Reply& reply) {
  for (;;) {
    absl::Status sent = SendWithFds(socket_.get(), std::as_bytes(std::span(&reply, 1)));
    if (!absl::IsResourceExhausted(sent)) return sent;
    pollfd room{socket_.get(), POLLOUT, 0};
    ::poll(&room, 1, -1);
  }
}

absl::Status Control::Handle(const Request& request, UniqueFd fd, Reply* reply) {
  switch (request.kind) {
    case RequestKind::kImport:
      return Import(request, std::move(fd), reply);
    case RequestKind::kRelease:
      return Forget(request.memory);
    case RequestKind::kAbout:
      return About(reply);
  }
  return absl::UnimplementedError(
      absl::StrCat("request of kind ", static_cast<uint32_t>(request.kind)));
}

absl::Status Control::Import(const Request& request, UniqueFd fd, Reply* reply) {
  if (memory_.contains(request.memory)) {
    return absl::AlreadyExistsError(
        absl::StrCat("memory ", request.memory, " is imported already"));
  }
  SHUNT_ASSIGN_OR_RETURN(Memory memory, Open(request, std::move(fd)));
  if (absl::Status right = Check(memory); !right.ok()) {
    Close(&memory).IgnoreError();
    return right;
  }
  reply->address = memory.address;
  reply->host_address = reinterpret_cast<uint64_t>(memory.mapping.data());
  reply->bytes = memory.bytes;
  memory_.emplace(request.memory, std::move(memory));
  return absl::OkStatus();
}

absl::StatusOr<Control::Memory> Control::Open(const Request& request, UniqueFd fd) {
  Memory memory{.kind = request.memory_kind, .bytes = request.bytes, .address = 0, .mapping = {}};
  if (request.memory_kind == MemoryKind::kIpc) return OpenIpc(request);
  if (!fd.valid()) return absl::InvalidArgumentError("the request came without a descriptor");
  if (request.memory_kind == MemoryKind::kVmm) {
    // Maps no more than the allocation has.
    SHUNT_ASSIGN_OR_RETURN(memory.address,
                           driver_->MapVmm(fd.get(), device_.ordinal, request.bytes));
    return memory;
  }
  SHUNT_RETURN_IF_ERROR(CheckSealedMemfd(fd.get(), request.bytes));
  SHUNT_ASSIGN_OR_RETURN(memory.mapping, Mapping::Map(fd.get(), request.bytes));
  SHUNT_ASSIGN_OR_RETURN(memory.address,
                         driver_->RegisterHost(memory.mapping.data(), request.bytes));
  return memory;
}

absl::StatusOr<Control::Memory> Control::OpenIpc(const Request& request) {
  IpcHandle handle;
  std::memcpy(handle.data(), request.handle, sizeof(request.handle));
  SHUNT_ASSIGN_OR_RETURN(const DevicePtr address, driver_->OpenIpc(handle));
  return Memory{
      .kind = MemoryKind::kIpc, .bytes = request.bytes, .address = address, .mapping = {}};
}

// What the driver says of memory that has just been opened, against what its owner said. Of a
// mapping it says what was asked for: that fits, or could not be mapped.
absl::Status Control::Check(const Memory& memory) {
  if (memory.kind != MemoryKind::kIpc) return absl::OkStatus();
  SHUNT_ASSIGN_OR_RETURN(const PointerFacts facts, driver_->Facts(memory.address));
  if (facts.device != device_.ordinal) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is memory of GPU ", facts.device, ", expected GPU ", device_.ordinal));
  }
  const uint64_t before = memory.address - facts.base;
  const uint64_t bytes = before <= facts.bytes ? facts.bytes - before : 0;
  if (bytes >= memory.bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the allocation has ", bytes, " bytes, expected ", memory.bytes));
}

absl::Status Control::Forget(uint64_t id) {
  const auto found = memory_.find(id);
  if (found == memory_.end()) {
    return absl::NotFoundError(absl::StrCat("memory ", id, " is not imported"));
  }
  Memory memory = std::move(found->second);
  memory_.erase(found);
  return Close(&memory);
}

absl::Status Control::Close(Memory* memory) {
  switch (memory->kind) {
    case MemoryKind::kHost:
      return driver_->UnregisterHost(memory->mapping.data());
    case MemoryKind::kVmm:
      return driver_->FreeVmm(memory->address, memory->bytes);
    case MemoryKind::kIpc:
      return driver_->CloseIpc(memory->address);
  }
  return absl::OkStatus();
}

absl::Status Control::About(Reply* reply) {
  std::memcpy(reply->uuid, device_.uuid.data(), sizeof(reply->uuid));
  reply->total_bytes = device_.total_bytes;
  SetText(device_.name, reply->name);
  return absl::OkStatus();
}

}  // namespace shunt::gpu
