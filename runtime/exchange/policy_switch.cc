#include "runtime/exchange/policy_switch.h"

namespace shunt::exchange {

ProposeNote PolicySwitch::Propose(const LinkNumbers& numbers, uint64_t begun) {
  pending_ = Pending{{++last_proposed_, begun + kAhead, numbers}, std::nullopt, 0};
  return pending_->note;
}

std::optional<DecideNote> PolicySwitch::OnAgree(int from, const AgreeNote& note) {
  if (node_ != 0 || from <= 0 || from >= nodes_ || !pending_.has_value() ||
      pending_->decision.has_value() || note.version != pending_->note.version) {
    return std::nullopt;
  }
  if (!note.agrees) return Decide(false);
  // One answer a node, or a node could speak for another; it would harm its own communicator.
  if (++pending_->answers < static_cast<uint32_t>(nodes_ - 1)) return std::nullopt;
  return Decide(true);
}

std::optional<AgreeNote> PolicySwitch::OnPropose(const ProposeNote& note, uint64_t begun) {
  // The leader proposes nothing before it has decided on the last.
  if (node_ == 0 || note.version <= last_proposed_ ||
      (pending_.has_value() && !pending_->decision.has_value())) {
    return std::nullopt;
  }
  last_proposed_ = note.version;
  const bool agrees = !pending_.has_value() && begun < note.from;
  if (agrees) pending_ = Pending{note, std::nullopt, 0};
  return AgreeNote{note.version, agrees};
}

void PolicySwitch::OnDecide(const DecideNote& note) {
  if (node_ == 0 || !pending_.has_value() || note.version != pending_->note.version) return;
  if (note.yes) {
    pending_->decision = true;
  } else {
    pending_.reset();
  }
}

std::optional<DecideNote> PolicySwitch::Decide(bool yes) {
  const DecideNote note{pending_->note.version, yes};
  if (yes) {
    pending_->decision = true;
  } else {
    pending_.reset();
  }
  return note;
}

bool PolicySwitch::Advance(uint64_t sequence, std::optional<DecideNote>* decided) {
  if (!pending_.has_value() || sequence < pending_->note.from) return true;
  if (!pending_->decision.has_value()) {
    if (node_ != 0) return false;
    *decided = Decide(false);
    return true;
  }
  policy_.model = ModelOf(pending_->note.numbers);
  version_ = pending_->note.version;
  pending_.reset();
  return true;
}

}  // namespace shunt::exchange
