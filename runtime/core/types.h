// The words of a collective call: data type, reduction, kind of operation. The numbers are ABI:
// they appear in client/include/shunt.h, in proto/shunt/v1 and in shared memory, and never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shunt {

enum class DataType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kBfloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
  kFloat8E4M3 = 10,
  kFloat8E5M2 = 11,
};
inline constexpr int kDataTypeCount = 12;

enum class Redop : uint8_t {
  kSum = 0,
  kProd = 1,
  kMin = 2,
  kMax = 3,
  kAvg = 4,
  kPremulSum = 5,  // each rank's contribution is multiplied by that rank's scalar first
};
inline constexpr int kRedopCount = 6;

enum class OpKind : uint8_t {
  kBarrier = 0,
  kAllReduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllGather = 4,
  kReduceScatter = 5,
  kAllToAll = 6,
  kAllToAllV = 7,
  kGather = 8,
  kScatter = 9,
  kSend = 10,
  kRecv = 11,
};
inline constexpr int kOpKindCount = 12;

constexpr bool IsValid(DataType t) { return static_cast<int>(t) < kDataTypeCount; }
constexpr bool IsValid(Redop r) { return static_cast<int>(r) < kRedopCount; }
constexpr bool IsValid(OpKind k) { return static_cast<int>(k) < kOpKindCount; }

// Bytes of one element. `t` must be valid.
constexpr size_t SizeOf(DataType t) {
  constexpr uint8_t kSizes[kDataTypeCount] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
  return kSizes[static_cast<int>(t)];
}

constexpr bool IsInteger(DataType t) { return static_cast<int>(t) <= 5; }

// True if the operation combines contributions, so that its redop and data type matter.
constexpr bool Reduces(OpKind k) {
  return k == OpKind::kAllReduce || k == OpKind::kReduce || k == OpKind::kReduceScatter;
}

// True if the operation names a root rank (for send and receive: no, they name a peer).
constexpr bool HasRoot(OpKind k) {
  return k == OpKind::kReduce || k == OpKind::kBroadcast || k == OpKind::kGather ||
         k == OpKind::kScatter;
}

// Lower-case names as users write them: "all_reduce", "float32", "sum". "unknown" for other values.
std::string_view Name(DataType t);
std::string_view Name(Redop r);
std::string_view Name(OpKind k);

}  // namespace shunt
