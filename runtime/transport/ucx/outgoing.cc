// Frames on their way out.
#include <cstring>

#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/transport/ucx/state.h"

namespace shunt::transport {

void UcxTransport::WriteAll() {
  Engine::Work work;
  while (engine_.NextWork(&work)) {
    if (const auto found = peers_.find(work.peer->id); found != peers_.end()) {
      WriteTo(found->second.get(), work.stream);
    }
  }
  for (const auto& [peer, stream] : std::exchange(writable_, {})) WriteTo(peer, stream);
}

void UcxTransport::WriteTo(Peer* peer, int stream) {
  Lane* lane = peer->state == Peer::State::kUp ? peer->lanes[stream].get() : nullptr;
  while (lane != nullptr && peer->state == Peer::State::kUp) {
    lane->held_up = lane->sent - lane->peer_took >= peer->window ||
                    (lane->staging != nullptr && lane->free_slots.empty());
    if (lane->held_up || !engine_.Pull(peer->engine, stream)) return;
    PostFrame(peer, stream);
  }
}

// The engine's buffer is free afterwards: payload of a message is copied to where the peer may read
// it, and to where a Close needs not wait for the peer.
void UcxTransport::PostFrame(Peer* peer, int stream) {
  Lane* lane = peer->lanes[stream].get();
  OutFrame& frame = Engine::sending(peer->engine, stream).front();
  Post* post = NewPost(peer, stream);
  const size_t bytes = frame.header.payload_bytes;
  const bool fetch = bytes >= options_.fetch_bytes_min;
  const std::byte* payload = nullptr;
  const UcxWorker::Memory* memory = nullptr;
  if (frame.owned != nullptr) {
    post->owned = std::move(frame.owned);
    payload = post->owned.get();
  } else if (fetch && bytes <= options_.engine.piece_bytes) {  // what a slot holds
    if (lane->staging == nullptr) MakeStaging(lane);
    post->slot = lane->free_slots.back();
    lane->free_slots.pop_back();
    std::byte* slot =
        lane->staging.get() + static_cast<size_t>(post->slot) * options_.engine.piece_bytes;
    frame.memory.CopyTo(frame.begin, slot, bytes);
    payload = slot;
    memory = lane->staging_memory;
  } else if (bytes != 0) {
    post->owned = std::make_unique_for_overwrite<std::byte[]>(bytes);
    frame.memory.CopyTo(frame.begin, post->owned.get(), bytes);
    payload = post->owned.get();
  }
  Encode(RailHead{.key = peer->key_out,
                  .number = lane->sent++,
                  .taken = lane->taken,
                  .stream = static_cast<uint32_t>(stream),
                  .header = frame.header},
         std::span<std::byte, kRailHeadBytes>(post->head));
  lane->told = lane->taken;
  engine_.Sent(peer->engine, stream);
  Launch(post, UcxWorker::Kind::kFrame, kRailHeadBytes, {payload, bytes}, memory, fetch);
}

void UcxTransport::SendWord(Peer* peer, int stream, RailWord::Kind kind) {
  if (peer->gone() || peer->endpoint == nullptr) return;
  Lane* lane = peer->lanes[stream].get();
  lane->told = lane->taken;
  Post* post = NewPost(peer, stream);
  Encode(RailWord{.key = peer->key_out,
                  .taken = lane->taken,
                  .stream = static_cast<uint32_t>(stream),
                  .kind = kind},
         std::span(post->head).first<kRailWordBytes>());
  Launch(post, UcxWorker::Kind::kWord, kRailWordBytes, {}, nullptr, false);
}

void UcxTransport::Launch(Post* post, UcxWorker::Kind kind, size_t head_bytes,
                          std::span<const std::byte> payload, const UcxWorker::Memory* memory,
                          bool fetch) {
  Peer* peer = post->peer;
  peer->sent_ns = now_ns_;
  const auto started = worker_->Send(peer->endpoint, kind, std::span(post->head).first(head_bytes),
                                     payload, memory, fetch, post);
  if (started.ok() && *started == UcxWorker::Started::kGoesOn) {
    ++peer->unfinished;
    return;
  }
  Finish(post);
  if (!started.ok()) Fail(peer, started.status());
}

void UcxTransport::OnSent(UcxWorker::Call* call, const absl::Status& status) {
  auto* post = static_cast<Post*>(call);
  Peer* peer = post->peer;
  --peer->unfinished;
  Finish(post);
  if (!status.ok()) Fail(peer, status);
}

UcxTransport::Post* UcxTransport::NewPost(Peer* peer, int stream) {
  if (idle_posts_.empty()) {
    posts_.push_back(std::make_unique<Post>());
    idle_posts_.push_back(posts_.back().get());
  }
  Post* post = idle_posts_.back();
  idle_posts_.pop_back();
  post->peer = peer;
  post->stream = stream;
  return post;
}

void UcxTransport::Finish(Post* post) {
  Peer* peer = post->peer;
  if (post->slot >= 0) {
    Lane* lane = peer->lanes[post->stream].get();
    lane->free_slots.push_back(std::exchange(post->slot, -1));
    if (lane->held_up) writable_.emplace_back(peer, post->stream);
  }
  post->owned.reset();
  post->peer = nullptr;
  idle_posts_.push_back(post);
}

void UcxTransport::MakeStaging(Lane* lane) {
  const auto slots = static_cast<size_t>(options_.pieces_in_flight);
  const size_t bytes = slots * options_.engine.piece_bytes;
  lane->staging = std::make_unique_for_overwrite<std::byte[]>(bytes);
  // Without it UCX registers each piece by itself.
  lane->staging_memory = worker_->Register(lane->staging.get(), bytes);
  statistics_.staging_bytes += bytes;
  for (int slot = options_.pieces_in_flight; slot > 0; --slot) lane->free_slots.push_back(slot - 1);
}

}  // namespace shunt::transport
