// Which carriers of UCX's may be used.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/transport/ucx/ucx_worker.h"

namespace shunt::transport {
namespace {

// UD is not among them. UCX brings it along to set up connections; but where it is a lane of its
// own and an endpoint is closed while it is being set up, UCX 1.13 fails an assertion (its pull
// request 8175 removed that later).
constexpr std::string_view kRdma[] = {"rc",      "rc_v", "rc_x", "rc_verbs",
                                      "rc_mlx5", "dc",   "dc_x", "dc_mlx5"};
constexpr std::string_view kLocal[] = {"sm",  "shm",  "mm",    "posix", "sysv",
                                       "cma", "knem", "xpmem", "self"};

template <typename List>
bool Holds(const List& list, absl::string_view name) {
  return std::any_of(std::begin(list), std::end(list), [&](std::string_view each) {
    return absl::string_view(each.data(), each.size()) == name;
  });
}

bool HasRdmaDevice() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

}  // namespace

bool AreRdma(const std::string& transports) {
  const std::vector<absl::string_view> names = absl::StrSplit(transports, ',');
  return std::any_of(names.begin(), names.end(), [](auto name) { return Holds(kRdma, name); });
}

absl::Status CheckTransports(const std::string& transports) {
  for (const absl::string_view name : absl::StrSplit(transports, ',')) {
    if (Holds(kRdma, name) || Holds(kLocal, name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "UCX transports \"", transports, "\": \"", name,
        "\" is not allowed, expected carriers of RDMA (rc, dc) or of one node (sm, self)"));
  }
  if (AreRdma(transports) && !HasRdmaDevice()) {
    return absl::NotFoundError(absl::StrCat(
        "UCX transports \"", transports, "\": no device in /sys/class/infiniband, expected one"));
  }
  return absl::OkStatus();
}

}  // namespace shunt::transport
