// The daemon itself: what it holds for its clients, what it answered them, its process.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "daemon/metrics/collector.h"

namespace shunt::daemon::metrics {
namespace {

uint64_t OpenFiles() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  uint64_t count = 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count > 3 ? count - 3 : 0;  // ".", "..", and the directory's own
}

// Seconds since the epoch; 0 if /proc does not say.
double StartTime() {
  uint64_t boot_s = 0;
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    if (word == "btime" && stat >> boot_s) break;
  }
  std::ifstream self("/proc/self/stat");
  std::stringstream text;
  text << self.rdbuf();
  // Behind the program's name, which may hold anything, the state is field 3 and the start 22.
  const size_t end = text.str().rfind(')');
  if (boot_s == 0 || end == std::string::npos) return 0;
  std::istringstream fields(text.str().substr(end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return static_cast<double>(boot_s) +
         std::strtod(field.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

void Collector::Daemon(Page* page) const {
  page->Gauge("shunt_build_info", "Always 1; its label says what runs.")
      .Add({{"version", sources_.version}}, 1.0);
  page->Gauge("shunt_sessions", "Sessions that are open.")
      .Add({}, static_cast<uint64_t>(sources_.sessions->size()));
  uint64_t outstanding = 0, waiting = 0;
  for (const auto& session : sources_.sessions->List()) {
    if (!session->ring.valid()) continue;
    outstanding += session->ring.outstanding();
    waiting += session->ring.waiting();
  }
  page->Gauge("shunt_ring_submissions_waiting",
              "Entries of sessions' rings that the daemon has not taken yet.")
      .Add({}, waiting);
  page->Gauge("shunt_ring_operations_in_flight",
              "Entries that the daemon has taken and not completed yet.")
      .Add({}, outstanding);
  Family& errors = page->Counter("shunt_errors_total",
                                 "Requests, operations and transfers that a client was told an "
                                 "error for, by its code.");
  for (size_t code = 1; code < kCodes; ++code) {
    errors.Add({{"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}},
               sources_.probe->answers.errors[code].value());
  }
}

void Collector::Memory(Page* page) const {
  uint64_t file_bytes = 0, object_bytes = 0, file_count = 0;
  for (const auto& session : sources_.sessions->List()) {
    for (const auto& region : sources_.stores->List(session->id)) {
      ++file_count;
      (region->is_object ? object_bytes : file_bytes) += region->bytes;
    }
  }
  page->Gauge("shunt_regions", "Regions of all sessions: of memory, and open files and objects.")
      .Add({}, sources_.regions->region_count() + file_count);
  Family& bytes = page->Gauge("shunt_regions_bytes",
                              "Sizes of regions. memory: with the rings, boards and lists that "
                              "count against the same quotas.");
  bytes.Add({{"kind", "memory"}}, sources_.regions->total_bytes());
  bytes.Add({{"kind", "file"}}, file_bytes);
  bytes.Add({{"kind", "object"}}, object_bytes);
  page->Gauge("shunt_memory_limit_bytes", "What all sessions' memory may take (memory_total).")
      .Add({}, sources_.regions->quotas().total_bytes);
}

void Collector::Process(Page* page) const {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  page->Counter("process_cpu_seconds_total", "CPU time of the daemon, user's and system's.")
      .Add({}, seconds(usage.ru_utime) + seconds(usage.ru_stime));
  uint64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  page->Gauge("process_resident_memory_bytes",
              "Memory of the daemon that is in RAM, sessions' that it has mapped too.")
      .Add({}, resident * page_bytes);
  page->Gauge("process_virtual_memory_bytes", "Address space of the daemon.")
      .Add({}, pages * page_bytes);
  page->Gauge("process_open_fds", "Descriptors that are open.").Add({}, OpenFiles());
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  page->Gauge("process_max_fds", "Descriptors that may be open.")
      .Add({}, static_cast<uint64_t>(files.rlim_cur));
  page->Gauge("process_start_time_seconds", "When the daemon started, since the epoch.")
      .Add({}, StartTime());
}

}  // namespace shunt::daemon::metrics
