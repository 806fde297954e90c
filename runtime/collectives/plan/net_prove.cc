#include "runtime/collectives/plan/net_prove.h"

#include <algorithm>
#include <vector>

#include "runtime/collectives/plan/net_contributions.h"
#include "runtime/collectives/plan/net_definition.h"
#include "runtime/collectives/plan/net_graph.h"

namespace shunt {

using Kind = NetStep::Kind;
using net::kNone;

// Runs the graph: whatever is ready, until nothing is. All hazards are edges, so any order gives
// the same.
class NetProver::Run {
 public:
  absl::StatusOr<NetProof> Prove(const NetSpec& spec, const NetSteps& source) {
    proof_ = NetProof();
    if (absl::Status s = graph_.Build(spec, source); !s.ok()) return s;
    net::CountLoads(graph_, &proof_);
    Begin();
    if (absl::Status s = Execute(); !s.ok()) return s;
    if (absl::Status s = CheckEnd(); !s.ok()) return s;
    return proof_;
  }

 private:
  // A block of a participant, or one that has arrived and is not combined yet.
  struct Place {
    uint32_t value;  // kNone: not held
    uint32_t ready;  // rounds and ...
    uint32_t depth;  // ... messages that it took to get here
  };

  void Begin() {
    const NetSpec& spec = graph_.spec();
    const uint32_t blocks = graph_.blocks();
    const bool reduces = Reduces(net::PlanKind(spec.kind));
    values_.Reset(spec.participants);
    places_.assign(static_cast<size_t>(graph_.everyone()) * blocks, {kNone, 0, 0});
    arrived_.resize(graph_.touch_count());
    outputs_.assign(graph_.everyone(), kNone);
    for (int32_t p = 0; p < spec.participants; ++p) {
      for (uint32_t b = 0; b < blocks; ++b) {
        // Where blocks only move, the number of the block says all about its value.
        if (net::HeldAtFirst(spec, p, b)) At(p, b).value = values_.Of(reduces ? p : 0);
      }
    }
  }

  absl::Status Execute() {
    std::vector<uint32_t>& waits = graph_.waits();
    ready_.clear();
    size_t nodes = 0;
    for (uint32_t i = 0; i < graph_.size(); ++i) {
      if (graph_[i].step.kind == Kind::kRecv) continue;
      ++nodes;
      if (waits[i] == 0) ready_.push_back(i);
    }
    for (size_t done = 0; done < ready_.size(); ++done) {
      const uint32_t i = ready_[done];
      const Kind kind = graph_[i].step.kind;
      absl::Status status = kind == Kind::kSend         ? Move(i)
                            : kind == Kind::kRecvReduce ? Combine(i)
                                                        : CombineVectors(i);
      if (!status.ok()) return status;
      graph_.ForEachSuccessor(i, [&](uint32_t next) {
        if (--waits[next] == 0) ready_.push_back(next);
      });
    }
    if (ready_.size() == nodes) return absl::OkStatus();
    uint32_t stuck = 0;
    while (graph_[stuck].step.kind == Kind::kRecv || waits[stuck] == 0) ++stuck;
    return graph_.WrongStep(stuck, "never comes to its end: steps wait for each other in a circle");
  }

  // Carries out the message of a send: into the receiver's blocks, or to where arrivals wait.
  absl::Status Move(uint32_t send) {
    const net::Graph::Step& from = graph_[send];
    const net::Graph::Step& to = graph_[from.peer_step];
    uint32_t depth = 0;
    for (uint32_t t = from.touch; t < from.touch_end; ++t) {
      const uint32_t block = graph_.block(t);
      const Place& place = At(from.owner, block);
      if (place.value == kNone) return graph_.WrongStep(send, "sends block ", block, ", not held");
      if (place.ready > from.step.round) {
        return graph_.WrongStep(send, "is in round ", from.step.round, ", but block ", block,
                                " is there only in round ", place.ready);
      }
      depth = std::max(depth, place.depth + 1);
    }
    proof_.depth = std::max(proof_.depth, depth);
    for (uint32_t i = 0; i < from.touch_end - from.touch; ++i) {
      const uint32_t block = graph_.block(from.touch + i);
      const Place moved = {At(from.owner, block).value, from.step.round + 1, depth};
      (to.step.kind == Kind::kRecv ? At(to.owner, block) : arrived_[to.touch + i]) = moved;
    }
    return absl::OkStatus();
  }

  absl::Status Combine(uint32_t index) {
    const net::Graph::Step& s = graph_[index];
    for (uint32_t t = s.touch; t < s.touch_end; ++t) {
      Place& place = At(s.owner, graph_.block(t));
      const Place& in = arrived_[t];
      if (place.value == kNone) {
        if (s.owner < graph_.spec().participants) {
          return graph_.WrongStep(index, "reduces into block ", graph_.block(t), ", not held");
        }
        place = in;
        continue;
      }
      const uint32_t sum = s.step.peer_first ? values_.Combine(in.value, place.value)
                                             : values_.Combine(place.value, in.value);
      if (sum == kNone) {
        return graph_.WrongStep(index, "combines a contribution to block ", graph_.block(t),
                                " twice");
      }
      place = {sum, std::max(place.ready, in.ready), std::max(place.depth, in.depth)};
    }
    return absl::OkStatus();
  }

  absl::Status CombineVectors(uint32_t index) {
    const net::Graph::Step& s = graph_[index];
    uint32_t sum = kNone;
    for (uint32_t t = s.touch; t < s.touch_end; ++t) {
      const uint32_t value = At(s.owner, graph_.block(t)).value;
      if (value == kNone) {
        return graph_.WrongStep(index, "combines block ", graph_.block(t), ", not held");
      }
      sum = t == s.touch ? value : values_.Combine(sum, value);
      if (sum == kNone) return graph_.WrongStep(index, "combines a contribution twice");
    }
    if (outputs_[s.owner] != kNone) return graph_.WrongStep(index, "writes the output once more");
    outputs_[s.owner] = sum;
    return absl::OkStatus();
  }

  absl::Status CheckEnd() const {
    const NetSpec& spec = graph_.spec();
    const OpKind kind = net::PlanKind(spec.kind);
    const bool vectors = net::CombinesVectors(spec) && spec.participants > 1;
    for (int32_t p = 0; p < spec.participants; ++p) {
      for (uint32_t b = 0; b < (vectors ? 1 : graph_.blocks()); ++b) {
        if (!net::HeldAtEnd(spec, p, b)) continue;
        const uint32_t held = vectors ? outputs_[p] : At(p, b).value;
        if (held == kNone) return graph_.Wrong("participant ", p, " lacks block ", b);
        if (Reduces(kind) && !values_.IsWhole(held)) {
          return graph_.Wrong("participant ", p, " has block ", b, " with ", values_.Size(held),
                              " of ", spec.participants, " contributions");
        }
        const uint32_t first = vectors ? outputs_[0] : At(0, b).value;
        if (kind == OpKind::kAllReduce && !values_.SameExpression(held, first)) {
          return graph_.Wrong("participants 0 and ", p, " combine block ", b,
                              " in different orders");
        }
      }
    }
    return absl::OkStatus();
  }

  Place& At(int32_t p, uint32_t block) {
    return places_[static_cast<size_t>(p) * graph_.blocks() + block];
  }
  const Place& At(int32_t p, uint32_t block) const {
    return places_[static_cast<size_t>(p) * graph_.blocks() + block];
  }

  net::Graph graph_;
  NetProof proof_;
  net::Contributions values_;
  std::vector<Place> places_;   // by participant and block
  std::vector<Place> arrived_;  // by touch
  std::vector<uint32_t> outputs_;
  std::vector<uint32_t> ready_;
};

NetProver::NetProver() : run_(std::make_unique<Run>()) {}
NetProver::~NetProver() = default;

absl::StatusOr<NetProof> NetProver::Prove(const NetSpec& spec) {
  const auto count = [&](int p) { return NetStepCount(spec, p); };
  const auto at = [&](int p, uint32_t index) { return NetStepAt(spec, p, index); };
  return run_->Prove(spec, {count, at});
}

absl::StatusOr<NetProof> NetProver::Prove(const NetSpec& spec, const NetSteps& steps) {
  return run_->Prove(spec, steps);
}

}  // namespace shunt
