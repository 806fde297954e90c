#include "runtime/exchange/link_estimate.h"

#include <algorithm>

namespace shunt::exchange {
namespace {

// Expected times are that much of one thing, or they tell of neither.
constexpr double kMostly = 0.8;
// A jump that large is an accident; what lasts is believed step by step.
constexpr double kStepMax = 2;

}  // namespace

void LinkEstimate::AddProbe(const LinkNumbers& numbers) { numbers_ = Worst(numbers_, numbers); }

void LinkEstimate::AddOperation(OpKind kind, const NetCost& cost, uint32_t slices,
                                const LinkModel& model, double seconds) {
  if (HasRoot(kind) || kind == OpKind::kAllToAllV) return;
  const double expected = PredictSeconds(cost, model, slices);
  if (expected <= 0 || seconds <= 0) return;
  const double bytes_s = cost.link_bytes / model.bytes_per_s;
  const double rounds_s = cost.latencies * (model.latency_s + model.message_overhead_s);
  Window* const window = bytes_s >= kMostly * expected    ? &bytes_
                         : rounds_s >= kMostly * expected ? &rounds_
                                                          : nullptr;
  if (window == nullptr) return;
  const double deciding_s = window == &bytes_ ? bytes_s : rounds_s;
  const double ratio =
      std::clamp((seconds - (expected - deciding_s)) / deciding_s, 1 / kStepMax, kStepMax);
  window->least = window->count == 0 ? ratio : std::min(window->least, ratio);
  if (++window->count < kWindow) return;
  window->count = 0;
  if (window == &bytes_) {
    numbers_.bytes_per_s = static_cast<uint64_t>(model.bytes_per_s / window->least);
  } else {
    numbers_.latency_ns = static_cast<uint64_t>(1e9 * model.latency_s * window->least);
    numbers_.message_ns = static_cast<uint64_t>(1e9 * model.message_overhead_s * window->least);
  }
}

}  // namespace shunt::exchange
