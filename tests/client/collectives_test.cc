// Every collective through a real daemon, against a reference, bit for bit.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/client/collective_case.h"
#include "tests/client/harness.h"

namespace shunt::testing {
namespace {

constexpr size_t kLargestBlockBytes = (1 << 20) + 64;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

// About this many bytes, on both sides of every threshold: the post's line, the board, chunks,
// staging windows.
constexpr uint64_t kSizes[] = {
    0, 8, 32, 33, 1000, 16384, 16385, 17 << 10, 100003, (256 << 10) + 1, 1 << 20};

std::vector<Case> Everything() {
  std::vector<Case> cases;
  uint64_t i = 0;
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    for (const uint64_t bytes : kSizes) {
      for (const Where where : {Where::kRegion, Where::kMalloc, Where::kMixed}) {
        for (const Mode mode : {Mode::kBlocking, Mode::kAsync, Mode::kGroup}) {
          Case c;
          c.kind = static_cast<OpKind>(kind);
          // Counters with no common factor: over the whole list every value meets every other.
          c.dtype = static_cast<DataType>((i * 7 + i / 12) % kDataTypeCount);
          c.redop =
              Reduces(c.kind) ? static_cast<Redop>((i * 5 + i / 7) % kRedopCount) : Redop::kSum;
          c.count = (bytes + SizeOf(c.dtype) - 1) / SizeOf(c.dtype);
          c.where = where;
          c.mode = mode;
          c.in_place = MayRunInPlace(c.kind) && (i + bytes) % 3 == 0;
          c.salt = ++i;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

void RunCases(int world, const std::vector<Case>& cases) {
  REQUIRE_NOTHROW(RunRanks(Daemon(), world, [&](const Rank& rank) {
    CaseRunner runner(rank, kLargestBlockBytes * static_cast<size_t>(world));
    for (Case c : cases) {
      c.root = static_cast<int>(c.salt % static_cast<uint64_t>(world));
      if (world == 1 && (c.kind == OpKind::kSend || c.kind == OpKind::kRecv) &&
          c.mode == Mode::kBlocking)
        continue;
      runner.Run(c);
    }
  }));
}

TEST_CASE("every collective of one rank") { RunCases(1, Everything()); }
TEST_CASE("every collective of two ranks") { RunCases(2, Everything()); }
TEST_CASE("every collective of three ranks") { RunCases(3, Everything()); }
TEST_CASE("every collective of four ranks") { RunCases(4, Everything()); }
TEST_CASE("every collective of five ranks") { RunCases(5, Everything()); }

TEST_CASE("every data type with every reduction, on the board and off it") {
  std::vector<Case> cases;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    for (int dtype = 0; dtype < kDataTypeCount; ++dtype) {
      for (int redop = 0; redop < kRedopCount; ++redop) {
        for (const uint64_t count : {3, 300, 20001}) {
          for (const Where where : {Where::kRegion, Where::kMalloc}) {
            Case c;
            c.kind = kind;
            c.dtype = static_cast<DataType>(dtype);
            c.redop = static_cast<Redop>(redop);
            c.count = count;
            c.where = where;
            c.salt = cases.size() + 1;
            cases.push_back(c);
          }
        }
      }
    }
  }
  RunCases(3, cases);
}

// Same inputs, same bits: whoever comes first, whoever does the work.
TEST_CASE("results do not depend on timing") {
  constexpr int kWorld = 4;
  constexpr size_t kCount = 50000;
  std::vector<std::vector<float>> results(kWorld);
  REQUIRE_NOTHROW(RunRanks(Daemon(), kWorld, [&](const Rank& rank) {
    auto& first = results[static_cast<size_t>(rank.rank)];
    void* in = nullptr;
    void* out = nullptr;
    ExpectOk(shunt_alloc(rank.session, kCount * 4, &in));
    ExpectOk(shunt_alloc(rank.session, kCount * 4, &out));
    auto* values = static_cast<float*>(in);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] = 1.0f / static_cast<float>(
                             1 + (i * 7919 + static_cast<size_t>(rank.rank) * 104729) % 100003);
    }
    for (int round = 0; round < 60; ++round) {
      // Somebody else comes late each time.
      if (round % kWorld == rank.rank) std::this_thread::yield();
      shunt_op* op = nullptr;
      ExpectOk(shunt_all_reduce(rank.comm, in, out, kCount, SHUNT_FLOAT32, SHUNT_SUM, nullptr,
                                round % 3 == 0 ? &op : nullptr));
      if (op != nullptr) ExpectOk(shunt_op_wait(op, SHUNT_FOREVER));
      shunt_op_release(op);
      const auto* result = static_cast<const float*>(out);
      if (round == 0) first.assign(result, result + kCount);
      Expect(std::memcmp(first.data(), result, kCount * 4) == 0,
             "round " + std::to_string(round) + " differs");
    }
  }));
  for (const auto& r : results) CHECK(r == results[0]);
}

// Processes, not threads, in which all addresses differ.
TEST_CASE("ranks in processes of their own") {
  constexpr int kWorld = 3;
  const std::string name = FreshName();
  const std::string socket = Daemon().socket();
  const std::vector<Case> all = Everything();
  std::vector<Process> processes;
  for (int r = 0; r < kWorld; ++r) {
    processes.push_back(Process::Fork([&, r] {
      const TestSession session(socket);
      const TestComm comm(session, name, r, kWorld);
      CaseRunner runner({session, comm, r, kWorld}, kLargestBlockBytes * kWorld);
      for (size_t i = 0; i < all.size(); i += 7) {
        Case c = all[i];
        c.root = static_cast<int>(i % kWorld);
        runner.Run(c);
      }
    }));
  }
  for (Process& p : processes) REQUIRE_NOTHROW(p.Join());
}

}  // namespace
}  // namespace shunt::testing
