// Ranks and daemons that are absent, stopped, killed or gone; and requests that cannot be granted.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/harness.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

// A word that parent and children share, to wait for each other.
class SharedFlag {
 public:
  SharedFlag()
      : word_(static_cast<std::atomic<int>*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedFlag() { ::munmap(word_, 4096); }
  void Set(int value = 1) { *word_ = value; }
  void WaitFor(int value = 1) const {
    const auto give_up = Clock::now() + 30s;
    while (*word_ != value) {
      if (Clock::now() > give_up) throw Wrong("nobody set the flag");
      std::this_thread::yield();
    }
  }

 private:
  std::atomic<int>* word_;
};

int AllReduce(shunt_comm* comm, void* data, uint64_t count, const shunt_call* call = nullptr,
              shunt_op** op = nullptr) {
  return shunt_all_reduce(comm, data, data, count, SHUNT_FLOAT32, SHUNT_SUM, call, op);
}

TEST_CASE("an absent rank is named at the deadline, with its last call") {
  for (const bool async : {false, true}) {
    for (const uint64_t count : {2, 100000}) {
      CAPTURE(async, count);
      Meeting over(3);
      REQUIRE_NOTHROW(RunRanks(Daemon(), 3, [&](const Rank& rank) {
        void* data = nullptr;
        ExpectOk(shunt_alloc(rank.session, count * 4, &data));
        ExpectOk(shunt_barrier(rank.comm, nullptr, nullptr));
        if (rank.rank == 1) {
          // Stays away, and is told when it comes too late.
          over.Wait();
          ExpectCode(AllReduce(rank.comm, data, count), SHUNT_DEADLINE_EXCEEDED,
                     {"rank 1", "all_reduce #2"});
          return;
        }
        const shunt_call call = WithTimeout(200ms);
        const auto begin = Clock::now();
        shunt_op* op = nullptr;
        int code = AllReduce(rank.comm, data, count, &call, async ? &op : nullptr);
        if (op != nullptr) code = shunt_op_wait(op, SHUNT_FOREVER);
        const std::string words = shunt_last_error();
        shunt_op_release(op);
        over.Wait();
        Expect(code == SHUNT_DEADLINE_EXCEEDED, words);
        for (const char* part : {"rank 1 (pid", "barrier #1", "all_reduce #2"}) {
          Expect(words.find(part) != std::string::npos, words);
        }
        const auto took = Clock::now() - begin;
        Expect(took > 150ms && took < 5s, "the deadline was not kept");
      }));
    }
  }
}

TEST_CASE("an asynchronous call that nobody looks at ends at its deadline too") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    void* data = nullptr;
    ExpectOk(shunt_alloc(rank.session, 1 << 20, &data));
    if (rank.rank == 0) {
      const shunt_call call = WithTimeout(100ms);
      shunt_op* op = nullptr;
      ExpectOk(AllReduce(rank.comm, data, 1000, &call, &op));
      // Rank 1 hears of it although this thread does nothing until then.
      ExpectCode(shunt_recv(rank.comm, data, 1, SHUNT_FLOAT32, 1, nullptr, nullptr),
                 SHUNT_DEADLINE_EXCEEDED, {"rank 1", "all_reduce #1"});
      shunt_op_release(op);
    } else {
      ExpectCode(shunt_recv(rank.comm, data, 1, SHUNT_FLOAT32, 0, nullptr, nullptr),
                 SHUNT_DEADLINE_EXCEEDED, {"rank 1", "all_reduce #1"});
    }
  }));
}

// Rank 1 is a process that does `body` when all have joined; rank 0 waits for it meanwhile.
void AgainstProcess(const std::string& socket,
                    const std::function<void(shunt_session*, shunt_comm*)>& body,
                    const std::function<void(Process&, shunt_session*, shunt_comm*)>& rank0) {
  const std::string name = FreshName();
  Process process = Process::Fork([&] {
    const TestSession session(socket, "victim");
    const TestComm comm(session, name, 1, 2);
    body(session, comm);
  });
  const TestSession session(socket, "waiter");
  const TestComm comm(session, name, 0, 2);
  rank0(process, session, comm);
}

TEST_CASE("a killed rank is named at once") {
  for (const uint64_t count : {2, 300000}) {
    for (const bool async : {false, true}) {
      CAPTURE(count, async);
      SharedFlag waiting;
      AgainstProcess(
          Daemon().socket(), [](shunt_session*, shunt_comm*) { ::pause(); },
          [&](Process& victim, shunt_session* session, shunt_comm* comm) {
            const pid_t pid = victim.pid();
            void* data = nullptr;
            REQUIRE(shunt_alloc(session, count * 4, &data) == SHUNT_OK);
            Clock::time_point killed;
            std::thread killer([&] {
              waiting.WaitFor();
              killed = Clock::now();
              victim.Signal(SIGKILL);
            });
            shunt_op* op = nullptr;
            if (!async) waiting.Set();
            int code = AllReduce(comm, data, count, nullptr, async ? &op : nullptr);
            if (async) waiting.Set();
            if (async && code == SHUNT_OK) code = shunt_op_wait(op, SHUNT_FOREVER);
            const auto ended = Clock::now();
            const std::string words = shunt_last_error();
            shunt_op_release(op);
            killer.join();
            CHECK(code == SHUNT_UNAVAILABLE);
            CHECK_THAT(words, Catch::Contains("rank 1 (pid " + std::to_string(pid) + ")"));
            CHECK(ended - killed < 2s);
          });
    }
  }
}

TEST_CASE("a rank that leaves, or closes its session, is named") {
  for (const bool close : {false, true}) {
    const std::string name = FreshName();
    Meeting called(2);
    Daemon();  // started by this thread, whose end would be its own
    REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
      TestSession session(Daemon().socket());
      TestComm comm(session, name, r, 2);
      shunt_op* op = nullptr;
      if (r == 0) ExpectOk(shunt_barrier(comm, nullptr, &op));
      called.Wait();
      if (r == 1) {
        if (close) {
          const TestSession gone = std::move(session);
        } else {
          const TestComm gone = std::move(comm);
        }
        return;
      }
      ExpectCode(shunt_op_wait(op, 0), SHUNT_UNAVAILABLE, {"rank 1", "left"});
      shunt_op_release(op);
    }));
  }
}

TEST_CASE("a stopped rank is named at the deadline and keeps its session") {
  const std::string later = FreshName();
  SharedFlag release;
  AgainstProcess(
      Daemon().socket(),
      [&](shunt_session* session, shunt_comm* comm) {
        release.WaitFor();
        ExpectCode(shunt_barrier(comm, nullptr, nullptr), SHUNT_DEADLINE_EXCEEDED, {"rank 1"});
        const TestComm again(session, later, 1, 2);
        ExpectOk(shunt_barrier(again, nullptr, nullptr));
      },
      [&](Process& victim, shunt_session* session, shunt_comm* comm) {
        victim.Signal(SIGSTOP);
        const shunt_call call = WithTimeout(300ms);
        const int code = shunt_barrier(comm, &call, nullptr);
        const std::string words = shunt_last_error();
        release.Set();
        victim.Signal(SIGCONT);
        CHECK(code == SHUNT_DEADLINE_EXCEEDED);
        CHECK_THAT(words, Catch::Contains("rank 1 (pid " + std::to_string(victim.pid()) + ")"));
        const TestComm again(session, later, 0, 2);
        CHECK(shunt_barrier(again, nullptr, nullptr) == SHUNT_OK);
        REQUIRE_NOTHROW(victim.Join());
      });
}

TEST_CASE("abort ends what runs on every rank, with its reason") {
  Meeting meeting(3);
  REQUIRE_NOTHROW(RunRanks(Daemon(), 3, [&](const Rank& rank) {
    void* data = nullptr;
    ExpectOk(shunt_alloc(rank.session, 1 << 20, &data));
    shunt_op* op = nullptr;
    if (rank.rank == 0) ExpectOk(AllReduce(rank.comm, data, 100000, nullptr, &op));
    meeting.Wait();
    if (rank.rank == 1) {
      ExpectOk(shunt_abort(rank.comm, "loss is NaN"));
    } else {
      const int code = rank.rank == 0 ? shunt_op_wait(op, 0) : AllReduce(rank.comm, data, 100000);
      // Rank 2 may come before the abort or after it.
      if (rank.rank == 0 || code == SHUNT_ABORTED) {
        ExpectCode(code, SHUNT_ABORTED, {"rank 1", "loss is NaN"});
      } else {
        ExpectCode(code, SHUNT_ABORTED, {"loss is NaN"});
      }
    }
    shunt_op_release(op);
    ExpectCode(shunt_barrier(rank.comm, nullptr, nullptr), SHUNT_ABORTED,
               {"rank 1", "loss is NaN"});
  }));
}

TEST_CASE("the daemon is killed: everything that waits ends at once with UNAVAILABLE") {
  for (const bool async : {false, true}) {
    CAPTURE(async);
    TestDaemon daemon;
    std::atomic<int> waiting{0};
    std::thread killer([&] {
      while (waiting < 3) std::this_thread::yield();
      daemon.Kill();
    });
    Daemon();  // started by this thread, whose end would be its own
    REQUIRE_NOTHROW(RunThreads(3, [&](int r) {
      const TestSession session(daemon.socket());
      void* data = session.Allocate(4096);
      if (r == 2) {
        // A join that waits for its ranks.
        shunt_join_options options{};
        options.struct_size = sizeof(options);
        options.name = "lonely";
        options.world_size = 2;
        shunt_comm* comm = nullptr;
        ++waiting;
        ExpectCode(shunt_join(session, &options, &comm), SHUNT_UNAVAILABLE);
        return;
      }
      const TestComm comm(session, "pair", r, 2);
      ++waiting;
      const auto begin = Clock::now();
      shunt_op* op = nullptr;
      int code = shunt_recv(comm, data, 8, SHUNT_INT8, 1 - r, nullptr, async ? &op : nullptr);
      if (code == SHUNT_OK) code = shunt_op_wait(op, SHUNT_FOREVER);
      ExpectCode(code, SHUNT_UNAVAILABLE);
      shunt_op_release(op);
      Expect(Clock::now() - begin < 5s, "it took too long");
      void* more = nullptr;
      ExpectCode(shunt_alloc(session, 4096, &more), SHUNT_UNAVAILABLE);
      // Memory stays where it is.
      static_cast<char*>(data)[0] = 1;
    }));
    killer.join();
  }
}

TEST_CASE("a forked child gets a clear error, and may open its own session") {
  const std::string socket = Daemon().socket();
  const std::string name = FreshName();
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const TestSession session(socket);
    const TestComm comm(session, name, r, 2);
    void* data = session.Allocate(4096);
    static_cast<int*>(data)[0] = 42;
    if (r == 0) {
      Process child = Process::Fork([&] {
        const std::vector<std::string> words{"belongs to process", "must open its own"};
        ExpectCode(shunt_barrier(comm, nullptr, nullptr), SHUNT_FAILED_PRECONDITION, words);
        void* more = nullptr;
        ExpectCode(shunt_alloc(session, 4096, &more), SHUNT_FAILED_PRECONDITION, words);
        ExpectCode(shunt_free(session, data), SHUNT_FAILED_PRECONDITION, words);
        ExpectCode(shunt_group_begin(comm), SHUNT_FAILED_PRECONDITION, words);
        ExpectCode(shunt_abort(comm, "no"), SHUNT_FAILED_PRECONDITION, words);
        Expect(static_cast<int*>(data)[0] == 42, "the region is not there to read");
        const TestSession own(socket, "child");
        const TestComm alone(own, FreshName(), 0, 1);
        ExpectOk(shunt_barrier(alone, nullptr, nullptr));
        // What a child's exit handlers do.
        shunt_leave(comm);
        shunt_close(session);
      });
      child.Join();
    }
    ExpectOk(shunt_barrier(comm, nullptr, nullptr));
  }));
}

TEST_CASE("a forked child does not keep its parent's lease alive") {
  SharedFlag forked;
  AgainstProcess(
      Daemon().socket(),
      [&](shunt_session*, shunt_comm*) {
        Process grandchild = Process::Fork([&] {
          ::signal(SIGTERM, SIG_DFL);
          ::pause();
        });
        forked.Set(grandchild.pid());
        ::pause();
      },
      [&](Process& victim, shunt_session*, shunt_comm* comm) {
        shunt_op* op = nullptr;
        REQUIRE(shunt_barrier(comm, nullptr, &op) == SHUNT_OK);
        const auto begin = Clock::now();
        victim.Signal(SIGKILL);
        const int code = shunt_op_wait(op, SHUNT_FOREVER);
        shunt_op_release(op);
        CHECK(code == SHUNT_UNAVAILABLE);
        CHECK(Clock::now() - begin < 5s);
      });
}

TEST_CASE("a region in use is not freed") {
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    void* data = nullptr;
    ExpectOk(shunt_alloc(rank.session, 1 << 20, &data));
    shunt_op* op = nullptr;
    if (rank.rank == 0) {
      ExpectOk(AllReduce(rank.comm, data, 100000, nullptr, &op));
      ExpectCode(shunt_free(rank.session, data), SHUNT_FAILED_PRECONDITION,
                 {"in use", "all_reduce #1"});
    }
    meeting.Wait();
    if (rank.rank == 1) ExpectOk(AllReduce(rank.comm, data, 100000));
    if (rank.rank == 0) ExpectOk(shunt_op_wait(op, 0));
    shunt_op_release(op);
    meeting.Wait();
    ExpectOk(shunt_free(rank.session, data));
    ExpectCode(shunt_free(rank.session, data), SHUNT_NOT_FOUND);
  }));
}

TEST_CASE("regions come and go between operations") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 3, [&](const Rank& rank) {
    for (int i = 0; i < 40; ++i) {
      constexpr uint64_t kCount = 30000;
      void* data = nullptr;
      ExpectOk(shunt_alloc(rank.session, kCount * 4, &data));
      auto* values = static_cast<float*>(data);
      std::fill(values, values + kCount, static_cast<float>(rank.rank + i));
      ExpectOk(AllReduce(rank.comm, data, kCount));
      Expect(values[kCount - 1] == static_cast<float>(3 + 3 * i),
             "wrong sum in round " + std::to_string(i));
      ExpectOk(shunt_free(rank.session, data));
    }
  }));
}

TEST_CASE("clients that do not collect their completions harm nobody else") {
  std::atomic<bool> others_done{false};
  REQUIRE_NOTHROW(RunRanks(Daemon(), 4, [&](const Rank& rank) {
    shunt_comm* half = nullptr;
    ExpectOk(shunt_split(rank.comm, rank.rank / 2, 0, 0, &half));
    const TestComm comm(half);
    void* data = nullptr;
    ExpectOk(shunt_alloc(rank.session, 1 << 20, &data));
    if (rank.rank / 2 == 1) {
      for (int i = 0; i < 200; ++i) {
        shunt_op* op = nullptr;
        ExpectOk(AllReduce(comm, data, 5000, nullptr, i % 2 == 0 ? &op : nullptr));
        if (op != nullptr) ExpectOk(shunt_op_wait(op, 0));
        shunt_op_release(op);
      }
      others_done = true;
      return;
    }
    // More than the rings have entries.
    std::vector<shunt_op*> ops(400);
    for (shunt_op*& op : ops) ExpectOk(AllReduce(comm, data, 5000, nullptr, &op));
    while (!others_done) std::this_thread::yield();
    for (shunt_op* op : ops) {
      ExpectOk(shunt_op_wait(op, 0));
      shunt_op_release(op);
    }
  }));
}

TEST_CASE("more calls in flight than there is room for end with an error, not in a hang") {
  REQUIRE_NOTHROW(RunRanks(Daemon(), 2, [&](const Rank& rank) {
    void* data = nullptr;
    ExpectOk(shunt_alloc(rank.session, 1 << 20, &data));
    if (rank.rank == 1) {
      ExpectCode(shunt_recv(rank.comm, data, 1, SHUNT_INT8, 0, nullptr, nullptr),
                 SHUNT_DEADLINE_EXCEEDED, {"rank 1"});
      return;
    }
    const shunt_call call = WithTimeout(500ms);
    int code = SHUNT_OK;
    std::vector<shunt_op*> ops;
    for (int i = 0; code == SHUNT_OK && i < 2000; ++i) {
      shunt_op* op = nullptr;
      code = AllReduce(rank.comm, data, 100, &call, &op);
      ops.push_back(op);
    }
    Expect(code == SHUNT_DEADLINE_EXCEEDED || code == SHUNT_RESOURCE_EXHAUSTED ||
               code == SHUNT_FAILED_PRECONDITION,
           shunt_code_name(code));
    for (shunt_op* op : ops) shunt_op_release(op);
  }));
}

TEST_CASE("a call that waits for room ends when the daemon is killed") {
  TestDaemon daemon;
  const TestSession session(daemon.socket());
  const TestComm comm(session, "full", 0, 1);
  void* data = session.Allocate(4096);
  // As many sends as a pair may have in flight, here to the rank itself.
  std::vector<shunt_op*> ops(4);
  for (shunt_op*& op : ops) {
    REQUIRE(shunt_send(comm, data, 1, SHUNT_INT8, 0, nullptr, &op) == SHUNT_OK);
  }
  std::thread killer([&] { daemon.Kill(); });
  CHECK(shunt_send(comm, data, 1, SHUNT_INT8, 0, nullptr, nullptr) == SHUNT_UNAVAILABLE);
  CHECK_THAT(shunt_last_error(), Catch::Contains("the daemon is gone"));
  killer.join();
  for (shunt_op* op : ops) shunt_op_release(op);
}

// ---- Requests that cannot be granted

int Join(shunt_session* session, const char* name, int rank, int world,
         std::chrono::nanoseconds timeout, const char* job = nullptr) {
  shunt_join_options options{};
  options.struct_size = sizeof(options);
  options.name = name;
  options.job = job;
  options.rank = rank;
  options.world_size = world;
  options.timeout_ns = timeout.count();
  shunt_comm* comm = nullptr;
  const int code = shunt_join(session, &options, &comm);
  shunt_leave(comm);
  return code;
}

TEST_CASE("joins that make no sense are refused with the value and what is expected") {
  const TestSession s(Daemon().socket());
  REQUIRE_NOTHROW(
      ExpectCode(Join(s, "x", -1, 2, 1s), SHUNT_INVALID_ARGUMENT, {"rank -1", "0 to 1"}));
  REQUIRE_NOTHROW(ExpectCode(Join(s, "x", 2, 2, 1s), SHUNT_INVALID_ARGUMENT, {"rank 2"}));
  REQUIRE_NOTHROW(ExpectCode(Join(s, "x", 0, 0, 1s), SHUNT_INVALID_ARGUMENT, {"world size 0"}));
  REQUIRE_NOTHROW(ExpectCode(Join(s, "x", 0, 1000000, 1s), SHUNT_INVALID_ARGUMENT,
                             {"world size 1000000", "32767"}));
  REQUIRE_NOTHROW(ExpectCode(Join(s, "x", 0, 129, 1s), SHUNT_INVALID_ARGUMENT,
                             {"world size 129", "1 to 128 ranks on one node"}));
  REQUIRE_NOTHROW(ExpectCode(Join(s, "", 0, 1, 1s), SHUNT_INVALID_ARGUMENT, {"name"}));
  REQUIRE_NOTHROW(ExpectCode(Join(s, std::string(200, 'n').c_str(), 0, 1, 1s),
                             SHUNT_INVALID_ARGUMENT, {"200"}));
}

TEST_CASE("a join that waits in vain names the missing ranks") {
  const TestSession s(Daemon().socket());
  const std::string name = FreshName();
  const auto begin = Clock::now();
  REQUIRE_NOTHROW(ExpectCode(Join(s, name.c_str(), 1, 4, 100ms), SHUNT_DEADLINE_EXCEEDED,
                             {"0", "2", "3", name}));
  CHECK(Clock::now() - begin < 3s);
}

TEST_CASE("a rank that is taken and a differing world size are refused") {
  const std::string name = FreshName();
  Meeting meeting(2);
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const TestSession session(Daemon().socket());
    const TestComm comm(session, name, r, 2);
    meeting.Wait();
    const TestSession intruder(Daemon().socket());
    ExpectCode(Join(intruder, name.c_str(), r, 2, 1s), SHUNT_ALREADY_EXISTS,
               {"rank " + std::to_string(r)});
    meeting.Wait();
  }));
}

TEST_CASE("a join with another world size than the first one's is refused") {
  const std::string name = FreshName();
  std::atomic<int> refused{0};
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(2, [&](int r) {
    const TestSession session(Daemon().socket());
    // Whoever comes second is told.
    const int code = Join(session, name.c_str(), r, 3 + r, 1s);
    if (code == SHUNT_DEADLINE_EXCEEDED) return;
    ++refused;
    ExpectCode(code, SHUNT_FAILED_PRECONDITION, {"3", "4"});
  }));
  CHECK(refused == 1);
}

TEST_CASE("jobs with equal names for their communicators are kept apart") {
  const TestSession a(Daemon().socket());
  const TestSession b(Daemon().socket());
  const std::string name = FreshName();
  CHECK(Join(a, name.c_str(), 0, 1, 5s, "job-a") == SHUNT_OK);
  std::thread half([&] { (void)Join(a, name.c_str(), 0, 2, 500ms, "job-a"); });
  REQUIRE_NOTHROW(
      ExpectCode(Join(b, name.c_str(), 1, 2, 500ms, "job-b"), SHUNT_DEADLINE_EXCEEDED, {"0"}));
  half.join();
}

TEST_CASE("names that are no UTF-8 text are refused, and the session lives on") {
  const TestSession session(Daemon().socket());
  CHECK(Join(session, "caf\xe9", 0, 1, 1s) == SHUNT_INVALID_ARGUMENT);
  CHECK_THAT(shunt_last_error(), Catch::Contains("name is \"caf?\""));
  CHECK(Join(session, "name", 0, 1, 1s, "caf\xe9") == SHUNT_INVALID_ARGUMENT);
  CHECK_THAT(shunt_last_error(), Catch::Contains("job is"));
  CHECK(Join(session, "name", 0, 1, 1s) == SHUNT_OK);
  shunt_open_options options{};
  options.struct_size = sizeof(options);
  options.socket = Daemon().socket().c_str();
  options.name = "caf\xe9";
  shunt_session* other = nullptr;
  CHECK(shunt_open(&options, &other) == SHUNT_OK);
  shunt_close(other);
}

TEST_CASE("regions beyond the quota and of no size are refused") {
  TestDaemon daemon({"--memory-per-session", "4MiB"});
  const TestSession s(daemon.socket());
  void* data = nullptr;
  REQUIRE_NOTHROW(ExpectCode(shunt_alloc(s, 0, &data), SHUNT_INVALID_ARGUMENT, {"0 bytes"}));
  REQUIRE_NOTHROW(ExpectCode(shunt_alloc(s, SIZE_MAX, &data), SHUNT_INVALID_ARGUMENT));
  REQUIRE_NOTHROW(
      ExpectCode(shunt_alloc(s, size_t{1} << 50, &data), SHUNT_RESOURCE_EXHAUSTED, {"4194304"}));
  REQUIRE_NOTHROW(ExpectOk(shunt_alloc(s, 3 << 20, &data)));
  void* more = nullptr;
  REQUIRE_NOTHROW(ExpectCode(shunt_alloc(s, 3 << 20, &more), SHUNT_RESOURCE_EXHAUSTED));
  REQUIRE_NOTHROW(ExpectOk(shunt_free(s, data)));
  REQUIRE_NOTHROW(ExpectOk(shunt_alloc(s, 3 << 20, &more)));
}

TEST_CASE("a socket path that is too long, and one where nobody listens") {
  shunt_open_options options{};
  options.struct_size = sizeof(options);
  shunt_session* session = nullptr;
  const std::string path = "/tmp/" + std::string(120, 'x');
  options.socket = path.c_str();
  REQUIRE_NOTHROW(ExpectCode(shunt_open(&options, &session), SHUNT_INVALID_ARGUMENT,
                             {"125 bytes", "at most 101"}));
  options.socket = "/tmp/no-such-socket";
  REQUIRE_NOTHROW(ExpectCode(shunt_open(&options, &session), SHUNT_UNAVAILABLE,
                             {"no shuntd answers at /tmp/no-such-socket (",
                              "shuntd --socket /tmp/no-such-socket", "$SHUNT_SOCKET"}));
  options.struct_size = 3;
  REQUIRE_NOTHROW(
      ExpectCode(shunt_open(&options, &session), SHUNT_INVALID_ARGUMENT, {"struct_size"}));
  REQUIRE_NOTHROW(ExpectCode(shunt_open(nullptr, nullptr), SHUNT_INVALID_ARGUMENT));
}

}  // namespace
}  // namespace shunt::testing
