// The order in which frames leave: control, then messages by class, in pieces that others may
// overtake.
#include <algorithm>

#include "runtime/core/check.h"
#include "runtime/transport/engine/engine.h"

namespace shunt::transport {

using wire::Header;
using wire::Type;

void Engine::Control(Link* link, Type type, const Header& fields, Bytes payload) {
  Header h = fields;
  h.type = type;
  h.tag.communicator = link->communicator;
  ControlTo(link->peer, h, std::move(payload));
}

void Engine::ControlTo(PeerState* peer, Header header, Bytes payload) {
  if (peer->state == PeerState::State::kLost) return;
  peer->control.push_back({header, std::move(payload)});
  if (peer->state == PeerState::State::kUp) List(peer, 0);
}

void Engine::Ping(PeerState* peer) { ControlTo(peer, Header{}, nullptr); }

uint32_t Engine::SlotsFor(uint64_t bytes) {
  return bytes <= wire::kSlotBytes
             ? 1
             : static_cast<uint32_t>((bytes + wire::kSlotBytes - 1) / wire::kSlotBytes);
}

int Engine::StreamFor(const SendState& send) {
  PeerState* peer = send.link->peer;
  const auto streams = static_cast<uint32_t>(peer->streams.size());
  if (options_.own_stream_bytes == 0) return static_cast<int>(send.message.tag.slice % streams);
  if (streams == 1 || send.memory.bytes < options_.own_stream_bytes) return 0;
  return 1 + static_cast<int>(peer->large_sent++ % (streams - 1));
}

void Engine::Queue(SendId id, int stream) {
  const SendState& send = *sends_.Find(id);
  PeerState* peer = send.link->peer;
  const auto service_class = std::min<size_t>(static_cast<size_t>(send.message.service_class), 2);
  peer->streams[stream].queues[service_class].push_back(id);
  List(peer, stream);
}

void Engine::List(PeerState* peer, int stream) {
  if (peer->streams[stream].listed) return;
  peer->streams[stream].listed = true;
  work_.push_back({peer, stream});
}

bool Engine::NextWork(Work* work) {
  if (work_.empty()) return false;
  *work = work_.front();
  work_.pop_front();
  work->peer->streams[work->stream].listed = false;
  return true;
}

// Takes along what the link owes.
void Engine::Attach(Link* link, Header* header) {
  const uint32_t slots = std::min<uint32_t>(link->slots_owed, UINT16_MAX);
  const uint32_t notes = std::min<uint32_t>(link->notes_owed, UINT16_MAX);
  link->slots_owed -= slots;
  link->notes_owed -= notes;
  header->slots = static_cast<uint16_t>(slots);
  header->notes = static_cast<uint16_t>(notes);
}

bool Engine::PullControl(PeerState* peer) {
  while (!peer->control.empty()) {
    ControlFrame next = std::move(peer->control.front());
    peer->control.pop_front();
    Link* link = FindLink(peer, next.header.tag.communicator);
    const Type type = next.header.type;
    if (type == Type::kCredit) {
      if (link == nullptr || link->closed_here) continue;
      Attach(link, &next.header);
      if (next.header.slots == 0 && next.header.notes == 0) continue;
    } else if (link != nullptr && !link->closed_here &&
               (type == Type::kGrant || type == Type::kAnnounce || type == Type::kNote)) {
      Attach(link, &next.header);
    }
    OutFrame frame;
    frame.header = next.header;
    frame.memory = Memory(absl::MakeSpan(next.payload.get(), next.header.payload_bytes));
    frame.owned = std::move(next.payload);
    peer->streams[0].sending.push_back(std::move(frame));
    return true;
  }
  return false;
}

bool Engine::Pull(PeerState* peer, int stream) {
  if (stream == 0 && PullControl(peer)) return true;
  Stream& out = peer->streams[stream];
  for (auto& queue : out.queues) {
    while (!queue.empty()) {
      const SendId id = queue.front();
      SendState* send = sends_.Find(id);
      if (send == nullptr) {  // withdrawn
        queue.pop_front();
        continue;
      }
      Link* link = send->link;
      OutFrame frame;
      Header& h = frame.header;
      h.tag = send->message.tag;
      h.signature = send->message.signature;
      h.service_class = send->message.service_class;
      h.message_bytes = send->memory.bytes;
      // Large data may be long on its way: credits would wait with it.
      if (!link->closed_here && stream == 0) Attach(link, &h);
      if (send->grant == 0) {
        h.type = Type::kEager;
        h.payload_bytes = static_cast<uint32_t>(send->memory.bytes);
        peer->counters.payload_bytes_sent += send->memory.bytes;
        ++peer->counters.messages_sent;
        queue.pop_front();
        if (!send->told) {
          frame.memory = send->memory;
          frame.send = id;
          out.sending.push_back(std::move(frame));
          return true;
        }
        frame.owned = std::move(send->copy);
        frame.memory = Memory(absl::MakeSpan(frame.owned.get(), h.payload_bytes));
        sends_.Free(id);
        out.sending.push_back(std::move(frame));
        if (--link->eager_queued == 0 && link->closed_here) SendClose(link);
        return true;
      }
      h.type = Type::kData;
      h.grant = send->grant;
      h.offset = send->pulled;
      h.payload_bytes = static_cast<uint32_t>(
          std::min<uint64_t>(send->memory.bytes - send->pulled, options_.piece_bytes));
      if (send->announced) h.flags |= wire::kFlagAnnounced;
      frame.memory = send->memory;
      frame.begin = send->pulled;
      send->pulled += h.payload_bytes;
      ++link->data_frames_sent;
      peer->counters.payload_bytes_sent += h.payload_bytes;
      if (send->pulled == send->memory.bytes) {
        frame.send = id;
        queue.pop_front();
        ++peer->counters.messages_sent;
      }
      out.sending.push_back(std::move(frame));
      return true;
    }
  }
  return false;
}

void Engine::Sent(PeerState* peer, int stream) {
  std::deque<OutFrame>& sending = peer->streams[stream].sending;
  const SendId id = sending.front().send;
  if (peer->tally != nullptr) {
    const Header& h = sending.front().header;
    peer->tally->Sent(TrafficOf(h), wire::kHeaderBytes + h.payload_bytes);
  }
  sending.pop_front();
  if (id != 0 && sends_.Find(id) != nullptr) EndSend(id, absl::StatusCode::kOk);
}

// Slots go back with other frames. Only a peer that has used up half of them should not have to
// wait for the next one: a frame for each would cost both sides as much as a message does. Without
// a slot a message is announced, so nobody ever waits for the other half.
void Engine::OweSlots(Link* link, uint32_t slots) {
  const uint32_t half = (options_.limits.eager_slots + 1) / 2;
  const bool before = link->slots_owed < half;
  link->slots_owed += slots;
  if (before && link->slots_owed >= half && !link->closed_here) Control(link, Type::kCredit, {});
}

// Notes are rare, and refused without a credit.
void Engine::OweNote(Link* link) {
  if (++link->notes_owed == 1 && !link->closed_here) Control(link, Type::kCredit, {});
}

}  // namespace shunt::transport
