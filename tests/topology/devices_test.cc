#include "runtime/topology/devices.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace shunt::topology {
namespace {

namespace fs = std::filesystem;

void Put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

TEST_CASE("cards are found with speed, NUMA node and RDMA device; what has none is left out") {
  const testing::TempDir dir;
  const fs::path net = fs::path(dir.path()) / "sys/class/net";
  Put(net / "ens1/operstate", "up");
  Put(net / "ens1/speed", "400000");
  Put(net / "ens1/device/numa_node", "1");
  fs::create_directories(net / "ens1/device/infiniband/mlx5_0");
  Put(net / "ens1/statistics/rx_bytes", "123");
  Put(net / "ens1/statistics/tx_bytes", "18446744073709551615");
  Put(net / "ens2/operstate", "down");
  Put(net / "ens2/speed", "-1");
  Put(net / "ens2/device/numa_node", "-1");
  Put(net / "lo/operstate", "unknown");
  Put(net / "veth9/operstate", "up");
  const std::vector<Nic> nics = FindNics(dir.path());
  REQUIRE(nics.size() == 2);
  CHECK(nics[0].name == "ens1");
  CHECK(nics[0].state == "up");
  CHECK(nics[0].bits_per_second == 400'000'000'000);
  CHECK(nics[0].numa_node == 1);
  CHECK(nics[0].rdma_device == "mlx5_0");
  CHECK(nics[0].bytes_received == 123);
  CHECK(nics[0].bytes_sent == UINT64_MAX);
  CHECK(nics[1].name == "ens2");
  CHECK(nics[1].state == "down");
  CHECK(nics[1].bits_per_second == 0);
  CHECK(nics[1].numa_node == -1);
  CHECK(nics[1].rdma_device.empty());
}

TEST_CASE("where nothing has hardware behind it, as in a container, what is up is shown") {
  const testing::TempDir dir;
  const fs::path net = fs::path(dir.path()) / "sys/class/net";
  Put(net / "eth0/operstate", "up");
  Put(net / "ifb0/operstate", "down");
  Put(net / "lo/operstate", "unknown");
  const std::vector<Nic> nics = FindNics(dir.path());
  REQUIRE(nics.size() == 1);
  CHECK(nics[0].name == "eth0");
}

TEST_CASE("NVIDIA's GPUs are found on the bus, with the driver's name for them where it has one") {
  const testing::TempDir dir;
  const fs::path pci = fs::path(dir.path()) / "sys/bus/pci/devices";
  Put(pci / "0000:3b:00.0/vendor", "0x10de");
  Put(pci / "0000:3b:00.0/class", "0x030200");
  Put(pci / "0000:3b:00.0/numa_node", "0");
  Put(fs::path(dir.path()) / "proc/driver/nvidia/gpus/0000:3b:00.0/information",
      "Model: \t\t NVIDIA H200\nIRQ: 12");
  fs::create_symlink("../../../../bus/pci/drivers/nvidia", pci / "0000:3b:00.0/driver");
  Put(pci / "0000:9c:00.0/vendor", "0x10de");
  Put(pci / "0000:9c:00.0/class", "0x030200");
  Put(pci / "0000:9c:00.0/device", "0x2335");
  Put(pci / "0000:9d:00.0/vendor", "0x10de");  // a switch
  Put(pci / "0000:9d:00.0/class", "0x068000");
  Put(pci / "0000:00:02.0/vendor", "0x8086");
  Put(pci / "0000:00:02.0/class", "0x030000");
  const std::vector<Gpu> gpus = FindGpus(dir.path());
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].pci_address == "0000:3b:00.0");
  CHECK(gpus[0].name == "NVIDIA H200");
  CHECK(gpus[0].numa_node == 0);
  CHECK(gpus[0].driver == "nvidia");
  CHECK(gpus[1].name == "NVIDIA device 0x2335");
  CHECK(gpus[1].driver.empty());
  CHECK(FindGpus("/nowhere").empty());
}

}  // namespace
}  // namespace shunt::topology
