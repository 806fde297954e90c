// From AddPeer to kPeerUp.
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/transport/ucx/state.h"

namespace shunt::transport {
namespace {

absl::Status MakeKey(RailKey* key) {
  const ssize_t got = ::getrandom(key->data(), sizeof(*key), 0);
  return got == sizeof(*key) ? absl::OkStatus() : ErrnoStatus(errno, "making a random key");
}

}  // namespace

absl::Status UcxTransport::AddPeer(const TcpPeer& info) {
  if (engine_.FindPeer(info.id) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("peer ", info.id, " (", info.name, "): the number is taken"));
  }
  auto peer = std::make_unique<Peer>();
  peer->info = info;
  SHUNT_RETURN_IF_ERROR(MakeKey(&peer->key_in));
  // Numbers over there are never used again, so that nothing late is taken for another peer's.
  TcpPeer meeting = info;
  meeting.id = peer->bootstrap_id = next_bootstrap_id_++;
  SHUNT_RETURN_IF_ERROR(bootstrap_->AddPeer(meeting));
  peer->engine = engine_.AddPeer(info.id);
  if (options_.bootstrap.tallies != nullptr) {
    peer->engine->tally = options_.bootstrap.tallies->Of(info.name);
  }
  peer->added_ns = NowNs();
  for (int stream = 0; stream < options_.streams; ++stream) {
    auto lane = std::make_unique<Lane>();
    lane->ring.resize(options_.frames_waiting_max);
    lane->landing.peer = peer.get();
    lane->landing.stream = stream;
    peer->lanes.push_back(std::move(lane));
  }
  by_bootstrap_id_[peer->bootstrap_id] = peer.get();
  by_key_[peer->key_in] = peer.get();
  peers_[info.id] = std::move(peer);
  next_tick_ns_ = std::min(next_tick_ns_, NowNs());
  return absl::OkStatus();
}

void UcxTransport::PollBootstrap() {
  Completion batch[8];
  while (const size_t count = bootstrap_->Poll(absl::MakeSpan(batch))) {
    for (size_t i = 0; i < count; ++i) {
      const Completion& c = batch[i];
      const auto found = by_bootstrap_id_.find(c.peer);
      if (found == by_bootstrap_id_.end() || found->second->gone()) continue;
      Peer* peer = found->second;
      if (c.event == Event::kPeerUp) {
        SayHello(peer);
      } else if (c.event == Event::kNote) {
        if (absl::Status status = OnHello(peer, c.text); !status.ok()) Fail(peer, status);
      } else if (c.event == Event::kPeerLost) {
        Fail(peer, absl::Status(c.code, absl::StrCat("TCP: ", c.text)));
      }
    }
  }
}

void UcxTransport::SayHello(Peer* peer) {
  peer->meeting = RailMeeting(options_.bootstrap.name, options_.bootstrap.incarnation,
                              peer->info.name, peer->info.incarnation);
  const std::string hello = Encode(RailHello{.streams = options_.streams,
                                             .frames_waiting_max = options_.frames_waiting_max,
                                             .key = peer->key_in,
                                             .address = worker_->address()});
  absl::Status status = bootstrap_->Open(peer->meeting, {peer->bootstrap_id});
  if (status.ok()) {
    status = bootstrap_->SendNote(peer->bootstrap_id, peer->meeting,
                                  {reinterpret_cast<const std::byte*>(hello.data()), hello.size()});
  }
  if (!status.ok()) Fail(peer, status);
}

absl::Status UcxTransport::OnHello(Peer* peer, const std::string& text) {
  if (peer->endpoint != nullptr) {
    return absl::InvalidArgumentError("rail hello: came twice, expected one");
  }
  SHUNT_ASSIGN_OR_RETURN(
      const RailHello hello,
      DecodeRailHello({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
  peer->key_out = hello.key;
  peer->window = hello.frames_waiting_max;
  peer->lanes.resize(std::min<size_t>(peer->lanes.size(), static_cast<size_t>(hello.streams)));
  SHUNT_ASSIGN_OR_RETURN(peer->endpoint, worker_->Connect(hello.address, peer));
  peer->state = Peer::State::kProbing;
  SendWord(peer, 0, RailWord::Kind::kProbe);
  if (peer->probed) SendWord(peer, 0, RailWord::Kind::kAnswer);
  return absl::OkStatus();
}

void UcxTransport::Up(Peer* peer) {
  peer->state = Peer::State::kUp;
  peer->came_ns = peer->sent_ns = NowNs();
  engine_.PeerUp(peer->engine, static_cast<int>(peer->lanes.size()));
  for (size_t stream = 0; stream < peer->lanes.size(); ++stream) {
    takeable_.emplace_back(peer, static_cast<int>(stream));  // that came before its answer
  }
}

}  // namespace shunt::transport
