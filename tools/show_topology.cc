#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/admin_json.h"
#include "tools/show.h"
#include "tools/topology_svg.h"

namespace shunt::tools {
namespace {

// A tree of lines.
struct Branch {
  std::string text;
  std::vector<Branch> below;
};

void Draw(const Branch& branch, const std::string& indent, const Style& style, std::string* out) {
  for (size_t i = 0; i < branch.below.size(); ++i) {
    const bool last = i + 1 == branch.below.size();
    const Branch& next = branch.below[i];
    const char* const fork = style.lines ? (last ? "└─ " : "├─ ") : (last ? "`- " : "|- ");
    absl::StrAppend(out, indent, style.Dim(fork), next.text, "\n");
    Draw(next, indent + (last ? "   " : style.lines ? style.Dim("│") + "  " : "|  "), style, out);
  }
}

std::string NicWords(const v1::Nic& nic, const Style& style) {
  std::string words = absl::StrCat("NIC ", style.Bold(Printable(nic.name())), "  ",
                                   style.State(nic.state(), nic.state()));
  if (nic.bits_per_second() != 0) absl::StrAppend(&words, ", ", BitRateText(nic.bits_per_second()));
  if (!nic.rdma_device().empty()) absl::StrAppend(&words, ", RDMA ", nic.rdma_device());
  absl::StrAppend(&words, ", received ", SizeText(nic.bytes_received()), ", sent ",
                  SizeText(nic.bytes_sent()));
  return words;
}

void AddCards(const v1::GetTopologyResponse& topology, int numa, const Style& style,
              Branch* branch) {
  for (const v1::Gpu& gpu : topology.gpus()) {
    if (gpu.numa_node() != numa) continue;
    branch->below.push_back(
        {absl::StrCat("GPU ", style.Bold(gpu.pci_address()), "  ", Printable(gpu.name()),
                      gpu.driver().empty() ? ", no driver" : absl::StrCat(", ", gpu.driver())),
         {}});
  }
  for (const v1::Nic& nic : topology.nics()) {
    if (nic.numa_node() == numa) branch->below.push_back({NicWords(nic, style), {}});
  }
}

std::string TreeText(const v1::GetTopologyResponse& topology, const Style& style) {
  Branch root;
  for (const v1::NumaNode& numa : topology.numa_nodes()) {
    Branch& branch = root.below.emplace_back();
    branch.text = absl::StrCat("NUMA node ", numa.index(), ": CPUs ", numa.cpus(), ", ",
                               SizeText(numa.memory_bytes()));
    AddCards(topology, static_cast<int>(numa.index()), style, &branch);
  }
  Branch loose{"of no NUMA node that the kernel names", {}};
  AddCards(topology, -1, style, &loose);
  if (!loose.below.empty()) root.below.push_back(std::move(loose));
  std::string text = absl::StrCat(style.Bold(Printable(topology.host())), ": ", topology.cpus(),
                                  " CPUs, ", SizeText(topology.memory_bytes()), "\n");
  Draw(root, "", style, &text);
  return text;
}

// Two looks, for what cards and links carry now.
int DrawPicture(const Shown& to, const v1::GetTopologyResponse& before, const std::string& path,
                double seconds) {
  // Who may not see the links gets a picture without them.
  const auto links_before = to.client.Links();
  const auto began = std::chrono::steady_clock::now();
  Pause(seconds);
  const auto topology = to.client.Topology();
  if (!topology.ok()) return Fail(to.client, topology.status());
  const auto links_now = to.client.Links();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::vector<NicRate> nics;
  for (const v1::Nic& nic : topology->nics()) {
    for (const v1::Nic& then : before.nics()) {
      if (then.name() != nic.name() || nic.bytes_sent() < then.bytes_sent() ||
          nic.bytes_received() < then.bytes_received()) {
        continue;
      }
      nics.push_back(
          {nic.name(), static_cast<double>(nic.bytes_sent() - then.bytes_sent()) / took.count(),
           static_cast<double>(nic.bytes_received() - then.bytes_received()) / took.count()});
    }
  }
  std::vector<PictureLink> links;
  if (links_before.ok() && links_now.ok()) {
    for (const v1::Link& link : links_now->links()) {
      const LinkRate rate = RateOf(*links_before, link, took.count());
      const v1::NodeStatus& node = link.node();
      links.push_back({Printable(node.name().empty() ? node.address() : node.name()), node.role(),
                       node.state(), link.connected(),
                       1e-9 * static_cast<double>(link.latency_ns()),
                       static_cast<double>(link.bytes_per_second()), rate.sent, rate.received});
    }
  }
  const std::string svg = TopologySvg(*topology, nics, links);
  std::FILE* const file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
  const bool written =
      file != nullptr && std::fwrite(svg.data(), 1, svg.size(), file) == svg.size();
  const int error = errno;
  const bool closed = file == nullptr || file == stdout || std::fclose(file) == 0;
  if (written && closed) return kFine;
  return FailUsage(absl::StrCat("--svg ", path, ": ", std::strerror(error)));
}

}  // namespace

int ShowTopology(const Shown& to, const std::string& svg, double seconds) {
  const auto topology = to.client.Topology();
  if (!topology.ok()) return Fail(to.client, topology.status());
  if (!svg.empty()) return DrawPicture(to, *topology, svg, seconds);
  if (to.json) return Print(daemon::ToJson(*topology));
  return Print(TreeText(*topology, to.style));
}

}  // namespace shunt::tools
