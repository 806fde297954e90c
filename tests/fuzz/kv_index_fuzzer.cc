// A block store's index is anybody's file: whatever it holds, what is read from it is consistent,
// and written again reads the same.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/kv/index_format.h"

namespace {

using namespace shunt::tiers;  // NOLINT(google-build-using-namespace)

void Check(std::span<const std::byte> file) {
  const auto replayed = Replay(file);
  if (!replayed.ok()) return;
  std::set<std::pair<Tier, uint64_t>> slots;
  std::set<std::pair<Tier, std::string>> keys;
  std::vector<std::byte> again(file.begin(), file.begin() + kIndexHeaderBytes);
  uint64_t number = 0;
  for (const IndexRecord& r : replayed->contents.All()) {
    SHUNT_CHECK(CheckKey(r.block.key).ok() && r.names);
    SHUNT_CHECK(r.block.bytes >= 1 && r.block.bytes <= replayed->header.slot_bytes);
    SHUNT_CHECK(slots.emplace(r.tier, r.slot).second && keys.emplace(r.tier, r.block.key).second);
    AppendRecord(replayed->header, number++, r, &again);
  }
  const auto second = Replay(again);
  SHUNT_CHECK(second.ok() && second->why_stopped.empty());
  SHUNT_CHECK(second->contents.size() == replayed->contents.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  Check(bytes);
  // The same with right sums, which no mutation finds: what is behind them is looked at too.
  const auto header = EncodeHeader(4096, 1);
  const auto decoded = DecodeHeader(header);
  SHUNT_CHECK(decoded.ok());
  std::vector<std::byte> file(header.begin(), header.end());
  for (uint64_t number = 0; (number + 1) * kIndexRecordBytes <= size; ++number) {
    std::vector<std::byte> record(
        bytes.begin() + static_cast<ptrdiff_t>(number * kIndexRecordBytes),
        bytes.begin() + static_cast<ptrdiff_t>((number + 1) * kIndexRecordBytes));
    std::byte place[8];
    for (size_t i = 0; i < 8; ++i) place[i] = static_cast<std::byte>(number >> (8 * i));
    const uint32_t sum =
        Checksum(Checksum(decoded->sum, place), std::span<const std::byte>(record).subspan(4));
    for (size_t i = 0; i < 4; ++i) record[i] = static_cast<std::byte>(sum >> (8 * i));
    file.insert(file.end(), record.begin(), record.end());
  }
  Check(file);
  return 0;
}
