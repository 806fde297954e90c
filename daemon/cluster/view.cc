#include "daemon/cluster/view.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/cluster/address.h"
#include "runtime/core/fnv.h"

namespace shunt::cluster {
namespace {

constexpr char kRecordTag[] = "shunt1";
constexpr size_t kRecordBytesMax = 512;

// The last step of the generator SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves
// half of the output's.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Written by us alone: 16 lower-case digits.
bool ParseHex(absl::string_view text, uint64_t* number) {
  if (text.size() != 16) return false;
  *number = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      *number = *number << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      *number = *number << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

// Mixed, because FNV's high bits hardly see the last bytes.
uint64_t StableHash(std::string_view bytes, uint64_t seed) {
  return Mix(Fnv1a(bytes, kFnvSeed ^ Mix(seed)));
}

View MakeView(std::vector<MemberInfo> members, bool knows_incarnations) {
  std::stable_sort(members.begin(), members.end(),
                   [](const MemberInfo& a, const MemberInfo& b) { return a.id() < b.id(); });
  members.erase(
      std::unique(members.begin(), members.end(),
                  [](const MemberInfo& a, const MemberInfo& b) { return a.id() == b.id(); }),
      members.end());
  View view{std::move(members), 0, knows_incarnations};
  for (const MemberInfo& member : view.members) {
    view.revision = StableHash(member.id(), view.revision);
    view.revision = StableHash(member.address, view.revision);
  }
  return view;
}

const MemberInfo* FindMember(const View& view, std::string_view id) {
  const auto it = std::lower_bound(
      view.members.begin(), view.members.end(), id,
      [](const MemberInfo& member, std::string_view x) { return member.id() < x; });
  return it != view.members.end() && it->id() == id ? &*it : nullptr;
}

const MemberInfo* FindAddress(const View& view, std::string_view address) {
  const auto it =
      std::find_if(view.members.begin(), view.members.end(),
                   [address](const MemberInfo& member) { return member.address == address; });
  return it != view.members.end() ? &*it : nullptr;
}

const MemberInfo* RendezvousHash(const View& view, std::string_view key,
                                 const std::function<bool(const MemberInfo&)>& skip) {
  const MemberInfo* best = nullptr;
  uint64_t best_weight = 0;
  const uint64_t seed = StableHash(key);
  for (const MemberInfo& member : view.members) {
    if (skip && skip(member)) continue;
    const uint64_t weight = StableHash(member.id(), seed);
    // Of equal weights the first id wins: members are sorted, everywhere alike.
    if (best == nullptr || weight > best_weight) {
      best = &member;
      best_weight = weight;
    }
  }
  return best;
}

std::string MemberList(const View& view, size_t names_max) {
  if (view.members.empty()) return "nobody";
  std::string text;
  for (size_t i = 0; i < view.members.size() && i < names_max; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", view.members[i].id());
  }
  if (view.members.size() > names_max) {
    absl::StrAppend(&text, " and ", view.members.size() - names_max, " more");
  }
  return text;
}

std::string Hex(uint64_t number) { return absl::StrCat(absl::Hex(number, absl::kZeroPad16)); }

std::string FormatRecord(const MemberRecord& record) {
  return absl::StrCat(kRecordTag, " ", record.address, " ", Hex(record.incarnation), " ",
                      record.version);
}

bool ParseRecord(std::string_view text, MemberRecord* record) {
  if (text.size() > kRecordBytesMax) return false;
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ' ');
  if (words.size() != 4 || words[0] != kRecordTag || words[3].empty()) return false;
  const std::string address(words[1]);
  if (!ParseAddress(address, /*port_zero=*/false).ok()) return false;
  uint64_t incarnation = 0;
  if (!ParseHex(words[2], &incarnation) || incarnation == 0) return false;
  for (const char c : words[3]) {
    if (c <= 0x20 || c >= 0x7f) return false;
  }
  *record = {address, incarnation, std::string(words[3])};
  return true;
}

}  // namespace shunt::cluster
