// Transfers between memory and files or objects: what StoreMover is given.
#include "absl/strings/str_cat.h"
#include "daemon/gpu/device_mover.h"
#include "daemon/transfer/held_regions.h"
#include "daemon/transfer/store_mover.h"
#include "daemon/transfer/transfer_table.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr uint64_t kUncountedBytes = 4 << 10;

storage::Urgency UrgencyOf(p2p::Priority priority) {
  switch (priority) {
    case p2p::Priority::kLatency:
      return storage::Urgency::kLatency;
    case p2p::Priority::kBackground:
      return storage::Urgency::kBackground;
    case p2p::Priority::kBulk:
      break;
  }
  return storage::Urgency::kBulk;
}

}  // namespace

absl::StatusOr<Route> TransferTable::RouteOf(const Published* published,
                                             const p2p::TransferPlan& plan, bool push) {
  const bool from_store = plan.source().space() == kStoreSpace;
  const bool to_store = plan.destination().space() == kStoreSpace;
  const bool from_gpu = plan.source().space() == kDeviceSpace;
  const bool to_gpu = plan.destination().space() == kDeviceSpace;
  if (published != nullptr && !published->node.empty()) {
    if (from_gpu || to_gpu) {
      return absl::UnimplementedError(
          "local: GPU memory is moved within its own node alone; expected a list of host memory, "
          "for a section of another node");
    }
    if (from_store || to_store) {
      return absl::UnimplementedError(
          "local: files and objects are moved from and to memory of their own node alone; "
          "expected a list of memory, for a section of another node");
    }
    return push ? Route::kPush : Route::kPull;
  }
  if (from_store && to_store) {
    return absl::UnimplementedError(
        "both sides are files or objects; expected memory on one of them");
  }
  if ((from_gpu || to_gpu) && (from_store || to_store)) {
    return absl::UnimplementedError(
        absl::StrCat("the source is ", from_gpu ? "GPU memory" : "files or objects",
                     " and the destination ", to_gpu ? "GPU memory" : "files or objects",
                     "; expected host memory on one of the two sides"));
  }
  if (from_gpu || to_gpu) return Route::kGpu;
  return from_store ? Route::kRead : to_store ? Route::kWrite : Route::kCopy;
}

absl::Status TransferTable::HoldStores(const p2p::Selection& selection, uint64_t session,
                                       const std::string& words, bool write,
                                       std::vector<StoreUse>* uses) const {
  for (const p2p::RegionExtent& extent : selection.regions()) {
    auto use = stores_->Use(session, extent.id, words);
    if (!use.ok()) {
      return absl::NotFoundError(absl::StrCat(
          "region ", extent.id, ": its file or object was closed since the list was made"));
    }
    const StoreRegion& region = *use->region;
    if (write && !region.writable) {
      return absl::PermissionDeniedError(absl::StrCat("region ", extent.id, " (", region.label,
                                                      ") was opened for reading, not for writing"));
    }
    if (!write && region.draft) {
      return absl::FailedPreconditionError(
          absl::StrCat("region ", extent.id, " (", region.label,
                       ") is a draft, which can't be read; commit it and open it"));
    }
    if (!uses->empty() && uses->front().region->host != region.host) {
      return absl::UnimplementedError(
          absl::StrCat("region ", extent.id, " (", region.label, ") and region ",
                       uses->front().region->id, " (", uses->front().region->label,
                       ") are of different stores; expected those of one transfer to be of one"));
    }
    uses->push_back(*std::move(use));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> TransferTable::ChargeFor(const Session& session,
                                                               uint64_t bytes,
                                                               std::string_view what) const {
  SHUNT_RETURN_IF_ERROR(regions_->Charge(session.owner(), bytes, what));
  return std::shared_ptr<void>(nullptr, [regions = regions_, owner = session.owner(),
                                         bytes](void*) { regions->Release(owner, bytes); });
}

absl::Status TransferTable::CheckStores(const Sides& sides, const PostedTransfer& posted,
                                        uint64_t session) const {
  const bool write = sides.route == Route::kWrite;
  const bool stored_is_remote = posted.push == write;
  const uint64_t owner =
      stored_is_remote && sides.published != nullptr ? sides.published->owner.session : session;
  std::vector<StoreUse> uses;
  return HoldStores(write ? sides.plan->destination() : sides.plan->source(), owner,
                    "an explanation", write, &uses);
}

absl::StatusOr<std::shared_ptr<Transfer>> TransferTable::MakeStored(const Sides& sides,
                                                                    const PostedTransfer& posted,
                                                                    Transfer::Setup setup,
                                                                    std::function<void()>* start) {
  const bool write = sides.route == Route::kWrite;
  const p2p::Selection& stored = write ? sides.plan->destination() : sides.plan->source();
  const p2p::Selection& memory = write ? sides.plan->source() : sides.plan->destination();
  // The remote side is the destination of a push and the source of a pull.
  const bool stored_is_remote = posted.push == write;
  const Published* const published = sides.published.get();
  const std::string agent = published != nullptr ? published->agent : "";
  const uint64_t own = setup.session->id;
  const uint64_t theirs = published != nullptr ? published->owner.session : own;
  const std::string words = absl::StrCat("transfer ", setup.id, " of session ", own);
  auto stores = std::make_shared<std::vector<StoreUse>>();
  SHUNT_RETURN_IF_ERROR(
      HoldStores(stored, stored_is_remote ? theirs : own, words, write, stores.get()));
  SHUNT_RETURN_IF_ERROR(stored_is_remote ? Hold(memory, own, "", words, &setup.uses)
                                         : Hold(memory, theirs, agent, words, &setup.uses));
  // Beside what its ids take: the pieces of batches. Of a few nobody counts them.
  if (const uint64_t bytes = StoreMover::HeldBytes(*sides.plan); bytes > kUncountedBytes) {
    SHUNT_ASSIGN_OR_RETURN(auto paid, ChargeFor(*setup.session, bytes, "pieces of a transfer"));
    setup.charge = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
        std::move(setup.charge), std::move(paid));
  }
  HeldRegions held(&setup.uses);
  StoreMover::Setup moved;
  moved.plan = sides.plan;
  moved.write = write;
  moved.urgency = UrgencyOf(posted.priority);
  moved.host = stores->front().region->host;
  SHUNT_ASSIGN_OR_RETURN(moved.bases, p2p::FindBases(memory, held));
  for (const StoreUse& use : *stores) moved.objects.push_back(use.region->object);
  setup.counterpart = theirs;
  if (published != nullptr) {
    setup.counterpart_text = absl::StrCat("agent \"", agent, "\" of session ", theirs);
  }
  SHUNT_RETURN_IF_ERROR(ReserveNotification(sides, posted, &setup));
  setup.with = stores->front().region->label;
  auto mover = std::make_shared<StoreMover>(std::move(moved));
  setup.moved = [mover] { return mover->bytes_done(); };
  setup.cancel = [mover](const absl::Status& why) { mover->Cancel(why); };
  auto transfer = std::make_shared<Transfer>(std::move(setup));
  *start = [mover, transfer, stores] {
    mover->Start([transfer, stores](const absl::Status& status) {
      absl::Status outcome = status;
      for (const StoreUse& use : *stores) {
        if (outcome.ok() || !use.region->over.load()) continue;
        outcome = absl::CancelledError(
            absl::StrCat("region ", use.region->id, " (", use.region->label, ") was aborted"));
        break;
      }
      stores->clear();  // its owner may free them as soon as it knows
      if (outcome.ok()) return transfer->Finish(outcome);
      transfer->Finish(absl::Status(
          outcome.code(), absl::StrCat("transfer ", transfer->id(), ": ", outcome.message())));
    });
  };
  return transfer;
}

}  // namespace shunt::daemon
