// shuntd: reads the configuration, runs the daemon until a signal asks it to stop.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/serve.h"
#include "daemon/service_manager.h"
#include "daemon/storage_check.h"
#include "daemon/version.h"
#include "runtime/core/status.h"
#include "runtime/topology/topology.h"

namespace {

using shunt::daemon::Config;
using shunt::daemon::ConfigKey;
using shunt::daemon::PluginCheck;

int Fail(const absl::Status& status) {
  const std::string words(status.message());
  std::fprintf(stderr, "shuntd: %s\n", words.c_str());
  shunt::daemon::TellStatus("not started: " + words);
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

  // The file, then the flags; again on SIGHUP.
  const auto read_config = [&](PluginCheck plugins) -> absl::StatusOr<Config> {
    Config config;
    if (!config_file.empty()) {
      SHUNT_RETURN_IF_ERROR(shunt::daemon::ApplyConfigFile(config_file, &config));
    }
    for (const ConfigKey& key : shunt::daemon::ConfigKeys()) {
      if (app.count(shunt::daemon::FlagOf(key)) == 0) continue;
      SHUNT_RETURN_IF_ERROR(shunt::daemon::ApplyFlag(key, flags[key.name], &config));
    }
    SHUNT_RETURN_IF_ERROR(shunt::daemon::CheckConfig(config));
    SHUNT_ASSIGN_OR_RETURN(const auto topology, shunt::topology::Discover());
    SHUNT_RETURN_IF_ERROR(shunt::daemon::CheckWorkerCpus(config, topology).status());
    SHUNT_RETURN_IF_ERROR(shunt::daemon::CheckStorage(config, plugins));
    return config;
  };
  // What starts makes its stores itself.
  const absl::StatusOr<Config> config =
      read_config(check ? PluginCheck::kTable : PluginCheck::kFile);
  if (!config.ok()) return Fail(config.status());
  if (check) {
    std::printf("the configuration is fine\n");
    return 0;
  }

  shunt::daemon::PrepareProcess();
  shunt::daemon::InitLog(config->log_level, config->log_format);
  shunt::daemon::BlockSignals();
  shunt::daemon::TellStatus("starting");
  absl::StatusOr<shunt::daemon::GivenSockets> given =
      shunt::daemon::TakeGivenSockets(config->socket);
  if (!given.ok()) return Fail(given.status());
  absl::StatusOr<std::unique_ptr<shunt::daemon::Daemon>> daemon =
      shunt::daemon::Daemon::Start(*config, *std::move(given));
  if (!daemon.ok()) return Fail(daemon.status());
  // Code of a library that is there for the next start alone is not brought into this process.
  shunt::daemon::Serve(**daemon, [&] { return read_config(PluginCheck::kFile); });
  return 0;
}
