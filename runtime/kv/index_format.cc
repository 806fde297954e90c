#include "runtime/kv/index_format.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::tiers {
namespace {

constexpr char kMagic[8] = {'S', 'H', 'U', 'N', 'T', 'K', 'V', '\0'};
constexpr size_t kHeaderSumAt = 60;
constexpr size_t kKeyAt = 32;
constexpr uint8_t kNames = 1;
constexpr uint8_t kUnnames = 2;

template <typename T>
void Put(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    at[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <typename T>
T Get(const std::byte* at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(std::to_integer<uint8_t>(at[i])) << (8 * i);
  }
  return static_cast<T>(value);
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// A record is right only in its place in its file.
uint32_t RecordSum(const IndexHeader& header, uint64_t number, std::span<const std::byte> record) {
  std::byte place[8];
  Put(place, number);
  return Checksum(Checksum(header.sum, place), record.subspan(4));
}

absl::Status NoIndex(const std::string& words) {
  return absl::FailedPreconditionError(absl::StrCat("this is no index of a block store: ", words));
}

// Whether the record may follow where its slot holds `held`, or nothing.
absl::Status Check(const IndexRecord& record, const Block* held, bool key_named) {
  const auto wrong = [&](const char* words) {
    return absl::FailedPreconditionError(absl::StrCat("slot ", record.slot, " of tier ",
                                                      static_cast<int>(record.tier), ", key ",
                                                      Hex(record.block.key), ": ", words));
  };
  if (record.names) {
    if (held != nullptr) return wrong("the slot is named already");
    if (key_named) return wrong("the key names a slot already");
    return absl::OkStatus();
  }
  if (held == nullptr) return wrong("un-named, and was not named");
  if (*held != record.block) return wrong("un-named, and names another block");
  return absl::OkStatus();
}

}  // namespace

std::array<std::byte, kIndexHeaderBytes> EncodeHeader(uint64_t slot_bytes, uint64_t id) {
  std::array<std::byte, kIndexHeaderBytes> header{};
  std::memcpy(header.data(), kMagic, sizeof(kMagic));
  Put(header.data() + 8, kIndexVersion);
  Put(header.data() + 16, slot_bytes);
  Put(header.data() + 24, id);
  Put(header.data() + kHeaderSumAt, Checksum(0, std::span(header).first(kHeaderSumAt)));
  return header;
}

absl::StatusOr<IndexHeader> DecodeHeader(std::span<const std::byte> file) {
  if (file.size() < kIndexHeaderBytes) {
    return NoIndex(
        absl::StrCat("it has ", file.size(), " bytes, a header alone has ", kIndexHeaderBytes));
  }
  if (std::memcmp(file.data(), kMagic, sizeof(kMagic)) != 0) {
    return NoIndex("it does not begin with \"SHUNTKV\" and a zero");
  }
  if (const auto version = Get<uint32_t>(file.data() + 8); version != kIndexVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the index has version ", version, ", this library reads version ", kIndexVersion));
  }
  IndexHeader header{Get<uint64_t>(file.data() + 16), Get<uint64_t>(file.data() + 24),
                     Get<uint32_t>(file.data() + kHeaderSumAt)};
  if (const uint32_t sum = Checksum(0, file.first(kHeaderSumAt)); sum != header.sum) {
    return NoIndex(absl::StrCat("its header's checksum is ", header.sum, ", expected ", sum));
  }
  return header;
}

void AppendRecord(const IndexHeader& header, uint64_t number, const IndexRecord& record,
                  std::vector<std::byte>* out) {
  const size_t begin = out->size();
  out->resize(begin + kIndexRecordBytes);
  const std::span bytes = std::span(*out).subspan(begin);
  Put(bytes.data() + 4, record.names ? kNames : kUnnames);
  Put(bytes.data() + 5, static_cast<uint8_t>(record.tier));
  Put(bytes.data() + 6, static_cast<uint8_t>(record.block.key.size()));
  Put(bytes.data() + 8, record.slot);
  Put(bytes.data() + 16, record.block.bytes);
  Put(bytes.data() + 24, record.block.sum);
  std::memcpy(bytes.data() + kKeyAt, record.block.key.data(), record.block.key.size());
  Put(bytes.data(), RecordSum(header, number, bytes));
}

absl::StatusOr<IndexRecord> DecodeRecord(const IndexHeader& header, uint64_t number,
                                         std::span<const std::byte> bytes) {
  const auto wrong = [number](const auto&... words) {
    return absl::DataLossError(absl::StrCat("record ", number, words...));
  };
  if (bytes.size() < kIndexRecordBytes) {
    return wrong(" has ", bytes.size(), " bytes, expected ", kIndexRecordBytes);
  }
  bytes = bytes.first(kIndexRecordBytes);
  const auto seen = Get<uint32_t>(bytes.data());
  if (const uint32_t sum = RecordSum(header, number, bytes); seen != sum) {
    return wrong("'s checksum is ", seen, ", expected ", sum);
  }
  const auto what = Get<uint8_t>(bytes.data() + 4);
  const auto tier = Get<uint8_t>(bytes.data() + 5);
  const auto key_bytes = Get<uint8_t>(bytes.data() + 6);
  IndexRecord record;
  if (what != kNames && what != kUnnames) return wrong(" says ", what, ", expected 1 or 2");
  if (tier != 1 && tier != 2) return wrong(" is of tier ", tier, ", expected 1 or 2");
  if (key_bytes < 1 || key_bytes > kKeyBytesMax) {
    return wrong("'s key has ", key_bytes, " bytes, expected 1 to ", kKeyBytesMax);
  }
  if (bytes[7] != std::byte{0} || !AllZero(bytes.subspan(28, 4)) ||
      !AllZero(bytes.subspan(kKeyAt + key_bytes))) {
    return wrong(" has bytes set that are zero in version ", kIndexVersion);
  }
  record.names = what == kNames;
  record.tier = static_cast<Tier>(tier);
  record.slot = Get<uint64_t>(bytes.data() + 8);
  record.block = {std::string(reinterpret_cast<const char*>(bytes.data()) + kKeyAt, key_bytes),
                  Get<uint64_t>(bytes.data() + 16), Get<uint32_t>(bytes.data() + 24)};
  if (record.block.bytes < 1 || record.block.bytes > header.slot_bytes) {
    return wrong(" names ", record.block.bytes, " bytes, expected 1 to ", header.slot_bytes);
  }
  return record;
}

const Block* IndexContents::At(Tier tier, uint64_t slot) const {
  const auto at = by_slot_[Number(tier)].find(slot);
  return at == by_slot_[Number(tier)].end() ? nullptr : &by_order_.at(at->second).block;
}

absl::Status IndexContents::Follow(std::span<const IndexRecord> records) const {
  // As the records so far leave them.
  std::map<std::pair<Tier, uint64_t>, const Block*> slots;
  std::map<std::pair<Tier, std::string_view>, bool> keys;
  for (const IndexRecord& r : records) {
    const Block*& held = slots.try_emplace({r.tier, r.slot}, At(r.tier, r.slot)).first->second;
    bool& named =
        keys.try_emplace({r.tier, r.block.key}, by_key_[Number(r.tier)].contains(r.block.key))
            .first->second;
    SHUNT_RETURN_IF_ERROR(Check(r, held, named));
    held = r.names ? &r.block : nullptr;
    named = r.names;
  }
  return absl::OkStatus();
}

absl::Status IndexContents::Apply(const IndexRecord& record) {
  const size_t tier = Number(record.tier);
  SHUNT_RETURN_IF_ERROR(
      Check(record, At(record.tier, record.slot), by_key_[tier].contains(record.block.key)));
  if (record.names) {
    by_slot_[tier].emplace(record.slot, next_);
    by_key_[tier].emplace(record.block.key, record.slot);
    by_order_.emplace(next_++, record);
    return absl::OkStatus();
  }
  const auto at = by_slot_[tier].find(record.slot);
  by_order_.erase(at->second);
  by_slot_[tier].erase(at);
  by_key_[tier].erase(record.block.key);
  return absl::OkStatus();
}

std::vector<IndexRecord> IndexContents::All() const {
  std::vector<IndexRecord> all;
  all.reserve(by_order_.size());
  for (const auto& [order, record] : by_order_) all.push_back(record);
  return all;
}

absl::StatusOr<Replayed> Replay(std::span<const std::byte> file) {
  Replayed replayed;
  SHUNT_ASSIGN_OR_RETURN(replayed.header, DecodeHeader(file));
  std::span<const std::byte> rest = file.subspan(kIndexHeaderBytes);
  for (; !rest.empty(); rest = rest.subspan(kIndexRecordBytes)) {
    const auto record = DecodeRecord(replayed.header, replayed.records, rest);
    absl::Status status = record.status();
    if (record.ok()) status = replayed.contents.Apply(*record);
    if (!status.ok()) {
      const size_t at = file.size() - rest.size();
      replayed.why_stopped =
          absl::StrCat("at byte ", at, " of ", file.size(), ": ", status.message());
      return replayed;
    }
    ++replayed.records;
  }
  return replayed;
}

}  // namespace shunt::tiers
