#include "runtime/transport/ucx/ucx_transport.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/transport/ucx/state.h"

namespace shunt::transport {
namespace {

// Rounds of UCX's progress in one Poll; the owner's turn comes in between.
constexpr int kRoundsMax = 64;

// Naps while UCX has work that no descriptor will announce (shared memory whose queue is full).
constexpr int64_t kNapMinNs = 1'000'000, kNapMaxNs = 64'000'000;

absl::Status CheckOptions(const UcxOptions& options) {
  const Engine::Options& engine = options.engine;
  const size_t largest = std::max<size_t>(
      {engine.limits.eager_bytes, engine.limits.note_bytes_max, engine.piece_bytes});
  if (largest > wire::kPayloadBytesMax || engine.piece_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("eager, note and piece bytes: ", engine.limits.eager_bytes, ", ",
                     engine.limits.note_bytes_max, " and ", engine.piece_bytes,
                     ", expected at most ", wire::kPayloadBytesMax));
  }
  if (engine.limits.eager_slots > UINT16_MAX || engine.limits.headers_waiting_max > UINT16_MAX ||
      engine.limits.headers_waiting_max == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slots and headers waiting: ", engine.limits.eager_slots, " and ",
                     engine.limits.headers_waiting_max, ", expected at most ", UINT16_MAX));
  }
  if (options.streams < 1 || options.streams > wire::kStreamsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("streams: ", options.streams, ", expected 1 to ", wire::kStreamsMax));
  }
  if (options.frames_waiting_max < kRailFramesMin || options.frames_waiting_max > kRailFramesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("frames that may wait: ", options.frames_waiting_max, ", expected ",
                     kRailFramesMin, " to ", kRailFramesMax));
  }
  if (options.pieces_in_flight < 1 || options.fetch_bytes_min < kRailFetchBytesMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("pieces in flight and fetch bytes: ", options.pieces_in_flight, " and ",
                     options.fetch_bytes_min, ", expected at least 1 and ", kRailFetchBytesMin));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(const UcxOptions& options) {
  SHUNT_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<UcxTransport> transport(new UcxTransport(options));
  SHUNT_RETURN_IF_ERROR(transport->Start());
  return transport;
}

UcxTransport::UcxTransport(const UcxOptions& options)
    : options_(options), engine_(options.engine) {}

absl::Status UcxTransport::Start() {
  TcpOptions bootstrap = options_.bootstrap;
  bootstrap.streams = 1;
  bootstrap.movers = 0;
  bootstrap.engine = {};  // a meeting needs little: one communicator, one note
  bootstrap.engine.limits = {.eager_bytes = 0,
                             .eager_slots = 0,
                             .headers_waiting_max = 1,
                             .note_bytes_max = kRailHelloBytes + kRailAddressBytesMax};
  bootstrap.engine.links_max = 1;
  SHUNT_ASSIGN_OR_RETURN(bootstrap_, TcpTransport::Create(bootstrap));
  SHUNT_ASSIGN_OR_RETURN(worker_, UcxWorker::Create(options_, this));
  if (worker_->address().size() > kRailAddressBytesMax) {
    return absl::InternalError(absl::StrCat("UCX's address has ", worker_->address().size(),
                                            " bytes, expected at most ", kRailAddressBytesMax));
  }
  options_.registrations.overlap_bytes =
      std::max<size_t>(options_.registrations.overlap_bytes, wire::kPayloadBytesMax);
  if (options_.bootstrap.tallies != nullptr) {
    options_.registrations.tally = &options_.bootstrap.tallies->registrations;
  }
  registrations_ = std::make_unique<Registrations>(
      options_.registrations,
      Registrations::Card{
          .add = [this](std::byte* at, size_t bytes) { return worker_->Register(at, bytes); },
          .remove =
              [this](void* handle) {
                worker_->Unregister(static_cast<UcxWorker::Memory*>(handle));
              }});
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return ErrnoStatus(errno, "making an epoll descriptor");
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_.valid()) return ErrnoStatus(errno, "making a timer");
  for (const int fd : {bootstrap_->fd(), worker_->fd(), timer_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return ErrnoStatus(errno, "watching a descriptor of the rail");
    }
  }
  return absl::OkStatus();
}

UcxTransport::~UcxTransport() {
  if (registrations_ == nullptr) return;
  for (auto& [id, peer] : peers_) {
    Fail(peer.get(), absl::CancelledError("the transport ends"));
    Bury(std::move(peer));
  }
  peers_.clear();
  // Of a peer that was cut off, UCX ends by itself what is on its way, if it can at all.
  const int64_t deadline_ns = NowNs() + 30'000'000'000;
  while (!Reap() && worker_->tells_failures()) {
    worker_->Progress();
    SHUNT_CHECK(NowNs() < deadline_ns);
  }
  registrations_.reset();
  for (const auto& peer : buried_) FreeStaging(peer.get());
  worker_.reset();
}

size_t UcxTransport::Poll(absl::Span<Completion> out) {
  const int64_t before_ns = std::exchange(now_ns_, NowNs());
  if (now_ns_ - before_ns > options_.bootstrap.heartbeat_ns) {
    // It was the owner who was away: no peer's silence.
    for (const auto& [id, peer] : peers_) peer->came_ns += now_ns_ - before_ns;
  }
  WriteAll();
  if (!engine_.has_completions()) {
    polling_ = true;
    for (int round = 0; round < kRoundsMax && worker_->Progress(); ++round) nap_ns_ = 0;
    polling_ = false;
    TakeAll();
    PollBootstrap();
    if (now_ns_ >= next_tick_ns_) Tick();
    ServeLosses();
    WriteAll();
  }
  const size_t taken = engine_.Take(out);
  if (taken == 0) Rest();
  return taken;
}

// What comes from now on must make the descriptor readable.
void UcxTransport::Rest() {
  WriteAll();
  Reap();
  int64_t wake_ns = next_tick_ns_;
  for (int round = 0; !worker_->Arm(); ++round) {
    polling_ = true;
    const bool moved = worker_->Progress();
    polling_ = false;
    TakeAll();
    WriteAll();
    if (moved) nap_ns_ = 0;
    if (!losing_.empty() || engine_.has_completions() || (moved && round == kRoundsMax)) {
      wake_ns = 1;  // at once
      break;
    }
    if (!moved) {
      nap_ns_ = std::clamp(2 * nap_ns_, kNapMinNs, kNapMaxNs);
      wake_ns = std::min(wake_ns, now_ns_ + nap_ns_);
      break;
    }
  }
  ArmTimer(engine_.has_completions() ? 1 : wake_ns);
}

void UcxTransport::ArmTimer(int64_t wake_ns) {
  if (timer_at_ns_ == wake_ns && wake_ns > now_ns_) return;  // the usual case: no system call
  timer_at_ns_ = wake_ns;
  itimerspec spec{};
  if (wake_ns != kNeverNs) {
    wake_ns = std::max<int64_t>(wake_ns, 1);
    spec.it_value.tv_sec = wake_ns / 1'000'000'000;
    spec.it_value.tv_nsec = wake_ns % 1'000'000'000;
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

UcxStatistics UcxTransport::statistics() const {
  UcxStatistics result = statistics_;
  result.registrations = registrations_->counters();
  return result;
}

}  // namespace shunt::transport
