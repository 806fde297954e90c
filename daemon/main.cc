// shuntd: reads the configuration, runs the daemon until a signal asks it to stop.
#include <pthread.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/storage_check.h"
#include "daemon/version.h"
#include "runtime/topology/topology.h"

namespace {

using shunt::daemon::Config;
using shunt::daemon::ConfigKey;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "shuntd: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("shuntd, Shunt's daemon: collectives and transfers for the processes of one node");
  std::string config_file;
  bool check = false;
  app.add_option("--config", config_file, "configuration file (TOML); flags override it");
  app.add_flag("--check-config", check,
               "read the configuration, say what is wrong with it, and exit");
  app.set_version_flag("--version", absl::StrCat("shuntd ", shunt::daemon::kVersion));
  std::map<std::string, std::string> flags;
  for (const ConfigKey& key : shunt::daemon::ConfigKeys()) {
    std::string help = absl::StrCat(key.help, " (", key.expected, ")");
    if (key.initial != nullptr) {
      absl::StrAppend(&help, "; default: ", *key.initial == '\0' ? "\"\"" : key.initial);
    }
    app.add_option(shunt::daemon::FlagOf(key), flags[key.name], help)
        ->group("Configuration")
        ->option_text(" ");
  }
  CLI11_PARSE(app, argc, argv);

  Config config;
  if (!config_file.empty()) {
    if (absl::Status status = shunt::daemon::ApplyConfigFile(config_file, &config); !status.ok()) {
      return Fail(status);
    }
  }
  for (const ConfigKey& key : shunt::daemon::ConfigKeys()) {
    if (app.count(shunt::daemon::FlagOf(key)) == 0) continue;
    if (absl::Status status = shunt::daemon::ApplyFlag(key, flags[key.name], &config);
        !status.ok()) {
      return Fail(status);
    }
  }
  if (absl::Status status = shunt::daemon::CheckConfig(config); !status.ok()) return Fail(status);
  if (check) {
    const auto topology = shunt::topology::Discover();
    if (!topology.ok()) return Fail(topology.status());
    if (const auto cpus = shunt::daemon::CheckWorkerCpus(config, *topology); !cpus.ok()) {
      return Fail(cpus.status());
    }
    if (absl::Status status = shunt::daemon::CheckStorage(config); !status.ok()) {
      return Fail(status);
    }
    std::printf("the configuration is fine\n");
    return 0;
  }

  shunt::daemon::PrepareProcess();
  shunt::daemon::InitLog(config.log_level, config.log_format);
  // Before any thread: all of them inherit the mask, and only this one takes the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  absl::StatusOr<std::unique_ptr<shunt::daemon::Daemon>> daemon =
      shunt::daemon::Daemon::Start(config);
  if (!daemon.ok()) return Fail(daemon.status());
  int signal = 0;
  sigwait(&signals, &signal);
  shunt::daemon::LogInfo("asked to stop", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
  (*daemon)->Stop();
  return 0;
}
