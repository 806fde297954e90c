#include "tools/trace.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/temp_dir.h"
#include "tools/stragglers.h"

namespace shunt::tools {
namespace {

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Two nodes whose clocks differ by a second, a rank on each.
v1::GetRecordsResponse TwoNodes() {
  v1::GetRecordsResponse records;
  for (int node = 0; node < 2; ++node) {
    v1::NodeRecords* const n = records.add_nodes();
    const int64_t offset = node == 0 ? 0 : 1'000'000'000;
    n->set_node(node == 0 ? "a" : "b");
    n->set_clock_offset_ns(offset);
    n->set_clock_uncertainty_ns(node == 0 ? 0 : 20'000);
    n->set_now_ns(9'000'000 + offset);
    v1::CommunicatorRecord* const c = n->add_communicators();
    c->set_wire_id(77);
    c->set_name("train");
    c->set_world_size(2);
    c->set_state("ready");
    c->add_nodes("a");
    c->add_nodes("b");
    v1::RankRecord* const rank = c->add_ranks();
    rank->set_rank(node);
    rank->set_pid(100 + node);
    for (uint64_t i = 1; i <= 3; ++i) {
      v1::CallRecord* const call = rank->add_calls();
      call->set_number(i);
      call->set_sequence(i);
      call->set_kind("all_reduce");
      call->set_dtype("float32");
      call->set_redop("sum");
      call->set_count(4);
      call->set_root(-1);
      // Rank 1 comes 500 ns after rank 0.
      const auto at = static_cast<int64_t>(i) * 1'000'000 + (node == 0 ? 0 : 500) + offset;
      call->set_posted_ns(at);
      call->set_ended_ns(i == 3 ? 0 : at + 2000);
      call->set_state(i == 3 ? "open" : "ok");
    }
    v1::ExchangeRecord* const exchange = c->add_exchanges();
    exchange->set_source(-1);
    exchange->set_destination(-1);
    exchange->set_sequence(1);
    exchange->set_kind("all_reduce");
    exchange->set_algorithm("ring");
    exchange->set_arrived_ns(1'000'600 + offset);
    exchange->set_began_ns(1'000'700 + offset);
    exchange->set_ended_ns(1'001'700 + offset);
  }
  v1::TransferRecord* const transfer = records.mutable_nodes(0)->add_transfers();
  transfer->set_id(5);
  transfer->set_route("pull");
  transfer->set_node("b");
  transfer->set_bytes(4096);
  transfer->set_posted_ns(10);
  transfer->set_ended_ns(30);
  return records;
}

TEST_CASE("ranks, links and transfers have lanes, on one clock") {
  const TraceText trace = MakeTrace(TwoNodes());
  CHECK(trace.lanes == 5);  // two ranks, a link at each node, a pull
  CHECK(Count(trace.text, "\"thread_name\"") == 5);
  CHECK(Count(trace.text, "\"process_name\"") == 2);
  CHECK(Count(trace.text, "\"ph\": \"X\"") == trace.events);
  // The third call of each is open: it ends where the records were taken.
  for (const char* words : {
           "\"ts\": 1000.000, \"dur\": 2.000",     // rank 0
           "\"ts\": 1000.500, \"dur\": 2.000",     // rank 1, in the first node's time
           "\"ts\": 3000.000, \"dur\": 6000.000",  // open
           "waits for ranks",
           "'train' epoch 0 rank 1 (pid 101)",
           "link a - b",
           "link b - a",
           "link a - b: pull",
           "\"algorithm\": \"ring\"",
           "\"clock_uncertainty_ns\": 20000",
           "\"last_rank\": 1",
       }) {
    INFO(words << " in " << trace.text);
    CHECK(trace.text.find(words) != std::string::npos);
  }
}

TEST_CASE("calls that overlap have lanes side by side") {
  v1::GetRecordsResponse records = TwoNodes();
  for (v1::CallRecord& call :
       *records.mutable_nodes(0)->mutable_communicators(0)->mutable_ranks(0)->mutable_calls()) {
    call.set_posted_ns(1'000'000);
    call.set_ended_ns(2'000'000);
    call.set_state("ok");
  }
  const TraceText trace = MakeTrace(records);
  CHECK(trace.lanes == 7);
  CHECK(trace.text.find("rank 0 (pid 100) (3)") != std::string::npos);
}

TEST_CASE("stragglers are found on one clock") {
  const auto found = FindStragglers(TwoNodes());
  REQUIRE(found.size() == 1);
  CHECK(found[0].operations == 3);
  CHECK(found[0].uncertainty_ns == 20'000);
  REQUIRE(found[0].ranks.size() == 2);
  CHECK(found[0].ranks[0].rank == 1);
  CHECK(found[0].ranks[0].node == "b");
  CHECK(found[0].ranks[0].lateness.median_ns == 500);
  CHECK(found[0].ranks[0].lateness.last == 3);
  CHECK(found[0].ranks[1].lateness.most_ns == 0);
}

TEST_CASE("of nothing there is an empty trace") {
  const TraceText trace = MakeTrace({});
  CHECK(trace.events == 0);
  CHECK(trace.text.find("\"traceEvents\": [\n\n]") != std::string::npos);
}

TEST_CASE("a file is written whole or not at all") {
  const testing::TempDir directory;
  const std::string path = directory.path() + "/trace.json";
  const auto contents = [&] {
    std::ifstream in(path, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(directory.path()), {});
  };
  REQUIRE(WriteWhole(path, "one").ok());
  REQUIRE(WriteWhole(path, "two").ok());
  CHECK(contents() == "two");
  CHECK(files() == 1);

  const absl::Status missing = WriteWhole(directory.path() + "/none/trace.json", "x");
  CHECK(absl::IsNotFound(missing));
  CHECK(std::string(missing.message()).find("/none/trace.json") != std::string::npos);
  CHECK(absl::IsInvalidArgument(WriteWhole(directory.path(), "x")));

  // As a full disk: what does not fit is an error.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit little{4096, before.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
  const absl::Status full = WriteWhole(path, std::string(100'000, 'x'));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK_FALSE(full.ok());
  CHECK(contents() == "two");
  CHECK(files() == 1);
}

TEST_CASE("a device that is full is an error") {
  const absl::Status full = WriteWhole("/dev/full", "x");
  CHECK_FALSE(full.ok());
  CHECK(std::string(full.message()).find("/dev/full") != std::string::npos);
}

}  // namespace
}  // namespace shunt::tools
