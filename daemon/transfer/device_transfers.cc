// Transfers with GPU memory on one side or both: what DeviceMover is given.
#include "absl/strings/str_cat.h"
#include "daemon/gpu/device_mover.h"
#include "daemon/transfer/transfer_table.h"
#include "runtime/core/status.h"

namespace shunt::daemon {

absl::Status TransferTable::HoldForGpu(const p2p::Selection& selection, uint64_t session,
                                       const std::string& owner, const std::string& words,
                                       std::vector<GpuMemory>* memory) const {
  for (const p2p::RegionExtent& region : selection.regions()) {
    absl::StatusOr<GpuMemory> one = gpus_->Hold(session, region.id, words);
    if (!one.ok()) {
      return absl::NotFoundError(
          absl::StrCat("region ", region.id, ": ",
                       owner.empty() ? "this session has no such region any more"
                                     : absl::StrCat("agent \"", owner, "\" has freed it")));
    }
    // A section may be older than the region.
    SHUNT_RETURN_IF_ERROR(one->CheckRange(0, region.bytes));
    memory->push_back(*std::move(one));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Transfer>> TransferTable::MakeDevice(const Sides& sides,
                                                                    const PostedTransfer& posted,
                                                                    Transfer::Setup setup,
                                                                    std::function<void()>* start) {
  const Published* const published = sides.published.get();
  const std::string owner = published != nullptr ? published->agent : "";
  const uint64_t own = setup.session->id;
  setup.counterpart = published != nullptr ? published->owner.session : own;
  const std::string words = absl::StrCat("transfer ", setup.id, " of session ", own);
  DeviceMover::Setup moved;
  const auto hold = [&](const p2p::Selection& selection, bool remote) -> absl::Status {
    const uint64_t session = remote ? setup.counterpart : own;
    // Host memory is not freed meanwhile; GPU memory is held so too, by the mover.
    if (selection.space() != kDeviceSpace) {
      SHUNT_RETURN_IF_ERROR(Hold(selection, session, remote ? owner : "", words, &setup.uses));
    }
    return HoldForGpu(selection, session, remote ? owner : "", words, &moved.memory);
  };
  SHUNT_RETURN_IF_ERROR(hold(sides.plan->source(), !posted.push));
  SHUNT_RETURN_IF_ERROR(hold(sides.plan->destination(), posted.push));
  moved.engine = gpus_;
  moved.pool = &pool_;
  SHUNT_ASSIGN_OR_RETURN(moved.worker, gpus_->WorkerFor(moved.memory));
  moved.plan = sides.plan;
  moved.priority = posted.priority;
  if (published != nullptr) {
    setup.counterpart_text = absl::StrCat("agent \"", owner, "\" of session ", setup.counterpart);
  }
  SHUNT_RETURN_IF_ERROR(ReserveNotification(sides, posted, &setup));
  auto mover = std::make_shared<DeviceMover>(std::move(moved));
  setup.cancel = [mover](const absl::Status& why) { mover->Cancel(why); };
  auto transfer = std::make_shared<Transfer>(std::move(setup));
  *start = [mover, transfer] {
    mover->Start([transfer](const absl::Status& status) {
      if (status.ok() || status == transfer->cancelled()) return transfer->Finish(status);
      transfer->Finish(absl::Status(
          status.code(), absl::StrCat("transfer ", transfer->id(), ": ", status.message())));
    });
  };
  return transfer;
}

}  // namespace shunt::daemon
