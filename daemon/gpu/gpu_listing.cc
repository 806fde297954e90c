#include "daemon/gpu/gpu_listing.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/gpu/device_names.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

bool Names(const std::string& device, const GpuListing& gpu) {
  return NamesDevice(device, gpu.ordinal, gpu::UuidText(gpu.uuid));
}

absl::StatusOr<GpuListing> ParseLine(const std::string& line) {
  google::protobuf::Struct object;
  if (!google::protobuf::util::JsonStringToMessage(line, &object).ok()) {
    return absl::InvalidArgumentError("it is no object of JSON");
  }
  const auto& fields = object.fields();
  for (const char* const key : {"ordinal", "uuid", "name", "pci", "bytes"}) {
    if (!fields.contains(key)) return absl::InvalidArgumentError(absl::StrCat("it lacks ", key));
  }
  GpuListing gpu;
  gpu.ordinal = static_cast<int>(fields.at("ordinal").number_value());
  SHUNT_ASSIGN_OR_RETURN(gpu.uuid, gpu::ParseUuid(fields.at("uuid").string_value()));
  gpu.name = fields.at("name").string_value();
  gpu.pci = fields.at("pci").string_value();
  gpu.bytes = static_cast<uint64_t>(fields.at("bytes").number_value());
  return gpu;
}

}  // namespace

absl::StatusOr<std::vector<GpuListing>> ParseListing(std::string_view text) {
  std::vector<GpuListing> gpus;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(
           absl::string_view(text.data(), text.size()), '\n', absl::SkipWhitespace()))) {
    absl::StatusOr<GpuListing> gpu = ParseLine(line);
    if (!gpu.ok()) {
      return absl::InternalError(
          absl::StrCat("the list of GPUs has the line \"", line, "\": ", gpu.status().message()));
    }
    gpus.push_back(*std::move(gpu));
  }
  return gpus;
}

absl::StatusOr<std::vector<GpuListing>> Choose(const std::vector<GpuListing>& found,
                                               const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    if (device == "all" || std::any_of(found.begin(), found.end(),
                                       [&](const GpuListing& gpu) { return Names(device, gpu); })) {
      continue;
    }
    return absl::NotFoundError(absl::StrCat(
        "gpu.devices names \"", device, "\"; the GPUs are ",
        found.empty() ? "none"
                      : absl::StrJoin(found, ", ", [](std::string* out, const GpuListing& gpu) {
                          absl::StrAppend(out, gpu.ordinal, " (", gpu::UuidText(gpu.uuid), ")");
                        })));
  }
  std::vector<GpuListing> chosen;
  for (const GpuListing& gpu : found) {
    if (std::any_of(devices.begin(), devices.end(),
                    [&](const std::string& device) { return Names(device, gpu); })) {
      chosen.push_back(gpu);
    }
  }
  return chosen;
}

}  // namespace shunt::daemon
