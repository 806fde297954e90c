#include "runtime/p2p/copier.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/core/futex.h"
#include "runtime/core/status.h"
#include "runtime/p2p/copy_kernel.h"

namespace shunt::p2p {
namespace {

constexpr uint64_t kClosed = uint64_t{1} << 63;
constexpr size_t kBatch = 32;

}  // namespace

StorePolicy StoresFor(uint64_t bytes, int workers) {
  static const uint64_t level2 = [] {
    const long size = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? static_cast<uint64_t>(size) : uint64_t{1} << 20;
  }();
  static const int cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const auto caches = static_cast<uint64_t>(std::clamp(workers, 1, std::max(cpus, 1)));
  return bytes / 2 > level2 / 4 * caches ? StorePolicy::kStreaming : StorePolicy::kTemporal;
}

absl::StatusOr<std::unique_ptr<Copier>> Copier::Make(std::shared_ptr<const TransferPlan> plan,
                                                     RegionMemory& source,
                                                     RegionMemory& destination,
                                                     CopyOptions options) {
  if (options.chunk_bytes == 0) {
    return absl::InvalidArgumentError("chunks of 0 bytes, expected at least 1");
  }
  SHUNT_ASSIGN_OR_RETURN(Bases from, FindBases(plan->source(), source));
  SHUNT_ASSIGN_OR_RETURN(Bases to, FindBases(plan->destination(), destination));
  return std::unique_ptr<Copier>(
      new Copier(std::move(plan), std::move(from), std::move(to), options));
}

Copier::Copier(std::shared_ptr<const TransferPlan> plan, Bases source, Bases destination,
               CopyOptions options)
    : plan_(std::move(plan)),
      source_(std::move(source)),
      destination_(std::move(destination)),
      chunk_bytes_(options.chunk_bytes),
      chunks_((plan_->bytes() - 1) / chunk_bytes_ + 1),
      policy_(StoresFor(plan_->bytes(), options.workers)) {}

bool Copier::Claim(uint64_t* chunk) {
  uint64_t seen = claimed_.load(std::memory_order_relaxed);
  do {
    if (seen >= chunks_) return false;  // or closed
  } while (!claimed_.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed));
  *chunk = seen;
  return true;
}

uint64_t Copier::Work(uint64_t max_chunks) {
  uint64_t ran = 0;
  for (uint64_t chunk; ran < max_chunks && Claim(&chunk); ++ran) {
    Run(chunk);
    // Either this thread sees a cancel, or the one who cancels sees this chunk done: one of them
    // finds out that all is over.
    done_.fetch_add(1, std::memory_order_seq_cst);
  }
  if (ran > 0) WakeIfOver();
  return ran;
}

void Copier::Run(uint64_t chunk) const {
  const uint64_t begin = chunk * chunk_bytes_;
  PlanCursor cursor(*plan_, begin, std::min(chunk_bytes_, plan_->bytes() - begin));
  std::array<PointerRun, kBatch> runs;
  size_t count = 0;
  for (CopyRun run; cursor.Next(&run);) {
    runs[count++] = {source_[run.source_region] + run.source_offset,
                     destination_[run.destination_region] + run.destination_offset, run.bytes};
    if (count == kBatch) {
      CopyRuns(runs, policy_);
      count = 0;
    }
  }
  CopyRuns(absl::MakeConstSpan(runs.data(), count), policy_);
  FinishRuns(policy_);
}

bool Copier::Cancel() {
  uint64_t seen = claimed_.load(std::memory_order_relaxed);
  do {
    if (seen >= kClosed) return true;
    if (seen == chunks_) return false;
  } while (!claimed_.compare_exchange_weak(seen, seen + kClosed, std::memory_order_seq_cst));
  WakeIfOver();
  return true;
}

Outcome Copier::outcome() const {
  const uint64_t claimed = claimed_.load(std::memory_order_seq_cst);
  const bool closed = claimed >= kClosed;
  const uint64_t wanted = closed ? claimed - kClosed : chunks_;
  if (done_.load(std::memory_order_seq_cst) != wanted) return Outcome::kPending;
  return closed ? Outcome::kCancelled : Outcome::kCopied;
}

void Copier::WakeIfOver() {
  if (outcome() == Outcome::kPending) return;
  over_.store(1, std::memory_order_release);
  FutexWake(&over_);
}

Outcome Copier::Wait() {
  Work();
  while (outcome() == Outcome::kPending) FutexWait(&over_, 0);
  return outcome();
}

}  // namespace shunt::p2p
