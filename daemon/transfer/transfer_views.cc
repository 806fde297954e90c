// What of transfers is shown to who looks on.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/node_engine.h"
#include "daemon/transfer/transfer_table.h"

namespace shunt::daemon {

std::vector<TransferTable::InFlight> TransferTable::View() const {
  std::vector<std::shared_ptr<Transfer>> transfers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [session, of] : sessions_) {
      for (const auto& [id, transfer] : of.transfers) transfers.push_back(transfer);
    }
  }
  // The driving thread calls back into here: its lock is never taken under ours.
  std::vector<NodeEngine::FlowView> flows;
  if (engine_ != nullptr) flows = engine_->Flows();
  absl::flat_hash_map<pull::FlowId, uint64_t> done;
  std::vector<InFlight> view;
  for (const NodeEngine::FlowView& f : flows) {
    if (f.flow.initiator) {
      done[f.flow.id] = f.flow.bytes_done;
      continue;
    }
    view.push_back({.uid = f.flow.tenant,
                    .agent = absl::StrCat(f.flow.from, "@", f.node),
                    .other = f.flow.agent,
                    .route = f.flow.source ? Route::kPull : Route::kPush,
                    .priority = pull::PriorityOf(f.flow.service_class),
                    .bytes = f.flow.bytes,
                    .bytes_done = f.flow.bytes_done});
  }
  for (const std::shared_ptr<Transfer>& transfer : transfers) {
    const Session& session = transfer->session();
    const auto flow = done.find(transfer->flow());
    view.push_back({.session = session.id,
                    .id = transfer->id(),
                    .uid = session.peer.uid,
                    .agent = agents_.NameOf(session.id),
                    .other = transfer->other(),
                    .route = transfer->route(),
                    .priority = transfer->priority(),
                    .bytes = transfer->bytes(),
                    .bytes_done = flow != done.end() ? flow->second : transfer->bytes_done(),
                    .since_ns = transfer->posted_ns()});
  }
  std::sort(view.begin(), view.end(), [](const InFlight& a, const InFlight& b) {
    return std::tie(a.session, a.id) < std::tie(b.session, b.id);
  });
  return view;
}

}  // namespace shunt::daemon
