#include "runtime/exchange/failover.h"

#include <algorithm>

namespace shunt::exchange {

bool Failover::Report(int node, LossNote report) {
  std::optional<LossNote>& own = reports_[static_cast<size_t>(node)];
  if (own.has_value()) return false;
  own = std::move(report);
  return decided();
}

size_t Failover::missing() const {
  return static_cast<size_t>(std::count(reports_.begin(), reports_.end(), std::nullopt));
}

uint64_t Failover::Completed() const {
  uint64_t completed = 0;
  for (const auto& report : reports_) completed = std::max(completed, report->completed);
  return completed;
}

Failover::Verdict Failover::verdict() const {
  const uint64_t completed = Completed();
  bool again = false, intact = true;
  for (const auto& report : reports_) {
    if (report->pending == 0) continue;
    if (report->pending <= completed) {
      if (!report->has_result) return Verdict::kTooLate;
      continue;
    }
    again |= !report->has_result;
    intact &= report->intact;
  }
  if (!again) return Verdict::kGoOn;
  return intact ? Verdict::kRunAgain : Verdict::kOverwritten;
}

std::string Failover::Words() const {
  const Verdict decision = verdict();
  const uint64_t completed = Completed();
  for (const auto& report : reports_) {
    if (report->pending == 0) continue;
    const bool guilty = decision == Verdict::kTooLate
                            ? report->pending <= completed && !report->has_result
                            : report->pending > completed && !report->intact;
    if (guilty) return report->call + ", but " + report->why;
  }
  return reports_.front()->why;
}

}  // namespace shunt::exchange
