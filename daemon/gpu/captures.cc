#include "daemon/gpu/captures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shunt::daemon {

Captures::Captures(Setup setup) : setup_(std::move(setup)), next_(setup_.board.ranks(), 1) {}

std::string Captures::CallWords(int rank, uint64_t sequence, const CollectiveSpec& spec) const {
  board::PostBody body{};
  body.kind = static_cast<uint8_t>(spec.kind);
  body.dtype = static_cast<uint8_t>(spec.dtype);
  body.redop = static_cast<uint8_t>(spec.redop);
  body.root = static_cast<int16_t>(spec.root);
  body.count = spec.count;
  return absl::StrCat(board::RankText(setup_.board, rank), " captured ",
                      board::CallText(setup_.board, 0, sequence, body));
}

absl::Status Captures::Add(int rank, uint64_t sequence, const CollectiveSpec& spec, Part part) {
  std::string mismatch;
  bool complete = false;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return absl::FailedPreconditionError("the communicator has failed or was left");
    if (sequence != next_[rank]) {
      return absl::InvalidArgumentError(absl::StrCat("captured call ", sequence, " of rank ", rank,
                                                     ", expected number ", next_[rank]));
    }
    ++next_[rank];
    Entry& entry = entries_[sequence];
    // Released by a rank before this one captured it: it is never executed.
    if (entry.came == 0) {
      entry.spec = spec;
      entry.first = rank;
      entry.parts.resize(next_.size());
    } else if (!(entry.spec == spec)) {
      mismatch = absl::StrCat("the calls of communicator ", board::NameText(setup_.board),
                              " do not match: ", CallWords(entry.first, sequence, entry.spec), ", ",
                              CallWords(rank, sequence, spec));
    }
    entry.parts[rank] = std::move(part);
    ++entry.came;
    complete = mismatch.empty() && entry.came == next_.size();
    if (complete && entry.released) {
      entries_.erase(sequence);
      complete = false;
    }
  }
  if (!mismatch.empty()) {
    setup_.fail(board::FailureReason::kMismatch, -1, mismatch);
    return absl::FailedPreconditionError(mismatch);
  }
  if (complete) Begin(sequence);
  return absl::OkStatus();
}

std::shared_ptr<GpuEngine::Call> Captures::MakeCall(uint64_t sequence, Entry& entry) {
  auto call = std::make_shared<GpuEngine::Call>();
  call->spec = entry.spec;
  call->repeats = true;
  const auto add = [&](const Piece& piece) {
    const auto known =
        std::find_if(call->memory.begin(), call->memory.end(),
                     [&](const GpuMemory& memory) { return memory.id() == piece.memory.id(); });
    if (known != call->memory.end()) return static_cast<int>(known - call->memory.begin());
    call->memory.push_back(piece.memory);
    return static_cast<int>(call->memory.size()) - 1;
  };
  for (const Part& part : entry.parts) {
    GpuEngine::Rank& rank = call->ranks.emplace_back();
    if (part.in.given) rank.in = {add(part.in), part.in.offset};
    if (part.out.given) rank.out = {add(part.out), part.out.offset};
    rank.gate = {add(part.gate), part.gate.offset, 0};
    rank.scalar = part.scalar;
  }
  call->ended = [self = shared_from_this(), sequence](const absl::Status& outcome) {
    self->Ended(sequence, outcome);
  };
  return call;
}

void Captures::Begin(uint64_t sequence) {
  absl::Status failed;
  Entry gone;  // what it holds is let go of after the lock
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(sequence);
    if (found == entries_.end()) return;
    Entry& entry = found->second;
    const bool over = entry.released || ended_;  // while something had to come first
    if (!over && entry.call == nullptr) entry.call = MakeCall(sequence, entry);
    if (!over) {
      auto ticket = setup_.engine->Begin(
          entry.call, [self = shared_from_this(), sequence] { self->Begin(sequence); });
      if (ticket.ok()) {
        entry.ticket = *std::move(ticket);
        return;
      }
      failed = ticket.status();
    }
    gone = std::move(entry);
    entries_.erase(found);
  }
  for (const Answer& answer : gone.answers) answer(absl::OkStatus());
  if (failed.ok()) return;
  setup_.fail(board::ReasonOf(failed.code()), -1,
              absl::StrCat("captured call ", sequence, " on communicator ",
                           board::NameText(setup_.board), ": ", failed.message()));
}

void Captures::Ended(uint64_t sequence, const absl::Status& outcome) {
  Entry entry;  // what it holds is let go of after the lock
  bool expected;
  {
    const std::lock_guard lock(mutex_);
    auto node = entries_.extract(sequence);
    if (node.empty()) return;
    entry = std::move(node.mapped());
    expected = entry.released || ended_;
  }
  const std::vector<Answer> answers = std::move(entry.answers);
  // First of all: who hears of it may free what the call named.
  if (entry.call != nullptr) entry.call->memory.clear();
  entry = Entry();
  for (const Answer& answer : answers) answer(absl::OkStatus());
  if (expected) return;
  setup_.fail(board::ReasonOf(outcome.code()), -1,
              absl::StrCat("captured call ", sequence, " on communicator ",
                           board::NameText(setup_.board), ": ", outcome.message()));
}

void Captures::Release(int rank, uint64_t sequence, Answer answer) {
  absl::Status now;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(sequence);
    Entry* const entry = found == entries_.end() ? nullptr : &found->second;
    if (entry == nullptr || !entry->parts[rank].gate.given) {
      now = absl::NotFoundError(absl::StrCat("captured call ", sequence, ": rank ", rank,
                                             " has none of this number, or it was released"));
    } else if (entry->call == nullptr) {
      // Some rank has not come: what this one holds can go, its place is remembered.
      entry->released = true;
      entry->parts[rank] = Part();
    } else {
      // Being begun, or under way.
      entry->released = true;
      entry->answers.push_back(std::move(answer));
      GpuEngine::Cancel(entry->ticket);
      return;
    }
  }
  answer(now);
}

size_t Captures::CountOf(int rank) const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [rank](const auto& entry) {
        return !entry.second.released && entry.second.parts[rank].gate.given;
      }));
}

void Captures::End() {
  std::vector<Entry> gone;
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = true;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.call != nullptr) {
      GpuEngine::Cancel(it->second.ticket);
      ++it;
    } else {
      gone.push_back(std::move(it->second));
      it = entries_.erase(it);
    }
  }
}

}  // namespace shunt::daemon
