// What links are like: measured when connections are made, refreshed by what operations take.
#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/node_engine_state.h"
#include "runtime/core/clock.h"
#include "runtime/core/fnv.h"

namespace shunt::daemon {
namespace {

// A communicator's numbers change that often at most.
constexpr int64_t kProposeNs = 1'000'000'000;

}  // namespace

// Of these two incarnations alone.
uint64_t NodeEngine::BetweenId(const NodeKey& other, std::string_view what) const {
  const std::string& low = std::min(node_, other.name);
  const std::string& high = std::max(node_, other.name);
  return Fnv1a(incarnation_ + other.incarnation,
               Fnv1a(absl::StrCat(low, "/", high, absl::string_view(what.data(), what.size()))));
}

void NodeEngine::BeginProbe(transport::PeerId peer) {
  const NodeKey& other = peers_[peer]->node;
  const bool asks = node_ < other.name;
  const uint64_t id = BetweenId(other, "");
  if (!transport_->Open(id, {peer}).ok()) return;  // lost again
  const uint64_t number = NextNumber();
  Probing& probing = probes_[number];
  probing.communicator = id;
  probing.probe =
      std::make_unique<exchange::LinkProbe>(asks, peer, id, transport_.get(), number << 32);
  probing.probe->Start(ProbeMoment());
}

exchange::LinkProbe::Moment NodeEngine::ProbeMoment() const {
  const int64_t now = NowNs();
  return {now, busy_ns_ + now - drive_began_ns_};
}

void NodeEngine::OnProbe(uint64_t number, const transport::Completion& completion) {
  Probing& probing = probes_.at(number);
  probing.probe->OnCompletion(completion, ProbeMoment());
  if (!probing.probe->done()) return;
  const exchange::LinkNumbers measured = probing.probe->numbers();
  transport_->Close(probing.communicator);
  probes_.erase(number);
  if (measured == exchange::LinkNumbers()) return;  // the connection broke
  LogInfo("link measured", {{"node", peers_[completion.peer]->node.name},
                            {"latency_ns", measured.latency_ns},
                            {"message_ns", measured.message_ns},
                            {"bytes_per_s", measured.bytes_per_s}});
  if (links_ != nullptr) {
    links_->Of(peers_[completion.peer]->node.name)->bytes_per_s.Set(measured.bytes_per_s);
  }
  estimate_.AddProbe(measured);
  std::lock_guard lock(mutex_);
  numbers_ = estimate_.numbers();
}

exchange::LinkNumbers NodeEngine::numbers() const {
  std::lock_guard lock(mutex_);
  return numbers_;
}

// The leader of a communicator proposes numbers that have become others.
void NodeEngine::AddEstimate(const Running& running) {
  SpanState& span = *running.span;
  const uint64_t bytes = exchange::BytesOf(running.call.spec, span.span.map.world());
  const int64_t now = NowNs();
  estimate_.AddOperation(running.call.spec.kind, CostOf(running.net, bytes), running.slices,
                         running.model, 1e-9 * static_cast<double>(now - running.began_ns));
  const exchange::LinkNumbers numbers = estimate_.numbers();
  {
    std::lock_guard lock(mutex_);
    numbers_ = numbers;
  }
  if (span.span.pinned || !span.policies->MayPropose() || now - span.proposed_ns < kProposeNs)
    return;
  if (!exchange::Differ(exchange::ModelOf(numbers), span.policies->policy().model)) return;
  span.proposed_ns = now;
  SendToAll(span, span.policies->Propose(numbers, span.begun));
}

absl::StatusOr<NodeEngine::View> NodeEngine::Describe(uint64_t wire_id) const {
  std::lock_guard lock(mutex_);
  const auto it = views_.find(wire_id);
  if (it == views_.end()) return absl::NotFoundError("the communicator is closed");
  return it->second;
}

void NodeEngine::Publish(const SpanState& span) {
  std::lock_guard lock(mutex_);
  View& view = views_[span.span.wire_id];
  if (view.map.world() == 0) view.map = span.span.map;
  view.policy = span.policies->policy();
  view.pinned = span.span.pinned;
  view.version = span.policies->version();
}

}  // namespace shunt::daemon
