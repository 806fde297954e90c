// The daemon's own executor and transport engine on a network in virtual time: what they would do
// is not modelled but done, only without the data: a payload is short and counts as a long one.
#include <algorithm>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/collectives/sim/net_run.h"
#include "runtime/collectives/sim/short_payload.h"
#include "runtime/exchange/exchange.h"
#include "runtime/transport/fake/network.h"

namespace shunt::sim {
namespace {

constexpr uint64_t kCommunicator = 1;
// Of a call with a root: the daemons let no one run ahead of it (see runtime/exchange).
constexpr uint32_t kAgreementChannel = 1u << 31;
class Run {
 public:
  explicit Run(const NetRun& run)
      : run_(run),
        cluster_(*run.cluster),
        endpoints_(run.spec.participants + run.spec.aggregators),
        scale_(ScaleOf(run)),
        call_(CallOf(run, scale_)),
        network_(NetworkOptions(cluster_, scale_)),
        pool_(size_t{64} << 20),
        nodes_(endpoints_) {}

  absl::StatusOr<NetOutcome> Do() {
    if (absl::Status s = Connect(); !s.ok()) return s;
    begin_ns_ = network_.now_ns();
    for (int e = 0; e < endpoints_; ++e) Call(e);
    while (failure_.empty()) {
      int e;
      while (network_.NextTouched(&e)) Poll(e);
      if (ended_ == endpoints_) break;
      if (!Next()) return absl::InternalError("the simulated operation is stuck");
    }
    return Outcome();
  }

 private:
  struct Node {
    int called = 0;  // operations
    bool dead = false;
    std::unique_ptr<exchange::Exchange> data, agreement;
    int64_t half_ns = 0;  // when the operations before the measured ones had ended
    int64_t end_ns = 0;
  };

  int FirstMeasured() const { return cluster_.operations / 2; }

  absl::Status Connect() {
    std::set<std::pair<int, int>> pairs;
    const auto add = [&](const NetSpec& spec) {
      for (int p = 0; p < spec.participants + spec.aggregators; ++p) {
        const uint32_t steps = NetStepCount(spec, p);
        for (uint32_t i = 0; i < steps; ++i) {
          const NetStep step = NetStepAt(spec, p, i);
          if (step.kind != NetStep::Kind::kCombine) pairs.insert(std::minmax(p, step.peer));
        }
      }
    };
    add(run_.spec);
    agreement_.kind = OpKind::kBarrier;
    agreement_.algorithm = Algorithm::kRecursiveDoubling;
    agreement_.participants = run_.spec.participants;
    if (HasRoot(run_.spec.kind)) add(agreement_);

    std::vector<int32_t> labels(run_.spec.participants);
    for (int p = 0; p < run_.spec.participants; ++p) labels[p] = p;
    absl::StatusOr<exchange::NodeMap> map = exchange::NodeMap::Make(labels);
    if (!map.ok()) return map.status();
    map_ = *std::move(map);

    std::vector<std::vector<transport::PeerId>> peers(endpoints_);
    for (int e = 0; e < endpoints_; ++e) {
      network_.AddEndpoint();
      ids_.push_back(static_cast<transport::PeerId>(e));
      transport::PortRate rate;
      rate.bytes_per_second = run_.bytes_per_s[e];
      rate.burst_bytes = cluster_.burst_bytes;
      rate.peak_bytes_per_second = cluster_.burst_bytes_per_s;
      transport::PortRate in = rate;
      rate.frame_ns = static_cast<int64_t>(cluster_.message_s * 1e9);
      network_.SetPorts(e, rate, in);
    }
    for (const auto& [a, b] : pairs) {
      network_.Connect(a, b);
      peers[a].push_back(static_cast<transport::PeerId>(b));
      peers[b].push_back(static_cast<transport::PeerId>(a));
    }
    for (int e = 0; e < endpoints_; ++e) {
      if (absl::Status s = network_.endpoint(e).Open(kCommunicator, peers[e]); !s.ok()) return s;
      Poll(e);
    }
    while (network_.Step()) {
    }
    size_t bytes = call_.count;
    bytes *= std::max({InputBlocks(call_, map_.world(), call_.root),
                       OutputBlocks(call_, map_.world(), call_.root), uint32_t{1}});
    // The numbers do not matter: all nodes read one buffer and write another.
    in_.resize(bytes);
    out_.resize(bytes);
    return absl::OkStatus();
  }

  exchange::Exchange::Setup SetupOf(int e, const CollectiveSpec& call, const NetSpec& net,
                                    uint32_t slices, uint32_t channel) {
    exchange::Exchange::Setup setup;
    setup.shape.map = &map_;
    setup.shape.call = call;
    setup.shape.net = net;
    if (setup.shape.net.kind == OpKind::kAllToAllV) setup.shape.net.kind = OpKind::kAllToAll;
    setup.shape.slices = slices;
    setup.node = e;
    setup.program = exchange::Exchange::ProgramOf(setup.shape.net, e);
    setup.window = cluster_.window;
    setup.peers = ids_;
    setup.header.tag.communicator = kCommunicator;
    setup.header.tag.sequence = static_cast<uint64_t>(nodes_[e].called);
    setup.header.tag.channel = channel;
    setup.header.signature = 1;
    if (e < map_.nodes()) {
      const bool reads = InputBlocks(call, map_.world(), e) != 0;
      const bool writes = OutputBlocks(call, map_.world(), e) != 0;
      setup.local.push_back({reads ? in_.data() : nullptr, writes ? out_.data() : nullptr, {}});
    }
    return setup;
  }

  // The node's own time passes before its next operation.
  void Call(int e) {
    ++nodes_[e].called;
    wakes_.push({network_.now_ns() + static_cast<int64_t>(cluster_.call_s * 1e9), e});
  }

  void Begin(int e) {
    Node& node = nodes_[e];
    if (node.dead) return;
    const auto token = 2 * static_cast<uint64_t>(node.called);
    node.data = std::make_unique<exchange::Exchange>(SetupOf(e, call_, run_.spec, run_.slices, 0),
                                                     &network_.endpoint(e), &pool_, token << 32);
    node.data->Start();
    if (HasRoot(run_.spec.kind) && e < run_.spec.participants) {
      CollectiveSpec barrier{};
      barrier.kind = OpKind::kBarrier;
      barrier.dtype = DataType::kUint8;
      node.agreement = std::make_unique<exchange::Exchange>(
          SetupOf(e, barrier, agreement_, 1, kAgreementChannel), &network_.endpoint(e), &pool_,
          (token | 1) << 32);
      node.agreement->Start();
    }
    Poll(e);
  }

  void Poll(int e) {
    if (nodes_[e].dead) return;
    transport::Completion batch[32];
    while (const size_t count = network_.endpoint(e).Poll(absl::MakeSpan(batch))) {
      for (size_t i = 0; i < count && failure_.empty(); ++i) Complete(e, batch[i]);
    }
    Settle(e);
  }

  void Complete(int e, const transport::Completion& c) {
    Node& node = nodes_[e];
    switch (c.event) {
      case transport::Event::kSent:
      case transport::Event::kReceived: {
        const uint64_t number = c.token >> 32;
        if (c.code == absl::StatusCode::kUnavailable) return;  // kPeerLost says why
        exchange::Exchange& exchange = number % 2 == 0 ? *node.data : *node.agreement;
        exchange.OnCompletion(c);
        if (!exchange.status().ok()) Report(e, std::string(exchange.status().message()));
        return;
      }
      case transport::Event::kPeerLost:
        Report(e, c.text);
        return;
      default:
        return;  // strays came before their receive
    }
  }

  void Report(int e, const std::string& why) {
    if (!failure_.empty()) return;
    const bool rooted = e < run_.spec.participants;
    failure_ = absl::StrCat(rooted ? "unit " : "aggregator ",
                            rooted ? e : e - run_.spec.participants, " lost ", why);
  }

  void Settle(int e) {
    Node& node = nodes_[e];
    if (node.data == nullptr || !node.data->done() || !failure_.empty()) return;
    if (node.agreement != nullptr && !node.agreement->done()) return;
    node.data.reset();
    node.agreement.reset();
    if (node.called == FirstMeasured()) node.half_ns = network_.now_ns() - begin_ns_;
    if (node.called < cluster_.operations) {
      Call(e);
      return;
    }
    node.end_ns = network_.now_ns() - begin_ns_;
    ++ended_;
  }

  // Goes on to whatever is next; false if there is nothing.
  bool Next() {
    const int64_t network_ns = network_.next_ns();
    const int64_t wake_ns = wakes_.empty() ? -1 : wakes_.top().first;
    const auto first = [](int64_t a, int64_t b) { return a >= 0 && (b < 0 || a <= b); };
    if (const int64_t fail_ns = NextFailure();
        first(fail_ns, wake_ns) && first(fail_ns, network_ns)) {
      network_.RunUntil(fail_ns);
      ApplyFailure();
      return true;
    }
    if (first(wake_ns, network_ns)) {
      const int e = wakes_.top().second;
      wakes_.pop();
      network_.RunUntil(wake_ns);
      Begin(e);
      return true;
    }
    return network_.Step();
  }

  // When, or -1; it is the next one after those that have been.
  int64_t NextFailure() {
    next_failure_ = nullptr;
    for (size_t i = 0; i < cluster_.failures.size(); ++i) {
      const Failure& f = cluster_.failures[i];
      if (failed_.contains(i)) continue;
      if (next_failure_ != nullptr && next_failure_->at_s <= f.at_s) continue;
      next_failure_ = &f;
      next_failure_index_ = i;
    }
    if (next_failure_ == nullptr) return -1;
    return begin_ns_ + static_cast<int64_t>(next_failure_->at_s * 1e9);
  }

  void ApplyFailure() {
    failed_.insert(next_failure_index_);
    const int e = cluster_.UnitOfNode(next_failure_->node);
    if (next_failure_->what == Failure::What::kNode) {
      nodes_[e].dead = true;
      network_.Kill(e);
      return;
    }
    for (int other = 0; other < endpoints_; ++other) {
      if (network_.Connected(e, other)) network_.Partition(e, other);
    }
  }

  NetOutcome Outcome() {
    NetOutcome outcome;
    outcome.messages = network_.frames();
    outcome.failure = failure_;
    std::vector<PortLoad> out, in;
    int64_t first_ns = 0, last_ns = 0;
    for (int e = 0; e < endpoints_; ++e) {
      const transport::PortUse o = network_.out_use(e), i = network_.in_use(e);
      const double operations = cluster_.operations;
      out.push_back({o.bytes / operations, static_cast<double>(o.busy_ns) * 1e-9 / operations});
      in.push_back({i.bytes / operations, static_cast<double>(i.busy_ns) * 1e-9 / operations});
      first_ns = std::max(first_ns, nodes_[e].half_ns);
      last_ns = std::max(last_ns, nodes_[e].end_ns);
    }
    outcome.busiest = BusiestOf(out, in);
    const int measured = cluster_.operations - FirstMeasured();
    outcome.seconds = failure_.empty() ? static_cast<double>(last_ns - first_ns) * 1e-9 / measured
                                       : static_cast<double>(network_.now_ns() - begin_ns_) * 1e-9;
    return outcome;
  }

  const NetRun& run_;
  const Cluster& cluster_;
  const int endpoints_;
  const uint64_t scale_;
  const CollectiveSpec call_;
  NetSpec agreement_;
  exchange::NodeMap map_;
  transport::FakeNetwork network_;
  exchange::BufferPool pool_;
  std::vector<transport::PeerId> ids_;
  std::vector<std::byte> in_, out_;
  std::vector<Node> nodes_;
  // When whose next operation begins.
  std::priority_queue<std::pair<int64_t, int>, std::vector<std::pair<int64_t, int>>, std::greater<>>
      wakes_;
  std::set<size_t> failed_;
  const Failure* next_failure_ = nullptr;
  size_t next_failure_index_ = 0;
  int64_t begin_ns_ = 0;
  int ended_ = 0;
  std::string failure_;
};

}  // namespace

double ExecutedWork(const NetRun& run) {
  // The executor looks over a slice's open steps whenever one ends.
  double work = 0;
  const int everyone = run.spec.participants + run.spec.aggregators;
  // All do about as much, or few do more: beyond a thousand a sample will do.
  const int stride = std::max(1, everyone / 1000);
  for (int p = 0; p < everyone; p += stride) {
    const double steps = NetStepCount(run.spec, p);
    work += steps * (steps / 2 + 500) * stride;
  }
  return work * run.slices * run.cluster->operations;
}

absl::StatusOr<NetOutcome> RunExecuted(const NetRun& run) { return Run(run).Do(); }

}  // namespace shunt::sim
