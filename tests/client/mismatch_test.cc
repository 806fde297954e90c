// Calls that differ meet each other, whatever path their payloads would have taken.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/client/harness.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

struct Memory {
  std::byte* region_in;
  std::byte* region_out;
  std::byte* heap_in;
  std::byte* heap_out;
};

using Call = std::function<int(shunt_comm*, const Memory&)>;

// Rank 1 makes one call, all others the other one. All see both.
void ExpectMismatch(int world, const Call& most, const Call& one,
                    const std::vector<std::string>& words) {
  REQUIRE_NOTHROW(RunRanks(Daemon(), world, [&](const Rank& rank) {
    constexpr size_t kBytes = 1 << 20;
    std::vector<std::byte> heap(2 * kBytes);
    void* region = nullptr;
    ExpectOk(shunt_alloc(rank.session, 2 * kBytes, &region));
    auto* const r = static_cast<std::byte*>(region);
    const Memory memory{r, r + kBytes, heap.data(), heap.data() + kBytes};
    ExpectOk(shunt_barrier(rank.comm, nullptr, nullptr));
    ExpectCode((rank.rank == 1 ? one : most)(rank.comm, memory), SHUNT_FAILED_PRECONDITION, words);
    // The communicator is dead, and says why.
    ExpectCode(shunt_barrier(rank.comm, nullptr, nullptr), SHUNT_FAILED_PRECONDITION, words);
    ExpectCode(shunt_barrier(rank.comm, nullptr, nullptr), SHUNT_FAILED_PRECONDITION,
               {"join again"});
  }));
}

Call AllReduce(uint64_t count, shunt_dtype dtype = SHUNT_FLOAT32, shunt_redop redop = SHUNT_SUM,
               bool heap = false) {
  return [=](shunt_comm* comm, const Memory& m) {
    return shunt_all_reduce(comm, heap ? m.heap_in : m.region_in, heap ? m.heap_out : m.region_out,
                            count, dtype, redop, nullptr, nullptr);
  };
}

Call Broadcast(uint64_t count, int root) {
  return [=](shunt_comm* comm, const Memory& m) {
    return shunt_broadcast(comm, m.region_in, m.region_out, count, SHUNT_FLOAT32, root, nullptr,
                           nullptr);
  };
}

Call Barrier() {
  return [](shunt_comm* comm, const Memory&) { return shunt_barrier(comm, nullptr, nullptr); };
}

Call Async(uint64_t count) {
  return [=](shunt_comm* comm, const Memory& m) -> int {
    shunt_op* op = nullptr;
    int code = shunt_all_reduce(comm, m.region_in, m.region_out, count, SHUNT_FLOAT32, SHUNT_SUM,
                                nullptr, &op);
    if (code == SHUNT_OK) code = shunt_op_wait(op, SHUNT_FOREVER);
    shunt_op_release(op);
    return code;
  };
}

TEST_CASE("a differing kind") {
  ExpectMismatch(3, AllReduce(8), Broadcast(8, 0),
                 {"rank 1 (pid", "all_reduce #2 float32 sum count 8", "broadcast #2"});
  ExpectMismatch(2, AllReduce(8), Barrier(), {"all_reduce", "barrier"});
}

TEST_CASE("a differing type, reduction, count or root, small and large") {
  for (const uint64_t count : {4, 2000, 100000}) {
    const std::string n = std::to_string(count);
    ExpectMismatch(2, AllReduce(count), AllReduce(count, SHUNT_INT32),
                   {"float32 sum count " + n, "int32 sum count " + n});
    ExpectMismatch(3, AllReduce(count), AllReduce(count, SHUNT_FLOAT32, SHUNT_MAX),
                   {"float32 sum", "float32 max"});
    ExpectMismatch(3, AllReduce(count), AllReduce(count + 1),
                   {"count " + n, "count " + std::to_string(count + 1)});
    ExpectMismatch(3, Broadcast(count, 0), Broadcast(count, 1), {"root 0", "root 1"});
  }
}

TEST_CASE("16 KiB on the board meets 17 KiB in a region") {
  ExpectMismatch(2, AllReduce(4096), AllReduce(4352),
                 {"count 4096", "count 4352", "rank 0", "rank 1"});
  ExpectMismatch(4, AllReduce(4352), AllReduce(4096), {"count 4096", "count 4352"});
}

TEST_CASE("memory inside and outside regions, blocking and asynchronous") {
  ExpectMismatch(2, AllReduce(100000), AllReduce(100001, SHUNT_FLOAT32, SHUNT_SUM, true),
                 {"100000", "100001"});
  ExpectMismatch(2, AllReduce(8), Async(100000), {"count 8", "count 100000"});
  ExpectMismatch(3, Async(8), AllReduce(100000), {"count 8", "count 100000"});
  ExpectMismatch(2, Async(100000), Async(100001), {"100000", "100001"});
}

TEST_CASE("equal calls on different memory are no mismatch") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 3, [](const Rank& rank) {
    constexpr size_t kCount = 50000;
    std::vector<int32_t> heap(kCount, 1);
    void* region = nullptr;
    ExpectOk(shunt_alloc(rank.session, kCount * 4, &region));
    auto* data = rank.rank == 0 ? heap.data() : static_cast<int32_t*>(region);
    std::fill(data, data + kCount, 1 + rank.rank);
    shunt_op* op = nullptr;
    ExpectOk(shunt_all_reduce(rank.comm, data, data, kCount, SHUNT_INT32, SHUNT_SUM, nullptr,
                              rank.rank == 2 ? &op : nullptr));
    if (op != nullptr) ExpectOk(shunt_op_wait(op, 0));
    shunt_op_release(op);
    Expect(data[0] == 6 && data[kCount - 1] == 6, "wrong sum");
  }));
}

TEST_CASE("a send meets a receive of another count or type") {
  for (const uint64_t count : {8, 100000}) {
    REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
      std::vector<float> data(count + 1);
      const int code =
          rank.rank == 0
              ? shunt_send(rank.comm, data.data(), count, SHUNT_FLOAT32, 1, nullptr, nullptr)
              : shunt_recv(rank.comm, data.data(), count + 1, SHUNT_FLOAT32, 0, nullptr, nullptr);
      ExpectCode(code, SHUNT_FAILED_PRECONDITION,
                 {"send #1 float32 count " + std::to_string(count) + " to rank 1",
                  "recv #1 float32 count " + std::to_string(count + 1) + " from rank 0"});
    }));
  }
}

TEST_CASE("tables of all_to_all_v that do not fit together") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    std::vector<int32_t> in(64), out(64);
    const uint64_t four[] = {4, 4}, displs[] = {0, 8};
    const uint64_t sent[] = {4, rank.rank == 0 ? 5u : 4u};
    ExpectCode(shunt_all_to_all_v(rank.comm, in.data(), sent, displs, out.data(), four, displs,
                                  SHUNT_INT32, nullptr, nullptr),
               SHUNT_FAILED_PRECONDITION, {"rank 0", "rank 1", "5", "4"});
  }));
}

TEST_CASE("a failed communicator can be joined again, and others have not noticed") {
  const std::string name = FreshName();
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    {
      const TestComm bad(rank.session, name, rank.rank, 2);
      int32_t value = 0;
      const shunt_dtype dtype = rank.rank == 0 ? SHUNT_INT32 : SHUNT_UINT32;
      ExpectCode(shunt_all_reduce(bad, &value, &value, 1, dtype, SHUNT_SUM, nullptr, nullptr),
                 SHUNT_FAILED_PRECONDITION);
    }
    const TestComm again(rank.session, name, rank.rank, 2);
    int32_t value = 1;
    ExpectOk(shunt_all_reduce(again, &value, &value, 1, SHUNT_INT32, SHUNT_SUM, nullptr, nullptr));
    Expect(value == 2, "wrong sum after the re-join");
    ExpectOk(shunt_barrier(rank.comm, nullptr, nullptr));
  }));
}

}  // namespace
}  // namespace shunt::testing
