#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/gpu/gpu_worker_state.h"
#include "daemon/log.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/core/unix_socket.h"

namespace shunt::daemon {
namespace {

constexpr const char* kProgram = "shunt-gpu-worker";
// A process that lives so long has not died in a row.
constexpr int64_t kHealthyNs = 60'000'000'000;
// Between the end of its control socket, or of its context, and its own.
constexpr int64_t kEndingNs = 2'000'000'000;
// Starting, and opening memory, may take so many times as long as a turn of the loop.
constexpr int kSlowFactor = 6;
// What ends a worker while it opens it is not given to the next one for ever.
constexpr int kOpeningDeathsMax = 2;

std::string TextOf(const gpu::Reply& reply) {
  return {reply.text, ::strnlen(reply.text, sizeof(reply.text))};
}

}  // namespace

void GpuWorker::State::StartProcess() {
  if (absl::Status started = TryStart(); !started.ok()) {
    OnDeath(absl::StrCat("did not start: ", started.message()));
  }
}

absl::Status GpuWorker::State::TryStart() {
  {
    const std::lock_guard lock(mutex);
    if (phase == Phase::kStopped || phase == Phase::kGivenUp) return absl::OkStatus();
    phase = Phase::kStarting;
    ++incarnation;
    link = nullptr;
  }
  kill_cause.clear();
  seen_turns = 0;
  silent = 0;
  lost_ns = 0;
  SHUNT_ASSIGN_OR_RETURN(auto sockets, MakeSocketPair(SocketType::kSeqPacket));
  for (const UniqueFd* socket : {&sockets.first, &sockets.second}) {
    if (::fcntl(socket->get(), F_SETFL, O_NONBLOCK) != 0) {
      return ErrnoStatus(errno, "setting up a control socket");
    }
  }
  SHUNT_ASSIGN_OR_RETURN(std::shared_ptr<WorkerLink> made, WorkerLink::Make(incarnation, label));
  WorkerProcess::Options process_options;
  process_options.program =
      options.choice.worker.empty() ? ProgramBesideThis(kProgram) : options.choice.worker;
  process_options.use_mps = options.choice.use_mps;
  process_options.fds = {sockets.second.get(), made->ring_fd(), made->worker_doorbell(),
                         made->shuntd_doorbell()};
  process_options.arguments = {"--device",
                               absl::StrCat(gpu.ordinal),
                               "--uuid",
                               gpu::UuidText(gpu.uuid),
                               "--control",
                               "3",
                               "--ring",
                               "4",
                               "--worker-doorbell",
                               "5",
                               "--shuntd-doorbell",
                               "6",
                               "--parent",
                               absl::StrCat(::getpid())};
  SHUNT_ASSIGN_OR_RETURN(process,
                         WorkerProcess::Start(
                             loop.get(), process_options,
                             [this](std::string_view line) {
                               LogWarn("GPU worker says", {{"gpu", label}, {"line", line}});
                             },
                             [this](const std::string& how) { OnProcessEnd(how); }));
  SHUNT_ASSIGN_OR_RETURN(
      control_watch, loop->Watch(sockets.first.get(), EPOLLIN, [this](uint32_t) { OnReply(); }));
  completions->Add(made);

  const std::lock_guard lock(mutex);
  pid = process->pid();
  control = std::move(sockets.first);
  link = std::move(made);
  gpu::Request about{};
  about.kind = gpu::RequestKind::kAbout;
  SendLocked({about, [this](const absl::StatusOr<gpu::Reply>& reply) {
                if (!reply.ok()) return;  // the process ends, or does not know itself
                std::vector<std::function<void()>> waiters;
                {
                  const std::lock_guard lock(mutex);
                  phase = Phase::kReady;
                  ready_ns = NowNs();
                  waiters.swap(batch_waiters);
                }
                LogInfo("GPU worker is ready", {{"gpu", label}, {"pid", pid}});
                for (const auto& waiter : waiters) waiter();
              }});
  for (auto& [id, entry] : memory) {
    if (entry.deaths < kOpeningDeathsMax) AskLocked(id, &entry);
  }
  return absl::OkStatus();
}

void GpuWorker::State::OnReply() {
  for (;;) {
    gpu::Reply reply{};
    const absl::StatusOr<Received> received =
        RecvWithFds(control.get(), std::as_writable_bytes(std::span(&reply, 1)), /*max_fds=*/0);
    if (received.ok() && received->would_block) return;
    if (!received.ok() || received->closed || received->bytes != sizeof(reply)) {
      // It is ending, and will have said why. If it does not end, it is made to: nothing can be
      // asked of it any more.
      loop->Unwatch(std::exchange(control_watch, 0));
      loop->At(NowNs() + kEndingNs, [self = shared_from_this(), number = incarnation] {
        if (self->process == nullptr || self->incarnation != number) return;
        self->kill_cause = "closed its control socket";
        self->process->Kill();
      });
      return;
    }
    Replied replied;
    {
      const std::lock_guard lock(mutex);
      if (sent.empty() || sent.front().request.id != reply.id) continue;
      replied = std::move(sent.front().replied);
      sent.pop_front();
      FlushLocked();
    }
    silent = 0;
    if (!replied) continue;
    if (reply.code == 0) {
      replied(reply);
    } else {
      replied(absl::Status(static_cast<absl::StatusCode>(reply.code), TextOf(reply)));
    }
  }
}

void GpuWorker::State::OnProcessEnd(const std::string& how) {
  std::string cause = kill_cause.empty() ? how : absl::StrCat(kill_cause, ", and ", how);
  if (!process->last_line().empty()) absl::StrAppend(&cause, " (", process->last_line(), ")");
  // It is on its stack.
  loop->Post(
      [self = shared_from_this(), gone = std::shared_ptr<WorkerProcess>(std::move(process))] {});
  OnDeath(std::move(cause));
}

absl::Status GpuWorker::State::Died() const {
  return absl::UnavailableError(absl::StrCat(label, ": its worker ", why));
}

void GpuWorker::State::OnDeath(std::string cause) {
  process = nullptr;
  loop->Unwatch(std::exchange(control_watch, 0));
  std::shared_ptr<WorkerLink> gone;
  std::vector<std::function<void(const absl::Status&)>> told;
  absl::Status status;
  bool again = false, given_up = false;
  int64_t pause_ns = 0;
  {
    const std::lock_guard lock(mutex);
    if (phase == Phase::kStopped) return;
    why = std::move(cause);
    status = Died();
    deaths = phase == Phase::kReady && NowNs() - ready_ns >= kHealthyNs ? 1 : deaths + 1;
    pid = 0;
    control.Reset();
    gone = std::move(link);
    link = nullptr;
    // It was opening this: perhaps that is what ended it.
    if (!sent.empty() && sent.front().request.kind == gpu::RequestKind::kImport) {
      const auto found = memory.find(sent.front().request.memory);
      if (found != memory.end() && ++found->second.deaths >= kOpeningDeathsMax) {
        told.swap(found->second.waiters);
      }
    }
    sent.clear();
    waiting.clear();
    for (auto& [id, entry] : memory) entry.at = Memory::At::kNowhere;
    phase = deaths >= options.deaths_max ? Phase::kGivenUp : Phase::kRestarting;
    given_up = phase == Phase::kGivenUp;
    again = !given_up;
    if (again && memory.empty()) {
      phase = Phase::kIdle;  // with the next region
      again = false;
    }
    if (deaths > 1) {
      const int64_t doubled = options.backoff.count() << std::min(deaths - 2, 20);
      pause_ns = std::min<int64_t>(doubled, options.backoff_max.count());
    }
    if (again) ++restarts;
  }
  LogError("GPU worker ended", {{"gpu", label}, {"cause", why}, {"deaths", deaths}});
  if (gone != nullptr) completions->Retire(std::move(gone), status);
  for (const auto& waiter : told) waiter(status);
  if (given_up) {
    {
      const std::lock_guard lock(mutex);
      status = WhyNotLocked();
    }
    LogError("GPU is served no more", {{"gpu", label}, {"cause", why}});
    GiveUp(Phase::kGivenUp, status);
    return;
  }
  if (!again) return;
  if (pause_ns == 0) {
    loop->Post([self = shared_from_this()] { self->StartProcess(); });
  } else {
    loop->At(NowNs() + pause_ns, [self = shared_from_this()] { self->StartProcess(); });
  }
}

void GpuWorker::State::GiveUp(Phase end, const absl::Status& status) {
  std::vector<std::function<void(const absl::Status&)>> told;
  std::vector<std::function<void()>> batches;
  {
    const std::lock_guard lock(mutex);
    phase = end;
    for (auto& [id, entry] : memory) {
      for (auto& waiter : entry.waiters) told.push_back(std::move(waiter));
      entry.waiters.clear();
    }
    batches.swap(batch_waiters);
  }
  for (const auto& waiter : told) waiter(status);
  for (const auto& waiter : batches) waiter();
}

void GpuWorker::State::KeepLooking() {
  loop->At(DeadlineAfterNs(options.look), [self = shared_from_this()] { self->Look(); });
}

// Only while it has something to do does it have to turn.
void GpuWorker::State::Look() {
  if (process == nullptr) {
    const std::lock_guard lock(mutex);
    looking = false;
    return;
  }
  bool asked;
  std::shared_ptr<WorkerLink> now;
  bool starting;
  {
    const std::lock_guard lock(mutex);
    asked = !sent.empty();
    now = link;
    starting = phase == Phase::kStarting;
    if (now == nullptr || (!asked && now->under_way() == 0)) {
      looking = false;
      silent = 0;
      return;
    }
  }
  const uint64_t turns = now->turns();
  const bool sleeps = now->sleeps() && !asked;
  silent = turns != seen_turns || sleeps ? 0 : silent + 1;
  seen_turns = turns;
  if (now->lost() && lost_ns == 0) lost_ns = NowNs();
  const bool lingers = lost_ns != 0 && NowNs() - lost_ns >= kEndingNs;
  const int most = options.silent_looks * (starting || asked ? kSlowFactor : 1);
  if (silent >= most || lingers) {
    kill_cause = lingers ? "lost its context" : "stood still";
    process->Kill();
  }
  KeepLooking();
}

void GpuWorker::State::Stop() {
  process = nullptr;  // killed
  loop->Unwatch(std::exchange(control_watch, 0));
  std::shared_ptr<WorkerLink> gone;
  const absl::Status status = absl::UnavailableError("shuntd is stopping");
  {
    const std::lock_guard lock(mutex);
    phase = Phase::kStopped;
    pid = 0;
    control.Reset();
    gone = std::move(link);
    link = nullptr;
    sent.clear();
    waiting.clear();
  }
  if (gone != nullptr) completions->Retire(std::move(gone), status);
  GiveUp(Phase::kStopped, status);
}

}  // namespace shunt::daemon
