// The C++ interface, used as its header's comment shows.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "client/include/shunt/client.h"
#include "tests/client/harness.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;

TestDaemon& Daemon() {
  static TestDaemon daemon;
  return daemon;
}

void RunCpp(int world, const std::function<void(Session&, Communicator&)>& body) {
  const std::string name = FreshName();
  Daemon();  // started by this thread, whose end would be its own
  REQUIRE_NOTHROW(RunThreads(world, [&](int r) {
    Session session({Daemon().socket(), "cpp"});
    Communicator comm = session.Join(name, r, world);
    body(session, comm);
    comm.Barrier();
  }));
}

static_assert(std::is_nothrow_move_constructible_v<Session>);
static_assert(std::is_nothrow_move_constructible_v<Operation>);
static_assert(!std::is_copy_constructible_v<Operation>);
static_assert(!std::is_copy_constructible_v<Buffer<float>>);

TEST_CASE("every collective has its C++ form") {
  RunCpp(2, [](Session& session, Communicator& comm) {
    const int me = comm.rank();
    Buffer<int32_t> in = session.Allocate<int32_t>(8);
    Buffer<int32_t> out = session.Allocate<int32_t>(8);
    std::iota(in.begin(), in.end(), 10 * me);
    comm.AllReduce(in.data(), out.data(), 8);
    Expect(out[7] == 24, "AllReduce");
    comm.Reduce(in.data(), out.data(), 8, 0, SHUNT_MAX);
    if (me == 0) Expect(out[0] == 10, "Reduce");
    comm.Broadcast(in.data(), out.data(), 8, 1);
    Expect(out[1] == 11, "Broadcast");
    comm.AllGather(in.data(), out.data(), 4);
    Expect(out[0] == 0 && out[4] == 10, "AllGather");
    comm.ReduceScatter(in.data(), out.data(), 4);
    Expect(out[0] == 10 + 8 * me, "ReduceScatter");
    comm.AllToAll(in.data(), out.data(), 4);
    Expect(out[4] == 10 + 4 * me, "AllToAll");
    const uint64_t counts[] = {2, 2}, displs[] = {0, 4};
    comm.AllToAllV(in.data(), counts, displs, out.data(), counts, displs);
    Expect(out[4] == 10 + 4 * me, "AllToAllV");
    comm.Gather(in.data(), out.data(), 4, 0);
    if (me == 0) Expect(out[4] == 10, "Gather");
    comm.Scatter(in.data(), out.data(), 4, 1);
    Expect(out[0] == 10 + 4 * me, "Scatter");
    comm.Group([&] {
      comm.Send(in.data(), 8, 1 - me);
      comm.Recv(out.data(), 8, 1 - me);
    });
    Expect(out[0] == 10 * (1 - me), "Send and Recv");
    const int32_t factor = me + 1;
    comm.AllReduce(in.data(), out.data(), 8, SHUNT_PREMUL_SUM, {.timeout = 10s, .scalar = &factor});
    Expect(out[0] == 20, "premul-sum");
  });
}

TEST_CASE("spans and operations") {
  RunCpp(2, [](Session& session, Communicator& comm) {
    Buffer<float> data = session.Allocate<float>(1000);
    std::fill(data.begin(), data.end(), 1.5f);
    comm.AllReduce(data.span());
    Expect(data[999] == 3.0f, "in place");
    std::vector<float> all(2000);
    comm.AllGather(std::span<const float>(data.span()), std::span(all));
    Expect(all[1999] == 3.0f, "AllGather");
    Operation op = comm.AllReduceAsync(data.data(), data.data(), data.size());
    Operation moved = std::move(op);
    moved.Wait();
    Expect(moved.Done() && data[0] == 6.0f, "async");
    Operation group = comm.GroupAsync([&] { comm.AllReduce(data.span()); });
    group.Wait(10s);
    Expect(data[0] == 12.0f, "async group");
    try {
      comm.AllGather(std::span<const float>(data.span()), std::span(all).first(1999));
      throw Wrong("wrong sizes passed");
    } catch (const Error& e) {
      Expect(e.code() == SHUNT_INVALID_ARGUMENT, e.what());
    }
    try {
      comm.Group([&] {
        comm.AllReduce(data.span());
        throw Wrong("on purpose");
      });
      throw std::logic_error("an exception was lost");
    } catch (const Wrong&) {
    }
    comm.Barrier();
    Expect(data[0] == 12.0f, "a group was submitted whose body had thrown");
    Communicator alone = comm.Split(comm.rank(), 0);
    Expect(alone.world_size() == 1 && !comm.Split(-1, 0), "Split");
  });
}

TEST_CASE("errors are thrown with their code and words") {
  CHECK_THROWS_AS(Session({"/nonexistent/socket", ""}), Error);
  RunCpp(1, [](Session& session, Communicator& comm) {
    try {
      comm.Broadcast(static_cast<const float*>(nullptr), static_cast<float*>(nullptr), 1, 5);
      throw Wrong("a wrong root passed");
    } catch (const Error& e) {
      Expect(e.code() == SHUNT_INVALID_ARGUMENT, e.what());
      Expect(std::string(e.what()).find("INVALID_ARGUMENT: broadcast: root 5") == 0, e.what());
    }
    try {
      session.Join("x", 3, 2);
      throw Wrong("a wrong rank passed");
    } catch (const Error&) {
    }
  });
}

TEST_CASE("the example of the README runs") {
  const char* program = std::getenv("SHUNT_EXAMPLE");
  REQUIRE(program != nullptr);
  REQUIRE(::setenv("SHUNT_SOCKET", Daemon().socket().c_str(), 1) == 0);
  TempDir dir;
  std::vector<Process> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(Process::Exec({program, std::to_string(r), "3"}, dir / std::to_string(r)));
  }
  for (int r = 0; r < 3; ++r) {
    REQUIRE_NOTHROW(ranks[static_cast<size_t>(r)].Join());
    std::ifstream file(dir / std::to_string(r));
    std::string line;
    std::getline(file, line);
    CHECK(line == "rank " + std::to_string(r) + ": 3");
  }
}

TEST_CASE("objects may be destroyed in any order") {
  Buffer<int> buffer;
  Operation op;
  {
    Session session({Daemon().socket(), "order"});
    buffer = session.Allocate<int>(1000);
    Communicator comm = session.Join(FreshName(), 0, 1);
    op = comm.AllReduceAsync(buffer.data(), buffer.data(), buffer.size());
  }
  buffer[0] = 1;
  CHECK_NOTHROW(op.Wait());
}

}  // namespace
}  // namespace shunt::testing
