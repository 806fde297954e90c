// The simulator's description files: any text gives a cluster or an error that names the file, and
// a small cluster that passes the check can be simulated.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/strings/match.h"
#include "runtime/core/check.h"
#include "tools/sim/description.h"
#include "tools/sim/quantity.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  shunt::tools::Description d;
  const absl::Status status = shunt::tools::ApplyClusterToml(text, "fuzz.toml", &d);
  if (!status.ok()) {
    SHUNT_CHECK(absl::StartsWith(status.message(), "fuzz.toml:"));
  } else if (shunt::tools::CheckDescription(d).ok() && d.cluster.nodes <= 8 &&
             d.cluster.rails_of_unit() <= 8 && d.cluster.slices_max <= 16 &&
             d.cluster.aggregators <= 4) {
    for (const shunt::OpKind kind : d.kinds) {
      for (const uint64_t bytes : d.sizes) {
        const shunt::Algorithm algorithm =
            d.algorithms.empty() ? shunt::Algorithm::kRing : d.algorithms.front();
        shunt::sim::Predict(d.cluster,
                            {kind, bytes, algorithm, d.root, shunt::sim::Method::kComputed})
            .IgnoreError();
      }
    }
  }
  shunt::tools::ParseRate(text).IgnoreError();
  shunt::tools::ParseSeconds(text).IgnoreError();
  shunt::tools::ParseBytes(text).IgnoreError();
  return 0;
}
