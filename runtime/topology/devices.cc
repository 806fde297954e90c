#include "runtime/topology/devices.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace shunt::topology {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNicsMax = 64;
constexpr char kNvidia[] = "0x10de";

// The first line; "" if there is none. Reading some of these fails while a link is down.
std::string Line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

template <typename T>
T Number(const fs::path& path, T otherwise) {
  T number{};
  return absl::SimpleAtoi(Line(path), &number) ? number : otherwise;
}

std::vector<fs::path> Entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The name of what a link points to; "" if there is none.
std::string Target(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename().string();
}

Nic ReadNic(const fs::path& at) {
  Nic nic;
  nic.name = at.filename().string();
  nic.state = Line(at / "operstate");
  const int64_t mbit = Number<int64_t>(at / "speed", 0);
  if (mbit > 0) nic.bits_per_second = static_cast<uint64_t>(mbit) * 1'000'000;
  nic.numa_node = Number<int>(at / "device/numa_node", -1);
  const std::vector<fs::path> rdma = Entries(at / "device/infiniband");
  if (!rdma.empty()) nic.rdma_device = rdma.front().filename().string();
  nic.bytes_received = Number<uint64_t>(at / "statistics/rx_bytes", 0);
  nic.bytes_sent = Number<uint64_t>(at / "statistics/tx_bytes", 0);
  return nic;
}

// "Model: NVIDIA H200" of the driver's file; "" if there is none.
std::string Model(const fs::path& information) {
  std::ifstream in(information);
  for (std::string line; std::getline(in, line);) {
    absl::string_view rest(line);
    if (absl::ConsumePrefix(&rest, "Model:")) {
      return std::string(absl::StripAsciiWhitespace(rest));
    }
  }
  return "";
}

}  // namespace

std::vector<Nic> FindNics(const std::string& root) {
  std::vector<Nic> cards, others;
  std::error_code ignored;
  for (const fs::path& at : Entries(root + "/sys/class/net")) {
    if (at.filename() == "lo") continue;
    if (fs::exists(at / "device", ignored)) {
      cards.push_back(ReadNic(at));
    } else if (const Nic nic = ReadNic(at); nic.state == "up" || nic.state == "unknown") {
      others.push_back(nic);
    }
  }
  std::vector<Nic>& found = cards.empty() ? others : cards;
  if (found.size() > kNicsMax) found.resize(kNicsMax);
  return std::move(found);
}

std::vector<Gpu> FindGpus(const std::string& root) {
  std::vector<Gpu> gpus;
  for (const fs::path& at : Entries(root + "/sys/bus/pci/devices")) {
    // 0x0300 and 0x0302: display controllers with and without a display.
    if (Line(at / "vendor") != kNvidia || !absl::StartsWith(Line(at / "class"), "0x03")) continue;
    Gpu gpu;
    gpu.pci_address = at.filename().string();
    gpu.name = Model(root + "/proc/driver/nvidia/gpus/" + gpu.pci_address + "/information");
    if (gpu.name.empty()) gpu.name = absl::StrCat("NVIDIA device ", Line(at / "device"));
    gpu.numa_node = Number<int>(at / "numa_node", -1);
    gpu.driver = Target(at / "driver");
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace shunt::topology
