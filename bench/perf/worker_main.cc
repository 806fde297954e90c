// shunt-peer-shunt: one rank over libshunt, started by shunt-compare as it starts the peers' ranks.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "bench/harness/worker.h"
#include "bench/peers/flags.h"
#include "bench/perf/shunt_backend.h"

int main(int argc, char** argv) {
  using namespace shunt::bench;
  const PeerFlags flags = ParsePeerFlags(argc, argv);
  auto page = ControlPage::Attach(flags.control);
  if (!page.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::string(page.status().message()).c_str());
    return 1;
  }
  Control* control = page->get();
  const std::string name = "compare-" + std::to_string(control->driver_pid);
  auto backend = OpenShuntBackend(flags.rank, control->ranks, flags.socket, name);
  if (!backend.ok()) {
    control->Fail(std::string(backend.status().message()));
    return 1;
  }
  return ServeBenchmark(control, **backend);
}
