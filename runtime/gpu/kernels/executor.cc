#include "runtime/gpu/kernels/executor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/gpu/kernels/collective.h"
#include "runtime/gpu/kernels/kernels.h"

namespace shunt::gpu {
namespace {

static_assert(sizeof(Run) == sizeof(RunWords) && offsetof(Run, bytes) == offsetof(RunWords, bytes),
              "tables of runs are copied as they are");
static_assert(kGatesMax <= kRanksMax);

// A stream of lane 0 has a table copied while another's kernel runs.
constexpr uint32_t kLooseStreams = 4, kLaneStreams = 12, kStreams = kLooseStreams + kLaneStreams;
constexpr uint64_t kTicketStride = 128;  // one in a cache line
constexpr uint64_t kTableBytes = kRunsPerBatch * sizeof(Run);

class KernelExecutor : public Executor {
 public:
  KernelExecutor(Driver* driver, std::unique_ptr<Kernels> kernels)
      : driver_(driver), kernels_(std::move(kernels)) {}
  ~KernelExecutor() override;

  absl::Status Prepare();
  absl::Status Begin(const Command& command, const Run* runs, uint64_t* completion,
                     uint64_t completion_value) override;
  absl::Status Health() override;

 private:
  uint32_t StreamOf(uint64_t lane);
  absl::Status Collective(const Command& command, const Signals& signals, Stream stream);
  absl::Status Move(const Command& command, const Run* runs, const Signals& signals, Stream stream);
  absl::Status Copy(const Command& command, const Signals& signals, Stream stream);
  // Of a command that ends nothing is under way, also if it failed half-way.
  absl::Status Settled(absl::Status launched, Stream stream);
  bool OnHost(uint64_t address);

  Driver* const driver_;
  const std::unique_ptr<Kernels> kernels_;
  std::array<Stream, kStreams> streams_{};
  uint32_t next_loose_ = 0;
  DevicePtr tickets_ = 0;  // of kStreams
  DevicePtr tables_ = 0;   // of kRunBatches
  // Of the command that begins: too large for the stack's comfort.
  Signals signals_{};
  MoveParams move_{};
  CollectiveLaunch launch_;
};

// A GPU that is lost answers with errors, which change nothing any more.
KernelExecutor::~KernelExecutor() {
  for (const Stream stream : streams_) {
    if (stream == nullptr) continue;
    driver_->Synchronize(stream).IgnoreError();
    driver_->DestroyStream(stream);
  }
  for (const DevicePtr memory : {tickets_, tables_}) {
    if (memory != 0) driver_->Free(memory).IgnoreError();
  }
}

absl::Status KernelExecutor::Prepare() {
  for (Stream& stream : streams_) {
    SHUNT_ASSIGN_OR_RETURN(stream, driver_->CreateStream());
  }
  SHUNT_ASSIGN_OR_RETURN(tickets_, driver_->Allocate(kStreams * kTicketStride));
  SHUNT_ASSIGN_OR_RETURN(tables_, driver_->Allocate(kRunBatches * kTableBytes));
  SHUNT_RETURN_IF_ERROR(
      driver_->FillAsync(tickets_, 0, kStreams * kTicketStride, streams_.front()));
  return driver_->Synchronize(streams_.front());
}

uint32_t KernelExecutor::StreamOf(uint64_t lane) {
  if (lane == 0) return next_loose_++ % kLooseStreams;
  return kLooseStreams + static_cast<uint32_t>(lane % kLaneStreams);
}

absl::Status KernelExecutor::Begin(const Command& command, const Run* runs, uint64_t* completion,
                                   uint64_t completion_value) {
  const uint32_t index = StreamOf(command.lane);
  Signals& signals = signals_;
  // NOLINTBEGIN(performance-no-int-to-ptr)
  signals.ticket = reinterpret_cast<uint32_t*>(tickets_ + index * kTicketStride);
  signals.completion = completion;
  signals.completion_value = completion_value;
  signals.value = 0;
  signals.count = 0;
  const bool repeats = (command.flags & kRepeats) != 0;
  for (uint32_t i = 0; i < command.gates; ++i) {
    const Gate& gate = command.gate[i];
    if (gate.device_words == 0) continue;
    signals.word[signals.count] =
        reinterpret_cast<uint32_t*>(gate.device_words + offsetof(GateWords, done));
    signals.values[signals.count++] = repeats ? 1 : gate.generation;
  }
  // NOLINTEND(performance-no-int-to-ptr)
  const Stream stream = streams_[index];
  switch (command.kind) {
    case CommandKind::kCollective:
      return Collective(command, signals, stream);
    case CommandKind::kMove:
      return Move(command, runs, signals, stream);
    case CommandKind::kCopy:
      return Copy(command, signals, stream);
    case CommandKind::kCancel:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat("command ", command.id, " of kind ",
                                                 static_cast<uint32_t>(command.kind),
                                                 ", expected 1 to 3"));
}

absl::Status KernelExecutor::Collective(const Command& command, const Signals& signals,
                                        Stream stream) {
  SHUNT_RETURN_IF_ERROR(PlanCollective(command, &launch_));
  switch (launch_.kind) {
    case CollectiveLaunch::Kind::kSignal:
      break;
    case CollectiveLaunch::Kind::kReduce:
      launch_.reduce.signals = signals;
      return Settled(kernels_->Reduce(launch_.reduce, stream), stream);
    case CollectiveLaunch::Kind::kSpread:
      launch_.spread.signals = signals;
      return Settled(kernels_->Spread(launch_.spread, stream), stream);
  }
  return kernels_->Signal(signals, stream);
}

absl::Status KernelExecutor::Move(const Command& command, const Run* runs, const Signals& signals,
                                  Stream stream) {
  SHUNT_CHECK(command.batch < kRunBatches && command.runs <= kRunsPerBatch);
  if (command.runs == 0) return kernels_->Signal(signals, stream);
  move_.runs = command.runs;
  move_.bytes = command.bytes;
  // The runs of a batch are of one transfer, whose regions rarely mix: the first one speaks for
  // all, and the others are no more than slower.
  move_.host = OnHost(runs[0].source) || OnHost(runs[0].destination) ? 1 : 0;
  move_.signals = signals;
  if (command.runs <= kFewRuns) {
    move_.run = nullptr;
    std::memcpy(move_.few, runs, command.runs * sizeof(Run));
    return Settled(kernels_->Move(move_, stream), stream);
  }
  // Each batch has its own table: it is written again after the batch's command has ended.
  const DevicePtr table = tables_ + command.batch * kTableBytes;
  SHUNT_RETURN_IF_ERROR(driver_->CopyAsync(table, reinterpret_cast<uint64_t>(runs),
                                           command.runs * sizeof(Run), stream));
  move_.run = reinterpret_cast<const RunWords*>(table);  // NOLINT(performance-no-int-to-ptr)
  return Settled(kernels_->Move(move_, stream), stream);
}

absl::Status KernelExecutor::Copy(const Command& command, const Signals& signals, Stream stream) {
  if (command.places != 1) {
    return absl::InvalidArgumentError(absl::StrCat("command ", command.id, ", a copy, has ",
                                                   command.places, " places, expected 1"));
  }
  const Place& place = command.place[0];
  if (command.bytes > 0) {
    SHUNT_RETURN_IF_ERROR(driver_->CopyAsync(place.out, place.in, command.bytes, stream));
  }
  return Settled(kernels_->Signal(signals, stream), stream);
}

absl::Status KernelExecutor::Settled(absl::Status launched, Stream stream) {
  if (launched.ok()) return launched;
  absl::Status idle = driver_->Synchronize(stream);
  return absl::IsDataLoss(idle) ? idle : launched;
}

bool KernelExecutor::OnHost(uint64_t address) {
  const absl::StatusOr<PointerFacts> facts = driver_->Facts(address);
  return facts.ok() && facts->kind == PointerFacts::Kind::kHost;
}

absl::Status KernelExecutor::Health() {
  absl::Status status = driver_->Query(streams_.front());
  return absl::IsDataLoss(status) ? status : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> MakeKernelExecutor(Driver* driver,
                                                             const DeviceFacts& device) {
  SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<Kernels> kernels, Kernels::Load(driver, device));
  auto executor = std::make_unique<KernelExecutor>(driver, std::move(kernels));
  SHUNT_RETURN_IF_ERROR(executor->Prepare());
  return executor;
}

}  // namespace shunt::gpu
