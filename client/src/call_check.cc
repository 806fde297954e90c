#include "client/src/call_check.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace shunt::client {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 62;

absl::string_view Word(std::string_view name) { return {name.data(), name.size()}; }

template <class... Args>
absl::Status Invalid(OpKind kind, const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(Word(Name(kind)), ": ", args...));
}

absl::Status CheckSide(const CollectiveSpec& spec, const char* name, const void* data,
                       uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const uint64_t element = SizeOf(spec.dtype);
  if (data == nullptr) {
    return Invalid(spec.kind, "'", name, "' is null, expected ", bytes, " bytes");
  }
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address % element != 0) {
    return Invalid(spec.kind, "'", name, "' at 0x", absl::Hex(address), " is not aligned to the ",
                   element, " bytes of a ", Word(Name(spec.dtype)));
  }
  if (bytes > UINT64_MAX - address) {
    return Invalid(spec.kind, "'", name, "' of ", bytes, " bytes reaches beyond the address space");
  }
  return absl::OkStatus();
}

// In place, as far as NCCL has it.
const char* InPlaceRule(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
      return "in == out";
    case OpKind::kAllGather:
      return "in == out + rank * count";
    case OpKind::kReduceScatter:
      return "out == in + rank * count";
    case OpKind::kGather:
      return "in == out + root * count";
    case OpKind::kScatter:
      return "out == in + root * count";
    default:
      return "no overlap at all";
  }
}

absl::Status OverlapError(OpKind kind) {
  return Invalid(kind, "'in' and 'out' overlap, expected disjoint buffers or ", InPlaceRule(kind));
}

struct Extent {
  uint64_t begin;
  uint64_t end;
};

// One side of the tables: what it spans in bytes, checked; blocks in the order of their address if
// `sorted`.
absl::Status SpanOf(const board::Call& call, const char* name, const std::byte* data,
                    const uint64_t* counts, const uint64_t* displs, int world,
                    std::vector<Extent>* blocks, Extent* span) {
  const uint64_t element = SizeOf(call.spec.dtype);
  const OpKind kind = call.spec.kind;
  uint64_t bytes = 0;
  for (int r = 0; r < world; ++r) {
    if (counts[r] == 0) continue;
    const uint64_t limit = kBytesMax / element;
    if (counts[r] > limit || displs[r] > limit - counts[r]) {
      return Invalid(kind, "'", name, "' for rank ", r, ": count ", counts[r], " at displacement ",
                     displs[r], ", expected a sum of at most ", limit);
    }
    blocks->push_back({displs[r] * element, (displs[r] + counts[r]) * element});
    bytes = std::max(bytes, blocks->back().end);
  }
  if (absl::Status s = CheckSide(call.spec, name, data, bytes); !s.ok()) return s;
  const auto base = reinterpret_cast<uintptr_t>(data);
  *span = {base, base + bytes};
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeCall(const CollectiveSpec& spec, int world, int rank, int peer, Side in,
                          Side out) {
  if (absl::Status s = ValidateSpec(spec, world); !s.ok()) return s;
  const bool pair = spec.kind == OpKind::kSend || spec.kind == OpKind::kRecv;
  if (pair && (peer < 0 || peer >= world)) {
    return Invalid(spec.kind, "peer ", peer, ", expected 0 to ", world - 1);
  }
  const uint64_t block =
      spec.count * SizeOf(spec.dtype);  // ValidateSpec: no overflow, times world neither
  if (absl::Status s = CheckSide(spec, "in", in.data, block * in.blocks); !s.ok()) return s;
  if (absl::Status s = CheckSide(spec, "out", out.data, block * out.blocks); !s.ok()) return s;
  if (in.data == nullptr || out.data == nullptr) return absl::OkStatus();
  const auto a = reinterpret_cast<uintptr_t>(in.data);
  const auto b = reinterpret_cast<uintptr_t>(out.data);
  const bool apart = block * in.blocks == 0 || block * out.blocks == 0 ||
                     a + block * in.blocks <= b || b + block * out.blocks <= a;
  if (!apart && PlacementOf(spec, world, rank, a, b) != Placement::kInPlace)
    return OverlapError(spec.kind);
  return absl::OkStatus();
}

absl::Status CheckTables(const board::Call& call, int world) {
  std::vector<Extent> sent;
  std::vector<Extent> received;
  Extent in;
  Extent out;
  if (absl::Status s =
          SpanOf(call, "in", call.in, call.send_counts, call.send_displs, world, &sent, &in);
      !s.ok()) {
    return s;
  }
  if (absl::Status s =
          SpanOf(call, "out", call.out, call.recv_counts, call.recv_displs, world, &received, &out);
      !s.ok()) {
    return s;
  }
  if (in.begin < out.end && out.begin < in.end) return OverlapError(call.spec.kind);
  // Two ranks' blocks in one place would make the result a matter of timing.
  std::sort(received.begin(), received.end(),
            [](const Extent& x, const Extent& y) { return x.begin < y.begin; });
  for (size_t i = 1; i < received.size(); ++i) {
    if (received[i].begin < received[i - 1].end) {
      return Invalid(call.spec.kind, "'out': two of the received blocks overlap at byte ",
                     received[i].begin);
    }
  }
  return absl::OkStatus();
}

}  // namespace shunt::client
