// How configuration names GPUs: "all", an ordinal, or a UUID or the beginning of one.
#pragma once

#include <string_view>

namespace shunt::daemon {

bool IsDeviceName(std::string_view device);
// `uuid` as gpu::UuidText.
bool NamesDevice(std::string_view device, int ordinal, std::string_view uuid);

}  // namespace shunt::daemon
