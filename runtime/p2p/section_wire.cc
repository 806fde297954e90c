#include "runtime/p2p/section_wire.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/core/fnv.h"
#include "runtime/core/status.h"
#include "runtime/p2p/set_codec.h"
#include "runtime/p2p/varint.h"

namespace shunt::p2p {
namespace {

constexpr uint8_t kFormat = 1;
constexpr uint8_t kWhole = 1, kDelta = 2;
constexpr uint64_t kKeep = 0, kDrop = 1, kInsert = 2;

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("no section: ", why));
}
absl::Status CutShort() { return Malformed("it ends early, or a number is no number"); }

void PutRegions(const std::vector<RegionExtent>& regions, std::string* out) {
  PutVarint(out, regions.size());
  RegionExtent last;
  for (const RegionExtent& region : regions) {
    PutVarint(out, region.id - last.id);
    PutVarint(out, ZigZag(static_cast<int64_t>(region.bytes - last.bytes)));
    last = region;
  }
}

absl::Status GetRegions(VarintReader* reader, std::vector<RegionExtent>* regions) {
  const uint64_t count = reader->Varint();
  if (count > kSectionSetsMax) {
    return Malformed(absl::StrCat(count, " regions, expected at most ", kSectionSetsMax));
  }
  RegionExtent last;
  for (uint64_t i = 0; i < count && !reader->bad(); ++i) {
    last.id += reader->Varint();
    last.bytes += static_cast<uint64_t>(UnZigZag(reader->Varint()));
    regions->push_back(last);
  }
  return reader->bad() ? CutShort() : absl::OkStatus();
}

absl::Status GetSets(VarintReader* reader, uint64_t count, SetCodec* codec,
                     std::vector<StridedSet>* sets) {
  if (count > kSectionSetsMax - sets->size()) {
    return Malformed(absl::StrCat("more than ", kSectionSetsMax, " sets"));
  }
  for (uint64_t i = 0; i < count; ++i) {
    StridedSet set;
    SHUNT_RETURN_IF_ERROR(codec->Decode(reader, &set));
    sets->push_back(set);
  }
  return absl::OkStatus();
}

// The bytes before what is peculiar to the kind.
absl::Status GetHead(VarintReader* reader, size_t bytes, uint8_t kind, uint64_t* incarnation) {
  if (bytes > kSectionBytesMax) {
    return Malformed(absl::StrCat(bytes, " bytes, expected at most ", kSectionBytesMax));
  }
  const uint8_t format = reader->Byte(), seen = reader->Byte();
  *incarnation = reader->Fixed64();
  if (reader->bad()) return CutShort();
  if (format != kFormat || seen != kind) {
    return Malformed(
        absl::StrCat("format ", format, " kind ", seen, ", expected ", kFormat, " and ", kind));
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeSection(const Section& section) {
  std::string out = {kFormat, kWhole};
  PutFixed64(&out, section.incarnation);
  PutFixed64(&out, section.version);
  PutVarint(&out, section.name.size());
  out += section.name;
  PutRegions(section.regions, &out);
  PutVarint(&out, section.sets.size());
  SetCodec codec(&section.regions);
  for (const StridedSet& set : section.sets) codec.Encode(set, &out);
  return out;
}

absl::StatusOr<Section> DecodeSection(std::string_view bytes) {
  VarintReader reader(bytes);
  Section section;
  SHUNT_RETURN_IF_ERROR(GetHead(&reader, bytes.size(), kWhole, &section.incarnation));
  section.version = reader.Fixed64();
  const uint64_t name_bytes = reader.Varint();
  if (name_bytes > kSectionNameBytesMax) {
    return Malformed(
        absl::StrCat("a name of ", name_bytes, " bytes, expected at most ", kSectionNameBytesMax));
  }
  section.name = std::string(reader.Bytes(name_bytes));
  SHUNT_RETURN_IF_ERROR(GetRegions(&reader, &section.regions));
  SetCodec codec(&section.regions);
  SHUNT_RETURN_IF_ERROR(GetSets(&reader, reader.Varint(), &codec, &section.sets));
  SHUNT_RETURN_IF_ERROR(Check(section));
  if (reader.bad()) return CutShort();
  if (EncodeSection(section) != bytes) return Malformed("not in its shortest form");
  return section;
}

std::string EncodeDelta(const Section& from, const Section& to) {
  std::string out = {kFormat, kDelta};
  PutFixed64(&out, to.incarnation);
  PutFixed64(&out, from.version);
  PutFixed64(&out, to.version);
  PutFixed64(&out, Fnv1a(EncodeSection(to)));
  const bool same_regions = from.regions == to.regions;
  out.push_back(static_cast<char>(same_regions ? 0 : 1));
  if (!same_regions) PutRegions(to.regions, &out);

  // Sets keep their order from version to version: each is looked for behind the last that was
  // kept.
  std::string edits;
  uint64_t edit_count = 0;
  SetCodec codec(&to.regions);
  const auto edit = [&](uint64_t count, uint64_t kind) {
    if (count == 0) return;
    PutVarint(&edits, 4 * count + kind);
    ++edit_count;
  };
  size_t at = 0;
  for (size_t i = 0; i < to.sets.size();) {
    size_t inserted = 0;
    auto found = from.sets.end();
    for (; i + inserted < to.sets.size(); ++inserted) {
      found = std::find(from.sets.begin() + at, from.sets.end(), to.sets[i + inserted]);
      if (found != from.sets.end()) break;
    }
    edit(inserted, kInsert);
    for (size_t k = 0; k < inserted; ++k) codec.Encode(to.sets[i++], &edits);
    if (found == from.sets.end()) break;
    edit(found - from.sets.begin() - at, kDrop);
    at = found - from.sets.begin();
    size_t kept = 0;
    while (i < to.sets.size() && at < from.sets.size() && from.sets[at] == to.sets[i]) {
      codec.Pass(to.sets[i++]);
      ++at;
      ++kept;
    }
    edit(kept, kKeep);
  }
  edit(from.sets.size() - at, kDrop);
  PutVarint(&out, edit_count);
  return out + edits;
}

absl::StatusOr<Section> ApplyDelta(const Section& from, std::string_view bytes) {
  VarintReader reader(bytes);
  Section section;
  section.name = from.name;
  SHUNT_RETURN_IF_ERROR(GetHead(&reader, bytes.size(), kDelta, &section.incarnation));
  const uint64_t from_version = reader.Fixed64();
  section.version = reader.Fixed64();
  const uint64_t digest = reader.Fixed64();
  const uint8_t with_regions = reader.Byte();
  if (reader.bad()) return CutShort();
  if (section.incarnation != from.incarnation || from_version != from.version) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the delta changes version ", from_version, " of incarnation ", section.incarnation,
        ", but version ", from.version, " of ", from.incarnation, " is here"));
  }
  if (section.version <= from_version) {
    return Malformed(absl::StrCat("it makes version ", section.version, " of version ",
                                  from_version, ", expected a later one"));
  }
  if (with_regions > 1) return Malformed(absl::StrCat("a flag is ", with_regions));
  section.regions = from.regions;
  if (with_regions == 1) {
    section.regions.clear();
    SHUNT_RETURN_IF_ERROR(GetRegions(&reader, &section.regions));
  }
  SetCodec codec(&section.regions);
  size_t at = 0;
  // Each edit takes a set at least, and there are no more of them.
  for (uint64_t edits = reader.Varint(); edits > 0 && !reader.bad(); --edits) {
    const uint64_t word = reader.Varint();
    const uint64_t count = word / 4, kind = word % 4;
    if (reader.bad()) break;
    if (count == 0 || kind > kInsert) return Malformed(absl::StrCat("edit ", word));
    if (kind == kInsert) {
      SHUNT_RETURN_IF_ERROR(GetSets(&reader, count, &codec, &section.sets));
      continue;
    }
    if (count > from.sets.size() - at) {
      return Malformed(
          absl::StrCat("it edits ", count, " sets from number ", at, " on, of ", from.sets.size()));
    }
    for (uint64_t k = 0; k < count; ++k, ++at) {
      if (kind == kDrop) continue;
      if (section.sets.size() == kSectionSetsMax) {
        return Malformed(absl::StrCat("more than ", kSectionSetsMax, " sets"));
      }
      codec.Pass(from.sets[at]);
      section.sets.push_back(from.sets[at]);
    }
  }
  if (reader.bad()) return CutShort();
  if (reader.left() != 0) return Malformed(absl::StrCat(reader.left(), " bytes too many"));
  if (at != from.sets.size()) {
    return Malformed(absl::StrCat("it says nothing of ", from.sets.size() - at, " sets"));
  }
  SHUNT_RETURN_IF_ERROR(Check(section));
  if (Fnv1a(EncodeSection(section)) != digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("the delta to version ", section.version,
                     " makes something else than its author has: fetch the section whole"));
  }
  return section;
}

}  // namespace shunt::p2p
