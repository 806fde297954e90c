// Slices: who may post the next one, and how it gets between a message and its pieces.
#include <algorithm>
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
// What an urgent transfer may be granted beyond the others' bytes.
constexpr uint64_t kUrgentBytes = 2 << 20;

// Where the bytes lie; none if in more places than `most`.
std::vector<iovec> PlacesOf(const Side& side, uint64_t begin, uint64_t bytes, size_t most) {
  std::vector<iovec> places;
  places.reserve(most);
  for (p2p::Cursor cursor(side.selection, begin, bytes); cursor.extent().bytes != 0;) {
    if (places.size() == most) return {};
    const uint64_t length = cursor.extent().bytes;
    places.push_back({side.bases[cursor.extent().region] + cursor.extent().offset, length});
    cursor.Advance(length);
  }
  return places;
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
  (flow.source ? gathered_ : granted_) -= flow.BytesOf(op.slice);
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
  const uint64_t bytes = flow.BytesOf(flow.posted);
  if (flow.source) return gathered_ + bytes <= options_.gathered_bytes;
  const uint64_t more = flow.ask.service_class == Class::kLatency ? kUrgentBytes : 0;
  return granted_ + bytes <= options_.grant_bytes + more;
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
  std::vector<iovec> memory;
  if (content && accepted) {
    const size_t most = flow.source ? limits.send_places_max : limits.recv_places_max;
    const size_t worth = std::max<uint64_t>(1, bytes / options_.place_bytes);
    memory = PlacesOf(*flow.side, begin, bytes, std::min(most, worth));
  }
  op.direct = !memory.empty();
  op.empty = flow.source && !content;
  if (op.empty) {
    // Not what earlier slices have left in staging memory.
    static std::vector<std::byte> zeros(kSliceBytesMax);
    memory = {{zeros.data(), bytes}};
  } else if (!op.direct) {
    op.staging = TakeStaging();
    memory = {{op.staging.get(), bytes}};
  }
  if (!flow.source) {
    granted_ += bytes;
    ++flow.outstanding;
    const transport::Message message = MessageOf(flow, kSliceStep, op.slice);
    options_.transport->PostRecv(message, memory, Keep(std::move(op)));
    return;
  }
  gathered_ += bytes;
  if (op.staging == nullptr) return SendSlice(flow.id, std::move(op), memory);
  ++flow.working;
  auto shared = std::make_shared<Op>(std::move(op));
  Work(
      bytes, flow.ask.service_class,
      [kept = flows_.at(flow.id), shared, begin, bytes] {
        const Side& side = *kept->side;
        p2p::Gather(side.selection, side.bases, begin,
                    absl::MakeSpan(shared->staging.get(), bytes));
      },
      [this, id = flow.id, shared, memory] {
        --flows_.at(id)->working;
        SendSlice(id, std::move(*shared), memory);
      });
}

void PullEngine::SendSlice(FlowId id, Op op, const std::vector<iovec>& memory) {
  Flow& flow = *flows_.at(id);
  if (flow.severed) {
    gathered_ -= flow.BytesOf(op.slice);
    GiveStaging(std::move(op.staging));
    return Check(id);
  }
  ++flow.outstanding;
  const transport::Message message = MessageOf(flow, kSliceStep, op.slice);
  options_.transport->PostSend(message, memory, Keep(std::move(op)));
}

void PullEngine::OnSlice(Flow& flow, Op op) {
  const uint64_t begin = flow.Begin(op.slice), bytes = flow.BytesOf(op.slice);
  if (flow.source) {
    gathered_ -= bytes;
    return SliceDone(flow, std::move(op));
  }
  granted_ -= bytes;
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
