#include "daemon/serve.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/log.h"
#include "daemon/service_manager.h"
#include "runtime/core/clock.h"

namespace shunt::daemon {
namespace {

// A loop has so many looks to answer in before the watchdog bites.
constexpr int kLooksPerPeriod = 4;
// What stopping takes beside the grace period: waiters are told, sessions closed, threads joined.
constexpr auto kStopBeyondGrace = std::chrono::seconds(20);

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// The next signal; 0 if none came by then.
int NextSignal(const sigset_t& signals, int64_t until_ns) {
  if (until_ns == kNeverNs) {
    int signal = 0;
    sigwait(&signals, &signal);
    return signal;
  }
  const int64_t left_ns = std::max<int64_t>(0, until_ns - NowNs());
  timespec timeout{};
  timeout.tv_sec = left_ns / 1'000'000'000;
  timeout.tv_nsec = left_ns % 1'000'000'000;
  const int signal = ::sigtimedwait(&signals, nullptr, &timeout);
  return signal > 0 ? signal : 0;
}

// What the service manager is told, and was told last.
class Manager {
 public:
  explicit Manager(Daemon& daemon) : daemon_(daemon), said_(Words()) { TellReady(said_); }

  void Look() {
    const std::vector<std::string> silent = daemon_.SilentThreads();
    if (silent.empty()) {
      TellAlive();
    } else if (silent != silent_) {
      LogError("threads do not answer, so the watchdog is not fed",
               {{"threads", absl::StrJoin(silent, ", ")}});
    }
    silent_ = silent;
    const std::string words =
        silent.empty()
            ? Words()
            : absl::StrCat("not fed to the watchdog: no answer of ", absl::StrJoin(silent, ", "));
    if (words != said_) TellStatus(words);
    said_ = words;
  }

  void Reload(const std::function<absl::StatusOr<Config>()>& read_config) {
    TellReloading("reading the configuration again");
    const absl::StatusOr<Config> config = read_config();
    if (config.ok()) {
      note_ = absl::StrCat("; last reload: ", daemon_.Reload(*config));
    } else {
      const std::string why(config.status().message());
      LogError("the configuration stays as it was", {{"error", why}});
      note_ = absl::StrCat("; last reload failed, the old configuration stays: ", why);
    }
    said_ = Words();
    TellReady(said_);
  }

 private:
  std::string Words() const { return absl::StrCat("ready: ", daemon_.Summary(), note_); }

  Daemon& daemon_;
  std::string note_;
  std::string said_;
  std::vector<std::string> silent_;
};

}  // namespace

void BlockSignals() {
  const sigset_t signals = Signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void Serve(Daemon& daemon, const std::function<absl::StatusOr<Config>()>& read_config) {
  const sigset_t signals = Signals();
  const std::chrono::nanoseconds look = WatchdogPeriod() / kLooksPerPeriod;
  Manager manager(daemon);
  // A time of its own, and before the next signal is taken: signals that come one upon another must
  // not keep the watchdog from being fed.
  int64_t next_look_ns = look.count() == 0 ? kNeverNs : DeadlineAfterNs(look);
  for (;;) {
    if (NowNs() >= next_look_ns) {
      manager.Look();
      next_look_ns = DeadlineAfterNs(look);
    }
    switch (const int signal = NextSignal(signals, next_look_ns)) {
      case 0:
        break;
      case SIGHUP:
        manager.Reload(read_config);
        break;
      default:
        LogInfo("asked to stop", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
        TellStopping(
            absl::StrCat("stopping: ", daemon.Summary(), ", running operations get ",
                         std::chrono::duration<double>(daemon.grace_period()).count(), " s"),
            daemon.grace_period() + kStopBeyondGrace);
        daemon.Stop();
        return;
    }
  }
}

}  // namespace shunt::daemon
