// Slices: who may post the next one, and how it gets between a message and its pieces.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/p2p/cursor.h"
#include "runtime/p2p/message_copy.h"
#include "runtime/pull/pull_engine.h"

namespace shunt::pull {
namespace {

using transport::Class;

// Copied on the driving thread: less than waking another costs.
constexpr uint64_t kInlineBytes = 32 << 10;
// Staging memory that is kept for the next slice.
constexpr size_t kStagingKept = 64;
// Pieces that are looked at before it is clear that they are too short to be named.
constexpr size_t kPlacesLooked = 8;

// Where the bytes lie; none if in more places than `most`, or in short ones.
std::vector<iovec> PlacesOf(const Side& side, uint64_t begin, uint64_t bytes, size_t most,
                            uint64_t place_bytes) {
  uint64_t found = 0;
  std::vector<iovec> places;
  for (p2p::Cursor cursor(side.selection, begin, bytes); cursor.extent().bytes != 0;) {
    const bool some = places.size() % kPlacesLooked == 0 && !places.empty();
    if (places.size() == most || (some && found < places.size() * place_bytes)) return {};
    const uint64_t length = cursor.extent().bytes;
    places.push_back({side.bases[cursor.extent().region] + cursor.extent().offset, length});
    found += length;
    cursor.Advance(length);
  }
  const bool worth = places.size() == 1 || found >= places.size() * place_bytes;
  return worth ? places : std::vector<iovec>{};
}

}  // namespace

p2p::Priority PriorityOf(Class service_class) {
  switch (service_class) {
    case Class::kLatency:
      return p2p::Priority::kLatency;
    case Class::kBulk:
      return p2p::Priority::kBulk;
    case Class::kBackground:
      return p2p::Priority::kBackground;
  }
  return p2p::Priority::kBulk;
}

void PullEngine::ForgetSlice(const Flow& flow, Op& op) {
  if (!flow.source) granted_[flow.rank()] -= flow.BytesOf(op.slice);
  if (flow.source && op.staging != nullptr) gathered_[flow.rank()] -= flow.BytesOf(op.slice);
  GiveStaging(std::move(op.staging));
}

std::unique_ptr<std::byte[]> PullEngine::TakeStaging() {
  if (staging_.empty()) return std::make_unique_for_overwrite<std::byte[]>(kSliceBytesMax);
  std::unique_ptr<std::byte[]> staging = std::move(staging_.back());
  staging_.pop_back();
  return staging;
}

void PullEngine::GiveStaging(std::unique_ptr<std::byte[]> staging) {
  if (staging != nullptr && staging_.size() < kStagingKept) staging_.push_back(std::move(staging));
}

void PullEngine::Work(uint64_t bytes, Class service_class, std::function<void()> work,
                      std::function<void()> then) {
  if (options_.pool == nullptr || bytes <= kInlineBytes) {
    work();
    then();
    return;
  }
  options_.pool->Add(p2p::OneChunk([weak = std::weak_ptr<bool>(alive_), work = std::move(work),
                                    then = std::move(then), post = options_.post] {
                       work();
                       post([weak, then] {
                         if (!weak.expired()) then();
                       });
                     }),
                     PriorityOf(service_class), 1);
}

bool PullEngine::MayPost(const Flow& flow) const {
  if (!flow.WantsToPost()) return false;
  if (flow.stopping()) return true;
  // Each has one slice in any case, or ends of several nodes could wait for one another; and a
  // silent peer would hold up all others.
  if (flow.posted == flow.done) return true;
  const std::array<uint64_t, 3>& used = flow.source ? gathered_ : granted_;
  const uint64_t before =
      std::accumulate(used.begin(), used.begin() + flow.rank() + 1, uint64_t{0});
  return before + flow.BytesOf(flow.posted) <=
         (flow.source ? options_.gathered_bytes : options_.grant_bytes);
}

void PullEngine::Pump() {
  for (auto& [id, peer] : peers_) FlushNotes(id, *peer);
  for (std::deque<FlowId>& turns : turns_) {
    // Round and round, a slice each, until none may post any more.
    for (size_t idle = 0; idle < turns.size();) {
      const FlowId id = turns.front();
      turns.pop_front();
      const auto flow = flows_.find(id);
      if (flow == flows_.end()) continue;  // has ended
      turns.push_back(id);
      if (MayPost(*flow->second)) {
        PostSlice(*flow->second);
        idle = 0;
      } else {
        ++idle;
      }
    }
  }
}

void PullEngine::PostSlice(Flow& flow) {
  Op op;
  op.kind = OpKind::kSlice;
  op.peer = flow.peer;
  op.flow = flow.id;
  op.slice = flow.posted++;
  const uint64_t begin = flow.Begin(op.slice), bytes = flow.BytesOf(op.slice);
  // What is given up goes without content, and touches nobody's memory. Neither does what the other
  // node may refuse altogether: until something has come, it comes beside its place.
  const bool content = !flow.stopping();
  const bool accepted = flow.source || !flow.initiator || flow.done > 0;
  const transport::Limits& limits = options_.transport->limits();
  std::vector<iovec> places;
  if (content && accepted) {
    places = PlacesOf(*flow.side, begin, bytes,
                      flow.source ? limits.send_places_max : limits.recv_places_max,
                      options_.place_bytes);
  }
  op.direct = !places.empty();
  op.empty = flow.source && !content;
  if (!op.direct && !op.empty) op.staging = TakeStaging();
  if (!flow.source) {
    granted_[flow.rank()] += bytes;
    ++flow.outstanding;
    const transport::Message message = MessageOf(flow, kSliceStep, op.slice);
    if (!op.direct) places = {{op.staging.get(), bytes}};
    options_.transport->PostRecv(message, places, Keep(std::move(op)));
    return;
  }
  if (op.staging == nullptr) return SendSlice(flow.id, std::move(op), places);
  gathered_[flow.rank()] += bytes;
  ++flow.working;
  auto shared = std::make_shared<Op>(std::move(op));
  Work(
      bytes, flow.ask.service_class,
      [kept = flows_.at(flow.id), shared, begin, bytes] {
        const Side& side = *kept->side;
        p2p::Gather(side.selection, side.bases, begin,
                    absl::MakeSpan(shared->staging.get(), bytes));
      },
      [this, id = flow.id, shared] {
        --flows_.at(id)->working;
        SendSlice(id, std::move(*shared), {});
      });
}

void PullEngine::SendSlice(FlowId id, Op op, const std::vector<iovec>& places) {
  Flow& flow = *flows_.at(id);
  if (flow.severed) {
    ForgetSlice(flow, op);
    return Check(id);
  }
  ++flow.outstanding;
  const transport::Message message = MessageOf(flow, kSliceStep, op.slice);
  if (op.direct) return options_.transport->PostSend(message, places, Keep(std::move(op)));
  // Not what earlier slices have left in staging memory.
  static const std::vector<std::byte> zeros(kSliceBytesMax);
  const std::byte* const memory = op.empty ? zeros.data() : op.staging.get();
  const auto bytes = static_cast<size_t>(flow.BytesOf(op.slice));
  options_.transport->PostSend(message, absl::MakeConstSpan(memory, bytes), Keep(std::move(op)));
}

void PullEngine::OnSlice(Flow& flow, Op op) {
  const uint64_t begin = flow.Begin(op.slice), bytes = flow.BytesOf(op.slice);
  if (flow.source) {
    if (op.staging != nullptr) gathered_[flow.rank()] -= bytes;
    return SliceDone(flow, std::move(op));
  }
  granted_[flow.rank()] -= bytes;
  if (op.direct || flow.stopping() || flow.severed) {
    return SliceDone(flow, std::move(op));
  }
  ++flow.working;
  auto shared = std::make_shared<Op>(std::move(op));
  Work(
      bytes, flow.ask.service_class,
      [kept = flows_.at(flow.id), shared, begin, bytes] {
        const Side& side = *kept->side;
        p2p::Scatter(side.selection, side.bases, begin,
                     absl::MakeConstSpan(shared->staging.get(), bytes));
      },
      [this, id = flow.id, shared] {
        Flow& flow = *flows_.at(id);
        --flow.working;
        SliceDone(flow, std::move(*shared));
        Pump();
      });
}

void PullEngine::SliceDone(Flow& flow, Op op) {
  GiveStaging(std::move(op.staging));
  ++flow.done;
  Check(flow.id);
}

}  // namespace shunt::pull
