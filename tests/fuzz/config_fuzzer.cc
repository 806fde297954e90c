// The configuration file's parser: any text gives a configuration or an error that names the file.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/config.h"
#include "runtime/core/check.h"
#include "runtime/topology/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  shunt::daemon::Config config;
  const absl::Status status = shunt::daemon::ApplyToml(text, "fuzz.toml", &config);
  if (status.ok()) {
    shunt::daemon::CheckConfig(config).IgnoreError();
  } else {
    SHUNT_CHECK(std::string_view(status.message().data(), status.message().size())
                    .starts_with("fuzz.toml:"));
  }
  // The parsers of single values take the same bytes.
  shunt::daemon::ParseSize(text).IgnoreError();
  shunt::daemon::ParseDuration(text).IgnoreError();
  if (const auto cpus = shunt::topology::ParseCpuList(text); cpus.ok()) {
    const std::string written = shunt::topology::FormatCpuList(*cpus);
    SHUNT_CHECK(*shunt::topology::ParseCpuList(written) == *cpus);
  }
  return 0;
}
