#include "daemon/serve.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/log.h"
#include "daemon/service_manager.h"

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

// The next signal; 0 if none came within `period` (0: however long it takes).
int NextSignal(const sigset_t& signals, std::chrono::nanoseconds period) {
  if (period.count() == 0) {
    int signal = 0;
    sigwait(&signals, &signal);
    return signal;
  }
  timespec timeout{};
  timeout.tv_sec = period.count() / 1'000'000'000;
  timeout.tv_nsec = period.count() % 1'000'000'000;
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
  for (;;) {
    switch (const int signal = NextSignal(signals, look)) {
      case 0:
        manager.Look();
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
