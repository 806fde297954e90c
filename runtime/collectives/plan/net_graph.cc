#include "runtime/collectives/plan/net_graph.h"

#include <algorithm>

#include "runtime/collectives/plan/net_definition.h"

namespace shunt::net {

using Kind = NetStep::Kind;

absl::Status Graph::Build(const NetSpec& spec, const NetSteps& source) {
  spec_ = &spec;
  blocks_ = BlockCount(spec);
  if (absl::Status s = Load(source); !s.ok()) return s;
  if (absl::Status s = Pair(); !s.ok()) return s;
  Depend();
  if (late_ == kNone) return absl::OkStatus();
  return WrongStep(late_, "waits for a step of a later round than its own, ",
                   steps_[late_].step.round);
}

absl::Status Graph::Load(const NetSteps& source) {
  steps_.clear();
  touches_.clear();
  first_.assign(1, 0);
  seen_.assign(blocks_, kNone);
  for (int32_t p = 0; p < everyone(); ++p) {
    const uint32_t count = source.count(p);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t index = size();
      steps_.push_back({source.at(p, i), p, touch_count(), 0, kNone});
      if (absl::Status s = CheckStep(index); !s.ok()) return s;
      uint32_t wrong = kNone;
      ForEachBlock(*spec_, p, steps_.back().step, [&](uint32_t block) {
        touches_.push_back(block);
        if (block >= blocks_ || seen_[block] == index) {
          wrong = block;
        } else {
          seen_[block] = index;
        }
      });
      if (wrong != kNone) {
        return WrongStep(index, "names block ", wrong, " of ", blocks_, " twice or out of range");
      }
      steps_.back().touch_end = touch_count();
    }
    first_.push_back(size());
  }
  return absl::OkStatus();
}

absl::Status Graph::CheckStep(uint32_t index) const {
  const NetStep& step = steps_[index].step;
  const bool local = step.kind == Kind::kCombine;
  if (step.peer < 0 || step.peer >= everyone() || (step.peer == steps_[index].owner) != local) {
    return WrongStep(index, "names peer ", step.peer, ", expected another one of ", everyone());
  }
  if (step.blocks.count == 0 || step.blocks.count > blocks_) {
    return WrongStep(index, "has ", step.blocks.count, " blocks, expected 1 to ", blocks_);
  }
  if (step.kind == Kind::kRecvReduce && !Reduces(PlanKind(spec_->kind))) {
    return WrongStep(index, "combines, but the operation only moves");
  }
  if (local && !CombinesVectors(*spec_)) {
    return WrongStep(index, "combines whole vectors, but blocks are parts of one");
  }
  return absl::OkStatus();
}

absl::Status Graph::Pair() {
  const auto key = [this](int32_t from, int32_t to) {
    return static_cast<size_t>(from) * everyone() + to;
  };
  head_.assign(static_cast<size_t>(everyone()) * everyone(), kNone);
  tail_.resize(head_.size());
  next_send_.resize(steps_.size());
  size_t unmatched = 0;
  for (uint32_t i = 0; i < size(); ++i) {
    const Step& s = steps_[i];
    if (s.step.kind != Kind::kSend) continue;
    const size_t k = key(s.owner, s.step.peer);
    (head_[k] == kNone ? head_[k] : next_send_[tail_[k]]) = i;
    tail_[k] = i;
    next_send_[i] = kNone;
    ++unmatched;
  }
  for (uint32_t i = 0; i < size(); ++i) {
    Step& s = steps_[i];
    if (!Writes(s.step.kind)) continue;
    uint32_t& send = head_[key(s.step.peer, s.owner)];
    if (send == kNone) return WrongStep(i, "receives what nobody sends");
    Step& from = steps_[send];
    s.peer_step = send;
    from.peer_step = i;
    send = next_send_[send];
    --unmatched;
    if (from.touch_end - from.touch != s.touch_end - s.touch ||
        !std::equal(touches_.begin() + from.touch, touches_.begin() + from.touch_end,
                    touches_.begin() + s.touch)) {
      return WrongStep(i, "expects other blocks than its peer sends");
    }
    if (from.step.round != s.step.round) {
      return WrongStep(i, "is in round ", s.step.round, ", its send in ", from.step.round);
    }
  }
  if (unmatched == 0) return absl::OkStatus();
  const auto left = std::find_if(head_.begin(), head_.end(), [](uint32_t h) { return h != kNone; });
  return WrongStep(*left, "sends what nobody receives");
}

void Graph::Depend() {
  late_ = kNone;
  edges_.clear();
  edge_head_.assign(steps_.size(), kNone);
  waits_.assign(steps_.size(), 0);
  writer_.assign(blocks_, kNone);
  readers_.assign(blocks_, kNone);
  for (int32_t p = 0; p < everyone(); ++p) {
    reader_list_.clear();
    for (uint32_t i = first_[p]; i < first_[p + 1]; ++i) DependStep(i);
    for (uint32_t i = first_[p]; i < first_[p + 1]; ++i) {
      for (uint32_t t = steps_[i].touch; t < steps_[i].touch_end; ++t) {
        writer_[touches_[t]] = readers_[touches_[t]] = kNone;
      }
    }
  }
}

void Graph::DependStep(uint32_t index) {
  const Step& s = steps_[index];
  const Kind kind = s.step.kind;
  // The node that begins the step and the one that ends it.
  const uint32_t begin = Writes(kind) ? s.peer_step : index;
  const uint32_t end = kind == Kind::kRecv ? s.peer_step : index;
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

void Graph::AddEdge(uint32_t from, uint32_t to) {
  edges_.push_back({to, edge_head_[from]});
  edge_head_[from] = static_cast<uint32_t>(edges_.size() - 1);
  ++waits_[to];
  if (steps_[from].step.round > steps_[to].step.round) late_ = to;
}

}  // namespace shunt::net
