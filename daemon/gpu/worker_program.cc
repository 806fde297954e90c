#include "daemon/gpu/worker_program.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "runtime/core/status.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/worker/listing.h"

namespace shunt::daemon {
namespace {

// Nothing but the driver's start: no memory of a GPU is taken.
absl::Status List() {
  SHUNT_ASSIGN_OR_RETURN(gpu::Driver* const driver, gpu::Driver::Load());
  SHUNT_ASSIGN_OR_RETURN(const int count, driver->DeviceCount());
  for (int i = 0; i < count; ++i) {
    SHUNT_ASSIGN_OR_RETURN(const gpu::DeviceFacts device, driver->Describe(i));
    std::puts(gpu::ListingLine(device).c_str());
  }
  return absl::OkStatus();
}

struct Line {
  bool list = false;
  std::string uuid;
  int control = -1, ring = -1, worker_doorbell = -1, shuntd_doorbell = -1, parent = 0;
  gpu::WorkerOptions options;
};

absl::Status Work(Line& line, const gpu::MakeExecutor& make) {
  if (line.control < 0 || line.ring < 0 || line.worker_doorbell < 0 || line.shuntd_doorbell < 0) {
    return absl::InvalidArgumentError("only shuntd starts a worker; --list is for everybody");
  }
  gpu::WorkerFds fds{UniqueFd(line.control), UniqueFd(line.ring), UniqueFd(line.worker_doorbell),
                     UniqueFd(line.shuntd_doorbell)};
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != line.parent) return absl::OkStatus();  // it ended before that
  SHUNT_ASSIGN_OR_RETURN(line.options.uuid, gpu::ParseUuid(line.uuid));
  SHUNT_ASSIGN_OR_RETURN(gpu::Driver* const driver, gpu::Driver::Load());
  return gpu::RunWorker(driver, line.options, std::move(fds), make);
}

}  // namespace

int WorkerMain(int argc, char** argv, const gpu::MakeExecutor& make) {
  CLI::App app("Drives one GPU for shuntd, which starts it.");
  Line line;
  app.add_flag("--list", line.list, "print a line of JSON for each GPU, and end");
  app.add_option("--device", line.options.device, "the driver's number of the GPU");
  app.add_option("--uuid", line.uuid, "what that GPU must be");
  app.add_option("--control", line.control, "this and the next are descriptors of shuntd's");
  app.add_option("--ring", line.ring);
  app.add_option("--worker-doorbell", line.worker_doorbell);
  app.add_option("--shuntd-doorbell", line.shuntd_doorbell);
  app.add_option("--parent", line.parent, "the process id of shuntd, with which this ends");
  CLI11_PARSE(app, argc, argv);
  const absl::Status end = line.list ? List() : Work(line, make);
  if (end.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(end.message()).c_str());
  // Not what the driver has for the end of a process: with a lost context it may wait for ever.
  std::_Exit(1);
}

}  // namespace shunt::daemon
