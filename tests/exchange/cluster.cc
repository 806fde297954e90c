#include "tests/exchange/cluster.h"

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"

namespace shunt::testing {
namespace {

constexpr size_t kMargin = 64;
constexpr std::byte kUntouched{0xa5};
constexpr uint64_t kCommunicator = 77;

transport::FakeNetwork::Options NetworkOptions(const CallCase& c) {
  transport::FakeNetwork::Options options;
  options.seed = c.network_seed;
  options.jitter_ns = c.jitter_ns;
  return options;
}

}  // namespace

// Blocks lie one after the other, by peer.
struct Cluster::Pairs final : exchange::PairTable {
  const std::vector<std::vector<uint64_t>>* counts;
  Entry At(int source, int destination) const override {
    Entry entry;
    entry.count = (*counts)[source][destination];
    for (int d = 0; d < destination; ++d) entry.in_element += (*counts)[source][d];
    for (int s = 0; s < source; ++s) entry.out_element += (*counts)[s][destination];
    return entry;
  }
};

Cluster::Cluster(const CallCase& c)
    : case_(c),
      map_(*exchange::NodeMap::Make(c.node_of)),
      network_(NetworkOptions(c)),
      pool_(64 << 20) {
  const int endpoints = map_.nodes() + c.aggregators;
  for (int i = 0; i < endpoints; ++i) {
    network_.AddEndpoint();
    peers_.push_back(static_cast<transport::PeerId>(i));
  }
  for (int a = 0; a < endpoints; ++a) {
    for (int b = a + 1; b < endpoints; ++b) network_.Connect(a, b);
  }
  inputs_.resize(map_.world());
  buffers_.resize(map_.world());
  for (int rank = 0; rank < map_.world(); ++rank) MakeBuffers(rank);
  if (c.call.kind == OpKind::kAllToAllV) {
    pairs_ = std::make_unique<Pairs>();
    pairs_->counts = &case_.pair_counts;
  }
}

Cluster::~Cluster() = default;

uint64_t Cluster::Factor(int rank) const { return static_cast<uint64_t>(rank) * 3 + 1; }

void Cluster::MakeBuffers(int rank) {
  const int world = map_.world();
  const size_t element = SizeOf(case_.call.dtype);
  uint64_t in = InputBlocks(case_.call, world, rank) * case_.call.count;
  uint64_t out = OutputBlocks(case_.call, world, rank) * case_.call.count;
  if (case_.call.kind == OpKind::kAllToAllV) {
    in = out = 0;
    for (int p = 0; p < world; ++p) {
      in += case_.pair_counts[rank][p];
      out += case_.pair_counts[p][rank];
    }
  }
  inputs_[rank].resize(in * element);
  std::mt19937_64 random(case_.seed * 1000 + static_cast<uint64_t>(rank));
  for (uint64_t i = 0; i < in; ++i) {
    std::byte* at = inputs_[rank].data() + i * element;
    if (case_.call.dtype == DataType::kFloat32) {
      const float value = static_cast<float>(static_cast<int64_t>(random() % 20001) - 10000) / 7;
      std::memcpy(at, &value, 4);
    } else {
      const uint64_t value = random();
      std::memcpy(at, &value, element);
    }
  }
  Buffers& b = buffers_[rank];
  b.in.assign(in * element + 2 * kMargin, kUntouched);
  b.out.assign(out * element + 2 * kMargin, kUntouched);
  b.out_bytes = out * element;
  b.in_at = in == 0 ? nullptr : b.in.data() + kMargin;
  b.out_at = out == 0 ? nullptr : b.out.data() + kMargin;
  if (case_.in_place && in != 0 && out != 0) {
    const uint64_t block = case_.call.count * element;
    const auto own = static_cast<uint64_t>(HasRoot(case_.call.kind) ? case_.call.root : rank);
    switch (case_.call.kind) {
      case OpKind::kReduceScatter:
      case OpKind::kScatter:
        b.out_at = b.in_at + own * block;
        break;
      case OpKind::kAllGather:
      case OpKind::kGather:
        b.in_at = b.out_at + own * block;
        break;
      default:
        b.in_at = b.out_at;
    }
  }
  if (in != 0) std::memcpy(b.in_at, inputs_[rank].data(), in * element);
}

std::string Cluster::Run() {
  const int endpoints = static_cast<int>(peers_.size());
  std::vector<std::unique_ptr<exchange::Exchange>> exchanges;
  for (int node = 0; node < endpoints; ++node) {
    std::vector<transport::PeerId> others;
    for (const transport::PeerId peer : peers_) {
      if (static_cast<int>(peer) != node) others.push_back(peer);
    }
    if (absl::Status s = network_.endpoint(node).Open(kCommunicator, others); !s.ok()) {
      return s.ToString();
    }
    exchange::Exchange::Setup setup;
    setup.shape.map = &map_;
    setup.shape.call = case_.call;
    setup.shape.slices = case_.slices;
    setup.shape.net.kind =
        case_.call.kind == OpKind::kAllToAllV ? OpKind::kAllToAll : case_.call.kind;
    setup.shape.net.algorithm = case_.algorithm;
    setup.shape.net.participants = map_.nodes();
    setup.shape.net.aggregators = case_.aggregators;
    setup.shape.net.root = HasRoot(case_.call.kind) ? map_.node_of[case_.call.root] : 0;
    if (absl::Status s = ValidateNetSpec(setup.shape.net); !s.ok()) return s.ToString();
    setup.node = node;
    setup.program = exchange::Exchange::ProgramOf(setup.shape.net, node);
    setup.window = case_.window;
    setup.sends_max = case_.sends_max;
    setup.pairs = pairs_.get();
    setup.peers = peers_;
    setup.header.tag.communicator = kCommunicator;
    setup.header.tag.sequence = 1;
    setup.header.signature = 5;
    if (node < map_.nodes()) {
      for (const int rank : map_.ranks_of[node]) {
        exchange::Exchange::LocalRank local{buffers_[rank].in_at, buffers_[rank].out_at, {}};
        const uint64_t factor = Factor(rank);
        std::memcpy(local.scalar.bytes, &factor, sizeof(factor));
        setup.local.push_back(local);
      }
    }
    exchanges.push_back(std::make_unique<exchange::Exchange>(
        std::move(setup), &network_.endpoint(node), &pool_, /*token_base=*/uint64_t{9} << 32));
  }
  for (auto& e : exchanges) e->Start();
  std::vector<transport::Completion> completions(64);
  while (true) {
    bool any = false, all_done = true;
    for (int node = 0; node < endpoints; ++node) {
      size_t count;
      while ((count = network_.endpoint(node).Poll(absl::MakeSpan(completions))) != 0) {
        any = true;
        for (size_t i = 0; i < count; ++i) {
          const transport::Completion& c = completions[i];
          if (c.event == transport::Event::kSent || c.event == transport::Event::kReceived) {
            exchanges[node]->OnCompletion(c);
          } else if (c.event != transport::Event::kPeerUp) {
            if (c.event == transport::Event::kStray) continue;  // came before its receive
            return absl::StrCat("node ", node, ": event ", static_cast<int>(c.event), " ", c.text);
          }
        }
      }
      if (!exchanges[node]->status().ok()) return exchanges[node]->status().ToString();
      all_done = all_done && exchanges[node]->done();
    }
    if (all_done) break;
    if (!network_.Step() && !any) return "stuck: nothing is on its way";
  }
  exchanges.clear();
  return pool_.taken_bytes() == 0 ? ""
                                  : absl::StrCat(pool_.taken_bytes(), " bytes of scratch kept");
}

std::vector<std::byte> Cluster::Output(int rank) const {
  const Buffers& b = buffers_[rank];
  if (b.out_at == nullptr) return {};
  return {b.out_at, b.out_at + b.out_bytes};
}

bool Cluster::MarginsWhole() const {
  for (const Buffers& b : buffers_) {
    for (const std::vector<std::byte>* memory : {&b.in, &b.out}) {
      for (size_t i = 0; i < kMargin; ++i) {
        if ((*memory)[i] != kUntouched || (*memory)[memory->size() - 1 - i] != kUntouched) {
          return false;
        }
      }
    }
  }
  return true;
}

uint64_t Cluster::PayloadSent(int node) const {
  uint64_t bytes = 0;
  for (const transport::PeerId peer : peers_) {
    if (static_cast<int>(peer) == node) continue;
    bytes += const_cast<transport::FakeNetwork&>(network_)
                 .endpoint(node)
                 .counters(peer)
                 .payload_bytes_sent;
  }
  return bytes;
}

}  // namespace shunt::testing
