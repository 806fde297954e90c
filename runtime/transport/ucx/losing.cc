// Peers that end, and buffers that are given back.
#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/transport/ucx/state.h"

namespace shunt::transport {

void UcxTransport::OnFailed(void* context, const absl::Status& why) {
  ++statistics_.endpoints_failed;
  Fail(static_cast<Peer*>(context), why);
}

// May be called from within UCX's callbacks: ServeLosses does the rest.
void UcxTransport::Fail(Peer* peer, const absl::Status& why) {
  if (peer->gone()) return;
  peer->state = Peer::State::kLosing;
  peer->why = why;
  losing_.push_back(peer);
}

// Its operations end, and their buffers are their owner's again, when nothing lands any more.
void UcxTransport::ServeLosses() {
  for (Peer* peer : losing_) CutOff(peer);
  std::erase_if(losing_, [&](Peer* peer) {
    const bool lands = std::any_of(peer->lanes.begin(), peer->lanes.end(),
                                   [](const auto& lane) { return lane->landing.active; });
    if (lands) return false;
    peer->state = Peer::State::kLost;
    engine_.PeerLost(peer->engine,
                     absl::Status(peer->why.code(), absl::StrCat("node ", peer->info.name, ": ",
                                                                 peer->why.message())));
    return true;
  });
}

void UcxTransport::CutOff(Peer* peer) {
  by_key_.erase(peer->key_in);
  if (by_bootstrap_id_.erase(peer->bootstrap_id) != 0) {
    if (peer->meeting != 0) bootstrap_->Close(peer->meeting);
    bootstrap_->RemovePeer(peer->bootstrap_id);
  }
  for (const auto& lane : peer->lanes) {
    for (Waiting& waiting : lane->ring) {
      if (waiting.offer != nullptr) worker_->Drop(waiting.offer);
      waiting = {};
    }
  }
  if (peer->endpoint != nullptr) worker_->Close(std::exchange(peer->endpoint, nullptr));
}

void UcxTransport::Close(uint64_t communicator) {
  engine_.Close(communicator);
  WaitForLandings([&](const Landing& landing) { return landing.communicator == communicator; });
}

void UcxTransport::WaitForLandings(const std::function<bool(const Landing&)>& which) {
  const int64_t cut_ns = NowNs() + options_.close_wait_ns;
  for (;;) {
    Peer* waited_for = nullptr;
    for (const auto& [id, peer] : peers_) {
      for (const auto& lane : peer->lanes) {
        if (lane->landing.active && which(lane->landing)) waited_for = peer.get();
      }
    }
    if (waited_for == nullptr) return;
    if (worker_->Progress()) continue;
    ::sched_yield();
    const int64_t now_ns = NowNs();
    if (now_ns < cut_ns) continue;
    if (!waited_for->gone()) {
      Fail(waited_for,
           absl::DeadlineExceededError(absl::StrCat("a read of its memory has not ended after ",
                                                    options_.close_wait_ns / 1'000'000, " ms")));
    }
    CutOff(waited_for);
    // Then UCX ends the read. To go on while something may still be written would be worse.
    SHUNT_CHECK(now_ns < cut_ns + 60'000'000'000);
  }
}

void UcxTransport::RemovePeer(PeerId id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer* peer = found->second.get();
  Fail(peer, absl::CancelledError("removed by its owner"));
  CutOff(peer);
  WaitForLandings([&](const Landing& landing) { return landing.peer == peer; });
  ServeLosses();
  engine_.RemovePeer(id);
  Bury(std::move(found->second));
  peers_.erase(found);
  Reap();
}

// Until UCX has let go of what it sends.
void UcxTransport::Bury(std::unique_ptr<Peer> peer) {
  CutOff(peer.get());
  const auto is_its = [&](const auto& each) { return each.first == peer.get(); };
  std::erase_if(writable_, is_its);
  std::erase_if(takeable_, is_its);
  std::erase(losing_, peer.get());
  buried_.push_back(std::move(peer));
}

bool UcxTransport::Reap() {
  std::erase_if(buried_, [&](const std::unique_ptr<Peer>& peer) {
    if (peer->unfinished != 0) return false;
    FreeStaging(peer.get());
    std::erase_if(writable_, [&](const auto& each) { return each.first == peer.get(); });
    std::erase_if(takeable_, [&](const auto& each) { return each.first == peer.get(); });
    return true;
  });
  return buried_.empty();
}

void UcxTransport::FreeStaging(Peer* peer) {
  for (const auto& lane : peer->lanes) {
    if (lane->staging == nullptr) continue;
    if (lane->staging_memory != nullptr) worker_->Unregister(lane->staging_memory);
    statistics_.staging_bytes -=
        static_cast<uint64_t>(options_.pieces_in_flight) * options_.engine.piece_bytes;
  }
}

void UcxTransport::Tick() {
  const TcpOptions& limits = options_.bootstrap;
  bool any = false;
  for (const auto& [id, owned] : peers_) {
    Peer* peer = owned.get();
    if (peer->gone()) continue;
    any = true;
    if (peer->state != Peer::State::kUp) {
      if (now_ns_ - peer->added_ns >= limits.connect_timeout_ns) {
        Fail(peer, absl::DeadlineExceededError(absl::StrCat(
                       "not connected after ", limits.connect_timeout_ns / 1'000'000, " ms: ",
                       peer->state == Peer::State::kMeeting ? "it has not said over TCP how"
                                                            : "the rail carries nothing")));
      }
    } else if (now_ns_ - peer->came_ns >= limits.lost_after_ns) {
      Fail(peer, absl::UnavailableError(
                     absl::StrCat("silent on the rail for ", (now_ns_ - peer->came_ns) / 1'000'000,
                                  " ms, expected a word every ", limits.heartbeat_ns / 1'000'000)));
    } else if (now_ns_ - peer->sent_ns >= limits.heartbeat_ns) {
      SendWord(peer, 0, RailWord::Kind::kTaken);
    }
  }
  const int64_t period_ns = std::max<int64_t>(
      1'000'000,
      std::min({limits.heartbeat_ns, limits.lost_after_ns / 4, limits.connect_timeout_ns / 4}));
  next_tick_ns_ = any ? now_ns_ + period_ns : kNeverNs;
}

}  // namespace shunt::transport
