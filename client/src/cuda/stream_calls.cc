#include "client/src/cuda/stream_calls.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/communicator.h"
#include "client/src/cuda/context_scope.h"
#include "client/src/cuda/process.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::client::cuda {
namespace {

using gpu::MemoryOp;

// The oldest ends first, mostly. A send may be behind a later collective: with so many in flight
// all are looked at.
constexpr size_t kLookAtAll = 64;
// A call whose stream has gone on has ended, but for the daemon's word.
constexpr std::chrono::seconds kWordWait(2);

bool StreamWentOn(const Gates::Gate& gate) {
  const uint32_t done = gate.words->done.load(std::memory_order_acquire);
  return static_cast<int32_t>(done - gate.generation) >= 0;
}

}  // namespace

StreamCalls::~StreamCalls() {
  if (watched_ != nullptr) watcher_->Left(watched_);
}

absl::Status StreamCalls::Open() {
  if (watcher_ != nullptr) return absl::OkStatus();
  SHUNT_ASSIGN_OR_RETURN(driver_, LoadDriver());
  SHUNT_ASSIGN_OR_RETURN(watcher_, communicator_->session().StreamWatcher(driver_));
  watched_ = std::make_shared<Watcher::Watched>(communicator_->id(), communicator_->board());
  watcher_->Add(watched_);
  opened_.store(watcher_.get(), std::memory_order_release);
  return absl::OkStatus();
}

absl::Status StreamCalls::CheckStream(const Request& request) {
  if (request.device < 0) return absl::OkStatus();
  SHUNT_ASSIGN_OR_RETURN(const gpu::Context context, driver_->ContextOf(request.stream));
  if (context != context_) {
    SHUNT_ASSIGN_OR_RETURN(context_device_, driver_->DeviceOf(context));
    context_ = context;
  }
  if (context_device_ == request.device) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "shunt_call.stream is a stream of device ", context_device_,
      ", but the call's buffers are on device ", request.device, ": expected one of that device"));
}

absl::StatusOr<StreamCalls::Prepared> StreamCalls::Post(const Request& request) {
  Gates& gates = watcher_->gates();
  SHUNT_ASSIGN_OR_RETURN(const Gates::Gate gate, gates.Take());
  board::Call call = request.call;
  call.gate = {gate.place, gate.generation};
  communicator_->BeginOperation();
  auto operation = communicator_->member().Start(call, /*served=*/true);
  if (!operation.ok()) {
    communicator_->EndOperation();
    // The daemon may have heard of it, and write there yet. No stream comes.
    gate.words->trigger.store(gate.generation, std::memory_order_release);
    std::lock_guard lock(list_mutex_);
    spent_.push_back(gate);
    return operation.status();
  }
  return Prepared{{*std::move(operation), gate}, request.stream};
}

// What the streams do: trigger everything, then wait for everything. The other way round, a send
// would wait for a receive that stands behind it.
absl::Status StreamCalls::Enqueue(std::span<const Prepared> prepared) {
  for (size_t i = 0; i < prepared.size(); ++i) {
    const gpu::Stream stream = prepared[i].stream;
    const auto of_stream = [stream](const Prepared& p) { return p.stream == stream; };
    if (std::any_of(prepared.begin(), prepared.begin() + static_cast<std::ptrdiff_t>(i), of_stream))
      continue;
    ops_.clear();
    for (const Prepared& p : prepared.subspan(i)) {
      if (!of_stream(p)) continue;
      ops_.push_back({MemoryOp::Kind::kWrite, p.part.gate.trigger(), p.part.gate.generation});
    }
    for (const Prepared& p : prepared.subspan(i)) {
      if (!of_stream(p)) continue;
      const bool repeats = p.part.operation == nullptr;
      ops_.push_back({repeats ? MemoryOp::Kind::kWaitEqual : MemoryOp::Kind::kWaitAtLeast,
                      p.part.gate.done(), p.part.gate.generation});
      if (repeats) ops_.push_back({MemoryOp::Kind::kWrite, p.part.gate.done(), 0});
    }
    SHUNT_RETURN_IF_ERROR(driver_->Enqueue(stream, ops_));
  }
  return absl::OkStatus();
}

void StreamCalls::Keep(std::span<const Prepared> prepared, std::vector<Part>* parts) {
  std::lock_guard lock(list_mutex_);
  for (const Prepared& p : prepared) {
    if (p.part.operation == nullptr) continue;
    if (parts != nullptr) {
      parts->push_back(p.part);
    } else {
      in_flight_.push_back(p.part);
    }
  }
}

absl::Status StreamCalls::Start(std::span<Request> requests, std::vector<Part>* parts) {
  Reap();
  std::lock_guard lock(start_mutex_);
  SHUNT_RETURN_IF_ERROR(Open());
  // What the driver calls need, which on most threads is there.
  int device = 0;
  for (const Request& r : requests) device = std::max(device, r.device);
  const ContextScope scope(driver_, device);
  SHUNT_RETURN_IF_ERROR(scope.status());
  for (const Request& r : requests) SHUNT_RETURN_IF_ERROR(CheckStream(r));

  prepared_.clear();
  absl::Status status;
  for (const Request& r : requests) {
    auto capture = driver_->Capturing(r.stream);
    if (!capture.ok()) {
      status = capture.status();
      break;
    }
    if (capture->capturing && parts != nullptr) {
      status = absl::InvalidArgumentError(
          "the stream is being captured: expected no handle (op NULL), for a graph's call ends "
          "with "
          "each of its replays");
      break;
    }
    absl::StatusOr<Prepared> prepared = capture->capturing ? Capture(r, *capture) : Post(r);
    if (!prepared.ok()) {
      status = prepared.status();
      break;
    }
    prepared_.push_back(*std::move(prepared));
  }
  // Also of a group that could not be posted as a whole: its operations are to end.
  absl::Status enqueued = Enqueue(prepared_);
  Keep(prepared_, parts);
  if (!enqueued.ok() && !prepared_.empty()) {
    const std::string why =
        absl::StrCat("a call could not be put on its stream: ", enqueued.message());
    communicator_->member().Abort(why);
    for (const Prepared& p : prepared_) Gates::Release(p.part.gate);
  }
  prepared_.clear();
  status.Update(enqueued);
  return status;
}

absl::StatusOr<StreamCalls::Prepared> StreamCalls::Capture(const Request& request,
                                                           const gpu::CaptureFacts& capture) {
  const board::Call& call = request.call;
  const OpKind kind = call.spec.kind;
  if (kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kAllToAllV) {
    return absl::UnimplementedError(absl::StrCat(
        absl::string_view(Name(kind).data(), Name(kind).size()),
        " on a stream that is being captured: only collectives without tables can be captured"));
  }
  Gates& gates = watcher_->gates();
  SHUNT_ASSIGN_OR_RETURN(const Gates::Gate gate, gates.TakeRepeating());
  const auto place = [this](const void* pointer) {
    const board::RegionRef ref = pointer == nullptr
                                     ? board::RegionRef{}
                                     : communicator_->session().regions().Find(pointer, 1);
    return RegionPlace{ref.region, ref.offset};
  };
  CaptureCall message{.communicator_id = communicator_->id(),
                      .sequence = captured_ + 1,
                      .kind = static_cast<int32_t>(kind),
                      .data_type = static_cast<int32_t>(call.spec.dtype),
                      .reduce_op = static_cast<int32_t>(call.spec.redop),
                      .count = call.spec.count,
                      .root = call.spec.root,
                      .input = place(call.in),
                      .output = place(call.out),
                      .scalar = {},
                      .gate = {gate.place.region, gate.place.offset}};
  if (Reduces(kind) && call.spec.redop == Redop::kPremulSum) {
    message.scalar.assign(reinterpret_cast<const char*>(call.scalar.bytes),
                          SizeOf(call.spec.dtype));
  }
  const auto reply = communicator_->session().lease().Call(message, RequestDeadlineNs());
  if (!reply.ok()) {
    gates.GiveRepeating(gate);
    return reply.status();
  }
  ++captured_;
  void* const captured = watcher_->AddCaptured(watched_, captured_, gate);
  if (absl::Status kept =
          driver_->OnGraphDestroyed(capture.graph, Watcher::GraphDestroyed, captured);
      !kept.ok()) {
    Watcher::GraphDestroyed(captured);
    return kept;
  }
  return Prepared{{nullptr, gate}, request.stream};
}

bool StreamCalls::ReapOne(const Part& part) {
  absl::Status outcome;
  if (!communicator_->member().Poll(*part.operation, &outcome)) return false;
  failure_.Update(outcome);
  if (outcome.ok()) {
    watcher_->gates().Give(part.gate);
  } else {
    Gates::Release(part.gate);
    spent_.push_back(part.gate);
  }
  communicator_->EndOperation();
  return true;
}

void StreamCalls::Reap() {
  std::lock_guard lock(list_mutex_);
  while (!in_flight_.empty() && ReapOne(in_flight_.front())) in_flight_.pop_front();
  if (in_flight_.size() < kLookAtAll) return;
  std::erase_if(in_flight_, [this](const Part& part) { return ReapOne(part); });
}

void StreamCalls::Ended(const Gates::Gate& gate, bool ok) {
  if (ok) {
    watcher_->gates().Give(gate);
    return;
  }
  Gates::Release(gate);
  std::lock_guard lock(list_mutex_);
  spent_.push_back(gate);
}

absl::Status StreamCalls::Sync(int64_t deadline_ns) {
  while (true) {
    Reap();
    std::shared_ptr<board::Operation> oldest;
    {
      std::lock_guard lock(list_mutex_);
      if (in_flight_.empty()) return failure_;
      oldest = in_flight_.front().operation;
    }
    absl::Status outcome;
    if (!communicator_->member().Wait(*oldest, deadline_ns, &outcome)) {
      return absl::DeadlineExceededError(
          absl::StrCat(board::Member::PendingText(*oldest), "; it is still running"));
    }
  }
}

void StreamCalls::Release() {
  {
    std::lock_guard lock(list_mutex_);
    for (const Part& part : in_flight_) Gates::Release(part.gate);
  }
  if (Watcher* const watcher = opened_.load(std::memory_order_acquire); watcher != nullptr) {
    watcher->Nudge();
  }
}

void StreamCalls::Settle() {
  const int64_t deadline_ns = DeadlineAfterNs(kWordWait);
  while (true) {
    Reap();
    std::shared_ptr<board::Operation> ending;
    {
      std::lock_guard lock(list_mutex_);
      for (const Part& part : in_flight_) {
        if (StreamWentOn(part.gate)) ending = part.operation;
      }
    }
    absl::Status outcome;
    if (ending == nullptr || !communicator_->member().Wait(*ending, deadline_ns, &outcome)) return;
  }
}

void StreamCalls::AfterLeave() {
  std::lock_guard start_lock(start_mutex_);
  if (watcher_ == nullptr) return;
  watcher_->Left(watched_);
  std::lock_guard lock(list_mutex_);
  for (const Part& part : in_flight_) watcher_->gates().GiveLate(part.gate);
  for (size_t i = 0; i < in_flight_.size(); ++i) communicator_->EndOperation();
  in_flight_.clear();
  for (const Gates::Gate& gate : spent_) watcher_->gates().GiveLate(gate);
  spent_.clear();
}

}  // namespace shunt::client::cuda
