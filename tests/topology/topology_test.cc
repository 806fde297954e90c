#include "runtime/topology/topology.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <thread>

namespace shunt::topology {
namespace {

Topology TwoNodes() {
  Topology topology;
  topology.cpus = {0, 1, 2, 3, 4, 5};
  topology.numa_nodes = {{0, {0, 1, 2}, 1 << 20}, {1, {3, 4, 5}, 1 << 20}};
  return topology;
}

TEST_CASE("CPU lists are read and written as cpuset files have them") {
  CHECK(*ParseCpuList("") == CpuList{});
  CHECK(*ParseCpuList("3") == CpuList{3});
  CHECK(*ParseCpuList("0-3,8") == CpuList{0, 1, 2, 3, 8});
  CHECK(*ParseCpuList("8,0-1,1-2") == CpuList{0, 1, 2, 8});
  CHECK(FormatCpuList({0, 1, 2, 3, 8}) == "0-3,8");
  CHECK(FormatCpuList({}).empty());
  CHECK(FormatCpuList({5}) == "5");
  CHECK(FormatCpuList(*ParseCpuList("0,2,4-5")) == "0,2,4-5");
}

TEST_CASE("what is no CPU list is refused, and the error shows the part") {
  for (const char* text :
       {"a", "1-", "-1", "3-1", "1,,2", "1-2-3", "0-4000000000", "1 2", "1;2", ","}) {
    INFO(text);
    CHECK(ParseCpuList(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(std::string(ParseCpuList("0-3,x").status().message()).find("\"x\"") != std::string::npos);
}

TEST_CASE("workers get the budget, cut down to the nodes") {
  const Topology topology = TwoNodes();
  CHECK(*WorkerCpus(topology, {}, {}) == topology.cpus);
  CHECK(*WorkerCpus(topology, {1, 4}, {}) == CpuList{1, 4});
  CHECK(*WorkerCpus(topology, {}, {1}) == CpuList{3, 4, 5});
  CHECK(*WorkerCpus(topology, {1, 4}, {1}) == CpuList{4});
  CHECK(WorkerCpus(topology, {9}, {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(WorkerCpus(topology, {}, {2}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(WorkerCpus(topology, {0}, {1}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("workers take the nodes in turn") {
  const Topology topology = TwoNodes();
  const CpuList cpus = {0, 1, 4};
  CHECK(CpusOfWorker(topology, cpus, 0) == CpuList{0, 1});
  CHECK(CpusOfWorker(topology, cpus, 1) == CpuList{4});
  CHECK(CpusOfWorker(topology, cpus, 2) == CpuList{0, 1});
}

TEST_CASE("this machine has CPUs, memory and a node, and a thread can be bound") {
  const Topology topology = *Discover();
  REQUIRE_FALSE(topology.cpus.empty());
  CHECK(topology.memory_bytes > 0);
  REQUIRE_FALSE(topology.numa_nodes.empty());
  std::thread([&] {
    const int cpu = topology.cpus.back();
    REQUIRE(BindThread({cpu}).ok());
    CHECK(::sched_getcpu() == cpu);
  }).join();
}

}  // namespace
}  // namespace shunt::topology
