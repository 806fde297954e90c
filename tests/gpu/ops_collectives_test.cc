// Collectives on GPU memory through a real daemon and worker, against a reference, bit for bit.
#include <catch2/catch.hpp>
#include <vector>

#include "tests/client/collective_case.h"
#include "tests/gpu/ops_world.h"

namespace shunt::testing {
namespace {

const TestDaemon& Daemon() {
  static const GpuDaemon daemon;
  return daemon;
}

constexpr uint64_t kSizes[] = {0, 8, 33, 4096, 100003};

std::vector<Case> Everything() {
  std::vector<Case> cases;
  uint64_t i = 0;
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (const uint64_t bytes : kSizes) {
      for (const Where where : {Where::kDevice, Where::kDeviceMixed, Where::kMalloc}) {
        for (const Mode mode : {Mode::kBlocking, Mode::kAsync, Mode::kGroup, Mode::kStream}) {
          // A stream's call takes no memory of which the daemon would need a copy.
          if (mode == Mode::kStream && where == Where::kMalloc) continue;
          Case c;
          c.kind = static_cast<OpKind>(kind);
          c.dtype = static_cast<DataType>((i * 7 + i / 12) % kDataTypeCount);
          c.redop =
              Reduces(c.kind) ? static_cast<Redop>((i * 5 + i / 7) % kRedopCount) : Redop::kSum;
          c.count = (bytes + SizeOf(c.dtype) - 1) / SizeOf(c.dtype);
          c.where = where;
          c.mode = mode;
          c.in_place =
              where != Where::kDeviceMixed && MayRunInPlace(c.kind) && (i + bytes) % 3 == 0;
          c.salt = ++i;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

void RunCases(int world, const std::vector<Case>& cases) {
  REQUIRE_NOTHROW(RunDeviceRanks(Daemon(), world, [&](const Rank& rank, const OnGpu& gpu) {
    CaseRunner runner(rank, (kSizes[std::size(kSizes) - 1] + 64) * static_cast<size_t>(world),
                      /*on_device=*/true, gpu.stream());
    for (Case c : cases) {
      c.root = static_cast<int>(c.salt % static_cast<uint64_t>(world));
      if (world == 1 && (c.kind == OpKind::kSend || c.kind == OpKind::kRecv) &&
          (c.mode == Mode::kBlocking || c.mode == Mode::kStream))
        continue;
      // Outside a group, a stream's receive would wait for its send, which stands behind it.
      if (c.mode == Mode::kStream && (c.kind == OpKind::kSend || c.kind == OpKind::kRecv)) continue;
      runner.Run(c);
    }
  }));
}

TEST_CASE("every collective of one rank with GPU memory") { RunCases(1, Everything()); }
TEST_CASE("every collective of two ranks with GPU memory") { RunCases(2, Everything()); }
TEST_CASE("every collective of four ranks with GPU memory") { RunCases(4, Everything()); }

TEST_CASE("every data type with every reduction on GPU memory") {
  std::vector<Case> cases;
  uint64_t i = 0;
  for (int dtype = 0; dtype < kDataTypeCount; ++dtype) {
    for (int redop = 0; redop < kRedopCount; ++redop) {
      for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter}) {
        Case c;
        c.kind = kind;
        c.dtype = static_cast<DataType>(dtype);
        c.redop = static_cast<Redop>(redop);
        c.count = 1025;
        c.where = Where::kDevice;
        c.mode = i % 2 == 0 ? Mode::kStream : Mode::kBlocking;
        c.salt = ++i;
        cases.push_back(c);
      }
    }
  }
  RunCases(3, cases);
}

TEST_CASE("a stream runs further ahead than a board of host memory has slots") {
  constexpr int kCalls = 200;
  REQUIRE_NOTHROW(RunDeviceRanks(Daemon(), 2, [&](const Rank& rank, const OnGpu& gpu) {
    void* data = nullptr;
    ExpectOk(shunt_alloc_device(rank.session, 0, 64, &data));
    auto* const words = static_cast<uint32_t*>(data);
    for (int i = 0; i < 16; ++i) words[i] = 1;
    const shunt_call call = OnStream(gpu.stream());
    {
      Barrier barrier(gpu.driver());
      barrier.Hold(gpu.stream());
      for (int i = 0; i < kCalls; ++i) {
        // Twice as much each time, until it wraps to 0: each sees the one before.
        ExpectOk(shunt_all_reduce(rank.comm, words, words, 16, SHUNT_UINT32,
                                  i % 30 == 29 ? SHUNT_MAX : SHUNT_SUM, &call, nullptr));
        if (i % 20 == 19) {
          // Back to 1 within the stream, once both have come here.
          ExpectStatus(
              gpu.driver().FillAsync(reinterpret_cast<gpu::DevicePtr>(words), 1, 64, gpu.stream()));
        }
      }
      // Nothing has moved: the streams have not come.
      Expect(words[0] == 1, "a call took effect before its stream came to it");
    }
    ExpectOk(shunt_sync(rank.comm, 0));
    ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
    Expect(words[15] == 0x01010101, "the last fill is not the last in the stream");
  }));
}

}  // namespace
}  // namespace shunt::testing
