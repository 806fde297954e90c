#include "daemon/recorder/recorder.h"

#include <algorithm>
#include <utility>

namespace shunt::daemon {
namespace {

// Beside what it points to: nodes of containers, the allocator's own.
constexpr size_t kOverheadBytes = 64;
constexpr size_t kExchangeBytes = sizeof(ExchangeNote) + 2 * kOverheadBytes;
constexpr size_t kPastMax = 4096;
constexpr size_t kErrorBytesMax = 256;

size_t BytesOf(const TransferNote& note) {
  return sizeof(note) + kOverheadBytes + note.with.size() + note.node.size() +
         note.outcome.message().size();
}

size_t BytesOf(const PastCommunicator& past) {
  size_t bytes = sizeof(past) + kOverheadBytes + past.name.size() + past.job.size() +
                 past.failure.size() + past.exchanges.size() * kExchangeBytes;
  for (const PastCommunicator::Rank& rank : past.ranks) {
    bytes += sizeof(rank) + rank.name.size() + rank.last_call.size() +
             rank.calls.size() * sizeof(recorder::Call);
  }
  for (const std::string& node : past.nodes) bytes += sizeof(node) + node.size();
  return bytes;
}

}  // namespace

Recorder::Recorder(const Options& options)
    : options_(options),
      transfers_(options.transfers, options.memory_bytes / 4),
      past_(options.calls == 0 ? 0 : kPastMax, options.memory_bytes / 2) {}

std::shared_ptr<ExchangeNote> Recorder::Add(std::unique_ptr<ExchangeNote> note) {
  if (options_.calls == 0 || kExchangeBytes > options_.memory_bytes / 4) return nullptr;
  std::shared_ptr<ExchangeNote> kept = std::move(note);
  const std::lock_guard lock(mutex_);
  auto& own = of_communicator_[kept->communicator];
  own.push_back(exchanges_.insert(exchanges_.end(), kept));
  if (own.size() > options_.calls) {
    exchanges_.erase(own.front());
    own.pop_front();
  }
  while (exchanges_.size() * kExchangeBytes > options_.memory_bytes / 4) {
    // The oldest of all is the oldest of its own.
    const auto of = of_communicator_.find(exchanges_.front()->communicator);
    of->second.pop_front();
    if (of->second.empty()) of_communicator_.erase(of);
    exchanges_.pop_front();
  }
  return kept;
}

void Recorder::Add(TransferNote note) {
  if (note.outcome.message().size() > kErrorBytesMax) {
    note.outcome = absl::Status(note.outcome.code(),
                                std::string(note.outcome.message().substr(0, kErrorBytesMax)));
  }
  const size_t bytes = BytesOf(note);
  const std::lock_guard lock(mutex_);
  transfers_.Add(std::move(note), bytes);
}

void Recorder::Close(PastCommunicator communicator) {
  const std::lock_guard lock(mutex_);
  if (const auto of = of_communicator_.find(communicator.id); of != of_communicator_.end()) {
    for (const auto at : of->second) {
      communicator.exchanges.push_back(*at);
      exchanges_.erase(at);
    }
    of_communicator_.erase(of);
  }
  // Of one that nobody called anything on there is nothing to know.
  const bool any = !communicator.exchanges.empty() ||
                   std::any_of(communicator.ranks.begin(), communicator.ranks.end(),
                               [](const auto& rank) { return !rank.calls.empty(); });
  if (!any) return;
  const size_t bytes = BytesOf(communicator);
  past_.Add(std::make_shared<const PastCommunicator>(std::move(communicator)), bytes);
}

std::vector<std::shared_ptr<const ExchangeNote>> Recorder::ExchangesOf(
    uint64_t communicator) const {
  std::vector<std::shared_ptr<const ExchangeNote>> notes;
  const std::lock_guard lock(mutex_);
  const auto of = of_communicator_.find(communicator);
  if (of == of_communicator_.end()) return notes;
  for (const auto at : of->second) notes.push_back(*at);
  return notes;
}

std::vector<TransferNote> Recorder::Transfers() const {
  std::vector<TransferNote> notes;
  const std::lock_guard lock(mutex_);
  notes.reserve(transfers_.size());
  transfers_.ForEach([&](const TransferNote& note) { notes.push_back(note); });
  return notes;
}

std::vector<std::shared_ptr<const PastCommunicator>> Recorder::Past() const {
  std::vector<std::shared_ptr<const PastCommunicator>> past;
  const std::lock_guard lock(mutex_);
  past_.ForEach([&](const auto& one) { past.push_back(one); });
  return past;
}

size_t Recorder::bytes() const {
  const std::lock_guard lock(mutex_);
  return transfers_.bytes() + exchanges_.size() * kExchangeBytes + past_.bytes();
}

}  // namespace shunt::daemon
