// How transfers end, and who hears of it: handles, descriptors, threads, children, deaths.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/transfer/world.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBlocks = 64;
constexpr uint64_t kBytes = 4096;

bool Readable(int fd, std::chrono::milliseconds timeout) {
  pollfd poll{fd, POLLIN, 0};
  return ::poll(&poll, 1, static_cast<int>(timeout.count())) == 1;
}

// Two agents on a daemon that can be stopped, so that what is posted stays in flight.
struct World {
  World() : kv(b.agent.Fetch(a.agent.name(), "kv")) { Pull(0).Wait(30s); }
  ~World() { daemon.Continue(); }
  Transfer Pull(uint32_t block, const TransferOptions& options = {.timeout = 30s}) {
    const std::vector<uint32_t> id{block};
    return b.agent.Pull(b.kv.Ids(id), kv.Ids(id), options);
  }
  struct Stoppable : TestDaemon {
    using TestDaemon::TestDaemon;
    // Returns when none of its threads runs any more.
    void Stop() const {
      ::kill(pid(), SIGSTOP);
      siginfo_t stopped;
      Expect(::waitid(P_PID, static_cast<id_t>(pid()), &stopped, WSTOPPED) == 0, "waitid");
    }
    void Continue() const {
      if (pid() > 0) ::kill(pid(), SIGCONT);
    }
  };
  Stoppable daemon;
  Cache a{daemon, "prefill", kBlocks, kBytes, 0x11};
  Cache b{daemon, "decode", kBlocks, kBytes, 0x22};
  List kv;
};

TEST_CASE("a transfer in flight is not done, keeps its memory, and ends when it can") {
  REQUIRE_NOTHROW([] {
    World w;
    w.daemon.Stop();
    Transfer pull = w.Pull(3);
    Expect(!pull.Done(), "done");
    ExpectError(SHUNT_DEADLINE_EXCEEDED, {"pull #", "20 ms", "still running"},
                [&] { pull.Wait(20ms); });
    ExpectError(SHUNT_FAILED_PRECONDITION, {"pull #", "has not ended"}, [&] { pull.Report(); });
    ExpectCode(shunt_free(w.b.session.get(), w.b.memory.data()), SHUNT_FAILED_PRECONDITION,
               {"region", "in use by pull #"});
    w.daemon.Continue();
    pull.Wait(30s);
    Expect(pull.Done(), "not done");
    ExpectMoved(w.b, {0, 3}, w.a, {0, 3});
  }());
}

TEST_CASE("a descriptor becomes readable at the end, whenever it is asked for") {
  REQUIRE_NOTHROW([] {
    World w;
    // Before the end: the daemon tells.
    const std::vector<shunt_run> whole{{0, kBlocks, 1}};
    for (int i = 0; i < 200; ++i) {
      Transfer pull = w.b.agent.Pull(w.b.kv.Runs(whole), w.kv.Runs(whole));
      const int fd = pull.Fd();
      Expect(fd == pull.Fd(), "two descriptors");
      Expect(Readable(fd, 30000ms), "not readable");
      pull.Wait(30s);
    }
    // After it.
    Transfer late = w.Pull(1);
    late.Wait(30s);
    Expect(Readable(late.Fd(), 0ms), "not readable after the end");
    // Of one that fails.
    const std::vector<uint32_t> outside{kBlocks};
    Transfer bad = w.b.agent.Pull(w.b.kv.Ids(outside), w.kv.Ids(outside));
    Expect(Readable(bad.Fd(), 30000ms), "not readable at a failure");
    ExpectError(SHUNT_OUT_OF_RANGE, {"64"}, [&] { bad.Wait(30s); });
    ExpectError(SHUNT_OUT_OF_RANGE, {"64"}, [&] { bad.Done(); });
    ExpectError(SHUNT_OUT_OF_RANGE, {"64"}, [&] { bad.Report(); });
  }());
}

TEST_CASE("as many as the ring holds are in flight, one more is refused, all end") {
  REQUIRE_NOTHROW([] {
    World w;
    w.daemon.Stop();
    std::vector<Transfer> transfers;
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {"1024 asynchronous operations and transfers", "wait"},
                [&] {
                  while (transfers.size() < 5000) {
                    transfers.push_back(w.Pull(static_cast<uint32_t>(transfers.size() % kBlocks)));
                  }
                });
    Expect(transfers.size() == 1024, std::to_string(transfers.size()) + " in flight");
    w.daemon.Continue();
    for (Transfer& transfer : transfers) transfer.Wait(30s);
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < kBlocks; ++i) all.push_back(i);
    ExpectMoved(w.b, all, w.a, all);
    w.Pull(5).Wait(30s);
  }());
}

TEST_CASE("threads wait at once, each for its own transfers or all for one") {
  REQUIRE_NOTHROW([] {
    World w;
    RunThreads(8, [&](int rank) {
      for (int i = 0; i < 200; ++i) w.Pull(static_cast<uint32_t>(rank * 8 + i % 8)).Wait(30s);
    });
    w.daemon.Stop();
    Transfer one = w.Pull(9);
    Meeting meeting(5);
    std::thread resume([&] {
      meeting.Wait();
      w.daemon.Continue();
    });
    RunThreads(4, [&](int) {
      meeting.Wait();
      one.Wait(30s);
    });
    resume.join();
  }());
}

TEST_CASE("a deadline ends a transfer, unless it was quicker") {
  REQUIRE_NOTHROW([] {
    TestDaemon daemon;
    Cache a(daemon, "prefill", 64, 1 << 20, 0x11);
    Cache b(daemon, "decode", 64, 1 << 20, 0x22);
    const List kv = b.agent.Fetch(a.agent.name(), "kv");
    int late = 0;
    for (int round = 0; round < 50 && late == 0; ++round) {
      std::vector<Transfer> transfers;
      for (int i = 0; i < 10; ++i) {
        transfers.push_back(b.agent.Pull(b.kv.All(), kv.All(), {.timeout = 1ms}));
      }
      for (Transfer& transfer : transfers) {
        try {
          transfer.Wait(30s);
        } catch (const Error& error) {
          Expect(error.code() == SHUNT_DEADLINE_EXCEEDED, error.what());
          Expect(std::string(error.what()).find("still running") == std::string::npos,
                 error.what());
          ++late;
        }
      }
    }
    Expect(late > 0, "none was late");
    b.agent.Pull(b.kv.All(), kv.All()).Wait(30s);
  }());
}

TEST_CASE("a cancelled transfer ends with CANCELLED unless it was quicker") {
  REQUIRE_NOTHROW([] {
    TestDaemon daemon;
    Cache a(daemon, "prefill", 64, 1 << 20, 0x11);
    Cache b(daemon, "decode", 64, 1 << 20, 0x22);
    const List kv = b.agent.Fetch(a.agent.name(), "kv");
    int cancelled = 0;
    for (int round = 0; round < 50 && cancelled == 0; ++round) {
      std::vector<Transfer> transfers;
      for (int i = 0; i < 10; ++i) transfers.push_back(b.agent.Pull(b.kv.All(), kv.All()));
      for (Transfer& transfer : transfers) transfer.Cancel();
      for (Transfer& transfer : transfers) {
        try {
          transfer.Wait(30s);
        } catch (const Error& error) {
          Expect(error.code() == SHUNT_CANCELLED, error.what());
          Expect(std::string(error.what()).find("was cancelled") != std::string::npos,
                 error.what());
          ++cancelled;
        }
        transfer.Cancel();  // no error after the end
      }
    }
    Expect(cancelled > 0, "none was cancelled in time");
    b.agent.Pull(b.kv.All(), kv.All()).Wait(30s);
  }());
}

TEST_CASE("an agent that is killed ends what others have in flight with it, by name") {
  REQUIRE_NOTHROW([] {
    TestDaemon daemon;
    constexpr uint64_t kBig = uint64_t{128} << 20;
    const std::string name = FreshAgent("mortal");
    int ready[2];
    Expect(::pipe(ready) == 0, "pipe");
    const auto live = [&] {
      Session session = Open(daemon, "mortal");
      Buffer<uint8_t> memory = session.Allocate<uint8_t>(kBig);
      Agent agent = session.Agent(name);
      agent.Publish("kv", {Blocks(memory.data(), 65536, kBig / 65536)});
      Expect(::write(ready[1], "r", 1) == 1, "write");
      while (true) ::pause();
    };
    const auto await = [&] {
      char word;
      Expect(::read(ready[0], &word, 1) == 1, "read");
    };
    Process first = Process::Fork(live);
    await();
    Session session = Open(daemon, "survivor");
    Buffer<uint8_t> memory = session.Allocate<uint8_t>(kBig);
    Agent agent = session.Agent(FreshAgent("survivor"));
    const List own = agent.Prepare({Blocks(memory.data(), 65536, kBig / 65536)});
    const List kv = agent.Fetch(name, "kv");
    std::vector<Transfer> transfers;
    for (int i = 0; i < 30; ++i) transfers.push_back(agent.Pull(own.All(), kv.All()));
    const pid_t pid = first.pid();
    first.Signal(SIGKILL);
    (void)first.Wait();
    int failed = 0;
    for (Transfer& transfer : transfers) {
      try {
        transfer.Wait(60s);
      } catch (const Error& error) {
        const std::string words = error.what();
        Expect(error.code() == SHUNT_UNAVAILABLE || error.code() == SHUNT_FAILED_PRECONDITION,
               words);
        Expect(words.find(name) != std::string::npos, words);
        Expect(error.code() != SHUNT_UNAVAILABLE ||
                   words.find("pid " + std::to_string(pid)) != std::string::npos,
               words);
        ++failed;
      }
    }
    Expect(failed > 0, "all were quicker than the kill");

    // Started again it is another one: the old list is refused, a new one is good.
    Process second = Process::Fork(live);
    await();
    ExpectError(SHUNT_FAILED_PRECONDITION, {name, "fetch it again"},
                [&] { agent.Pull(own.All(), kv.All()).Wait(30s); });
    const List again = agent.Fetch(name, "kv");
    Expect(again.facts().incarnation != kv.facts().incarnation, "the same incarnation");
    agent.Pull(own.All(), again.All()).Wait(60s);
    ::close(ready[0]);
    ::close(ready[1]);
  }());
}

TEST_CASE("a daemon that dies ends every wait with UNAVAILABLE") {
  REQUIRE_NOTHROW([] {
    World w;
    w.daemon.Stop();
    std::vector<Transfer> transfers;
    for (uint32_t i = 0; i < 4; ++i) transfers.push_back(w.Pull(i));
    std::thread killer([&] { w.daemon.Kill(); });
    RunThreads(3, [&](int rank) {
      ExpectError(SHUNT_UNAVAILABLE, {"shuntd is gone"},
                  [&] { transfers[static_cast<size_t>(rank)].Wait(); });
    });
    killer.join();
    // And polling finds out too.
    bool ended = false;
    for (int i = 0; i < 1000 && !ended; ++i) {
      try {
        Expect(!transfers[3].Done(), "ended well");
      } catch (const Error& error) {
        Expect(error.code() == SHUNT_UNAVAILABLE, error.what());
        ended = true;
      }
    }
    Expect(ended, "polling never saw the end");
    ExpectError(SHUNT_UNAVAILABLE, {}, [&] { w.Pull(1).Wait(); });
  }());
}

TEST_CASE("a forked child is refused, leaves the parent's transfers alone, and has its own") {
  REQUIRE_NOTHROW([] {
    World w;
    w.daemon.Stop();
    Transfer pull = w.Pull(7);
    Process child = Process::Fork([&] {
      for (const auto& call : std::vector<std::function<void()>>{
               [&] { pull.Wait(1s); }, [&] { pull.Done(); }, [&] { pull.Cancel(); },
               [&] { pull.Fd(); }, [&] { w.Pull(1); }, [&] { w.b.agent.Fetch("x", "kv"); },
               [&] { w.b.agent.Notifications(1s); }, [&] { w.b.agent.Notify("x", ""); }}) {
        ExpectError(SHUNT_FAILED_PRECONDITION, {"belongs to process", "must open its own"}, call);
      }
      { const Transfer dropped = std::move(pull); }  // waits for nothing
      { const List dropped = w.kv; }
      w.daemon.Continue();
      Session session = Open(w.daemon, "child");
      Buffer<uint8_t> memory = session.Allocate<uint8_t>(kBytes);
      Agent agent = session.Agent(FreshAgent("child"));
      const List own = agent.Prepare({Piece(memory.data(), kBytes)});
      const List kv = agent.Fetch(w.a.agent.name(), "kv");
      const std::vector<uint32_t> id{2};
      agent.Pull(own.All(), kv.Ids(id)).Wait(30s);
      Expect(memory[17] == w.a.At(2 * kBytes + 17), "the child's bytes");
    });
    child.Join();
    pull.Wait(30s);
    ExpectMoved(w.b, {0, 7}, w.a, {0, 7});
  }());
}

TEST_CASE("a handle that is dropped in flight waits for the end") {
  REQUIRE_NOTHROW([] {
    World w;
    w.daemon.Stop();
    std::thread resume;
    {
      const Transfer pull = w.Pull(11);
      resume = std::thread([&] { w.daemon.Continue(); });
    }
    resume.join();
    ExpectMoved(w.b, {0, 11}, w.a, {0, 11});
  }());
}

TEST_CASE("a wait for notifications ends with the first, at its timeout, or when the daemon goes") {
  REQUIRE_NOTHROW([] {
    World w;
    Expect(w.b.agent.Notifications(20ms).empty(), "something came");
    const int fd = w.b.agent.NotificationsFd();
    Expect(w.b.agent.Notifications().empty() && !Readable(fd, 0ms), "readable for nothing");
    // Two threads wait; each notification goes to one of them.
    std::atomic<int> seen{0};
    RunThreads(3, [&](int rank) {
      if (rank == 0) {
        for (int i = 0; i < 10; ++i) w.a.agent.Notify(w.b.agent.name(), "n");
        return;
      }
      while (seen < 10) {
        seen += static_cast<int>(w.b.agent.Notifications(200ms, 1).size());
      }
    });
    Expect(seen == 10, "not ten");
    w.a.agent.Notify(w.b.agent.name(), "one");
    Expect(Readable(fd, 30000ms), "not readable");
    w.a.agent.Notify(w.b.agent.name(), "two");
    Expect(w.b.agent.Notifications(0s, 1).size() == 1, "one");
    Expect(Readable(fd, 0ms), "not readable for the second");
    Expect(w.b.agent.Notifications(0s, 1).size() == 1, "two");
    std::thread killer([&] { w.daemon.Kill(); });
    ExpectError(SHUNT_UNAVAILABLE, {}, [&] { w.b.agent.Notifications(60s); });
    killer.join();
  }());
}

}  // namespace
}  // namespace shunt::testing
