#include "runtime/p2p/message_copy.h"

#include <array>

#include "runtime/core/check.h"
#include "runtime/p2p/copy_kernel.h"
#include "runtime/p2p/cursor.h"

namespace shunt::p2p {
namespace {

constexpr size_t kBatch = 32;

template <typename MakeRun>
void CopyExtents(const Selection& selection, uint64_t begin, uint64_t bytes, StorePolicy policy,
                 const MakeRun& make_run) {
  SHUNT_CHECK(begin <= selection.payload_bytes() && bytes <= selection.payload_bytes() - begin);
  std::array<PointerRun, kBatch> runs;
  size_t count = 0;
  uint64_t at = 0;
  for (Cursor cursor(selection, begin, bytes); cursor.extent().bytes != 0;) {
    const Extent& extent = cursor.extent();
    runs[count++] = make_run(extent, at);
    const uint64_t copied = extent.bytes;
    at += copied;
    cursor.Advance(copied);
    if (count == kBatch) {
      CopyRuns(absl::MakeConstSpan(runs.data(), count), policy);
      count = 0;
    }
  }
  CopyRuns(absl::MakeConstSpan(runs.data(), count), policy);
  FinishRuns(policy);
}

}  // namespace

void Gather(const Selection& source, const Bases& bases, uint64_t begin,
            absl::Span<std::byte> message, StorePolicy policy) {
  CopyExtents(source, begin, message.size(), policy, [&](const Extent& extent, uint64_t at) {
    return PointerRun{bases[extent.region] + extent.offset, message.data() + at, extent.bytes};
  });
}

void Scatter(const Selection& destination, const Bases& bases, uint64_t begin,
             absl::Span<const std::byte> message, StorePolicy policy) {
  CopyExtents(destination, begin, message.size(), policy, [&](const Extent& extent, uint64_t at) {
    return PointerRun{message.data() + at, bases[extent.region] + extent.offset, extent.bytes};
  });
}

}  // namespace shunt::p2p
