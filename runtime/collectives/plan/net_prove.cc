#include "runtime/collectives/plan/net_prove.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/collectives/plan/net_contributions.h"

namespace shunt {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};

using Kind = NetStep::Kind;
bool Writes(Kind kind) { return kind == Kind::kRecv || kind == Kind::kRecvReduce; }

}  // namespace

// One proof. Tables are indexed by step (all participants' in one row), by touch (a block of a
// step) or by place (a block of a participant).
//
// Nodes of the graph are steps: a send is its message, a kRecvReduce its combination, a kCombine
// itself. A kRecv has no node of its own: it is over when its message is.
class NetProver::Run {
 public:
  absl::StatusOr<NetProof> Prove(const NetSpec& spec, const NetSteps& source) {
    spec_ = &spec;
    participants_ = spec.participants;
    everyone_ = participants_ + spec.aggregators;
    blocks_ = BlockCount(spec);
    proof_ = NetProof();
    if (absl::Status s = Load(source); !s.ok()) return s;
    if (absl::Status s = Pair(); !s.ok()) return s;
    Depend();
    CountBlocks();
    if (absl::Status s = Execute(); !s.ok()) return s;
    if (absl::Status s = CheckEnd(); !s.ok()) return s;
    return proof_;
  }

 private:
  struct Step {
    NetStep step;
    int32_t owner;
    uint32_t touch, touch_end;  // its blocks
    uint32_t send;              // of a receive: the step that sends to it
  };
  struct Place {
    uint32_t value;  // kNone: not held
    uint32_t ready;  // rounds and ...
    uint32_t depth;  // ... messages that it took to get here
  };

  // Reads all steps and checks each for itself.
  absl::Status Load(const NetSteps& source) {
    steps_.clear();
    touches_.clear();
    first_.assign(1, 0);
    seen_.assign(blocks_, kNone);
    for (int32_t p = 0; p < everyone_; ++p) {
      const uint32_t count = source.count(p);
      for (uint32_t i = 0; i < count; ++i) {
        Step s = {source.at(p, i), p, static_cast<uint32_t>(touches_.size()), 0, kNone};
        const uint32_t index = static_cast<uint32_t>(steps_.size());
        steps_.push_back(s);
        const NetStep& step = s.step;
        const bool local = step.kind == Kind::kCombine;
        if (step.peer < 0 || step.peer >= everyone_ || (step.peer == p) != local) {
          return Error(index, "names peer ", step.peer, ", expected another one of ", everyone_);
        }
        if (step.blocks.count == 0 || step.blocks.count > blocks_) {
          return Error(index, "has ", step.blocks.count, " blocks, expected 1 to ", blocks_);
        }
        if (step.kind == Kind::kRecvReduce && !Reduces(PlanKind())) {
          return Error(index, "combines, but the operation only moves");
        }
        if (local && !CombinesVectors()) {
          return Error(index, "combines whole vectors, but blocks are parts of one");
        }
        uint32_t wrong = kNone;
        ForEachBlock(*spec_, p, step, [&](uint32_t block) {
          touches_.push_back(block);
          if (block >= blocks_ || seen_[block] == index) {
            wrong = block;
          } else {
            seen_[block] = index;
          }
        });
        if (wrong != kNone) {
          return Error(index, "names block ", wrong, " of ", blocks_, " twice or out of range");
        }
        steps_.back().touch_end = static_cast<uint32_t>(touches_.size());
        proof_.rounds = std::max(proof_.rounds, step.round + 1);
      }
      first_.push_back(static_cast<uint32_t>(steps_.size()));
    }
    return absl::OkStatus();
  }

  // Finds for each receive its send.
  absl::Status Pair() {
    const auto key = [this](int32_t from, int32_t to) {
      return static_cast<size_t>(from) * everyone_ + to;
    };
    head_.assign(static_cast<size_t>(everyone_) * everyone_, kNone);
    tail_.resize(head_.size());
    next_send_.resize(steps_.size());
    size_t unmatched = 0;
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      const Step& s = steps_[i];
      if (s.step.kind != Kind::kSend) continue;
      const size_t k = key(s.owner, s.step.peer);
      (head_[k] == kNone ? head_[k] : next_send_[tail_[k]]) = i;
      tail_[k] = i;
      next_send_[i] = kNone;
      ++unmatched;
    }
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      Step& s = steps_[i];
      if (!Writes(s.step.kind)) continue;
      uint32_t& send = head_[key(s.step.peer, s.owner)];
      if (send == kNone) return Error(i, "receives what nobody sends");
      s.send = send;
      send = next_send_[send];
      --unmatched;
      const Step& from = steps_[s.send];
      if (from.touch_end - from.touch != s.touch_end - s.touch ||
          !std::equal(touches_.begin() + from.touch, touches_.begin() + from.touch_end,
                      touches_.begin() + s.touch)) {
        return Error(i, "expects other blocks than its peer sends");
      }
      if (from.step.round != s.step.round) {
        return Error(i, "is in round ", s.step.round, ", its send in ", from.step.round);
      }
    }
    if (unmatched == 0) return absl::OkStatus();
    for (uint32_t send : head_) {
      if (send != kNone) return Error(send, "sends what nobody receives");
    }
    return absl::OkStatus();
  }

  // Draws the edges of the graph.
  void Depend() {
    edges_.clear();
    edge_head_.assign(steps_.size(), kNone);
    waits_.assign(steps_.size(), 0);
    writer_.assign(blocks_, kNone);
    readers_.assign(blocks_, kNone);
    for (int32_t p = 0; p < everyone_; ++p) {
      reader_list_.clear();
      for (uint32_t i = first_[p]; i < first_[p + 1]; ++i) {
        const Step& s = steps_[i];
        const Kind kind = s.step.kind;
        // The node that begins the step and the one that ends it.
        const uint32_t begin = Writes(kind) ? s.send : i;
        const uint32_t end = kind == Kind::kRecv ? s.send : i;
        if (kind == Kind::kRecvReduce) AddEdge(begin, end);
        for (uint32_t t = s.touch; t < s.touch_end; ++t) {
          const uint32_t block = touches_[t];
          if (writer_[block] != kNone) AddEdge(writer_[block], begin);
          if (!Writes(kind)) {
            reader_list_.push_back({end, readers_[block]});
            readers_[block] = static_cast<uint32_t>(reader_list_.size() - 1);
            continue;
          }
          for (uint32_t r = readers_[block]; r != kNone; r = reader_list_[r].second) {
            AddEdge(reader_list_[r].first, end);
          }
          readers_[block] = kNone;
          writer_[block] = end;
        }
      }
      for (uint32_t t = Touch(first_[p]); t < Touch(first_[p + 1]); ++t) {
        writer_[touches_[t]] = readers_[touches_[t]] = kNone;
      }
    }
  }

  void AddEdge(uint32_t from, uint32_t to) {
    edges_.push_back({to, edge_head_[from]});
    edge_head_[from] = static_cast<uint32_t>(edges_.size() - 1);
    ++waits_[to];
  }

  uint32_t Touch(uint32_t step) const {
    return step < steps_.size() ? steps_[step].touch : static_cast<uint32_t>(touches_.size());
  }

  // What the plan moves and holds, in the order of the lists.
  void CountBlocks() {
    last_use_.resize(blocks_);
    live_.assign(blocks_, 0);
    for (int32_t p = 0; p < everyone_; ++p) {
      uint32_t sent = 0, received = 0, sends = 0, receives = 0, reduced = 0, live = 0, live_max = 0;
      for (uint32_t t = Touch(first_[p]); t < Touch(first_[p + 1]); ++t) last_use_[touches_[t]] = t;
      for (uint32_t i = first_[p]; i < first_[p + 1]; ++i) {
        const Step& s = steps_[i];
        const uint32_t count = s.touch_end - s.touch;
        if (s.step.kind == Kind::kSend) {
          sent += count;
          ++sends;
        } else if (s.step.kind == Kind::kCombine) {
          reduced += count - 1;
        } else {
          received += count;
          ++receives;
          if (s.step.kind == Kind::kRecvReduce) reduced += count;
        }
        for (uint32_t t = s.touch; Writes(s.step.kind) && t < s.touch_end; ++t) {
          const uint32_t block = touches_[t];
          if (live_[block] != 0 || (MustHold(p, block) && !CombinesVectors())) continue;
          live_[block] = 1;
          live_max = std::max(live_max, ++live);
        }
        for (uint32_t t = s.touch; t < s.touch_end; ++t) {
          const uint32_t block = touches_[t];
          if (last_use_[block] != t || live_[block] == 0) continue;
          live_[block] = 0;
          --live;
        }
      }
      if (p >= participants_) {
        Raise(&proof_.aggregator_blocks_max, std::max(sent, received));
        continue;
      }
      Raise(&proof_.sent_blocks_max, sent);
      Raise(&proof_.received_blocks_max, received);
      Raise(&proof_.sent_messages_max, sends);
      Raise(&proof_.received_messages_max, receives);
      Raise(&proof_.reduced_blocks_max, reduced);
      Raise(&proof_.extra_blocks_max, live_max);
    }
  }

  static void Raise(uint32_t* max, uint32_t value) { *max = std::max(*max, value); }

  // Runs whatever is ready until nothing is. All hazards are edges, so any order gives the same.
  absl::Status Execute() {
    Begin();
    ready_.clear();
    size_t nodes = 0;
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].step.kind == Kind::kRecv) continue;
      ++nodes;
      if (waits_[i] == 0) ready_.push_back(i);
    }
    // The receive of each send.
    next_send_.assign(steps_.size(), kNone);
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      if (Writes(steps_[i].step.kind)) next_send_[steps_[i].send] = i;
    }
    for (size_t done = 0; done < ready_.size(); ++done) {
      const uint32_t i = ready_[done];
      absl::Status status = absl::OkStatus();
      switch (steps_[i].step.kind) {
        case Kind::kSend:
          status = Move(i, next_send_[i]);
          break;
        case Kind::kRecvReduce:
          status = Combine(i);
          break;
        default:
          status = CombineVectors(i);
      }
      if (!status.ok()) return status;
      for (uint32_t e = edge_head_[i]; e != kNone; e = edges_[e].second) {
        if (--waits_[edges_[e].first] == 0) ready_.push_back(edges_[e].first);
      }
    }
    if (ready_.size() == nodes) return absl::OkStatus();
    for (uint32_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].step.kind != Kind::kRecv && waits_[i] != 0) {
        return Error(i, "never comes to its end: it waits for itself over other steps");
      }
    }
    return absl::OkStatus();
  }

  // What everybody holds at first.
  void Begin() {
    const bool reduces = Reduces(PlanKind()) && !CombinesVectors();
    values_.Reset(participants_);
    places_.assign(static_cast<size_t>(everyone_) * blocks_, {kNone, 0, 0});
    arrived_.resize(touches_.size());
    output_.assign(everyone_, kNone);
    for (int32_t p = 0; p < participants_; ++p) {
      Place* row = &places_[static_cast<size_t>(p) * blocks_];
      if (reduces) {
        for (uint32_t b = 0; b < blocks_; ++b) row[b].value = values_.Of(p);
        continue;
      }
      switch (PlanKind()) {
        case OpKind::kAllReduce:
          row[p].value = values_.Of(p);
          break;
        case OpKind::kAllGather:
        case OpKind::kGather:
          row[p].value = values_.Of(0);
          break;
        case OpKind::kAllToAll:
          for (int32_t d = 0; d < participants_; ++d) {
            row[static_cast<uint32_t>(p) * participants_ + d].value = values_.Of(0);
          }
          break;
        default:
          for (uint32_t b = 0; p == spec_->root && b < blocks_; ++b) row[b].value = values_.Of(0);
      }
    }
  }

  Place& At(int32_t p, uint32_t block) { return places_[static_cast<size_t>(p) * blocks_ + block]; }

  absl::Status Move(uint32_t send, uint32_t recv) {
    const Step& from = steps_[send];
    const Step& to = steps_[recv];
    uint32_t depth = 0;
    for (uint32_t t = from.touch; t < from.touch_end; ++t) {
      const Place& place = At(from.owner, touches_[t]);
      if (place.value == kNone) return Error(send, "sends block ", touches_[t], ", not held");
      if (place.ready > from.step.round) {
        return Error(send, "is in round ", from.step.round, ", but block ", touches_[t],
                     " is there only in round ", place.ready);
      }
      depth = std::max(depth, place.depth + 1);
    }
    proof_.depth = std::max(proof_.depth, depth);
    for (uint32_t i = 0; i < from.touch_end - from.touch; ++i) {
      const uint32_t block = touches_[from.touch + i];
      const Place moved = {At(from.owner, block).value, from.step.round + 1, depth};
      (to.step.kind == Kind::kRecv ? At(to.owner, block) : arrived_[to.touch + i]) = moved;
    }
    return absl::OkStatus();
  }

  absl::Status Combine(uint32_t index) {
    const Step& s = steps_[index];
    for (uint32_t t = s.touch; t < s.touch_end; ++t) {
      Place& place = At(s.owner, touches_[t]);
      const Place& in = arrived_[t];
      if (place.value == kNone) {
        if (s.owner < participants_) {
          return Error(index, "reduces into block ", touches_[t], ", not held");
        }
        place = in;
        continue;
      }
      const bool peer_first = s.step.peer_first;
      const uint32_t sum = peer_first ? values_.Combine(in.value, place.value)
                                      : values_.Combine(place.value, in.value);
      if (sum == kNone) {
        return Error(index, "combines a contribution to block ", touches_[t], " twice");
      }
      place = {sum, std::max(place.ready, in.ready), std::max(place.depth, in.depth)};
    }
    return absl::OkStatus();
  }

  absl::Status CombineVectors(uint32_t index) {
    const Step& s = steps_[index];
    uint32_t sum = kNone;
    for (uint32_t t = s.touch; t < s.touch_end; ++t) {
      const Place& place = At(s.owner, touches_[t]);
      if (place.value == kNone) return Error(index, "combines block ", touches_[t], ", not held");
      sum = t == s.touch ? place.value : values_.Combine(sum, place.value);
      if (sum == kNone) return Error(index, "combines block ", touches_[t], " twice");
    }
    if (output_[s.owner] != kNone) return Error(index, "writes the output once more");
    output_[s.owner] = sum;
    return absl::OkStatus();
  }

  // True if p's output has block `block`.
  bool MustHold(int32_t p, uint32_t block) const {
    if (p >= participants_) return false;
    const auto self = static_cast<uint32_t>(p);
    switch (PlanKind()) {
      case OpKind::kReduce:
      case OpKind::kGather:
        return p == spec_->root;
      case OpKind::kReduceScatter:
      case OpKind::kScatter:
        return block == self;
      case OpKind::kAllToAll:
        return block % static_cast<uint32_t>(participants_) == self;
      default:
        return true;
    }
  }

  absl::Status CheckEnd() const {
    const bool vectors = CombinesVectors() && participants_ > 1;
    for (int32_t p = 0; p < participants_; ++p) {
      for (uint32_t b = 0; b < (vectors ? 1 : blocks_); ++b) {
        if (!MustHold(p, b)) continue;
        const uint32_t held =
            vectors ? output_[p] : places_[static_cast<size_t>(p) * blocks_ + b].value;
        if (held == kNone) return Wrong("participant ", p, " lacks block ", b);
        if (!Reduces(PlanKind())) continue;
        if (!values_.IsWhole(held)) {
          return Wrong("participant ", p, " has block ", b, " with ", values_.Size(held), " of ",
                       participants_, " contributions");
        }
        const uint32_t first = vectors ? output_[0] : places_[b].value;
        if (PlanKind() == OpKind::kAllReduce && !values_.SameExpression(held, first)) {
          return Wrong("participants 0 and ", p, " combine block ", b, " in different orders");
        }
      }
    }
    return absl::OkStatus();
  }

  OpKind PlanKind() const {
    if (spec_->kind == OpKind::kBarrier) return OpKind::kAllReduce;
    return spec_->kind == OpKind::kAllToAllV ? OpKind::kAllToAll : spec_->kind;
  }
  bool CombinesVectors() const {
    return PlanKind() == OpKind::kAllReduce && spec_->algorithm == Algorithm::kDirect;
  }

  template <class... Args>
  absl::Status Wrong(const Args&... args) const {
    const std::string_view kind = Name(spec_->kind), algorithm = Name(spec_->algorithm);
    return absl::InternalError(absl::StrCat(absl::string_view(kind.data(), kind.size()), " by ",
                                            absl::string_view(algorithm.data(), algorithm.size()),
                                            " of ", participants_, " participants and root ",
                                            spec_->root, ": ", args...));
  }
  template <class... Args>
  absl::Status Error(uint32_t index, const Args&... args) const {
    const int32_t p = steps_[index].owner;
    return Wrong("step ", index - first_[p], " of participant ", p, " ", args...);
  }

  const NetSpec* spec_ = nullptr;
  int32_t participants_ = 0, everyone_ = 0;
  uint32_t blocks_ = 0;
  NetProof proof_;

  std::vector<Step> steps_;
  std::vector<uint32_t> touches_;  // blocks
  std::vector<uint32_t> first_;    // step of each participant
  std::vector<uint32_t> seen_;
  std::vector<uint32_t> head_, tail_, next_send_;

  using Link = std::pair<uint32_t, uint32_t>;  // what, and the next link of its list
  std::vector<Link> edges_, reader_list_;
  std::vector<uint32_t> edge_head_, waits_, writer_, readers_, ready_;

  std::vector<uint32_t> last_use_;
  std::vector<uint8_t> live_;

  net::Contributions values_;
  std::vector<Place> places_, arrived_;
  std::vector<uint32_t> output_;
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
