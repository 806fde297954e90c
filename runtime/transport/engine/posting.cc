// What the owner asks for.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/transport/engine/engine.h"

namespace shunt::transport {

using wire::Header;
using wire::Type;

absl::Status Engine::Open(uint64_t communicator, absl::Span<const PeerId> peers) {
  if (communicators_.contains(communicator)) {
    return absl::FailedPreconditionError(
        absl::StrCat("communicator ", communicator, " is open already"));
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    const PeerState* peer = FindPeer(peers[i]);
    if (peer == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("communicator ", communicator, ": peer ", peers[i], " is not known"));
    }
    if (const Link* link = FindLink(peer, communicator); link != nullptr && link->closed_here) {
      return absl::FailedPreconditionError(absl::StrCat(
          "communicator ", communicator, " was closed: an epoch's number is not used again"));
    }
  }
  auto opened = std::make_unique<Communicator>(options_.operations_kept);
  for (PeerId id : peers) {
    PeerState* peer = FindPeer(id);
    if (std::find(opened->peers.begin(), opened->peers.end(), id) != opened->peers.end()) continue;
    opened->peers.push_back(id);
    if (peer->state == PeerState::State::kLost || peer->GaveUp(communicator)) continue;
    Link* link = FindLink(peer, communicator);
    if (link == nullptr) link = AddLink(peer, communicator);
    link->open_here = true;
    link->operations = &opened->operations;
    Header h;
    h.slots = static_cast<uint16_t>(options_.limits.eager_slots);
    h.notes = static_cast<uint16_t>(options_.limits.headers_waiting_max);
    h.message_bytes = options_.limits.eager_bytes;
    h.offset = options_.limits.headers_waiting_max;
    Control(link, Type::kOpen, h);
  }
  communicators_.emplace(communicator, std::move(opened));
  return absl::OkStatus();
}

Link* Engine::AddLink(PeerState* peer, uint64_t communicator) {
  auto link = std::make_unique<Link>();
  link->peer = peer;
  link->communicator = communicator;
  return peer->links.emplace(communicator, std::move(link)).first->second.get();
}

Link* Engine::FindLink(const PeerState* peer, uint64_t communicator) {
  const auto found = peer->links.find(communicator);
  return found == peer->links.end() ? nullptr : found->second.get();
}

Link* Engine::LinkFor(const Message& message, absl::Status* status) {
  const PeerState* peer = FindPeer(message.peer);
  if (peer == nullptr) {
    *status = absl::NotFoundError("");
    return nullptr;
  }
  if (peer->state == PeerState::State::kLost) {
    *status = absl::UnavailableError("");
    return nullptr;
  }
  Link* link = FindLink(peer, message.tag.communicator);
  if (link == nullptr && peer->GaveUp(message.tag.communicator)) {
    *status = absl::AbortedError("");
    return nullptr;
  }
  if (link == nullptr || !link->open_here || link->closed_here) {
    *status = absl::FailedPreconditionError("");
    return nullptr;
  }
  return link;
}

void Engine::PostSend(const Message& message, Memory memory, uint64_t token) {
  SHUNT_CHECK(memory.places == nullptr || memory.places->size() <= options_.limits.send_places_max);
  absl::Status status;
  Link* link = LinkFor(message, &status);
  if (link != nullptr && link->close_came) status = absl::AbortedError("");
  if (link != nullptr && link->sends.contains(KeyOf(message.tag))) {
    status = absl::AlreadyExistsError("");
  }
  if (!status.ok()) {
    Complete({.event = Event::kSent,
              .code = status.code(),
              .peer = message.peer,
              .token = token,
              .tag = message.tag});
    return;
  }
  link->operations->Posted(message.tag, message.signature);
  SendState send;
  send.serial = ++serial_;
  send.link = link;
  send.message = message;
  send.token = token;
  send.memory = std::move(memory);
  const SendId id = sends_.Add(std::move(send));
  link->sends.emplace(KeyOf(message.tag), id);
  if (link->open_there) {
    StartSend(id);
  } else {
    CountStall(link->peer);
    link->held_sends.push_back(id);
  }
}

void Engine::StartSend(SendId id) {
  SendState& send = *sends_.Find(id);
  Link* link = send.link;
  const TagKey key = KeyOf(send.message.tag);
  if (const auto grant = link->grants.find(key);
      grant != link->grants.end() && grant->second.signature == send.message.signature) {
    const Waiting taken = std::move(grant->second);
    link->grants.erase(grant);
    UseGrant(id, taken);
    return;
  }
  const bool small =
      send.memory.bytes <= std::min<uint64_t>(options_.limits.eager_bytes, link->eager_bytes);
  if (!small || link->slots < SlotsFor(send.memory.bytes)) {
    CountStall(link->peer);
    Announce(id);
    return;
  }
  link->slots -= SlotsFor(send.memory.bytes);
  send.slotted = true;
  ++link->peer->counters.eager_sent;
  if (send.memory.bytes > wire::kSlotBytes) {
    // A copy would cost more than the caller gains by having its buffer back sooner.
    Queue(id, 0);
    return;
  }
  send.told = true;
  ++link->eager_queued;
  if (send.memory.bytes != 0) {
    send.copy = std::make_unique_for_overwrite<std::byte[]>(send.memory.bytes);
    send.memory.CopyTo(0, send.copy.get(), send.memory.bytes);
  }
  link->sends.erase(key);
  Complete({.event = Event::kSent,
            .peer = send.message.peer,
            .token = send.token,
            .tag = send.message.tag});
  Queue(id, 0);
}

void Engine::Announce(SendId id) {
  SendState& send = *sends_.Find(id);
  Link* link = send.link;
  if (link->announced >= link->headers_max) {
    send.waits = true;
    link->unannounced.push_back(id);
    return;
  }
  send.announced = true;
  ++link->announced;
  Header h;
  h.tag = send.message.tag;
  h.signature = send.message.signature;
  h.service_class = send.message.service_class;
  h.message_bytes = send.memory.bytes;
  Control(link, Type::kAnnounce, h);
}

void Engine::ServeUnannounced(Link* link) {
  // Each entry is looked at once: what cannot go now is queued again by Announce.
  while (!link->unannounced.empty()) {
    const SendId id = link->unannounced.front();
    SendState* send = sends_.Find(id);
    if (send != nullptr && send->waits) {
      const bool slot =
          link->slots >= SlotsFor(send->memory.bytes) &&
          send->memory.bytes <= std::min<uint64_t>(options_.limits.eager_bytes, link->eager_bytes);
      if (!slot && link->announced >= link->headers_max) return;
      send->waits = false;
      link->unannounced.pop_front();
      StartSend(id);
    } else {
      link->unannounced.pop_front();
    }
  }
}

void Engine::UseGrant(SendId id, const Waiting& grant) {
  SendState& send = *sends_.Find(id);
  Link* link = send.link;
  if (send.announced) --link->announced;
  send.waits = false;
  if (grant.bytes != send.memory.bytes) {
    Header h;
    h.tag = send.message.tag;
    h.grant = grant.grant;
    Control(link, Type::kRefuseGrant, h);
    EndSend(id, absl::StatusCode::kInvalidArgument);
  } else {
    send.grant = grant.grant;
    Queue(id, StreamFor(send));
  }
  ServeUnannounced(link);
}

void Engine::EndSend(SendId id, absl::StatusCode code) {
  SendState& send = *sends_.Find(id);
  send.link->sends.erase(KeyOf(send.message.tag));
  Complete({.event = Event::kSent,
            .code = code,
            .peer = send.message.peer,
            .token = send.token,
            .tag = send.message.tag});
  sends_.Free(id);
}

void Engine::PostRecv(const Message& message, Memory memory, uint64_t token) {
  SHUNT_CHECK(memory.places == nullptr || memory.places->size() <= options_.limits.recv_places_max);
  absl::Status status;
  Link* link = LinkFor(message, &status);
  if (link != nullptr && link->recvs.contains(KeyOf(message.tag))) {
    status = absl::AlreadyExistsError("");
  }
  if (!status.ok()) {
    Complete({.event = Event::kReceived,
              .code = status.code(),
              .peer = message.peer,
              .token = token,
              .tag = message.tag});
    return;
  }
  link->operations->Posted(message.tag, message.signature);
  RecvState recv;
  recv.serial = ++serial_;
  recv.link = link;
  recv.message = message;
  recv.token = token;
  recv.memory = std::move(memory);
  const RecvId id = recvs_.Add(std::move(recv));
  link->recvs.emplace(KeyOf(message.tag), id);
  if (link->open_there) {
    StartRecv(id);
  } else {
    link->held_recvs.push_back(id);
  }
}

void Engine::StartRecv(RecvId id) {
  RecvState& recv = *recvs_.Find(id);
  Link* link = recv.link;
  const TagKey key = KeyOf(recv.message.tag);
  if (const auto eager = link->eager.find(key);
      eager != link->eager.end() && eager->second.signature == recv.message.signature) {
    const bool fits = eager->second.bytes == recv.memory.bytes;
    if (fits) recv.memory.CopyFrom(0, eager->second.payload.get(), recv.memory.bytes);
    SlotsFree(link, eager->second.bytes);
    link->eager.erase(eager);
    if (fits) {
      EndRecv(id, absl::StatusCode::kOk);
    } else {
      RefuseSlotted(id);
    }
    return;
  }
  if (const auto announced = link->announcements.find(key);
      announced != link->announcements.end() &&
      announced->second.signature == recv.message.signature) {
    const bool fits = announced->second.bytes == recv.memory.bytes;
    link->announcements.erase(announced);
    recv.announcement_seen = true;
    if (fits) {
      Grant(id);
      return;
    }
    Header h;
    h.tag = recv.message.tag;
    Control(link, Type::kRefuseMessage, h);
    EndRecv(id, absl::StatusCode::kInvalidArgument);
    return;
  }
  if (link->close_came) {
    // What came before the close has been looked for; more will not come, except what is landing.
    CheckPeerClosed(link);
    return;
  }
  // A large message cannot come before its grant; a small one comes into a slot.
  if (recv.memory.bytes > options_.limits.eager_bytes) Grant(id);
}

// The message came in slots and has another length. If it was granted, while it was on its way, the
// sender is told that the grant is void.
void Engine::RefuseSlotted(RecvId id) {
  const RecvState& recv = *recvs_.Find(id);
  if (recv.granted) {
    Header h;
    h.tag = recv.message.tag;
    h.grant = id;
    Control(recv.link, Type::kWithdraw, h);
  }
  EndRecv(id, absl::StatusCode::kInvalidArgument);
}

void Engine::Grant(RecvId id) {
  RecvState& recv = *recvs_.Find(id);
  Link* link = recv.link;
  if (link->granted >= link->headers_max) {
    recv.waits = true;
    link->ungranted.push_back(id);
    return;
  }
  recv.granted = true;
  ++link->granted;
  Header h;
  h.tag = recv.message.tag;
  h.signature = recv.message.signature;
  h.service_class = recv.message.service_class;
  h.message_bytes = recv.memory.bytes;
  h.grant = id;
  Control(link, Type::kGrant, h);
}

void Engine::ServeUngranted(Link* link) {
  while (!link->ungranted.empty() && link->granted < link->headers_max) {
    const RecvId id = link->ungranted.front();
    link->ungranted.pop_front();
    RecvState* recv = recvs_.Find(id);
    if (recv == nullptr || !recv->waits) continue;
    recv->waits = false;
    Grant(id);
  }
}

void Engine::EndRecv(RecvId id, absl::StatusCode code) {
  RecvState& recv = *recvs_.Find(id);
  Link* link = recv.link;
  const bool granted = recv.granted;
  link->recvs.erase(KeyOf(recv.message.tag));
  if (code == absl::StatusCode::kOk) {
    ++link->peer->counters.messages_received;
    link->peer->counters.payload_bytes_received += recv.memory.bytes;
  }
  Complete({.event = Event::kReceived,
            .code = code,
            .peer = recv.message.peer,
            .token = recv.token,
            .tag = recv.message.tag});
  recvs_.Free(id);
  if (granted) {
    --link->granted;
    ServeUngranted(link);
  }
}

absl::Status Engine::SendNote(PeerId id, uint64_t communicator, absl::Span<const std::byte> note) {
  const PeerState* peer = FindPeer(id);
  if (peer == nullptr) return absl::NotFoundError(absl::StrCat("peer ", id, " is not known"));
  if (peer->state == PeerState::State::kLost) {
    return absl::UnavailableError(absl::StrCat("peer ", id, " is lost: ", peer->why));
  }
  Link* link = FindLink(peer, communicator);
  if (link == nullptr || !link->open_here || link->closed_here) {
    return absl::FailedPreconditionError(
        absl::StrCat("communicator ", communicator, " is not open with peer ", id));
  }
  if (link->close_came) {
    return absl::AbortedError(absl::StrCat("peer ", id, " has closed communicator ", communicator));
  }
  if (note.size() > options_.limits.note_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "note: ", note.size(), " bytes, expected at most ", options_.limits.note_bytes_max));
  }
  const bool held = !link->open_there || !link->held_notes.empty();
  const size_t window = link->open_there ? link->notes_all : options_.limits.headers_waiting_max;
  if (held ? link->held_notes.size() >= window : link->notes == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("note: peer ", id, " lets ", window,
                                                     " of communicator ", communicator,
                                                     " wait, and so many do"));
  }
  link->held_notes.emplace_back(reinterpret_cast<const char*>(note.data()), note.size());
  if (link->open_there) SendHeldNotes(link);
  return absl::OkStatus();
}

void Engine::SendHeldNotes(Link* link) {
  while (link->notes > 0 && !link->held_notes.empty()) {
    --link->notes;
    const std::string& note = link->held_notes.front();
    Header h;
    h.payload_bytes = static_cast<uint32_t>(note.size());
    auto copy = std::make_unique_for_overwrite<std::byte[]>(note.size());
    if (!note.empty()) std::memcpy(copy.get(), note.data(), note.size());
    Control(link, Type::kNote, h, std::move(copy));
    link->held_notes.pop_front();
  }
}

size_t Engine::Take(absl::Span<Completion> out) {
  size_t count = 0;
  while (count < out.size() && !completions_.empty()) {
    Completion& next = completions_.front();
    if (next.event == Event::kNote) {
      // The owner has it now: the peer may send another.
      const PeerState* peer = FindPeer(next.peer);
      Link* link = peer == nullptr ? nullptr : FindLink(peer, next.tag.communicator);
      if (link != nullptr && link->notes_taken > 0) {
        --link->notes_taken;
        OweNote(link);
      }
    }
    out[count++] = std::move(next);
    completions_.pop_front();
  }
  return count;
}

}  // namespace shunt::transport
