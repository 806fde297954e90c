// Sessions, communicators, handles and groups as a program uses them.
#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/harness.h"
#include "tests/support/fds.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

int Sum(shunt_comm* comm, int32_t* data, uint64_t count, shunt_op** op = nullptr) {
  return shunt_all_reduce(comm, data, data, count, SHUNT_INT32, SHUNT_SUM, nullptr, op);
}

template <typename T>
T* Allocate(shunt_session* session, size_t count) {
  void* data = nullptr;
  ExpectOk(shunt_alloc(session, count * sizeof(T), &data));
  return static_cast<T*>(data);
}

// ---- Sessions and memory

TEST_CASE("sessions have ids of their own, start no thread, and leave no descriptor behind") {
  Daemon();
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  const int fds = CountOpenFds();
  const auto before = threads();
  {
    const TestSession a(Daemon().socket());
    const TestSession b(Daemon().socket());
    CHECK(shunt_session_id(a) != shunt_session_id(b));
    CHECK(shunt_session_id(a) != 0);
    const TestComm comm(a, FreshName(), 0, 1);
    CHECK(shunt_barrier(comm, nullptr, nullptr) == SHUNT_OK);
    CHECK(threads() == before);
  }
  CHECK(CountOpenFds() == fds);
}

TEST_CASE("opening a session is quick") {
  std::vector<double> ms;
  for (int i = 0; i < 30; ++i) {
    const auto begin = Clock::now();
    const TestSession session(Daemon().socket());
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  const double first = ms[0];
  std::sort(ms.begin(), ms.end());
  INFO("first " << first << " ms, median " << ms[ms.size() / 2] << " ms");
  CHECK(ms[ms.size() / 2] < 3);
}

TEST_CASE("a region is zeroed, page granular, and known by any pointer into it") {
  const TestSession session(Daemon().socket());
  auto* data = Allocate<char>(session, 10000);
  CHECK(std::all_of(data, data + 10000, [](char c) { return c == 0; }));
  uint64_t id = 0;
  uint64_t same = 0;
  CHECK(shunt_region_id(session, data, &id) == SHUNT_OK);
  CHECK(shunt_region_id(session, data + 9999, &same) == SHUNT_OK);
  CHECK(id != 0);
  CHECK(same == id);
  int on_stack = 0;
  CHECK(shunt_region_id(session, &on_stack, &same) == SHUNT_NOT_FOUND);
  CHECK(same == 0);
  REQUIRE_NOTHROW(ExpectCode(shunt_free(session, data + 1), SHUNT_NOT_FOUND));
  CHECK(shunt_free(session, data) == SHUNT_OK);
  CHECK(shunt_region_id(session, data, &id) == SHUNT_NOT_FOUND);
  // What is allocated next is another region, whatever its address.
  auto* next = Allocate<char>(session, 10000);
  CHECK(shunt_region_id(session, next, &same) == SHUNT_OK);
  CHECK(same != id);
  CHECK(next[0] == 0);
}

TEST_CASE("a handle and a communicator may outlive the session's handle") {
  const std::string name = FreshName();
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    shunt_op* op = nullptr;
    {
      const TestSession session(Daemon().socket());
      const TestComm comm(session, name, r, 2);
      auto* data = Allocate<int32_t>(session, 1000);
      if (r == 0) {
        ExpectOk(Sum(comm, data, 1000, &op));
      } else {
        ExpectOk(shunt_barrier(TestComm(session, name + "-alone", 0, 1), nullptr, nullptr));
      }
    }
    if (op != nullptr) {
      const int code = shunt_op_wait(op, 5'000'000'000);
      Expect(code == SHUNT_UNAVAILABLE || code == SHUNT_FAILED_PRECONDITION, shunt_code_name(code));
      shunt_op_release(op);
    }
  }));
}

// ---- Communicators

TEST_CASE("joining again is a new epoch") {
  const std::string name = FreshName();
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const TestSession session(Daemon().socket());
    const TestComm pace(session, name + "-pace", r, 2);
    for (int epoch = 0; epoch < 40; ++epoch) {
      ExpectOk(shunt_barrier(pace, nullptr, nullptr));
      const TestComm comm(session, name, r, 2);
      int32_t one = 1;
      ExpectOk(Sum(comm, &one, 1));
      Expect(one == 2, "wrong sum");
    }
  }));
}

TEST_CASE("split makes a communicator for each colour, ordered by key and rank") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 5, [](const Rank& rank) {
    for (int round = 0; round < 3; ++round) {
      shunt_comm* out = nullptr;
      // 0, 2, 4 and 1, 3; the keys turn the order around.
      ExpectOk(shunt_split(rank.comm, rank.rank % 2, -rank.rank, 0, &out));
      const TestComm split(out);
      const int size = rank.rank % 2 == 0 ? 3 : 2;
      Expect(split.world() == size, "world size " + std::to_string(split.world()));
      Expect(split.rank() == size - 1 - rank.rank / 2, "rank " + std::to_string(split.rank()));
      int32_t sum = rank.rank;
      ExpectOk(Sum(split, &sum, 1));
      Expect(sum == (rank.rank % 2 == 0 ? 6 : 4), "sum " + std::to_string(sum));
    }
    // Equal keys keep the old order; a negative colour takes no part.
    shunt_comm* out = nullptr;
    ExpectOk(shunt_split(rank.comm, rank.rank == 2 ? -1 : 7, 0, 0, &out));
    if (rank.rank == 2) {
      Expect(out == nullptr, "a communicator for a negative colour");
      return;
    }
    const TestComm rest(out);
    Expect(rest.world() == 4 && rest.rank() == rank.rank - (rank.rank > 2 ? 1 : 0), "wrong place");
    ExpectOk(shunt_barrier(rest, nullptr, nullptr));
  }));
}

TEST_CASE("splits of splits, with names as long as they can be") {
  const std::string name(128, 'n');
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(4, [&](int r) {
    const TestSession session(Daemon().socket());
    const TestComm comm(session, name, r, 4);
    shunt_comm* half = nullptr;
    ExpectOk(shunt_split(comm, r / 2, 0, 0, &half));
    const TestComm first(half);
    shunt_comm* quarter = nullptr;
    ExpectOk(shunt_split(half, r % 2, 0, 0, &quarter));
    const TestComm second(quarter);
    Expect(first.world() == 2 && second.world() == 1, "wrong sizes");
    ExpectOk(shunt_barrier(comm, nullptr, nullptr));
  }));
}

TEST_CASE("two communicators interleaved, in different orders on different ranks") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [](const Rank& rank) {
    const TestComm other(rank.session, "interleaved", rank.rank, 2);
    auto* a = Allocate<int32_t>(rank.session, 20000);
    auto* b = Allocate<int32_t>(rank.session, 20000);
    for (int i = 0; i < 50; ++i) {
      a[19999] = 1;
      b[19999] = 2;
      shunt_op* ops[2] = {};
      const int first = (i + rank.rank) % 2;
      for (const int which : {first, 1 - first}) {
        ExpectOk(Sum(which == 0 ? rank.comm : other.get(), which == 0 ? a : b, 20000, &ops[which]));
      }
      for (shunt_op* op : ops) {
        ExpectOk(shunt_op_wait(op, 0));
        shunt_op_release(op);
      }
      Expect(a[19999] == 2 && b[19999] == 4, "wrong sums");
    }
  }));
}

TEST_CASE("threads of one process on communicators of one session") {
  constexpr int kThreads = 4;
  const std::string name = FreshName();
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const TestSession session(Daemon().socket());
    RunThreads(kThreads, [&](int t) {
      const TestComm comm(session, name + "-" + std::to_string(t), r, 2);
      auto* data = Allocate<int32_t>(session, 9000);
      std::vector<int32_t> heap(9000);
      for (int i = 0; i < 30; ++i) {
        int32_t* const values = i % 2 == 0 ? data : heap.data();
        std::fill(values, values + 9000, t + i);
        ExpectOk(Sum(comm, values, i % 3 == 0 ? 1 : 9000));
        Expect(values[0] == 2 * (t + i), "wrong sum");
      }
      ExpectOk(shunt_free(session, data));
    });
  }));
}

TEST_CASE("threads share one communicator for sends and receives with different peers") {
  constexpr int kWorld = 3;
  REQUIRE_NOTHROW(RunRanks(Daemon(), kWorld, [](const Rank& rank) {
    RunThreads(kWorld, [&](int peer) {
      if (peer == rank.rank) return;
      for (int i = 0; i < 40; ++i) {
        std::vector<int32_t> out(i % 2 == 0 ? 10 : 5000, rank.rank * 100 + i);
        std::vector<int32_t> in(out.size());
        const auto send = [&] {
          ExpectOk(
              shunt_send(rank.comm, out.data(), out.size(), SHUNT_INT32, peer, nullptr, nullptr));
        };
        if (rank.rank < peer) send();
        ExpectOk(shunt_recv(rank.comm, in.data(), in.size(), SHUNT_INT32, peer, nullptr, nullptr));
        if (rank.rank > peer) send();
        Expect(in.front() == peer * 100 + i && in.back() == peer * 100 + i, "wrong data");
      }
    });
    ExpectOk(shunt_barrier(rank.comm, nullptr, nullptr));
  }));
}

// ---- Handles

TEST_CASE("several operations in flight take effect in the order of their calls") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 3, [](const Rank& rank) {
    constexpr int kDepth = 12;
    constexpr uint64_t kCount = 6000;
    auto* data = Allocate<int32_t>(rank.session, kDepth * kCount);
    std::vector<int32_t> heap(kDepth * kCount);
    for (int32_t* base : {data, heap.data()}) {
      for (int round = 0; round < 5; ++round) {
        std::vector<shunt_op*> ops(kDepth);
        for (int i = 0; i < kDepth; ++i) {
          int32_t* at = base + static_cast<size_t>(i) * kCount;
          std::fill(at, at + kCount, i + rank.rank);
          ExpectOk(Sum(rank.comm, at, kCount, &ops[static_cast<size_t>(i)]));
        }
        // A blocking call behind them.
        int32_t one = 1;
        ExpectOk(Sum(rank.comm, &one, 1));
        Expect(one == 3, "wrong sum behind");
        for (int i = kDepth - 1; i >= 0; --i) {
          ExpectOk(shunt_op_wait(ops[static_cast<size_t>(i)], 0));
          shunt_op_release(ops[static_cast<size_t>(i)]);
          const int32_t* at = base + static_cast<size_t>(i) * kCount;
          Expect(at[0] == 3 * i + 3 && at[kCount - 1] == 3 * i + 3,
                 "wrong sum of operation " + std::to_string(i));
        }
      }
    }
  }));
}

TEST_CASE("a handle can be polled, waited on with a deadline, and released unwaited") {
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    for (const bool region : {true, false}) {
      std::vector<int32_t> heap(30000, 1);
      int32_t* data = region ? Allocate<int32_t>(rank.session, 30000) : heap.data();
      data[0] = 1;
      shunt_op* op = nullptr;
      if (rank.rank == 0) {
        ExpectOk(Sum(rank.comm, data, 30000, &op));
        int done = 1;
        ExpectOk(shunt_op_poll(op, &done));
        Expect(done == 0, "done without the other rank");
        ExpectCode(shunt_op_wait(op, 20'000'000), SHUNT_DEADLINE_EXCEEDED, {"still running"});
      }
      meeting.Wait();
      if (rank.rank == 1) ExpectOk(Sum(rank.comm, data, 30000, &op));
      int done = 0;
      const auto give_up = Clock::now() + 20s;
      while (done == 0 && Clock::now() < give_up) ExpectOk(shunt_op_poll(op, &done));
      Expect(done == 1 && data[0] == 2, "not done, or wrong");
      ExpectOk(shunt_op_wait(op, 1));
      shunt_op_release(op);

      // Released at once: that waits.
      ExpectOk(Sum(rank.comm, data, 30000, &op));
      shunt_op_release(op);
      Expect(data[0] == 4, "released before its end");
    }
  }));
}

bool Readable(int fd, std::chrono::milliseconds timeout) {
  pollfd poll{fd, POLLIN, 0};
  return ::poll(&poll, 1, static_cast<int>(timeout.count())) == 1;
}

TEST_CASE("a handle's descriptor becomes readable when the operation has ended") {
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    auto* data = Allocate<int32_t>(rank.session, 30000);
    for (int round = 0; round < 20; ++round) {
      shunt_op* op = nullptr;
      if (rank.rank == 0) {
        data[0] = 1;
        ExpectOk(Sum(rank.comm, data, 30000, &op));
        int fd = -1;
        ExpectOk(shunt_op_fd(op, &fd));
        int again = -1;
        ExpectOk(shunt_op_fd(op, &again));
        Expect(fd >= 0 && again == fd, "two descriptors");
        Expect(!Readable(fd, 0ms), "readable before the end");
        meeting.Wait();
        Expect(Readable(fd, 20s), "never readable");
        int done = 0;
        ExpectOk(shunt_op_poll(op, &done));
        Expect(done == 1, "readable, but not done");
      } else {
        data[0] = 2;
        meeting.Wait();
        // Blocking and asynchronous partners by turns.
        ExpectOk(Sum(rank.comm, data, 30000, round % 2 == 0 ? &op : nullptr));
        if (op != nullptr) ExpectOk(shunt_op_wait(op, 0));
      }
      Expect(data[0] == 3, "wrong sum");
      shunt_op_release(op);
      meeting.Wait();
    }
  }));
}

TEST_CASE("the descriptor of an operation that has ended is readable, that of a failed one too") {
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    auto* data = Allocate<int32_t>(rank.session, 30000);
    shunt_op* op = nullptr;
    ExpectOk(Sum(rank.comm, data, 30000, &op));
    ExpectOk(shunt_op_wait(op, 0));
    int fd = -1;
    ExpectOk(shunt_op_fd(op, &fd));
    Expect(Readable(fd, 0ms), "not readable");
    shunt_op_release(op);
    meeting.Wait();
    if (rank.rank == 0) {
      ExpectOk(Sum(rank.comm, data, 30000, &op));
      ExpectOk(shunt_op_fd(op, &fd));
    }
    meeting.Wait();
    if (rank.rank == 1) ExpectOk(shunt_abort(rank.comm, "enough"));
    if (rank.rank == 0) {
      Expect(Readable(fd, 20s), "never readable");
      int done = 0;
      ExpectCode(shunt_op_poll(op, &done), SHUNT_ABORTED, {"enough"});
      Expect(done == 1, "not done");
      shunt_op_release(op);
    }
  }));
}

TEST_CASE("a failure that a rank finds makes the descriptors of other calls readable") {
  Meeting meeting(3);
  REQUIRE_NOTHROW(RunRanks(Daemon(), 3, [&](const Rank& rank) {
    auto* data = Allocate<int32_t>(rank.session, 30000);
    shunt_op* op = nullptr;
    int fd = -1;
    if (rank.rank == 0) {
      ExpectOk(shunt_recv(rank.comm, data, 30000, SHUNT_INT32, 1, nullptr, &op));
      ExpectOk(shunt_op_fd(op, &fd));
    }
    meeting.Wait();
    if (rank.rank == 1) {
      ExpectCode(shunt_send(rank.comm, data, 8, SHUNT_INT32, 2, nullptr, nullptr),
                 SHUNT_FAILED_PRECONDITION, {"count 8", "count 9"});
    } else if (rank.rank == 2) {
      ExpectCode(shunt_recv(rank.comm, data, 9, SHUNT_INT32, 1, nullptr, nullptr),
                 SHUNT_FAILED_PRECONDITION, {"count 8", "count 9"});
    } else {
      Expect(Readable(fd, 20s), "never readable");
      ExpectCode(shunt_op_wait(op, 0), SHUNT_FAILED_PRECONDITION, {"count 8", "count 9"});
      shunt_op_release(op);
    }
    meeting.Wait();
  }));
}

TEST_CASE("an operation on memory outside regions has no descriptor") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [](const Rank& rank) {
    std::vector<int32_t> heap(30000, 1);
    shunt_op* op = nullptr;
    if (rank.rank == 0) {
      ExpectOk(Sum(rank.comm, heap.data(), heap.size(), &op));
      int fd = 0;
      ExpectCode(shunt_op_fd(op, &fd), SHUNT_FAILED_PRECONDITION, {"shunt_op_poll"});
      Expect(fd == -1, "a descriptor");
      ExpectOk(shunt_op_wait(op, 0));
    } else {
      ExpectOk(Sum(rank.comm, heap.data(), heap.size()));
    }
    shunt_op_release(op);
  }));
}

// ---- Groups

TEST_CASE("a group of sends and receives does not deadlock") {
  for (const size_t count : {4, 3000, 200000}) {
    for (const bool region : {true, false}) {
      CAPTURE(count, region);
      REQUIRE_NOTHROW(RunRanks(Daemon(), 3, [&](const Rank& rank) {
        std::vector<int32_t> heap(6 * count);
        int32_t* data = region ? Allocate<int32_t>(rank.session, 6 * count) : heap.data();
        for (int round = 0; round < 3; ++round) {
          ExpectOk(shunt_group_begin(rank.comm));
          for (int peer = 0; peer < 3; ++peer) {
            int32_t* out = data + static_cast<size_t>(peer) * count;
            std::fill(out, out + count, rank.rank * 10 + peer);
            ExpectOk(shunt_send(rank.comm, out, count, SHUNT_INT32, peer, nullptr, nullptr));
          }
          for (int peer = 0; peer < 3; ++peer) {
            ExpectOk(shunt_recv(rank.comm, data + static_cast<size_t>(3 + peer) * count, count,
                                SHUNT_INT32, peer, nullptr, nullptr));
          }
          shunt_op* op = nullptr;
          ExpectOk(shunt_group_end(rank.comm, round == 1 ? &op : nullptr));
          if (op != nullptr) ExpectOk(shunt_op_wait(op, 0));
          shunt_op_release(op);
          for (int peer = 0; peer < 3; ++peer) {
            const int32_t* in = data + static_cast<size_t>(3 + peer) * count;
            Expect(in[0] == peer * 10 + rank.rank && in[count - 1] == in[0],
                   "wrong data from " + std::to_string(peer));
          }
          std::fill(data + 3 * count, data + 6 * count, -1);
        }
      }));
    }
  }
}

TEST_CASE("one handle and one descriptor for a group") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [](const Rank& rank) {
    auto* data = Allocate<int32_t>(rank.session, 90000);
    std::fill(data, data + 90000, 1);
    ExpectOk(shunt_group_begin(rank.comm));
    for (int i = 0; i < 3; ++i) ExpectOk(Sum(rank.comm, data + i * 30000, 30000));
    shunt_op* op = nullptr;
    ExpectOk(shunt_group_end(rank.comm, &op));
    int fd = -1;
    ExpectOk(shunt_op_fd(op, &fd));
    // Readable may come once for each call: poll tells which.
    int done = 0;
    while (done == 0) {
      Expect(Readable(fd, 20s), "never readable");
      ExpectOk(shunt_op_poll(op, &done));
    }
    Expect(data[0] == 2 && data[89999] == 2, "wrong sums");
    shunt_op_release(op);
  }));
}

TEST_CASE("a refused call takes the whole group with it, and misuse is named") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [](const Rank& rank) {
    int32_t value = 1;
    ExpectOk(shunt_group_begin(rank.comm));
    ExpectCode(shunt_group_begin(rank.comm), SHUNT_FAILED_PRECONDITION, {"open"});
    ExpectOk(Sum(rank.comm, &value, 1));
    ExpectCode(shunt_send(rank.comm, &value, 1, SHUNT_INT32, 9, nullptr, nullptr),
               SHUNT_INVALID_ARGUMENT, {"peer 9"});
    shunt_op* op = nullptr;
    ExpectCode(Sum(rank.comm, &value, 1, &op), SHUNT_INVALID_ARGUMENT, {"shunt_group_end"});
    shunt_comm* split = nullptr;
    ExpectCode(shunt_split(rank.comm, 0, 0, 0, &split), SHUNT_FAILED_PRECONDITION, {"group"});
    ExpectCode(shunt_group_end(rank.comm, nullptr), SHUNT_INVALID_ARGUMENT, {"nothing", "peer 9"});
    ExpectCode(shunt_group_end(rank.comm, nullptr), SHUNT_FAILED_PRECONDITION, {"no group"});
    Expect(value == 1, "a call of the refused group ran");
    ExpectOk(shunt_group_begin(rank.comm));
    ExpectOk(shunt_group_end(rank.comm, nullptr));
    ExpectOk(shunt_barrier(rank.comm, nullptr, nullptr));
  }));
}

// ---- Arguments

TEST_CASE("bad arguments are refused before anything is posted") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [](const Rank& rank) {
    int32_t a[8] = {}, b[8] = {};
    shunt_comm* const c = rank.comm;
    const auto all_reduce = [&](const void* in, void* out, uint64_t n, int dtype, int redop,
                                const shunt_call* call) {
      return shunt_all_reduce(c, in, out, n, static_cast<shunt_dtype>(dtype),
                              static_cast<shunt_redop>(redop), call, nullptr);
    };
    ExpectCode(shunt_barrier(nullptr, nullptr, nullptr), SHUNT_INVALID_ARGUMENT, {"comm is null"});
    ExpectCode(all_reduce(a, b, 1, 12, 0, nullptr), SHUNT_INVALID_ARGUMENT, {"data type"});
    ExpectCode(all_reduce(a, b, 1, -1, 0, nullptr), SHUNT_INVALID_ARGUMENT, {"data type"});
    ExpectCode(all_reduce(a, b, 1, 256 + SHUNT_INT32, 0, nullptr), SHUNT_INVALID_ARGUMENT,
               {"data type"});
    ExpectCode(all_reduce(a, b, 1, SHUNT_INT32, 6, nullptr), SHUNT_INVALID_ARGUMENT, {"reduction"});
    ExpectCode(all_reduce(nullptr, b, 1, SHUNT_INT32, 0, nullptr), SHUNT_INVALID_ARGUMENT,
               {"'in' is null"});
    ExpectCode(all_reduce(a, b, UINT64_MAX / 2, SHUNT_INT32, 0, nullptr), SHUNT_INVALID_ARGUMENT,
               {"count"});
    ExpectCode(all_reduce(reinterpret_cast<char*>(a) + 1, b, 1, SHUNT_INT32, 0, nullptr),
               SHUNT_INVALID_ARGUMENT, {"aligned"});
    ExpectCode(all_reduce(a, a + 1, 4, SHUNT_INT32, 0, nullptr), SHUNT_INVALID_ARGUMENT,
               {"overlap"});
    ExpectCode(all_reduce(a, b, 1, SHUNT_INT32, SHUNT_PREMUL_SUM, nullptr), SHUNT_INVALID_ARGUMENT,
               {"scalar"});
    shunt_call call = WithTimeout(-1ns);
    ExpectCode(all_reduce(a, b, 1, SHUNT_INT32, 0, &call), SHUNT_INVALID_ARGUMENT,
               {"timeout_ns is -1"});
    call = WithTimeout(1s);
    call.struct_size = 4;
    ExpectCode(all_reduce(a, b, 1, SHUNT_INT32, 0, &call), SHUNT_INVALID_ARGUMENT, {"struct_size"});
    struct Newer {
      shunt_call call;
      uint64_t more;
    } newer{WithTimeout(10s), 0};
    newer.call.struct_size = sizeof(newer);
    ExpectOk(all_reduce(a, b, 1, SHUNT_INT32, 0, &newer.call));
    newer.more = 1;
    ExpectCode(all_reduce(a, b, 1, SHUNT_INT32, 0, &newer.call), SHUNT_UNIMPLEMENTED,
               {"shunt_call"});
    ExpectCode(shunt_broadcast(c, a, b, 1, SHUNT_INT32, 2, nullptr, nullptr),
               SHUNT_INVALID_ARGUMENT, {"root 2"});
    ExpectCode(shunt_op_wait(nullptr, 0), SHUNT_INVALID_ARGUMENT, {"op is null"});
    ExpectOk(shunt_barrier(c, nullptr, nullptr));
  }));
}

}  // namespace
}  // namespace shunt::testing
