// Communicators and peers that end.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/transport/engine/engine.h"

namespace shunt::transport {

using wire::Header;
using wire::Type;

namespace {

// Closed communicators that a peer has not opened, with last words for it.
constexpr size_t kPartingMax = 1024;
// Those that it has closed before we opened them: opening them finds it gone.
constexpr size_t kGaveUpMax = 1024;

}  // namespace

void Engine::Close(uint64_t communicator) {
  // Also of posts that were refused because it isn't open.
  std::erase_if(completions_, [&](const Completion& c) {
    return c.event != Event::kPeerUp && c.event != Event::kPeerLost &&
           c.tag.communicator == communicator;
  });
  const auto found = communicators_.find(communicator);
  if (found == communicators_.end()) return;
  for (PeerId id : found->second->peers) {
    const PeerState* peer = FindPeer(id);
    Link* link = peer == nullptr ? nullptr : FindLink(peer, communicator);
    if (link != nullptr) Withdraw(link);
  }
  communicators_.erase(found);
}

// Takes every buffer of the link back. The link stays until the peer has closed it too, so that
// what is on its way can be told from nonsense.
void Engine::Withdraw(Link* link) {
  PeerState* peer = link->peer;
  link->closed_here = true;
  link->operations = nullptr;
  for (const auto& [key, id] : link->sends) sends_.Free(id);
  for (const auto& [key, id] : link->recvs) recvs_.Free(id);
  link->sends.clear();
  link->recvs.clear();
  link->grants.clear();
  link->eager.clear();
  link->announcements.clear();
  link->overtaken.clear();
  link->unannounced.clear();
  link->ungranted.clear();
  link->held_sends.clear();
  link->held_recvs.clear();
  for (Stream& stream : peer->streams) {
    if (stream.in.link == link) {
      stream.in.kind = InFrame::Kind::kDrain;
      stream.in.memory = {};
      stream.in.recv = 0;
      stream.in.owned.reset();
    }
  }
  CopyWhatLeaves(link);
  std::erase_if(peer->control, [&](const ControlFrame& frame) {
    const Type type = frame.header.type;
    return frame.header.tag.communicator == link->communicator && type != Type::kOpen &&
           type != Type::kNote && type != Type::kClose;
  });
  // Small messages that were said to be sent go first. So do last words to a peer that has not
  // opened yet, as long as not many wait for it.
  if (!link->open_there && !link->held_notes.empty() && peer->parting < kPartingMax) {
    ++peer->parting;
  } else if (link->eager_queued == 0) {
    SendClose(link);
  }
}

// A frame that has begun must be finished, without the caller's buffer.
void Engine::CopyWhatLeaves(Link* link) {
  for (Stream& stream : link->peer->streams) {
    for (OutFrame& frame : stream.sending) {
      if (frame.header.tag.communicator != link->communicator) continue;
      frame.send = 0;
      const uint32_t bytes = frame.header.payload_bytes;
      if (bytes == 0 || frame.owned != nullptr) continue;
      frame.owned = std::make_unique_for_overwrite<std::byte[]>(bytes);
      frame.memory.CopyTo(frame.begin, frame.owned.get(), bytes);
      frame.memory = Memory(absl::MakeSpan(frame.owned.get(), bytes));
      frame.begin = 0;
    }
  }
}

void Engine::SendClose(Link* link) {
  link->close_sent = true;
  Header h;
  h.offset = link->data_frames_sent;
  Control(link, Type::kClose, h);
  CheckPeerClosed(link);
}

absl::Status Engine::OnClose(PeerState* peer, Link* link, const Header& h) {
  if (link->close_came || (!link->open_there && !link->close_sent) ||
      h.offset < link->data_frames_begun) {
    return absl::InvalidArgumentError(
        absl::StrCat("close of communicator ", h.tag.communicator, " after ", h.offset,
                     " data frames: expected one close of an open communicator, after at least ",
                     link->data_frames_begun));
  }
  link->close_came = true;
  link->data_frames_due = h.offset;
  if (!link->open_here) {
    // The peer gave up before we began; it waits for our word to forget it.
    if (peer->control.size() > options_.control_max) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the peer opens and closes communicators and doesn't read: ", peer->control.size(),
          " frames wait for it, expected at most ", options_.control_max));
    }
    if (h.offset != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("close of communicator ", h.tag.communicator, " after ", h.offset,
                       " data frames, expected 0: it was never open here"));
    }
    if (peer->gave_up.size() >= kGaveUpMax) peer->gave_up.pop_front();
    peer->gave_up.push_back(h.tag.communicator);
    SendClose(link);
    return absl::OkStatus();
  }
  CheckPeerClosed(link);
  return absl::OkStatus();
}

// Data travels on other streams than the close: the end is when all of it is here.
void Engine::CheckPeerClosed(Link* link) {
  if (!link->close_came || link->data_frames_came < link->data_frames_due) return;
  if (link->open_here && !link->closed_here) EndAll(link, absl::StatusCode::kAborted);
  if (link->close_sent) EraseLink(link);
}

// Ends what is posted, in the order of posting.
void Engine::EndAll(Link* link, absl::StatusCode code) {
  if (before_giving_back_) before_giving_back_(link->peer);
  std::vector<std::tuple<uint64_t, bool, uint64_t>> all;
  all.reserve(link->sends.size() + link->recvs.size());
  for (const auto& [key, id] : link->sends) all.emplace_back(sends_.Find(id)->serial, true, id);
  for (const auto& [key, id] : link->recvs) all.emplace_back(recvs_.Find(id)->serial, false, id);
  std::sort(all.begin(), all.end());
  link->ungranted.clear();
  link->unannounced.clear();
  CopyWhatLeaves(link);
  for (const auto& [serial, is_send, id] : all) {
    if (is_send) {
      EndSend(id, code);
    } else {
      EndRecv(id, code);
    }
  }
}

void Engine::EraseLink(Link* link) {
  PeerState* peer = link->peer;
  for (Stream& stream : peer->streams) SHUNT_CHECK(stream.in.link != link);
  peer->links.erase(link->communicator);
}

PeerState* Engine::AddPeer(PeerId id) {
  std::unique_ptr<PeerState>& peer = peers_[id];
  if (peer != nullptr) return nullptr;
  peer = std::make_unique<PeerState>();
  peer->id = id;
  peer->large_sent = id;  // peers begin with different streams: messages to all go by all movers
  return peer.get();
}

PeerState* Engine::FindPeer(PeerId id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.get();
}

PeerCounters Engine::counters(PeerId id) const {
  const PeerState* peer = FindPeer(id);
  return peer == nullptr ? PeerCounters{} : peer->counters;
}

void Engine::PeerUp(PeerState* peer, int streams) {
  SHUNT_CHECK(peer->state == PeerState::State::kConnecting && streams >= 1);
  peer->state = PeerState::State::kUp;
  peer->streams = std::vector<Stream>(streams);
  Complete({.event = Event::kPeerUp, .peer = peer->id});
  List(peer, 0);
}

void Engine::PeerLost(PeerState* peer, const absl::Status& why) {
  if (peer->state == PeerState::State::kLost) return;
  if (peer->tally != nullptr && peer->state == PeerState::State::kUp && !absl::IsCancelled(why)) {
    peer->tally->losses.Add();
  }
  peer->state = PeerState::State::kLost;
  peer->why = std::string(why.message());
  for (Stream& stream : peer->streams) {
    stream.in = InFrame{};
    stream.sending.clear();
    for (auto& queue : stream.queues) {
      for (SendId id : queue) {
        // What has been told as sent is no longer among its link's sends.
        const SendState* send = sends_.Find(id);
        if (send != nullptr && send->told) sends_.Free(id);
      }
      queue.clear();
    }
  }
  peer->control.clear();
  std::vector<std::tuple<uint64_t, bool, uint64_t>> all;
  for (const auto& [communicator, link] : peer->links) {
    for (const auto& [key, id] : link->sends) all.emplace_back(sends_.Find(id)->serial, true, id);
    for (const auto& [key, id] : link->recvs) all.emplace_back(recvs_.Find(id)->serial, false, id);
    link->ungranted.clear();
    link->unannounced.clear();
  }
  std::sort(all.begin(), all.end());
  for (const auto& [serial, is_send, id] : all) {
    if (is_send) {
      EndSend(id, absl::StatusCode::kUnavailable);
    } else {
      EndRecv(id, absl::StatusCode::kUnavailable);
    }
  }
  peer->links.clear();
  std::erase_if(work_, [&](const Work& work) { return work.peer == peer; });
  Complete({.event = Event::kPeerLost, .code = why.code(), .peer = peer->id, .text = peer->why});
}

void Engine::RemovePeer(PeerId id) {
  PeerState* peer = FindPeer(id);
  if (peer == nullptr) return;
  PeerLost(peer, absl::CancelledError("removed by its owner"));
  peers_.erase(id);
}

}  // namespace shunt::transport
