#include "tools/topology_svg.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace shunt::tools {
namespace {

v1::GetTopologyResponse EightGpus() {
  v1::GetTopologyResponse topology;
  topology.set_host("gpu-node-<1>&");
  topology.set_cpus(192);
  topology.set_memory_bytes(uint64_t{2} << 40);
  for (uint32_t n = 0; n < 2; ++n) {
    v1::NumaNode* numa = topology.add_numa_nodes();
    numa->set_index(n);
    numa->set_cpus(n == 0 ? "0-47,96-143" : "48-95,144-191");
    numa->set_memory_bytes(uint64_t{1} << 40);
  }
  for (int g = 0; g < 8; ++g) {
    v1::Gpu* gpu = topology.add_gpus();
    gpu->set_pci_address("0000:" + std::to_string(10 + g) + ":00.0");
    gpu->set_name("NVIDIA H200");
    gpu->set_driver(g == 7 ? "" : "nvidia");
    gpu->set_numa_node(g / 4);
  }
  for (int c = 0; c < 3; ++c) {
    v1::Nic* nic = topology.add_nics();
    nic->set_name(c == 2 ? "eno1" : "ens" + std::to_string(c));
    nic->set_state(c == 1 ? "down" : "up");
    nic->set_bits_per_second(c == 2 ? 25'000'000'000 : 400'000'000'000);
    nic->set_rdma_device(c == 2 ? "" : "mlx5_" + std::to_string(c));
    nic->set_numa_node(c == 2 ? -1 : c);
  }
  return topology;
}

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a picture shows every card and link, with load where it is known") {
  std::vector<PictureLink> links;
  for (int l = 0; l < 5; ++l) {
    links.push_back({"node-" + std::to_string(l), l == 4 ? "aggregator" : "node",
                     l == 3 ? "down" : "up", l != 3, 12e-6, l == 3 ? 0 : 40e9, 9e9 * l, 1e9});
  }
  const std::string svg =
      TopologySvg(EightGpus(), {{"ens0", 46e9, 2e9}, {"eno1", 1e9, 3e6}}, links);
  if (const char* file = std::getenv("SHUNT_PICTURE")) std::ofstream(file) << svg;
  CHECK(Has(svg, "gpu-node-&lt;1&gt;&amp;"));
  CHECK_FALSE(Has(svg, "<1>"));
  for (int g = 0; g < 8; ++g) CHECK(Has(svg, "GPU 0000:" + std::to_string(10 + g) + ":00.0"));
  CHECK(Has(svg, "GPU 0000:17:00.0, no driver"));
  CHECK(Has(svg, "ens0 · mlx5_0"));
  CHECK(Has(svg, "NIC up, 400 Gbit/s, in 1.9 GiB/s, out 42.8 GiB/s"));
  CHECK(Has(svg, "NIC down, 400 Gbit/s"));
  CHECK(Has(svg, "class=\"card nic off\""));
  CHECK(Has(svg, "of no NUMA node that the kernel names"));
  CHECK(Has(svg, "class=\"load busy\""));  // 46 of 50 GB/s
  CHECK(Has(svg, ">node-2</text>"));
  CHECK(Has(svg, "class=\"link off\""));
  CHECK(Has(svg, "aggregator up, 12.0 us, 37.3 GiB/s"));
}

TEST_CASE("a node alone has a picture without links; one of many nodes names the first ones") {
  CHECK_FALSE(Has(TopologySvg(EightGpus(), {}, {}), "<path"));
  const std::vector<PictureLink> many(100, PictureLink{"n", "node", "up", true, 0, 0, 0, 0});
  const std::string svg = TopologySvg(EightGpus(), {}, many);
  CHECK(Has(svg, "and 60 more nodes"));
}

}  // namespace
}  // namespace shunt::tools
