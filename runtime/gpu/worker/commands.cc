#include "runtime/gpu/worker/commands.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/gpu/worker/gates.h"

namespace shunt::gpu {
namespace {

// Kept ready: what shuntd may have under way, repeating ones apart, and some of those.
constexpr size_t kReady = 2 * kCommandSlots;

// Keeps the order: who waits longest begins first.
template <typename T>
void EraseAt(std::vector<T>* list, size_t index) {
  list->erase(list->begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace

struct Commands::UnderWay {
  enum class Stage : uint8_t { kQueued, kArmed, kRunning };
  Stage stage;
  bool cancelled;      // ends after this run
  uint32_t next_gate;  // those before have triggered
  uint32_t word;
  uint64_t value;  // that the word gets
  UnderWay* behind;
  Command command;

  bool repeats() const { return (command.flags & kRepeats) != 0; }
  // Whoever triggers a repeating one has seen its last round end: they need no order but that.
  bool in_lane() const { return command.lane != 0 && !repeats(); }
};

Commands::Commands(Executor* executor, RingWorker* ring, CompletionWords words)
    : executor_(executor), ring_(ring), words_(words) {
  for (uint32_t word = words_.count; word > 0; --word) free_words_.push_back(word - 1);
  for (auto* list : {&free_, &armed_, &running_}) list->reserve(kReady);
  by_id_.reserve(kReady);
  lanes_.reserve(kReady);
  for (size_t i = 0; i < kReady; ++i) {
    all_.push_back(std::make_unique<UnderWay>());
    free_.push_back(all_.back().get());
  }
}

Commands::~Commands() = default;

Commands::UnderWay* Commands::Fresh() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<UnderWay>());
    return all_.back().get();
  }
  UnderWay* const one = free_.back();
  free_.pop_back();
  return one;
}

absl::StatusOr<bool> Commands::Turn() {
  bool moved = false;
  while (const Command* const command = ring_->Next()) {
    if (command->kind == CommandKind::kCancel) {
      Cancel(command->target);
    } else {
      Take(*command);
    }
    ring_->Taken();
    moved = true;
  }
  while (!unsaid_.empty() && ring_->Push(unsaid_.front())) unsaid_.pop_front();

  for (size_t i = 0; i < running_.size();) {
    UnderWay* const one = running_[i];
    const std::atomic_ref<uint64_t> word(words_.cpu[one->word]);
    if (word.load(std::memory_order_acquire) != one->value) {
      ++i;
      continue;
    }
    moved = true;
    EraseAt(&running_, i);
    free_words_.push_back(one->word);
    if (one->cancelled) {
      End(one, absl::StatusCode::kCancelled);
    } else if (one->repeats()) {
      one->stage = UnderWay::Stage::kArmed;
      one->next_gate = 0;
      armed_.push_back(one);
    } else {
      End(one, absl::StatusCode::kOk);
    }
  }

  for (size_t i = 0; i < armed_.size();) {
    UnderWay* const one = armed_[i];
    const bool repeats = one->repeats();
    while (one->next_gate < one->command.gates &&
           Triggered(one->command.gate[one->next_gate], repeats)) {
      ++one->next_gate;
    }
    if (one->next_gate < one->command.gates || free_words_.empty()) {
      ++i;
      continue;
    }
    moved = true;
    EraseAt(&armed_, i);
    SHUNT_RETURN_IF_ERROR(Begin(one));
  }
  return moved;
}

void Commands::Take(const Command& command) {
  UnderWay* const one = Fresh();
  CopyCommand(&one->command, command);
  one->cancelled = false;
  one->next_gate = 0;
  one->behind = nullptr;
  SHUNT_CHECK(command.gates <= kGatesMax && command.places <= kGatesMax);
  SHUNT_CHECK(by_id_.emplace(command.id, one).second);
  if (one->in_lane()) {
    const auto [lane, first] = lanes_.try_emplace(command.lane, Lane{one, one});
    if (!first) {
      lane->second.last->behind = one;
      lane->second.last = one;
      one->stage = UnderWay::Stage::kQueued;
      return;
    }
  }
  one->stage = UnderWay::Stage::kArmed;
  armed_.push_back(one);
}

absl::Status Commands::Begin(UnderWay* one) {
  const Command& command = one->command;
  if (one->repeats()) {
    for (uint32_t i = 0; i < command.gates; ++i) TakeBack(command.gate[i]);
  }
  one->stage = UnderWay::Stage::kRunning;
  one->word = free_words_.back();
  one->value = ++last_value_;
  absl::Status begun =
      executor_->Begin(command, ring_->runs(command.batch), words_.device + one->word, one->value);
  if (begun.ok()) {
    free_words_.pop_back();
    running_.push_back(one);
    return begun;
  }
  if (absl::IsDataLoss(begun)) return begun;  // LoseAll ends it, too
  Release(*one);
  End(one, begun.code());
  return absl::OkStatus();
}

void Commands::Cancel(uint64_t id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;  // it has ended
  UnderWay* const one = found->second;
  if (one->stage == UnderWay::Stage::kRunning) {
    one->cancelled = one->repeats();
    return;
  }
  if (one->stage == UnderWay::Stage::kArmed) {
    EraseAt(&armed_,
            static_cast<size_t>(std::find(armed_.begin(), armed_.end(), one) - armed_.begin()));
  }
  Release(*one);
  End(one, absl::StatusCode::kCancelled);
}

void Commands::Release(const UnderWay& one) {
  for (uint32_t i = 0; i < one.command.gates; ++i) {
    gpu::Release(one.command.gate[i], one.repeats());
  }
}

// It is in no list but its lane's.
void Commands::End(UnderWay* one, absl::StatusCode code) {
  if (one->in_lane()) LeaveLane(one);
  by_id_.erase(one->command.id);
  Say({.id = one->command.id, .code = static_cast<int32_t>(code), .pad = 0});
  free_.push_back(one);
}

void Commands::LeaveLane(UnderWay* one) {
  const auto lane = lanes_.find(one->command.lane);
  if (lane->second.first == one) {
    UnderWay* const next = one->behind;
    if (next == nullptr) {
      lanes_.erase(lane);
      return;
    }
    lane->second.first = next;
    next->stage = UnderWay::Stage::kArmed;
    armed_.push_back(next);
    return;
  }
  UnderWay* before = lane->second.first;
  while (before->behind != one) before = before->behind;
  before->behind = one->behind;
  if (lane->second.last == one) lane->second.last = before;
}

void Commands::Say(const Done& done) {
  if (!unsaid_.empty() || !ring_->Push(done)) unsaid_.push_back(done);
}

void Commands::LoseAll(const absl::Status& why) {
  // First those that clients' streams wait for.
  for (const auto& [id, one] : by_id_) Release(*one);
  for (const auto& [id, one] : by_id_) {
    Say({.id = id, .code = static_cast<int32_t>(why.code()), .pad = 0});
  }
  by_id_.clear();
  lanes_.clear();
  armed_.clear();
  running_.clear();
}

}  // namespace shunt::gpu
