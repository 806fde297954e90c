#include "client/src/call_check.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace shunt::client {
namespace {

constexpr int kWorld = 4;
constexpr int kRank = 1;

struct Buffers {
  alignas(64) std::byte bytes[4096];
  const std::byte* at(size_t offset) const { return bytes + offset; }
};

CollectiveSpec Spec(OpKind kind, DataType dtype = DataType::kFloat32, uint64_t count = 16,
                    int root = 0) {
  return {kind, dtype, Redop::kSum, root, count};
}

// The verdict as words, "" if the call is right; the quick check and the slow one must agree.
std::string Check(const CollectiveSpec& spec, const void* in, const void* out, int peer = -1,
                  int rank = kRank) {
  const bool pair = spec.kind == OpKind::kSend || spec.kind == OpKind::kRecv;
  const bool valid_root = !HasRoot(spec.kind) || (spec.root >= 0 && spec.root < kWorld);
  const Side in_side{in, pair         ? spec.kind == OpKind::kSend
                         : valid_root ? InputBlocks(spec, kWorld, rank)
                                      : 1u};
  const Side out_side{out, pair         ? spec.kind == OpKind::kRecv
                           : valid_root ? OutputBlocks(spec, kWorld, rank)
                                        : 1u};
  const absl::Status s = DescribeCall(spec, kWorld, rank, peer, in_side, out_side);
  if (LooksRight(spec, kWorld, rank, peer, in_side, out_side)) CHECK(s.ok());
  return std::string(s.message());
}

bool Has(const std::string& words, const std::string& part) {
  INFO(words);
  return words.find(part) != std::string::npos;
}

TEST_CASE("right calls pass, also by the quick check") {
  Buffers b;
  const CollectiveSpec spec = Spec(OpKind::kAllReduce);
  CHECK(LooksRight(spec, kWorld, kRank, -1, {b.at(0), 1}, {b.at(64), 1}));
  CHECK(LooksRight(spec, kWorld, kRank, -1, {b.at(0), 1}, {b.at(0), 1}));
  CHECK(LooksRight(Spec(OpKind::kBarrier, DataType::kInt8, 0), kWorld, kRank, -1, {nullptr, 0},
                   {nullptr, 0}));
  CHECK(LooksRight(Spec(OpKind::kAllReduce, DataType::kInt8, 0), kWorld, kRank, -1, {nullptr, 1},
                   {nullptr, 1}));
}

TEST_CASE("unknown types, reductions, roots and peers are named") {
  Buffers b;
  CollectiveSpec spec = Spec(OpKind::kAllReduce);
  spec.dtype = static_cast<DataType>(99);
  CHECK(Has(Check(spec, b.at(0), b.at(64)), "data type 99"));
  spec = Spec(OpKind::kAllReduce);
  spec.redop = static_cast<Redop>(17);
  CHECK(Has(Check(spec, b.at(0), b.at(64)), "reduction 17"));
  CHECK(Has(Check(Spec(OpKind::kBroadcast, DataType::kInt8, 1, -1), b.at(0), b.at(64)), "root -1"));
  CHECK(Has(Check(Spec(OpKind::kGather, DataType::kInt8, 1, 4), b.at(0), b.at(64)), "root 4"));
  CHECK(Has(Check(Spec(OpKind::kSend), b.at(0), nullptr, 4), "peer 4"));
  CHECK(Has(Check(Spec(OpKind::kRecv), nullptr, b.at(0), -1), "peer -1"));
}

TEST_CASE("null, unaligned and overflowing buffers are named") {
  Buffers b;
  CHECK(Has(Check(Spec(OpKind::kAllReduce), nullptr, b.at(0)), "'in' is null, expected 64 bytes"));
  CHECK(
      Has(Check(Spec(OpKind::kAllGather), b.at(0), nullptr), "'out' is null, expected 256 bytes"));
  CHECK(Has(Check(Spec(OpKind::kAllReduce), b.at(2), b.at(64)),
            "aligned to the 4 bytes of a float32"));
  CHECK(Has(Check(Spec(OpKind::kAllReduce, DataType::kFloat64), b.at(0), b.at(4)),
            "aligned to the 8 bytes"));
  CHECK(Has(Check(Spec(OpKind::kAllReduce, DataType::kFloat32, UINT64_MAX), b.at(0), b.at(64)),
            "count"));
  CHECK(Has(Check(Spec(OpKind::kAllReduce, DataType::kInt8, uint64_t{1} << 59), b.at(0),
                  reinterpret_cast<const void*>(UINTPTR_MAX - 4096)),
            "address space"));
}

TEST_CASE("buffers that a rank does not use may be anything") {
  Buffers b;
  CHECK(Check(Spec(OpKind::kBroadcast), nullptr, b.at(0)).empty());
  CHECK(Check(Spec(OpKind::kReduce), b.at(0), nullptr).empty());
  CHECK(Check(Spec(OpKind::kScatter), nullptr, b.at(0)).empty());
}

TEST_CASE("in place is NCCL's placement and nothing else") {
  Buffers b;
  const size_t block = 64;
  CHECK(Check(Spec(OpKind::kAllGather), b.at(block * kRank), b.at(0)).empty());
  CHECK(Has(Check(Spec(OpKind::kAllGather), b.at(0), b.at(0)), "in == out + rank * count"));
  CHECK(Check(Spec(OpKind::kReduceScatter), b.at(0), b.at(block * kRank)).empty());
  CHECK(Has(Check(Spec(OpKind::kReduceScatter), b.at(0), b.at(block * 2)),
            "out == in + rank * count"));
  CHECK(Has(Check(Spec(OpKind::kAllReduce), b.at(0), b.at(4)), "overlap"));
  CHECK(Has(Check(Spec(OpKind::kAllToAll), b.at(0), b.at(0)), "no overlap at all"));
  // At the root.
  CHECK(Check(Spec(OpKind::kReduce, DataType::kFloat32, 16, kRank), b.at(0), b.at(0)).empty());
  CHECK(Check(Spec(OpKind::kGather, DataType::kFloat32, 16, kRank), b.at(block * kRank), b.at(0))
            .empty());
  CHECK(Has(Check(Spec(OpKind::kGather, DataType::kFloat32, 16, kRank), b.at(0), b.at(0)),
            "root * count"));
  CHECK(Check(Spec(OpKind::kScatter, DataType::kFloat32, 16, kRank), b.at(0), b.at(block * kRank))
            .empty());
}

struct Tables {
  std::vector<uint64_t> send_counts{1, 2, 0, 4}, send_displs{0, 1, 9, 3};
  std::vector<uint64_t> recv_counts{2, 2, 2, 2}, recv_displs{0, 2, 4, 6};

  std::string Check(const void* in, const void* out) const {
    board::Call call;
    call.spec = {OpKind::kAllToAllV, DataType::kInt32, Redop::kSum, 0, 0};
    call.in = static_cast<const std::byte*>(in);
    call.out = const_cast<std::byte*>(static_cast<const std::byte*>(out));
    call.send_counts = send_counts.data();
    call.send_displs = send_displs.data();
    call.recv_counts = recv_counts.data();
    call.recv_displs = recv_displs.data();
    return std::string(CheckTables(call, kWorld).message());
  }
};

TEST_CASE("tables of all_to_all_v: spans, overlaps and overflows") {
  Buffers b;
  CHECK(Tables().Check(b.at(0), b.at(1024)).empty());
  CHECK(Has(Tables().Check(b.at(0), b.at(16)), "overlap"));
  CHECK(Has(Tables().Check(nullptr, b.at(16)), "'in' is null"));
  Tables received_twice;
  received_twice.recv_displs = {0, 1, 4, 6};
  CHECK(Has(received_twice.Check(b.at(0), b.at(1024)), "received blocks overlap"));
  Tables overflow;
  overflow.send_displs[3] = UINT64_MAX - 1;
  CHECK(Has(overflow.Check(b.at(0), b.at(1024)), "'in' for rank 3"));
  Tables empty;
  empty.send_counts = empty.recv_counts = {0, 0, 0, 0};
  CHECK(empty.Check(nullptr, nullptr).empty());
}

}  // namespace
}  // namespace shunt::client
