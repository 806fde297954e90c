// What another node says an agent's section is, or how it changed: any bytes. What is accepted has
// one encoding, passes all checks, and its pieces lie in its regions.
#include <utility>

#include "runtime/core/check.h"
#include "runtime/p2p/cursor.h"
#include "runtime/p2p/section_wire.h"

namespace {

using namespace shunt::p2p;

// Sections that deltas may be for.
Section Known(uint64_t sets) {
  Section section;
  section.name = "cache";
  section.incarnation = 1;
  section.version = 1;
  section.regions = {{7, 1 << 20}};
  for (uint64_t i = 0; i < sets; ++i) {
    section.sets.push_back({7, i * 4096, 64, {{{1, 0}, {4, 256}, {4, 64}}}});
  }
  return section;
}

void Use(const Section& section) {
  SHUNT_CHECK(Check(section).ok());
  const auto list = PreparedList::Prepare(section, 0);
  SHUNT_CHECK(list.ok());
  const auto all = Selection::All(*list);
  SHUNT_CHECK(all.ok());
  const uint64_t bytes = all->payload_bytes();
  SHUNT_CHECK(bytes == (*list)->bytes());
  for (const uint64_t begin : {uint64_t{0}, bytes / 3, bytes - 1}) {
    const Cursor cursor(*all, begin, std::min<uint64_t>(bytes - begin, 1000));
    const Extent& extent = cursor.extent();
    SHUNT_CHECK(extent.bytes > 0 && extent.region < section.regions.size());
    const uint64_t size = section.regions[extent.region].bytes;
    SHUNT_CHECK(extent.offset <= size && extent.bytes <= size - extent.offset);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto section = DecodeSection(bytes); section.ok()) {
    SHUNT_CHECK(EncodeSection(*section) == bytes);
    Use(*section);
    // From itself to something else and back.
    Section other = Known(2);
    other.name = section->name;
    other.incarnation = section->incarnation;
    other.version = section->version + 1;
    Section again = *section;
    again.version = other.version + 1;
    for (const auto& [from, to] : {std::pair(&*section, &other), {&other, &again}}) {
      const auto made = ApplyDelta(*from, EncodeDelta(*from, *to));
      SHUNT_CHECK(made.ok() == (from->version < to->version));
      if (made.ok()) SHUNT_CHECK(*made == *to);
    }
  }
  for (const uint64_t sets : {1, 3}) {
    if (const auto made = ApplyDelta(Known(sets), bytes); made.ok()) Use(*made);
  }
  return 0;
}
