// Description files, and the words about what is wrong with them.
#include "tools/sim/description.h"

#include <catch2/catch.hpp>
#include <string>

#include "tools/sim/quantity.h"
#include "tools/sim/report.h"

namespace shunt::tools {
namespace {

constexpr char kGood[] = R"(
name = "two"
nodes = 2
gpus = 4
nvlink_rate = "450 GB/s"
rails = 4
rate = "400 Gbit/s"
latency = "1.5us"
burst = "256KiB"
kinds = ["all_reduce", "broadcast"]
sizes = ["64KiB", 1024]
algorithms = ["ring"]
method = "computed"

[[link]]
node = 1
rail = 3
rate = "100 Gbit/s"

[[failure]]
node = 0
what = "link"
at = "2ms"
)";

std::string Words(const std::string& text) {
  Description d;
  absl::Status s = ApplyClusterToml(text, "c.toml", &d);
  if (s.ok()) s = CheckDescription(d);
  return std::string(s.message());
}

TEST_CASE("a description file says all of a cluster") {
  Description d;
  REQUIRE(ApplyClusterToml(kGood, "c.toml", &d).ToString() == "OK");
  REQUIRE(CheckDescription(d).ToString() == "OK");
  const sim::Cluster& c = d.cluster;
  CHECK(d.name == "two");
  CHECK(c.world() == 8);
  CHECK(c.bytes_per_s == 50e9);
  CHECK(c.nvlink_bytes_per_s == 450e9);
  CHECK(c.latency_s == Approx(1.5e-6));
  CHECK(c.burst_bytes == 256 << 10);
  CHECK(d.kinds == std::vector<OpKind>{OpKind::kAllReduce, OpKind::kBroadcast});
  CHECK(d.sizes == std::vector<uint64_t>{64 << 10, 1024});
  CHECK(d.algorithms == std::vector<Algorithm>{Algorithm::kRing});
  CHECK(d.method == sim::Method::kComputed);
  REQUIRE(c.links.size() == 1);
  CHECK(c.links[0].rail == 3);
  CHECK(c.links[0].bytes_per_s == 12.5e9);
  REQUIRE(c.failures.size() == 1);
  CHECK(c.failures[0].what == sim::Failure::What::kLink);
  CHECK(c.failures[0].at_s == Approx(2e-3));
}

TEST_CASE("what is wrong in a file is said with file, line, key, value and expectation") {
  CHECK(Words("nodes = \"many\"") == "c.toml:1: nodes is \"many\", expected a whole number");
  CHECK(Words("\nrate = \"fast\"") ==
        "c.toml:2: rate is \"fast\", expected a rate such as \"250 Mbit/s\" or \"50 GB/s\"");
  CHECK(Words("rate = 250") ==
        "c.toml:1: rate is 250, expected a rate such as \"250 Mbit/s\" or \"50 GB/s\"");
  CHECK(Words("latency = \"3\"") ==
        "c.toml:1: latency is \"3\", expected a time such as \"30us\" or \"1.5 ms\"");
  CHECK(Words("burst = -1") ==
        "c.toml:1: burst is -1, expected a size such as \"64KiB\", \"16M\" or 512");
  CHECK(Words("method = \"guess\"") ==
        "c.toml:1: method is \"guess\", expected auto, executed or computed");
  CHECK(Words("rate = \"1 GB/s\"\n\nnodes = 0") == "c.toml:3: nodes is 0, expected 1 to 65535");
  CHECK(Words("nodes = 99999999999") ==
        "c.toml:1: nodes is 99999999999, expected a whole number of 32 bits");
  CHECK(Words("nodes = [1]") == "c.toml:1: nodes is a list, a table or a date; expected one value");
  CHECK(Words("kinds = [\"all_reduce\", \"all\"]") ==
        "c.toml:1: kinds is \"all\", expected one of barrier, all_reduce, reduce, broadcast, "
        "all_gather, reduce_scatter, all_to_all, all_to_all_v, gather, scatter");
  CHECK(Words("sizes = []") == "c.toml:1: sizes is not a list of values; expected one or more");
  CHECK(Words("algorithms = [\"star\"]") ==
        "c.toml:1: algorithms has algorithm \"star\", expected one of ring, double_tree, "
        "halving_doubling, recursive_doubling, bruck, pat, pairwise, direct, aggregated, binomial, "
        "pat_bounded");
  CHECK(Words("link = 3") == "c.toml:1: link must be written [[link]]");
  CHECK(Words("[[link]]\nrate = \"1 GB/s\"") == "c.toml:1: link has no node; expected which one");
  CHECK(Words("[[link]]\nnode = 0\nspeed = 3") ==
        "c.toml:3: link.speed is no key, expected one of node, rail, rate, down");
  CHECK(Words("[[failure]]\nnode = 0\nwhat = \"fire\"") ==
        "c.toml:3: failure.what is \"fire\", expected \"node\" or \"link\"");
  CHECK(Words("rate = \"1 GB/s\"\n[[failure]]\nnode = 7") ==
        "c.toml:2: failure.node is 7, expected 0 to 0");
  CHECK(Words("node = 3").rfind("c.toml:1: unknown key \"node\", expected one of link,", 0) == 0);
  CHECK(Words("sizes = [1], 2]").rfind("c.toml:1: not TOML: ", 0) == 0);
  CHECK(Words("= 3").rfind("c.toml:1: not TOML: ", 0) == 0);
}

TEST_CASE("rates are bits or bytes, never in doubt") {
  CHECK(*ParseRate("250 Mbit/s") == 31.25e6);
  CHECK(*ParseRate("250mbit") == 31.25e6);
  CHECK(*ParseRate("400Gbit/s") == 50e9);
  CHECK(*ParseRate("50 GB/s") == 50e9);
  CHECK(*ParseRate("1 MiB/s") == 1048576);
  for (const char* wrong : {"", "50", "50 gb/s", "50 Gb/s", "-1 GB/s", "nan GB/s", "1e999 GB/s",
                            "inf bit", "GB/s", "1 GB/s/s"}) {
    INFO(wrong);
    CHECK_FALSE(ParseRate(wrong).ok());
  }
}

TEST_CASE("sizes and times have units") {
  CHECK(*ParseBytes("64KiB") == 64 << 10);
  CHECK(*ParseBytes("16M") == 16 << 20);
  CHECK(*ParseBytes("1.5 kB") == 1500);
  CHECK(*ParseBytes("0") == 0);
  CHECK(*ParseSeconds("30us") == Approx(30e-6));
  CHECK(*ParseSeconds("1.5 ms") == Approx(1.5e-3));
  CHECK(*ParseSeconds("2min") == 120);
  for (const char* wrong : {"", "-1", "1e300", "12 apples", "K"}) {
    INFO(wrong);
    CHECK_FALSE(ParseBytes(wrong).ok());
    CHECK_FALSE(ParseSeconds(wrong).ok());
  }
}

TEST_CASE("the best algorithm is marked, and one that failed is not it") {
  Report report{OpKind::kAllReduce, 1 << 20, 4, 4, {}};
  sim::Prediction p;
  p.seconds = 2e-3;
  p.link = "node 0 out";
  report.rows.push_back({"ring", p});
  p.seconds = 1e-3;
  report.rows.push_back({"pairwise", p});
  p.seconds = 1e-6;
  p.failure = "unit 0 lost peer 1: closed the connection";
  report.rows.push_back({"direct", p});
  CHECK(report.Best() == 1);
  const std::string text = Text(report);
  CHECK(text.find("\n*  pairwise") != std::string::npos);
  CHECK(text.find("! direct fails: unit 0 lost peer 1") != std::string::npos);
}

}  // namespace
}  // namespace shunt::tools
