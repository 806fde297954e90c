// What a communicator leaves with the recorder.
#include "daemon/communicator.h"
#include "daemon/recorder/recorder.h"
#include "runtime/board/records.h"
#include "runtime/core/clock.h"
#include "runtime/exchange/choice.h"

namespace shunt::daemon {

std::vector<std::string> Communicator::NodeNames() const {
  std::vector<std::string> names;
  names.reserve(node_of_.size());
  for (const int32_t node : node_of_) names.push_back(nodes_[node].name);
  return names;
}

std::shared_ptr<ExchangeNote> Communicator::NoteExchange(uint32_t channel, uint64_t seq,
                                                         const CollectiveSpec& spec) const {
  if (host_->recorder == nullptr) return nullptr;
  auto note = std::make_unique<ExchangeNote>();
  note->communicator = id_;
  note->sequence = seq;
  note->kind = Name(spec.kind).data();
  note->bytes = exchange::BytesOf(spec, channel == 0 ? world_ : 2);
  note->arrived_ns = NowNs();
  if (channel != 0) {
    const board::Board::Pair pair = board_.PairOf(channel);
    note->source = pair.source;
    note->destination = pair.destination;
  }
  return host_->recorder->Add(std::move(note));
}

void Communicator::NoteExchanged(const std::shared_ptr<ExchangeNote>& note, bool succeeded) {
  if (note == nullptr) return;
  note->failed.store(!succeeded, std::memory_order_relaxed);
  note->ended_ns.store(NowNs(), std::memory_order_release);
}

// By its destructor: nobody writes to the board any more but members that have lost it.
void Communicator::NoteClosed() const {
  if (host_->recorder == nullptr || members_.empty()) return;
  PastCommunicator past;
  past.id = id_;
  past.wire_id = wire_id_;
  past.epoch = epoch_;
  past.uid = key_.uid;
  past.world = world_;
  past.name = key_.name;
  past.job = key_.job;
  past.failure = std::string(server_.FailureStatus().message());
  const int64_t now = NowNs();
  for (int rank = 0; rank < board_.ranks(); ++rank) {
    past.ranks.push_back({numbers_[rank], members_[rank].pid, members_[rank].session_id,
                          members_[rank].name, server_.LastCall(rank), server_.Posted(rank),
                          board::CallsOf(board_, rank, now)});
  }
  past.nodes = NodeNames();
  host_->recorder->Close(std::move(past));
}

}  // namespace shunt::daemon
