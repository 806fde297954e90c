// The cards of this machine that matter to communication, as the kernel's files (/sys, /proc) name
// them. No driver's library is called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shunt::topology {

struct Nic {
  std::string name;
  std::string state;             // "up", "down", or what else the kernel says
  uint64_t bits_per_second = 0;  // of the link; 0: its driver does not say
  int numa_node = -1;            // -1: the kernel does not say
  std::string rdma_device;       // of the same card; empty: it has none
  uint64_t bytes_received = 0;
  uint64_t bytes_sent = 0;
};

struct Gpu {
  std::string pci_address;  // "0000:3b:00.0"
  std::string name;         // as the driver calls it, or its numbers on the bus
  int numa_node = -1;       // as above
  std::string driver;       // the kernel's; empty: none has it
};

// Those with hardware behind them, by name; if there are none, those that are up, but for the
// loopback: what a container has. `root`: where /sys lies, for tests.
std::vector<Nic> FindNics(const std::string& root = "");
// NVIDIA's, by PCI address.
std::vector<Gpu> FindGpus(const std::string& root = "");

}  // namespace shunt::topology
