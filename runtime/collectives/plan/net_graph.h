// All steps of a plan, and what each waits for. Private to this directory; see net_prove.h for the
// rules.
//
// Tables are indexed by step (all participants' in one row) or by touch (a block of a step). Nodes
// of the graph are steps: a send is its message, a kRecvReduce its combination, a kCombine itself.
// A kRecv has no node of its own: it is over when its message is.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/collectives/plan/net_prove.h"

namespace shunt::net {

inline constexpr uint32_t kNone = ~uint32_t{0};

inline bool Writes(NetStep::Kind kind) {
  return kind == NetStep::Kind::kRecv || kind == NetStep::Kind::kRecvReduce;
}

class Graph {
 public:
  struct Step {
    NetStep step;
    int32_t owner;
    uint32_t touch, touch_end;  // its blocks
    uint32_t peer_step;         // the other end of the message; kNone for a kCombine
  };

  // Reads a plan and draws its graph. `spec` must outlive its use.
  absl::Status Build(const NetSpec& spec, const NetSteps& source);

  const NetSpec& spec() const { return *spec_; }
  int32_t everyone() const { return spec_->participants + spec_->aggregators; }
  uint32_t blocks() const { return blocks_; }
  uint32_t size() const { return static_cast<uint32_t>(steps_.size()); }
  const Step& operator[](uint32_t step) const { return steps_[step]; }
  uint32_t block(uint32_t touch) const { return touches_[touch]; }
  uint32_t touch_count() const { return static_cast<uint32_t>(touches_.size()); }
  // The steps of p are [first(p), first(p + 1)).
  uint32_t first(int32_t p) const { return first_[p]; }
  // How many edges end at a node. Whoever runs the graph counts them down.
  std::vector<uint32_t>& waits() { return waits_; }
  template <typename Visit>
  void ForEachSuccessor(uint32_t node, Visit visit) const {
    for (uint32_t e = edge_head_[node]; e != kNone; e = edges_[e].second) visit(edges_[e].first);
  }

  // INTERNAL with the plan's name, and with the step's.
  template <class... Args>
  absl::Status Wrong(const Args&... args) const {
    const std::string_view kind = Name(spec_->kind), algorithm = Name(spec_->algorithm);
    return absl::InternalError(absl::StrCat(absl::string_view(kind.data(), kind.size()), " by ",
                                            absl::string_view(algorithm.data(), algorithm.size()),
                                            " of ", spec_->participants, " participants and root ",
                                            spec_->root, ": ", args...));
  }
  template <class... Args>
  absl::Status WrongStep(uint32_t step, const Args&... args) const {
    const int32_t p = steps_[step].owner;
    return Wrong("step ", step - first_[p], " of participant ", p, " ", args...);
  }

 private:
  using Link = std::pair<uint32_t, uint32_t>;  // what, and the next link of its list

  absl::Status Load(const NetSteps& source);
  absl::Status CheckStep(uint32_t index) const;
  absl::Status Pair();
  void Depend();
  void DependStep(uint32_t index);
  void AddEdge(uint32_t from, uint32_t to);

  const NetSpec* spec_ = nullptr;
  uint32_t blocks_ = 0;
  std::vector<Step> steps_;
  std::vector<uint32_t> touches_;
  std::vector<uint32_t> first_;
  std::vector<uint32_t> seen_;                     // by block
  std::vector<uint32_t> head_, tail_, next_send_;  // sends of each pair of participants
  uint32_t late_ = kNone;                          // a node that waits for one of a later round
  std::vector<Link> edges_, reader_list_;
  std::vector<uint32_t> edge_head_, waits_;
  std::vector<uint32_t> writer_, readers_;  // by block, of one participant
};

// Everything in a proof but the depth.
void CountLoads(const Graph& graph, NetProof* proof);

}  // namespace shunt::net
