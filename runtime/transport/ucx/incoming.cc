// What a peer sends over the rail. Nothing of it is trusted: an error loses the peer, and only it.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/transport/ucx/state.h"

namespace shunt::transport {
namespace {

template <typename... Words>
absl::Status Wrong(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat("rail: ", words...));
}

}  // namespace

bool UcxTransport::OnMessage(UcxWorker::Kind kind, std::span<const std::byte> head,
                             std::span<const std::byte> payload, UcxWorker::Offer* offer,
                             size_t bytes) {
  const auto found = by_key_.find(KeyOf(head));
  if (found == by_key_.end()) {
    ++statistics_.messages_refused;
    return false;
  }
  Peer* peer = found->second;
  if (peer->gone()) return false;
  peer->came_ns = NowNs();
  bool kept = false;
  absl::Status status;
  if (kind == UcxWorker::Kind::kFrame) {
    status = OnFrame(peer, head, payload, offer, bytes, &kept);
  } else if (bytes != 0) {
    status = Wrong("a word has a payload of ", bytes, " bytes, expected none");
  } else {
    status = OnWord(peer, head);
  }
  if (!status.ok()) {
    CountProtocolError(peer->engine);
    Fail(peer, status);
  }
  return kept;
}

absl::Status UcxTransport::OnWord(Peer* peer, std::span<const std::byte> bytes) {
  RailWord word;
  if (absl::Status status = DecodeRailWord(bytes, &word); !status.ok()) return status;
  if (absl::Status status = Taken(peer, word.stream, word.taken); !status.ok()) return status;
  switch (word.kind) {
    case RailWord::Kind::kProbe:
      peer->probed = true;
      SendWord(peer, 0, RailWord::Kind::kAnswer);  // if it has come before its hello: later
      break;
    case RailWord::Kind::kAnswer:
      if (peer->state == Peer::State::kMeeting) return Wrong("an answer came before a probe went");
      if (peer->state == Peer::State::kProbing) Up(peer);
      break;
    case RailWord::Kind::kTaken:
      break;
  }
  return absl::OkStatus();
}

// The peer has taken so many of our frames.
absl::Status UcxTransport::Taken(Peer* peer, uint32_t stream, uint64_t taken) {
  if (stream >= peer->lanes.size()) {
    return Wrong("stream is ", stream, ", expected less than ", peer->lanes.size());
  }
  Lane* lane = peer->lanes[stream].get();
  if (taken > lane->sent) {
    return Wrong("the peer says it took ", taken, " frames of stream ", stream,
                 ", expected at most ", lane->sent);
  }
  if (taken <= lane->peer_took) return absl::OkStatus();  // words may overtake frames
  lane->peer_took = taken;
  if (lane->held_up) writable_.emplace_back(peer, static_cast<int>(stream));
  return absl::OkStatus();
}

absl::Status UcxTransport::OnFrame(Peer* peer, std::span<const std::byte> bytes,
                                   std::span<const std::byte> payload, UcxWorker::Offer* offer,
                                   size_t payload_bytes, bool* kept) {
  if (peer->state == Peer::State::kMeeting) return Wrong("a frame came before the hello");
  RailHead head;
  if (absl::Status status = DecodeRailHead(bytes, &head); !status.ok()) return status;
  if (absl::Status status = Taken(peer, head.stream, head.taken); !status.ok()) return status;
  Lane* lane = peer->lanes[head.stream].get();
  if (head.number - lane->taken >= lane->ring.size()) {  // also if it is smaller
    return Wrong("frame ", head.number, " of stream ", head.stream, ", expected one of ",
                 lane->ring.size(), " from ", lane->taken);
  }
  Waiting& waiting = lane->ring[head.number % lane->ring.size()];
  if (waiting.here) return Wrong("frame ", head.number, " of stream ", head.stream, " came twice");
  if (payload_bytes != head.header.payload_bytes ||
      (offer != nullptr && payload_bytes < kRailFetchBytesMin)) {
    return Wrong("frame ", head.number, " of stream ", head.stream, " has a payload of ",
                 payload_bytes, " bytes, expected ", head.header.payload_bytes,
                 offer == nullptr ? "" : " and, as it is to be fetched, at least ",
                 offer == nullptr ? "" : absl::StrCat(kRailFetchBytesMin));
  }
  const auto stream = static_cast<int>(head.stream);
  if (offer == nullptr && polling_ && peer->state == Peer::State::kUp &&
      head.number == lane->taken && !lane->landing.active && !lane->landing.landed) {
    // Its turn already: no copy in between.
    return Take(peer, stream, head.header, payload.data(), nullptr);
  }
  waiting.here = true;
  waiting.header = head.header;
  if (offer != nullptr) {
    waiting.offer = offer;
    *kept = true;
  } else if (payload_bytes != 0) {
    waiting.payload = std::make_unique_for_overwrite<std::byte[]>(payload_bytes);
    std::memcpy(waiting.payload.get(), payload.data(), payload_bytes);
  }
  if (head.number == lane->taken) takeable_.emplace_back(peer, stream);
  return absl::OkStatus();
}

void UcxTransport::TakeAll() {
  // Taking makes no other stream takeable, but a read that ends at once lists its own again.
  while (!takeable_.empty()) {
    for (const auto& [peer, stream] : std::exchange(takeable_, {})) TakeFrom(peer, stream);
  }
}

void UcxTransport::TakeFrom(Peer* peer, int stream) {
  if (peer->state != Peer::State::kUp) return;
  Lane* lane = peer->lanes[stream].get();
  if (lane->landing.landed) {
    lane->landing.landed = false;
    absl::Status status = engine_.Landed(peer->engine, stream, lane->landing.bytes);
    if (!status.ok()) return Fail(peer, status);
    CountTaken(peer, stream);
  }
  while (peer->state == Peer::State::kUp && !lane->landing.active) {
    Waiting& next = lane->ring[lane->taken % lane->ring.size()];
    if (!next.here) return;
    const Waiting frame = std::exchange(next, {});
    absl::Status status = Take(peer, stream, frame.header, frame.payload.get(), frame.offer);
    if (!status.ok()) return Fail(peer, status);
  }
}

absl::Status UcxTransport::Take(Peer* peer, int stream, const wire::Header& header,
                                const std::byte* payload, UcxWorker::Offer* offer) {
  absl::Status status = engine_.Arrive(peer->engine, stream, header);
  const uint32_t bytes = header.payload_bytes;
  std::byte* target = nullptr;
  if (status.ok()) {
    Engine::ForEachTarget(peer->engine, stream, bytes,
                          [&](std::byte* place, size_t) { return (target = place) == nullptr; });
  }
  if (offer != nullptr && target != nullptr) {
    Landing& landing = peer->lanes[stream]->landing;
    landing.communicator = header.tag.communicator;
    landing.bytes = bytes;
    landing.registration = registrations_->Acquire(target, bytes);
    ++statistics_.fetches;
    const UcxWorker::Memory* memory = nullptr;
    if (landing.registration != nullptr) {
      ++statistics_.fetches_registered;
      memory = static_cast<UcxWorker::Memory*>(landing.registration->handle);
    }
    const auto started = worker_->Fetch(offer, {target, bytes}, memory, &landing);
    if (started.ok() && *started == UcxWorker::Started::kGoesOn) {
      landing.active = true;
      ++peer->unfinished;
      return absl::OkStatus();
    }
    if (landing.registration != nullptr) {
      registrations_->Release(std::exchange(landing.registration, nullptr));
    }
    status = started.status();
  } else if (offer != nullptr) {
    ++statistics_.fetches_dropped;
    worker_->Drop(offer);
  } else if (target != nullptr) {
    std::memcpy(target, payload, bytes);
  }
  if (status.ok() && bytes != 0) status = engine_.Landed(peer->engine, stream, bytes);
  if (status.ok()) CountTaken(peer, stream);
  return status;
}

void UcxTransport::CountTaken(Peer* peer, int stream) {
  Lane* lane = peer->lanes[stream].get();
  ++lane->taken;
  // A sender that has used up half of its window should not have to wait for a frame of ours.
  if (lane->taken - lane->told >= lane->ring.size() / 2) {
    SendWord(peer, stream, RailWord::Kind::kTaken);
  }
}

void UcxTransport::OnFetched(UcxWorker::Call* call, const absl::Status& status) {
  auto* landing = static_cast<Landing*>(call);
  Peer* peer = landing->peer;
  landing->active = false;
  --peer->unfinished;
  if (landing->registration != nullptr) {
    registrations_->Release(std::exchange(landing->registration, nullptr));
  }
  if (!status.ok()) return Fail(peer, status);
  landing->landed = true;
  takeable_.emplace_back(peer, landing->stream);
}

}  // namespace shunt::transport
