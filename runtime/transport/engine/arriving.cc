// What a peer sends. Nothing of it is trusted: an error ends the connection, and only that.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/transport/engine/engine.h"

namespace shunt::transport {

using wire::Header;
using wire::Type;

namespace {

absl::string_view NameOf(const Header& h) {
  const std::string_view name = wire::Name(h.type);
  return {name.data(), name.size()};
}

// The peer broke the protocol.
template <typename... Words>
absl::Status Wrong(const Header& h, const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(NameOf(h), " of communicator ", h.tag.communicator,
                                                 ", channel ", h.tag.channel, ", sequence ",
                                                 h.tag.sequence, ", step ", h.tag.step, ", slice ",
                                                 h.tag.slice, ": ", words...));
}

}  // namespace

absl::Status Engine::Arrive(PeerState* peer, int stream, const Header& h) {
  SHUNT_CHECK(peer->state == PeerState::State::kUp);
  Stream& at = peer->streams[stream];
  SHUNT_CHECK(at.in.kind == InFrame::Kind::kNone);
  if (stream != 0 && h.type != Type::kData && h.type != Type::kPing) {
    return Wrong(h, "came on stream ", stream, ", expected 0");
  }
  absl::Status status;
  if (peer->tally != nullptr) {
    peer->tally->Received(TrafficOf(h), wire::kHeaderBytes + h.payload_bytes);
  }
  if (h.type == Type::kPing) return status;
  if (h.type == Type::kOpen) {
    status = OnOpen(peer, h);
  } else {
    status = ArriveOnLink(peer, stream, h);
  }
  if (!status.ok()) CountProtocolError(peer);
  return status;
}

absl::Status Engine::ArriveOnLink(PeerState* peer, int stream, const Header& h) {
  Link* link = FindLink(peer, h.tag.communicator);
  if (link == nullptr) return Wrong(h, "the communicator is not open, expected an open one");
  InFrame& in = peer->streams[stream].in;
  if (h.type == Type::kClose) return OnClose(peer, link, h);
  if (link->close_came && h.type != Type::kData) return Wrong(h, "came after its close");
  if (!link->open_there || !link->open_here) {
    return Wrong(h, "came before both sides had opened it");
  }
  if (h.type == Type::kData) {
    if (link->close_came && link->data_frames_begun >= link->data_frames_due) {
      return Wrong(h, "came after its close");
    }
    ++link->data_frames_begun;
  }
  if (!link->closed_here && (h.slots != 0 || h.notes != 0)) {
    if (absl::Status status = OnReturned(link, h); !status.ok()) return status;
  }
  in.header = h;
  in.link = link;
  in.arrived = 0;
  in.memory = {};
  in.begin = 0;
  in.recv = 0;
  absl::Status status;
  if (link->closed_here) {
    // What was on its way when we closed: thrown away.
    if (h.type == Type::kData || h.type == Type::kEager || h.type == Type::kNote) {
      in.kind = InFrame::Kind::kDrain;
    }
  } else {
    switch (h.type) {
      case Type::kEager:
        status = OnEager(link, h, &in);
        break;
      case Type::kData:
        status = OnData(link, h, &in);
        break;
      case Type::kNote:
        status = OnNote(link, h, &in);
        break;
      case Type::kAnnounce:
        status = OnAnnounce(link, h);
        break;
      case Type::kGrant:
        status = OnGrant(link, h);
        break;
      case Type::kRefuseMessage:
      case Type::kRefuseGrant:
      case Type::kWithdraw:
        status = OnRefused(link, h);
        break;
      default:  // credit: done above
        break;
    }
  }
  if (!status.ok() || in.kind == InFrame::Kind::kNone) {
    in = InFrame{};
    return status;
  }
  return h.payload_bytes != 0 ? status : Landed(peer, stream, 0);
}

absl::Status Engine::Landed(PeerState* peer, int stream, uint32_t bytes) {
  InFrame& in = peer->streams[stream].in;
  SHUNT_CHECK(in.kind != InFrame::Kind::kNone && bytes <= in.header.payload_bytes - in.arrived);
  in.arrived += bytes;
  if (in.arrived < in.header.payload_bytes) return absl::OkStatus();
  InFrame done = std::move(in);
  in = InFrame{};
  return FinishPayload(peer, std::move(done));
}

absl::Status Engine::FinishPayload(PeerState* peer, InFrame in) {
  const Header& h = in.header;
  Link* link = in.link;
  const TagKey key = KeyOf(h.tag);
  switch (in.kind) {
    case InFrame::Kind::kEager:
      SlotsFree(link, h.payload_bytes);
      EndRecv(in.recv, absl::StatusCode::kOk);
      break;
    case InFrame::Kind::kWaiting: {
      Waiting waiting{h.signature, h.message_bytes, 0, std::move(in.owned)};
      link->eager.emplace(key, std::move(waiting));
      // It may have been posted while the payload was on its way.
      if (const auto recv = link->recvs.find(key); recv != link->recvs.end()) {
        if (recvs_.Find(recv->second)->message.signature == h.signature) StartRecv(recv->second);
      }
      break;
    }
    case InFrame::Kind::kNote:
      Complete(
          {.event = Event::kNote,
           .peer = peer->id,
           .tag = {.communicator = link->communicator},
           .text = std::string(reinterpret_cast<const char*>(in.owned.get()), h.payload_bytes)});
      break;
    case InFrame::Kind::kData:
      FinishData(link, in);
      [[fallthrough]];
    case InFrame::Kind::kDrain:
      if (h.type == Type::kEager && !link->closed_here) SlotsFree(link, h.payload_bytes);
      if (h.type == Type::kData) {
        ++link->data_frames_came;
        CheckPeerClosed(link);
      }
      break;
    case InFrame::Kind::kNone:
      break;
  }
  return absl::OkStatus();
}

absl::Status Engine::OnOpen(PeerState* peer, const Header& h) {
  if (h.offset == 0 || h.offset > UINT16_MAX) {
    return Wrong(h, "headers that may wait are ", h.offset, ", expected 1 to ", UINT16_MAX);
  }
  Link* link = FindLink(peer, h.tag.communicator);
  if (link == nullptr) {
    if (peer->links.size() >= options_.links_max) {
      return Wrong(h, "the peer has ", peer->links.size(), " open, expected at most ",
                   options_.links_max, " with this one");
    }
    link = AddLink(peer, h.tag.communicator);
  }
  if (link->open_there || link->close_came) return Wrong(h, "it is open already");
  link->open_there = true;
  link->slots = link->slots_all = h.slots;
  link->notes = link->notes_all = h.notes;
  link->eager_bytes = h.message_bytes;
  link->headers_max = static_cast<uint32_t>(h.offset);
  if (link->closed_here && !link->close_sent) {
    --peer->parting;
    SendHeldNotes(link);
    link->held_notes.clear();
    SendClose(link);
  }
  if (link->closed_here) return absl::OkStatus();
  SendHeldNotes(link);
  for (RecvId id : std::exchange(link->held_recvs, {})) {
    if (recvs_.Find(id) != nullptr) StartRecv(id);
  }
  for (SendId id : std::exchange(link->held_sends, {})) {
    if (sends_.Find(id) != nullptr) StartSend(id);
  }
  return absl::OkStatus();
}

absl::Status Engine::OnReturned(Link* link, const Header& h) {
  if (h.slots > link->slots_all - link->slots) {
    return Wrong(h, "returns ", h.slots, " slots, expected at most ",
                 link->slots_all - link->slots);
  }
  if (h.notes > link->notes_all - link->notes) {
    return Wrong(h, "returns ", h.notes, " notes, expected at most ",
                 link->notes_all - link->notes);
  }
  link->slots += h.slots;
  link->notes += h.notes;
  if (h.slots != 0) ServeUnannounced(link);
  if (h.notes != 0) SendHeldNotes(link);
  return absl::OkStatus();
}

absl::Status Engine::OnEager(Link* link, const Header& h, InFrame* in) {
  if (h.payload_bytes > options_.limits.eager_bytes) {
    return Wrong(h, h.payload_bytes, " bytes, expected at most ", options_.limits.eager_bytes);
  }
  const uint32_t slots = SlotsFor(h.payload_bytes);
  if (link->slots_taken + link->slots_owed + slots > options_.limits.eager_slots) {
    return Wrong(h, link->slots_taken + link->slots_owed, " of ", options_.limits.eager_slots,
                 " slots are taken, expected ", slots, " free ones");
  }
  const TagKey key = KeyOf(h.tag);
  if (link->eager.contains(key) || link->announcements.contains(key)) {
    return Wrong(h, "the message came twice");
  }
  const auto found = link->recvs.find(key);
  RecvState* recv = found == link->recvs.end() ? nullptr : recvs_.Find(found->second);
  if (recv != nullptr && recv->message.signature != h.signature) recv = nullptr;
  if (recv != nullptr && (recv->landing || recv->received != 0 || recv->announcement_seen)) {
    return Wrong(h, "the message came twice");
  }
  link->slots_taken += slots;
  if (recv == nullptr) {
    TellStray(link, h);
    in->kind = InFrame::Kind::kWaiting;
    if (h.payload_bytes != 0) {
      in->owned = std::make_unique_for_overwrite<std::byte[]>(h.payload_bytes);
    }
    in->memory = Memory(absl::MakeSpan(in->owned.get(), h.payload_bytes));
    return absl::OkStatus();
  }
  if (recv->memory.bytes != h.message_bytes) {
    RefuseSlotted(found->second);
    in->kind = InFrame::Kind::kDrain;
    return absl::OkStatus();
  }
  if (recv->granted) return Wrong(h, "came in a slot, expected it in its grant");
  recv->landing = true;
  in->kind = InFrame::Kind::kEager;
  in->recv = found->second;
  in->memory = recv->memory;
  return absl::OkStatus();
}

absl::Status Engine::OnData(Link* link, const Header& h, InFrame* in) {
  RecvState* recv = recvs_.Find(h.grant);
  if (recv == nullptr || recv->link != link || !recv->granted) {
    return Wrong(h, "grant ", h.grant, " does not exist (any more)");
  }
  if (recv->message.tag != h.tag) return Wrong(h, "grant ", h.grant, " is for another message");
  if (recv->landing) return Wrong(h, "comes on two streams at once");
  if (recv->memory.bytes != h.message_bytes) {
    return Wrong(h, "has ", h.message_bytes, " bytes, expected ", recv->memory.bytes);
  }
  if (recv->received != h.offset) {
    return Wrong(h, "offset is ", h.offset, ", expected ", recv->received);
  }
  recv->landing = true;
  in->kind = InFrame::Kind::kData;
  in->recv = h.grant;
  in->memory = recv->memory;
  in->begin = h.offset;
  return absl::OkStatus();
}

void Engine::FinishData(Link* link, const InFrame& in) {
  RecvState& recv = *recvs_.Find(in.recv);
  recv.landing = false;
  recv.received += in.header.payload_bytes;
  if (recv.received < recv.memory.bytes) return;
  const bool announced = (in.header.flags & wire::kFlagAnnounced) != 0;
  if (announced && !recv.announcement_seen) {
    // On another stream than this. A peer that lies here fills no more than its window.
    if (link->overtaken.size() < options_.limits.headers_waiting_max) {
      link->overtaken.insert(KeyOf(in.header.tag));
    }
  }
  EndRecv(in.recv, absl::StatusCode::kOk);
}

absl::Status Engine::OnAnnounce(Link* link, const Header& h) {
  const TagKey key = KeyOf(h.tag);
  if (link->overtaken.erase(key) != 0) return absl::OkStatus();
  if (link->eager.contains(key) || link->announcements.contains(key)) {
    return Wrong(h, "the message came twice");
  }
  const auto found = link->recvs.find(key);
  RecvState* recv = found == link->recvs.end() ? nullptr : recvs_.Find(found->second);
  if (recv == nullptr || recv->message.signature != h.signature) {
    if (link->announcements.size() >= options_.limits.headers_waiting_max) {
      return Wrong(h, link->announcements.size(), " wait already, expected at most so many");
    }
    link->announcements.emplace(key, Waiting{h.signature, h.message_bytes, 0, nullptr});
    TellStray(link, h);
    return absl::OkStatus();
  }
  if (recv->announcement_seen || (recv->landing && !recv->granted)) {
    return Wrong(h, "the message came twice");
  }
  recv->announcement_seen = true;
  // If it is granted, or will be, the sender compares the lengths.
  if (recv->granted || recv->waits) return absl::OkStatus();
  if (recv->memory.bytes == h.message_bytes) {
    Grant(found->second);
  } else {
    Header refuse;
    refuse.tag = h.tag;
    Control(link, Type::kRefuseMessage, refuse);
    EndRecv(found->second, absl::StatusCode::kInvalidArgument);
  }
  return absl::OkStatus();
}

absl::Status Engine::OnGrant(Link* link, const Header& h) {
  const TagKey key = KeyOf(h.tag);
  const Waiting grant{h.signature, h.message_bytes, h.grant, nullptr};
  const auto found = link->sends.find(key);
  if (found != link->sends.end()) {
    const SendState& send = *sends_.Find(found->second);
    if (send.grant != 0) return Wrong(h, "the message is granted already");
    if (send.message.signature == h.signature && !send.slotted) {
      UseGrant(found->second, grant);
      return absl::OkStatus();
    }
  }
  if (link->grants.size() >= options_.limits.headers_waiting_max) {
    return Wrong(h, link->grants.size(), " wait already, expected at most so many");
  }
  if (!link->grants.emplace(key, Waiting{grant.signature, grant.bytes, grant.grant, nullptr})
           .second) {
    return Wrong(h, "the message is granted already");
  }
  TellStray(link, h);
  return absl::OkStatus();
}

absl::Status Engine::OnRefused(Link* link, const Header& h) {
  const TagKey key = KeyOf(h.tag);
  switch (h.type) {
    case Type::kRefuseMessage: {
      const auto found = link->sends.find(key);
      SendState* send = found == link->sends.end() ? nullptr : sends_.Find(found->second);
      if (send == nullptr || !send->announced || send->grant != 0) {
        return Wrong(h, "no such message is announced");
      }
      --link->announced;
      EndSend(found->second, absl::StatusCode::kInvalidArgument);
      ServeUnannounced(link);
      break;
    }
    case Type::kRefuseGrant: {
      RecvState* recv = recvs_.Find(h.grant);
      if (recv == nullptr || recv->link != link || !recv->granted || recv->message.tag != h.tag ||
          recv->landing || recv->received != 0) {
        return Wrong(h, "grant ", h.grant, " does not exist, or is in use");
      }
      EndRecv(h.grant, absl::StatusCode::kInvalidArgument);
      break;
    }
    default: {  // withdraw
      const auto found = link->grants.find(key);
      if (found != link->grants.end() && found->second.grant == h.grant) {
        link->grants.erase(found);
      }
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status Engine::OnNote(Link* link, const Header& h, InFrame* in) {
  if (h.payload_bytes > options_.limits.note_bytes_max) {
    return Wrong(h, h.payload_bytes, " bytes, expected at most ", options_.limits.note_bytes_max);
  }
  if (link->notes_taken + link->notes_owed >= options_.limits.headers_waiting_max) {
    return Wrong(h, "all ", options_.limits.headers_waiting_max, " notes wait, expected one less");
  }
  ++link->notes_taken;
  in->kind = InFrame::Kind::kNote;
  in->owned = std::make_unique_for_overwrite<std::byte[]>(h.payload_bytes);
  in->memory = Memory(absl::MakeSpan(in->owned.get(), h.payload_bytes));
  return absl::OkStatus();
}

void Engine::TellStray(Link* link, const Header& h) {
  if (link->operations->Belongs(h.tag, h.signature)) return;
  if (!link->operations->TellOnce(link->peer->id, h.tag, h.signature)) return;
  Complete(
      {.event = Event::kStray, .peer = link->peer->id, .tag = h.tag, .signature = h.signature});
}

void Engine::SlotsFree(Link* link, uint64_t message_bytes) {
  link->slots_taken -= SlotsFor(message_bytes);
  OweSlots(link, SlotsFor(message_bytes));
}

}  // namespace shunt::transport
