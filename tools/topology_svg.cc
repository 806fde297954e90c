#include "tools/topology_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tools/output.h"

namespace shunt::tools {
namespace {

constexpr int kMargin = 24;
constexpr int kCard = 340;  // width of a card, of a CPU box
constexpr int kRow = 58;    // height of a card
constexpr int kGap = 12;
constexpr int kNodeGap = 250;  // where links are drawn
constexpr int kPeer = 260;
constexpr size_t kLinksMax = 40;

constexpr char kStyle[] = R"(<style>
  svg { color-scheme: light dark; font: 14px system-ui, sans-serif; background: #fff; }
  .box { fill: #f6f7f9; stroke: #8a929e; }
  .card { fill: #fff; stroke: #8a929e; }
  .cpu { stroke: #6b7280; } .gpu { stroke: #2f7d32; stroke-width: 2; } .nic { stroke: #1d5fa8; stroke-width: 2; }
  .peer { stroke: #1d5fa8; stroke-width: 2; } .off { stroke-dasharray: 5 4; stroke: #b3261e; }
  text { fill: #1a1d21; } .dim { fill: #4a515b; font-size: 12px; } .head { font-weight: 600; }
  .title { font-size: 18px; font-weight: 600; }
  .link { fill: none; stroke: #1d5fa8; stroke-linecap: round; } .link.off { stroke: #b3261e; stroke-width: 1.5; }
  .bar { fill: #d7dce3; } .load { fill: #1d5fa8; } .load.busy { fill: #b45309; }
  .label { paint-order: stroke; stroke: #fff; stroke-width: 4; stroke-linejoin: round; }
  @media (prefers-color-scheme: dark) {
    svg { background: #15181c; }
    .box { fill: #1d2126; stroke: #7c8591; } .card { fill: #15181c; stroke: #7c8591; }
    .cpu { stroke: #98a1ad; } .gpu { stroke: #7bc67e; } .nic, .peer { stroke: #7db2ec; }
    .off, .link.off { stroke: #f2938b; }
    text { fill: #eceff3; } .dim { fill: #b4bcc7; }
    .link { stroke: #7db2ec; } .bar { fill: #343a42; } .load { fill: #7db2ec; } .load.busy { fill: #f5b45f; }
    .label { stroke: #15181c; }
  }
</style>
)";

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// As long as a line of a card may be; the whole of it is in the card's title.
std::string Short(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(absl::string_view(text.data(), end), "…");
}

void AddText(std::string* svg, int x, int y, const char* style, std::string_view text,
             const char* anchor = "start") {
  absl::StrAppend(svg, "<text x=\"", x, "\" y=\"", y, "\" class=\"", style, "\" text-anchor=\"",
                  anchor, "\">", Escaped(text), "</text>\n");
}

void AddBox(std::string* svg, int x, int y, int width, int height, const std::string& style) {
  absl::StrAppend(svg, "<rect x=\"", x, "\" y=\"", y, "\" width=\"", width, "\" height=\"", height,
                  "\" rx=\"8\" class=\"", style, "\"/>\n");
}

// How much of what is possible; nothing is drawn where that is not known.
void AddLoad(std::string* svg, int x, int y, int width, double now, double most) {
  if (!(most > 0)) return;
  const double part = std::clamp(now / most, 0.0, 1.0);
  absl::StrAppend(svg, "<rect x=\"", x, "\" y=\"", y, "\" width=\"", width,
                  "\" height=\"6\" rx=\"3\" class=\"bar\"/>\n<rect x=\"", x, "\" y=\"", y,
                  "\" width=\"", std::lround(part * width), "\" height=\"6\" rx=\"3\" class=\"load",
                  part > 0.9 ? " busy" : "", "\"/>\n");
}

struct Card {
  std::string style, head, words;
  double now = 0, most = 0;  // bytes per second
};

std::vector<Card> CardsOf(const v1::GetTopologyResponse& topology,
                          const std::vector<NicRate>& rates, int numa) {
  std::vector<Card> cards;
  for (const v1::Gpu& gpu : topology.gpus()) {
    if (gpu.numa_node() != numa) continue;
    cards.push_back(
        {"card gpu", Printable(gpu.name()),
         absl::StrCat("GPU ", gpu.pci_address(), gpu.driver().empty() ? ", no driver" : "")});
  }
  for (const v1::Nic& nic : topology.nics()) {
    if (nic.numa_node() != numa) continue;
    Card card{nic.state() == "down" ? "card nic off" : "card nic",
              absl::StrCat(Printable(nic.name()),
                           nic.rdma_device().empty() ? "" : absl::StrCat(" · ", nic.rdma_device())),
              absl::StrCat("NIC ", nic.state())};
    if (nic.bits_per_second() != 0) {
      absl::StrAppend(&card.words, ", ", BitRateText(nic.bits_per_second()));
    }
    for (const NicRate& rate : rates) {
      if (rate.name != nic.name()) continue;
      absl::StrAppend(&card.words, ", in ", RateText(rate.received), ", out ", RateText(rate.sent));
      card.now = std::max(rate.sent, rate.received);
    }
    card.most = static_cast<double>(nic.bits_per_second()) / 8;
    cards.push_back(std::move(card));
  }
  return cards;
}

int AddCards(std::string* svg, int x, int y, const std::vector<Card>& cards) {
  for (const Card& card : cards) {
    AddBox(svg, x, y, kCard, kRow, card.style);
    AddText(svg, x + 12, y + 20, "head", Short(card.head, 40));
    AddText(svg, x + 12, y + 38, "dim", Short(card.words, 54));
    AddLoad(svg, x + 12, y + kRow - 12, kCard - 24, card.now, card.most);
    y += kRow + kGap;
  }
  return y;
}

// The left part; its height.
int AddMachine(std::string* svg, const v1::GetTopologyResponse& topology,
               const std::vector<NicRate>& rates) {
  const int x = kMargin + 16;
  int y = kMargin + 56;
  std::string inside;
  for (const v1::NumaNode& numa : topology.numa_nodes()) {
    const std::vector<Card> cards = CardsOf(topology, rates, static_cast<int>(numa.index()));
    const int top = y;
    y += 30;
    std::string content;
    AddText(&content, x + 12, top + 22, "head",
            absl::StrCat("NUMA node ", numa.index(), " · ", SizeText(numa.memory_bytes())));
    AddText(&content, x + 12, top + 42, "dim", Short("CPUs " + numa.cpus(), 54));
    y = AddCards(&content, x + 12, top + 54, cards);
    AddBox(&inside, x, top, kCard + 24, y - top, "box");
    inside += content;
    y += kGap;
  }
  if (const std::vector<Card> loose = CardsOf(topology, rates, -1); !loose.empty()) {
    AddText(&inside, x, y + 14, "dim", "of no NUMA node that the kernel names");
    y = AddCards(&inside, x + 12, y + 24, loose);
  }
  AddBox(svg, kMargin, kMargin, kCard + 56, y + 4 - kMargin, "card");
  AddText(svg, x, kMargin + 26, "title", Printable(topology.host()));
  AddText(svg, x, kMargin + 45, "dim",
          absl::StrCat(topology.cpus(), " CPUs, ", SizeText(topology.memory_bytes())));
  *svg += inside;
  return y + 4;
}

// The right part; its height.
int AddLinks(std::string* svg, const std::vector<PictureLink>& links, int machine_height) {
  const int from = kMargin + kCard + 56;
  const int x = from + kNodeGap;
  const size_t shown = std::min(links.size(), kLinksMax);
  const int height = static_cast<int>(shown) * (kRow + kGap) + kMargin;
  const int start_y = kMargin + (machine_height - kMargin) / 2;
  int y = std::max(kMargin, start_y - height / 2 + kMargin);
  for (size_t i = 0; i < shown; ++i, y += kRow + kGap) {
    const PictureLink& link = links[i];
    const int to_y = y + kRow / 2;
    const double now = std::max(link.sent, link.received);
    const double part =
        link.bytes_per_second > 0 ? std::clamp(now / link.bytes_per_second, 0.0, 1.0) : 0;
    // A busy link is a thick one.
    char width[16];
    std::snprintf(width, sizeof(width), "%.1f", 1.5 + 6.5 * part);
    // They leave the machine near its middle, so that none lies on another's label.
    const int from_y = start_y + (to_y - start_y) / 4;
    absl::StrAppend(svg, "<path class=\"link", link.connected ? "" : " off", "\" ",
                    link.connected ? absl::StrCat("stroke-width=\"", width, "\" ") : "", "d=\"M",
                    from, " ", from_y, " C", from + 60, " ", from_y, " ", from + 50, " ", to_y, " ",
                    from + 110, " ", to_y, " L", x, " ", to_y, "\"/>\n");
  }
  y = std::max(kMargin, start_y - height / 2 + kMargin);
  for (size_t i = 0; i < shown; ++i, y += kRow + kGap) {
    const PictureLink& link = links[i];
    AddBox(svg, x, y, kPeer, kRow, link.connected ? "card peer" : "card peer off");
    AddText(svg, x + 12, y + 20, "head", Short(link.node, 30));
    std::string words = absl::StrCat(link.role == "aggregator" ? "aggregator " : "", link.state);
    if (link.bytes_per_second > 0) {
      absl::StrAppend(&words, ", ", TimeText(link.latency_seconds), ", ",
                      RateText(link.bytes_per_second));
    }
    AddText(svg, x + 12, y + 38, "dim", Short(words, 42));
    AddLoad(svg, x + 12, y + kRow - 12, kPeer - 24, std::max(link.sent, link.received),
            link.bytes_per_second);
    if (!link.connected) continue;
    AddText(svg, x - 10, y + kRow / 2 - 8, "dim label", absl::StrCat("out ", RateText(link.sent)),
            "end");
    AddText(svg, x - 10, y + kRow / 2 + 18, "dim label",
            absl::StrCat("in ", RateText(link.received)), "end");
  }
  if (shown < links.size()) {
    AddText(svg, x, y + 14, "dim", absl::StrCat("and ", links.size() - shown, " more nodes"));
    y += 24;
  }
  return y;
}

}  // namespace

std::string TopologySvg(const v1::GetTopologyResponse& topology, const std::vector<NicRate>& nics,
                        const std::vector<PictureLink>& links) {
  std::string body;
  int height = AddMachine(&body, topology, nics);
  int width = kMargin + kCard + 56 + kMargin;
  if (!links.empty()) {
    height = std::max(height, AddLinks(&body, links, height));
    width += kNodeGap + kPeer;
  }
  height += kMargin;
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ",
                      height, "\" width=\"", width, "\" height=\"", height,
                      "\" role=\"img\" aria-labelledby=\"title\">\n<title id=\"title\">",
                      Escaped(Printable(topology.host())), ": its cards, and its links to ",
                      links.size(), " other nodes</title>\n", kStyle, body, "</svg>\n");
}

}  // namespace shunt::tools
