// How the nodes of a communicator change to other link numbers: all at the same sequence number, or
// none. Node 0 of the map leads. Pure state; the owner carries the notes.
//
//   leader                          others
//   Propose ── version, from, numbers ──►  begun nothing from `from` on?  agrees, and from there on
//           ◄───────── agrees or not ────  waits for the decision
//   Decide  ──────── yes or no ─────────►
//
// The leader decides when all have answered, and at the latest when it gets to `from` itself: no
// before any answer is missing for long. Nobody waits for what the operation would not wait for
// anyway, for the leader takes part in it.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/exchange/choice.h"
#include "runtime/exchange/notes.h"

namespace shunt::exchange {

class PolicySwitch {
 public:
  // Operations that may begin while a proposal is on its way.
  static constexpr uint64_t kAhead = 32;

  PolicySwitch(int node, int nodes, const Policy& first)
      : node_(node), nodes_(nodes), policy_(first) {}

  // Of the operations that begin now. Counts the changes.
  const Policy& policy() const { return policy_; }
  // The aggregators are lost.
  void DropAggregators() { policy_.aggregators = 0; }
  uint32_t version() const { return version_; }

  // The leader's. `begun` is the highest sequence that this node has begun.
  bool MayPropose() const { return node_ == 0 && nodes_ > 1 && !pending_.has_value(); }
  ProposeNote Propose(const LinkNumbers& numbers, uint64_t begun);
  // Nothing as long as answers are missing, or if the note is none of the leader's proposals.
  std::optional<DecideNote> OnAgree(int from, const AgreeNote& note);

  // The others'. Nothing if the note cannot come from a leader.
  std::optional<AgreeNote> OnPropose(const ProposeNote& note, uint64_t begun);
  void OnDecide(const DecideNote& note);

  // An operation is about to begin. False: not before the decision comes. The leader decides then,
  // and `decided` goes to the others.
  bool Advance(uint64_t sequence, std::optional<DecideNote>* decided);

 private:
  struct Pending {
    ProposeNote note;
    std::optional<bool> decision;
    uint32_t answers;
  };
  std::optional<DecideNote> Decide(bool yes);

  const int node_, nodes_;
  Policy policy_;
  uint32_t version_ = 0;
  uint32_t last_proposed_ = 0;
  std::optional<Pending> pending_;
};

}  // namespace shunt::exchange
