// Transfers with other nodes: what goes out to NodeEngine, and what others ask for.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/node_engine.h"
#include "daemon/transfer/held_regions.h"
#include "daemon/transfer/transfer_table.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::daemon {
namespace {

// Long enough to be worth its messages, short enough to stay in a cache on its way.
constexpr uint32_t kSliceBytes = 256 << 10;
constexpr uint64_t kSlicesMax = uint64_t{1} << 31;

transport::Class ClassOf(p2p::Priority priority) {
  switch (priority) {
    case p2p::Priority::kLatency:
      return transport::Class::kLatency;
    case p2p::Priority::kBulk:
      return transport::Class::kBulk;
    case p2p::Priority::kBackground:
      return transport::Class::kBackground;
  }
  return transport::Class::kBulk;
}

// The form, and a copy of its elements: the client's memory may change, and each is read once.
absl::Status CopyForm(const PostedSelection& posted, pull::Ask* ask,
                      std::vector<std::byte>* array) {
  absl::Status status;
  const auto take = [&](pull::Form form, const auto& span) {
    ask->form = form;
    ask->count = span.size();
    if (ask->array_bytes() > pull::kArrayBytesMax) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("remote: runs, ids or pieces of ", ask->array_bytes(),
                       " bytes for another node, expected at most ", pull::kArrayBytesMax));
      return;
    }
    array->resize(span.size() * sizeof(span[0]));
    std::memcpy(array->data(), span.data(), array->size());
  };
  if (const auto* runs = std::get_if<absl::Span<const p2p::Run>>(&posted.form)) {
    take(pull::Form::kRuns, *runs);
  } else if (const auto* narrow = std::get_if<absl::Span<const uint32_t>>(&posted.form)) {
    take(pull::Form::kIds32, *narrow);
  } else if (const auto* wide = std::get_if<absl::Span<const uint64_t>>(&posted.form)) {
    take(pull::Form::kIds64, *wide);
  } else if (const auto* raw = std::get_if<absl::Span<const p2p::Descriptor>>(&posted.form)) {
    take(pull::Form::kRaw, *raw);
  }
  ask->unit = posted.shape.unit;
  ask->repeats = posted.shape.repeats;
  ask->repeat_step = posted.shape.repeat_step;
  return status;
}

// As it can be answered. The node is the one whose daemon asks; the name is that daemon's word.
std::string SenderOf(const std::string& agent, const std::string& node) {
  return agent.empty() ? agent : absl::StrCat(Printable(agent), "@", node);
}

PostedSelection FormOf(const pull::Ask& ask, const std::vector<std::byte>& array) {
  PostedSelection posted;
  const auto give = [&]<typename T>(absl::Span<const T>) {
    posted.form = absl::MakeConstSpan(reinterpret_cast<const T*>(array.data()), ask.count);
  };
  switch (ask.form) {
    case pull::Form::kAll:
      break;
    case pull::Form::kRuns:
      give(absl::Span<const p2p::Run>());
      break;
    case pull::Form::kIds32:
      give(absl::Span<const uint32_t>());
      break;
    case pull::Form::kIds64:
      give(absl::Span<const uint64_t>());
      break;
    case pull::Form::kRaw:
      give(absl::Span<const p2p::Descriptor>());
      break;
  }
  posted.shape = {ask.unit, ask.repeats, ask.repeat_step};
  return posted;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Transfer>> TransferTable::MakeRemote(const Sides& sides,
                                                                    const PostedTransfer& posted,
                                                                    Transfer::Setup setup,
                                                                    std::function<void()>* start) {
  const Published& published = *sides.published;
  const Session& session = *setup.session;
  auto uses = std::make_shared<std::vector<memory::RegionUse>>();
  const p2p::Selection& here = posted.push ? sides.plan->source() : sides.plan->destination();
  SHUNT_RETURN_IF_ERROR(Hold(here, session.id, "",
                             absl::StrCat("transfer ", setup.id, " of session ", session.id),
                             uses.get()));
  HeldRegions memory(uses.get());
  SHUNT_ASSIGN_OR_RETURN(p2p::Bases bases, p2p::FindBases(here, memory));
  auto outgoing = std::make_shared<pull::PullEngine::Outgoing>(pull::PullEngine::Outgoing{
      0, {}, {}, pull::Side{here, std::move(bases), std::move(uses)}, {}});
  pull::Ask& ask = outgoing->ask;
  ask.push = posted.push;
  ask.service_class = ClassOf(posted.priority);
  ask.notify = posted.notification.has_value();
  ask.notification = posted.notification.value_or("");
  ask.tenant = session.peer.uid;
  ask.slice_bytes = kSliceBytes;
  ask.bytes = setup.bytes;
  ask.incarnation = published.incarnation();
  ask.version = published.version();
  ask.agent = published.agent;
  ask.section = published.section();
  ask.from = agents_.NameOf(session.id);
  SHUNT_RETURN_IF_ERROR(pull::CheckTexts(ask));
  if (ask.slices() > kSlicesMax) {
    return absl::InvalidArgumentError(absl::StrCat("transfer of ", ask.bytes,
                                                   " bytes with another node, expected at most ",
                                                   kSlicesMax * kSliceBytes));
  }
  SHUNT_RETURN_IF_ERROR(CopyForm(posted.remote, &ask, &outgoing->array));
  const pull::FlowId flow = engine_->NewTransferId();
  setup.flow = flow;
  setup.cancel = [engine = engine_, flow](const absl::Status& why) {
    engine->CancelTransfer(flow, why);
  };
  auto transfer = std::make_shared<Transfer>(std::move(setup));
  outgoing->ended = [transfer, node = published.node](const absl::Status& status) {
    if (status.ok()) return transfer->Finish(status);
    transfer->Finish(absl::Status(
        status.code(),
        absl::StrCat("transfer ", transfer->id(), " with node ", node, ": ", status.message())));
  };
  *start = [this, outgoing, flow, node = NodeKey{published.node, published.node_incarnation}] {
    engine_->StartTransfer(node, flow, std::move(*outgoing));
  };
  return transfer;
}

void TransferTable::Resolve(const std::string& node, pull::FlowId flow, const pull::Ask& ask,
                            std::vector<std::byte> array, pull::PullEngine::Resolved resolved) {
  const auto asked = FindAsked(ask);
  if (!asked.ok()) return resolved(asked.status());
  // What is looked at where the network is driven holds it up.
  if (CostOf(*(*asked)->list, FormOf(ask, array)) <= kQuickCost) {
    return resolved(ResolveNow(node, flow, ask, array));
  }
  const auto look = [this, node, flow, ask, array = std::move(array),
                     resolved = std::move(resolved)] {
    auto incoming = std::make_shared<absl::StatusOr<pull::PullEngine::Incoming>>(
        ResolveNow(node, flow, ask, array));
    engine_->Post([resolved, incoming] { resolved(std::move(*incoming)); });
  };
  pool_.Add(p2p::OneChunk(look), pull::PriorityOf(ask.service_class), 1);
}

absl::StatusOr<std::shared_ptr<const Published>> TransferTable::FindAsked(
    const pull::Ask& ask) const {
  SHUNT_ASSIGN_OR_RETURN(const auto published,
                         agents_.Find(ask.tenant, ask.agent, ask.section, ask.push));
  if (published->incarnation() != ask.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        "agent \"", published->agent, "\" has ended since section \"", Printable(ask.section),
        "\" was fetched, and is another incarnation now; fetch it again"));
  }
  if (published->version() != ask.version) {
    return absl::FailedPreconditionError(
        absl::StrCat("section \"", Printable(ask.section), "\" of agent \"", published->agent,
                     "\": it is version ", published->version(), " now, and version ", ask.version,
                     " was fetched; fetch it again"));
  }
  if (published->list->space() == kStoreSpace) return published->OnlyHere();
  return published;
}

absl::StatusOr<pull::PullEngine::Incoming> TransferTable::ResolveNow(
    const std::string& node, pull::FlowId flow, const pull::Ask& ask,
    const std::vector<std::byte>& array) {
  SHUNT_ASSIGN_OR_RETURN(const auto published, FindAsked(ask));
  SHUNT_ASSIGN_OR_RETURN(p2p::Selection selection, Select(published->list, FormOf(ask, array)));
  auto uses = std::make_shared<std::vector<memory::RegionUse>>();
  const uint64_t owner = published->owner.session;
  SHUNT_RETURN_IF_ERROR(
      Hold(selection, owner, published->agent, "a transfer of another node", uses.get()));
  HeldRegions memory(uses.get());
  SHUNT_ASSIGN_OR_RETURN(p2p::Bases bases, p2p::FindBases(selection, memory));
  std::shared_ptr<Inbox> inbox;
  if (ask.notify) {
    SHUNT_RETURN_IF_ERROR(published->inbox->Reserve(published->agent));
    inbox = published->inbox;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto of = sessions_.find(owner);
    if (of == sessions_.end()) {
      if (inbox != nullptr) inbox->GiveBack();
      return absl::UnavailableError(
          absl::StrCat("agent \"", published->agent, "\" has just ended"));
    }
    of->second.flows.insert(flow);
  }
  return pull::PullEngine::Incoming{
      pull::Side{std::move(selection), std::move(bases), std::move(uses)},
      [this, flow, owner, inbox, from = SenderOf(ask.from, node),
       payload = ask.notification](const absl::Status& status) {
        {
          const std::lock_guard lock(mutex_);
          const auto of = sessions_.find(owner);
          if (of != sessions_.end()) of->second.flows.erase(flow);
        }
        if (inbox == nullptr) return;
        if (status.ok()) {
          inbox->Put({from, payload});
        } else {
          inbox->GiveBack();
        }
      }};
}

}  // namespace shunt::daemon
