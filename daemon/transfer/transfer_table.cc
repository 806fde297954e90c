#include "daemon/transfer/transfer_table.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "daemon/event_signal.h"
#include "daemon/node_engine.h"
#include "daemon/probe.h"
#include "daemon/transfer/held_regions.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::daemon {
namespace {

constexpr size_t kTransfersMax = 4096;  // of one session, in flight
// Of one session, that nobody has asked for: also if all in flight end before one is asked for.
constexpr size_t kReportsMax = 2 * kTransfersMax;
constexpr int kWatchesMax = 256;  // descriptors of one session
// What the daemon keeps for an id, a run or a piece; little of it is not counted.
constexpr uint64_t kElementBytes = 24;
constexpr uint64_t kChargedBytes = 64 << 10;
// What the one who takes a post does itself: less than waking another thread costs.
constexpr uint64_t kInlineBytes = 64 << 10;
// Copy runs that an explanation counts; more are estimated.
constexpr uint64_t kCountedRunsMax = 1 << 16;

absl::Status NoTransfer(uint64_t transfer) {
  return absl::NotFoundError(absl::StrCat(
      "transfer ", transfer,
      ": this session has none of this number in flight, and no report of one that is not "
      "collected"));
}

absl::Status TooMany(uint64_t session) {
  return absl::ResourceExhaustedError(
      absl::StrCat("session ", session, " has ", kTransfersMax, " transfers in flight, the most"));
}

}  // namespace

TransferTable::TransferTable(Options options, memory::RegionTable* regions, StoreRegions* stores,
                             EventLoop* loop)
    : regions_(regions),
      stores_(stores),
      loop_(loop),
      threads_(options.threads),
      probe_(options.probe),
      pool_({options.threads, std::move(options.on_thread_start)}) {}

TransferTable::~TransferTable() = default;

// ---- Transfers

uint64_t TransferTable::CostOfPost(const Session& session, const PostedTransfer& posted) const {
  List local, remote;
  if (!FindLists(session, posted, &local, &remote).ok()) return 0;  // refused at once
  return CostOf(*local.list, posted.local) + CostOf(*remote.list, posted.remote);
}

absl::StatusOr<TransferTable::Sides> TransferTable::Prepare(const Session& session,
                                                            const PostedTransfer& posted) const {
  List local, remote;
  SHUNT_RETURN_IF_ERROR(FindLists(session, posted, &local, &remote));
  if (local.published != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("local: list ", posted.local.list, " was fetched from agent \"",
                     local.published->agent, "\", expected a list of the session's own memory"));
  }
  if (remote.published != nullptr) {
    SHUNT_RETURN_IF_ERROR(remote.published->CheckCurrent());
    SHUNT_RETURN_IF_ERROR(remote.published->CheckAccess(session.peer.uid, posted.push));
  }
  auto here = Select(local.list, posted.local);
  if (!here.ok()) return WithSide("local", here.status());
  auto there = Select(remote.list, posted.remote);
  if (!there.ok()) return WithSide("remote", there.status());
  Sides sides;
  sides.published = std::move(remote.published);
  SHUNT_ASSIGN_OR_RETURN(
      sides.plan, posted.push ? p2p::TransferPlan::Make(*std::move(here), *std::move(there))
                              : p2p::TransferPlan::Make(*std::move(there), *std::move(here)));
  SHUNT_ASSIGN_OR_RETURN(sides.route, RouteOf(sides.published.get(), *sides.plan, posted.push));
  return sides;
}

absl::Status TransferTable::Hold(const p2p::Selection& selection, uint64_t session,
                                 const std::string& owner, const std::string& words,
                                 std::vector<memory::RegionUse>* uses) const {
  for (const p2p::RegionExtent& region : selection.regions()) {
    auto use = regions_->Use(session, region.id, words);
    if (!use.ok()) {
      return absl::NotFoundError(
          absl::StrCat("region ", region.id, ": ",
                       owner.empty() ? "this session has no such region any more"
                                     : absl::StrCat("agent \"", owner, "\" has freed it")));
    }
    uses->push_back(*std::move(use));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Transfer>> TransferTable::MakeLocal(const Sides& sides,
                                                                   const PostedTransfer& posted,
                                                                   Transfer::Setup setup) {
  const Session& session = *setup.session;
  const Published* const published = sides.published.get();
  const std::string owner = published != nullptr ? published->agent : "";
  setup.counterpart = published != nullptr ? published->owner.session : session.id;
  const std::string words = absl::StrCat("transfer ", setup.id, " of session ", session.id);
  const auto hold = [&](const p2p::Selection& selection, bool remote) {
    return remote ? Hold(selection, setup.counterpart, owner, words, &setup.uses)
                  : Hold(selection, session.id, "", words, &setup.uses);
  };
  SHUNT_RETURN_IF_ERROR(hold(sides.plan->source(), !posted.push));
  SHUNT_RETURN_IF_ERROR(hold(sides.plan->destination(), posted.push));
  HeldRegions memory(&setup.uses);
  SHUNT_ASSIGN_OR_RETURN(setup.copier, p2p::Copier::Make(sides.plan, memory, memory,
                                                         p2p::CopyOptions{.workers = threads_}));
  if (published != nullptr) {
    setup.counterpart_text = absl::StrCat("agent \"", owner, "\" of session ", setup.counterpart);
  }
  SHUNT_RETURN_IF_ERROR(ReserveNotification(sides, posted, &setup));
  return std::make_shared<Transfer>(std::move(setup));
}

absl::Status TransferTable::ReserveNotification(const Sides& sides, const PostedTransfer& posted,
                                                Transfer::Setup* setup) const {
  if (!posted.notification.has_value()) return absl::OkStatus();
  if (sides.published == nullptr) {
    return absl::InvalidArgumentError(
        "a notification goes to the agent of the remote side, which is this session's own memory");
  }
  SHUNT_RETURN_IF_ERROR(sides.published->inbox->Reserve(sides.published->agent));
  setup->inbox = sides.published->inbox;
  setup->notification = {agents_.NameOf(setup->session->id), *posted.notification};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Transfer>> TransferTable::Begin(const SessionPtr& session,
                                                               const PostedTransfer& posted,
                                                               uint64_t id, bool on_ring) {
  if (posted.deadline_ns != kNeverNs && NowNs() >= posted.deadline_ns) {
    return absl::DeadlineExceededError(
        absl::StrCat("transfer ", id, ": its deadline has passed before it was begun"));
  }
  Transfer::Setup setup;
  // Ids, runs and pieces are kept until the end.
  if (const uint64_t bytes = posted.elements() * kElementBytes; bytes > kChargedBytes) {
    SHUNT_ASSIGN_OR_RETURN(setup.charge, ChargeFor(*session, bytes, "ids of a transfer"));
  }
  SHUNT_ASSIGN_OR_RETURN(const Sides sides, Prepare(*session, posted));
  setup.id = id;
  setup.session = session;
  setup.on_ring = on_ring;
  setup.bytes = sides.plan->bytes();
  setup.ended = [this](Transfer& transfer) { Ended(transfer); };
  setup.route = sides.route;
  setup.priority = posted.priority;
  std::function<void()> start;
  SHUNT_ASSIGN_OR_RETURN(const std::shared_ptr<Transfer> transfer,
                         sides.route == Route::kCopy ? MakeLocal(sides, posted, std::move(setup))
                         : sides.route == Route::kGpu
                             ? MakeDevice(sides, posted, std::move(setup), &start)
                         : sides.remote() ? MakeRemote(sides, posted, std::move(setup), &start)
                                          : MakeStored(sides, posted, std::move(setup), &start));
  const uint64_t owner = transfer->counterpart();
  Late late;
  const absl::Status refused = [&]() -> absl::Status {
    const std::lock_guard lock(mutex_);
    // SessionGone comes after this is set, and takes the lock.
    if (session->ended.load()) return absl::CancelledError("the session has ended");
    OfSession& of = sessions_[session->id];
    if (of.transfers.size() >= kTransfersMax) {
      return TooMany(session->id);
    }
    if (of.transfers.contains(id)) {
      return absl::AlreadyExistsError(
          absl::StrCat("transfer ", id, ": one of this number is in flight"));
    }
    if (owner != 0) {
      const auto other = sessions_.find(owner);
      if (other == sessions_.end()) {
        return absl::UnavailableError(
            absl::StrCat(transfer->counterpart_text(), " has just ended"));
      }
      if (owner != session->id) other->second.counterparts.insert(transfer);
    }
    if (auto node = of.late.extract(id)) late = std::move(node.mapped());
    transfer->events = std::move(late.events);
    transfer->waiter = std::move(late.waiter);
    of.transfers.emplace(id, transfer);
    return absl::OkStatus();
  }();
  if (!refused.ok()) {
    transfer->GiveUp();
    return refused;
  }
  in_flight_.fetch_add(1);
  bytes_in_flight_.fetch_add(transfer->bytes());
  if (transfer->is_copy() && transfer->bytes() <= kInlineBytes) {
    while (transfer->Step()) {
    }
    return transfer;
  }
  if (posted.deadline_ns != kNeverNs) {
    const std::lock_guard lock(mutex_);
    transfer->timer = loop_->At(posted.deadline_ns, [weak = std::weak_ptr<Transfer>(transfer)] {
      if (const auto transfer = weak.lock()) {
        transfer->Cancel(absl::DeadlineExceededError(
            absl::StrCat("transfer ", transfer->id(), " of ", transfer->bytes(),
                         " bytes: its deadline has passed")));
      }
    });
  }
  if (transfer->is_copy()) {
    pool_.Add(transfer, posted.priority, transfer->chunks());
  } else {
    start();
  }
  // One that came before the start has had no effect elsewhere.
  if (late.cancelled.ok()) late.cancelled = transfer->cancelled();
  if (!late.cancelled.ok()) transfer->Cancel(late.cancelled);
  return transfer;
}

absl::StatusOr<uint64_t> TransferTable::Post(const SessionPtr& session,
                                             const PostedTransfer& posted) {
  const uint64_t id = next_id_.fetch_add(1);
  SHUNT_ASSIGN_OR_RETURN(const auto begun, Begin(session, posted, id, /*on_ring=*/false));
  return id;
}

void TransferTable::PostFromRing(const SessionPtr& session, const ring::Submission& submission) {
  const uint64_t id = submission.token;
  auto posted = DecodePost(*regions_, session->id, submission);
  if (!posted.ok()) return FailOnRing(session, id, posted.status());
  if (CostOfPost(*session, *posted) > kQuickCost) {
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      if (session->ended.load()) return;
      OfSession& of = sessions_[session->id];
      full = of.late.size() + of.transfers.size() >= kTransfersMax;
      if (!full) of.late.try_emplace(id);
    }
    if (full) return FailOnRing(session, id, TooMany(session->id));
    const p2p::Priority priority = posted->priority;
    auto kept = std::make_shared<PostedTransfer>(*std::move(posted));
    return pool_.Add(p2p::OneChunk([this, session, kept, id] {
                       const auto begun = Begin(session, *kept, id, /*on_ring=*/true);
                       if (!begun.ok()) FailOnRing(session, id, begun.status());
                     }),
                     priority, 1);
  }
  const auto begun = Begin(session, *posted, id, /*on_ring=*/true);
  if (!begun.ok()) FailOnRing(session, id, begun.status());
}

void TransferTable::FailOnRing(const SessionPtr& session, uint64_t id, const absl::Status& why) {
  Late late;
  {
    const std::lock_guard lock(mutex_);
    if (session->ended.load()) return;
    OfSession& of = sessions_[session->id];
    if (auto node = of.late.extract(id)) late = std::move(node.mapped());
    of.watches -= static_cast<int>(late.events.size());
    if (!late.waiter) AddReport(session->id, id, {.outcome = why});
  }
  if (probe_ != nullptr) probe_->answers.Answered(why.code());
  session->Complete(id, why.code());
  for (const UniqueFd& event : late.events) SignalClientEventFd(event.get());
  if (late.waiter) late.waiter(TransferReport{.outcome = why});
}

void TransferTable::AddReport(uint64_t session, uint64_t transfer, TransferReport report) {
  auto& reports = sessions_[session].reports;
  reports.emplace_back(transfer, std::move(report));
  if (reports.size() > kReportsMax) reports.pop_front();
}

void TransferTable::Ended(Transfer& transfer) {
  const TransferReport report = transfer.report();
  std::function<void(const TransferReport&)> waiter;
  std::vector<UniqueFd> events;
  EventLoop::TimerId timer;
  std::shared_ptr<Transfer> self;
  {
    const std::lock_guard lock(mutex_);
    timer = transfer.timer;
    waiter = std::move(transfer.waiter);
    events = std::move(transfer.events);
    const auto of = sessions_.find(transfer.session().id);
    if (of != sessions_.end()) {
      const auto found = of->second.transfers.find(transfer.id());
      self = std::move(found->second);
      of->second.transfers.erase(found);
      of->second.watches -= static_cast<int>(events.size());
      if (!waiter) AddReport(transfer.session().id, transfer.id(), report);
    }
    const auto other = sessions_.find(transfer.counterpart());
    if (other != sessions_.end() && self != nullptr) other->second.counterparts.erase(self);
  }
  in_flight_.fetch_sub(1);
  bytes_in_flight_.fetch_sub(transfer.bytes());
  if (timer != 0) loop_->Cancel(timer);
  Remember(report);
  if (probe_ != nullptr) {
    probe_->transfers.Ended(report, transfer.priority());
    if (transfer.on_ring()) probe_->answers.Answered(report.outcome.code());
  }
  if (transfer.on_ring()) transfer.session().Complete(transfer.id(), report.outcome.code());
  for (const UniqueFd& event : events) SignalClientEventFd(event.get());
  if (waiter) waiter(report);
}

void TransferTable::Remember(const TransferReport& report) {
  if (!report.outcome.ok() || report.bytes == 0) return;
  std::atomic<uint64_t>& pace =
      pace_[static_cast<size_t>(report.route)][static_cast<size_t>(std::bit_width(report.bytes))];
  const uint64_t now = std::max<uint64_t>(1, report.moved_ns * 1000 / report.bytes);
  const uint64_t before = pace.load(std::memory_order_relaxed);
  pace.store(before == 0 ? now : (7 * before + now) / 8, std::memory_order_relaxed);
}

absl::StatusOr<v1::ExplainTransferResponse> TransferTable::Explain(const Session& session,
                                                                   const PostedTransfer& posted) {
  SHUNT_ASSIGN_OR_RETURN(const Sides sides, Prepare(session, posted));
  if (sides.route == Route::kRead || sides.route == Route::kWrite) {
    SHUNT_RETURN_IF_ERROR(CheckStores(sides, posted, session.id));
  }
  v1::ExplainTransferResponse response;
  const uint64_t bytes = sides.plan->bytes();
  response.set_bytes(bytes);
  response.set_route(RouteName(sides.route));
  uint64_t runs = 0, seen = 0;
  p2p::PlanCursor cursor(*sides.plan, 0, bytes);
  for (p2p::CopyRun run; runs < kCountedRunsMax && cursor.Next(&run); ++runs) seen += run.bytes;
  if (seen < bytes) {
    runs = static_cast<uint64_t>(static_cast<double>(bytes) / static_cast<double>(seen) *
                                 static_cast<double>(runs));
  }
  response.set_copy_runs(runs);
  const uint64_t pace =
      pace_[static_cast<size_t>(sides.route)][static_cast<size_t>(std::bit_width(bytes))].load();
  response.set_predicted_ns(
      static_cast<uint64_t>(static_cast<double>(bytes) * static_cast<double>(pace) / 1000));
  response.set_bytes_ahead(bytes_in_flight_.load());
  return response;
}

std::function<bool()> TransferTable::Wait(uint64_t session, uint64_t transfer, Waiter waiter) {
  absl::StatusOr<TransferReport> now = NoTransfer(transfer);
  {
    const std::lock_guard lock(mutex_);
    if (std::function<void(const TransferReport&)>* const place = WaiterOf(session, transfer)) {
      if (*place == nullptr) {
        *place = waiter;
        return [this, session, transfer] {
          const std::lock_guard lock(mutex_);
          auto* const place = WaiterOf(session, transfer);
          return place != nullptr && std::exchange(*place, nullptr) != nullptr;
        };
      }
      now = absl::AlreadyExistsError(
          absl::StrCat("transfer ", transfer, ": another call waits for it"));
    } else if (const auto of = sessions_.find(session); of != sessions_.end()) {
      auto& reports = of->second.reports;
      const auto report = std::find_if(reports.begin(), reports.end(),
                                       [&](const auto& r) { return r.first == transfer; });
      if (report != reports.end()) {
        now = std::move(report->second);
        reports.erase(report);
      }
    }
  }
  waiter(now);
  return [] { return false; };
}

std::function<void(const TransferReport&)>* TransferTable::WaiterOf(uint64_t session,
                                                                    uint64_t transfer) {
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return nullptr;
  if (const auto found = of->second.transfers.find(transfer); found != of->second.transfers.end()) {
    return &found->second->waiter;
  }
  const auto late = of->second.late.find(transfer);
  return late == of->second.late.end() ? nullptr : &late->second.waiter;
}

absl::Status TransferTable::Watch(uint64_t session, uint64_t transfer, UniqueFd event) {
  const std::lock_guard lock(mutex_);
  const auto of = sessions_.find(session);
  if (of == sessions_.end()) return NoTransfer(transfer);
  if (of->second.watches >= kWatchesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("session ", session, " watches transfers with ", kWatchesMax,
                     " descriptors already, the most; wait for some"));
  }
  if (const auto found = of->second.transfers.find(transfer); found != of->second.transfers.end()) {
    found->second->events.push_back(std::move(event));
    ++of->second.watches;
    return absl::OkStatus();
  }
  if (const auto late = of->second.late.find(transfer); late != of->second.late.end()) {
    late->second.events.push_back(std::move(event));
    ++of->second.watches;
    return absl::OkStatus();
  }
  const auto& reports = of->second.reports;
  if (std::none_of(reports.begin(), reports.end(),
                   [&](const auto& r) { return r.first == transfer; })) {
    return NoTransfer(transfer);
  }
  SignalClientEventFd(event.get());
  return absl::OkStatus();
}

absl::Status TransferTable::Cancel(uint64_t session, uint64_t transfer, const absl::Status& why) {
  std::shared_ptr<Transfer> found;
  {
    const std::lock_guard lock(mutex_);
    const auto of = sessions_.find(session);
    if (of == sessions_.end()) return NoTransfer(transfer);
    if (const auto it = of->second.transfers.find(transfer); it != of->second.transfers.end()) {
      found = it->second;
    } else if (const auto late = of->second.late.find(transfer); late != of->second.late.end()) {
      late->second.cancelled = why;
      return absl::OkStatus();
    }
  }
  if (found == nullptr) return NoTransfer(transfer);
  found->Cancel(why);
  return absl::OkStatus();
}

void TransferTable::SessionGone(const Session& session) {
  agents_.SessionGone(session.id);
  std::vector<std::shared_ptr<Transfer>> own, others;
  std::vector<pull::FlowId> flows;
  std::vector<std::function<void(const TransferReport&)>> waiters;
  OfSession gone;
  {
    const std::lock_guard lock(mutex_);
    const auto of = sessions_.find(session.id);
    if (of == sessions_.end()) return;
    for (const auto& [id, transfer] : of->second.transfers) {
      own.push_back(transfer);
      waiters.push_back(std::exchange(transfer->waiter, nullptr));
    }
    for (auto& [id, late] : of->second.late) waiters.push_back(std::move(late.waiter));
    others.assign(of->second.counterparts.begin(), of->second.counterparts.end());
    flows.assign(of->second.flows.begin(), of->second.flows.end());
    gone = std::move(of->second);
    sessions_.erase(of);
  }
  const absl::Status ended = absl::CancelledError("the session has ended");
  // At once: what ends elsewhere may take its time.
  for (const auto& waiter : waiters) {
    if (waiter) waiter(TransferReport{.outcome = ended});
  }
  for (const auto& transfer : own) transfer->Cancel(ended);
  for (const auto& transfer : others) {
    transfer->Cancel(absl::UnavailableError(
        absl::StrCat("transfer ", transfer->id(), ": ", transfer->counterpart_text(), " (pid ",
                     session.peer.pid, ") has ended meanwhile")));
  }
  for (const pull::FlowId flow : flows) {
    engine_->CancelTransfer(
        flow, absl::UnavailableError(absl::StrCat("its agent's process (pid ", session.peer.pid,
                                                  ") has ended meanwhile")));
  }
}

void TransferTable::CancelAll(const absl::Status& why) {
  std::vector<std::shared_ptr<Transfer>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, of] : sessions_) {
      for (const auto& [number, transfer] : of.transfers) all.push_back(transfer);
    }
  }
  for (const auto& transfer : all) transfer->Cancel(why);
}

}  // namespace shunt::daemon
