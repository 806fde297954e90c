// Who is in the cluster, as one daemon sees it, and the choice of a coordinator from that. Pure
// data and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::cluster {

struct MemberInfo {
  std::string name;          // "": not known yet (DNS gives addresses only)
  std::string address;       // of its control plane, "host:port"
  uint64_t incarnation = 0;  // 0: the source of the view does not tell

  // What names the member in every node's view alike.
  const std::string& id() const { return name.empty() ? address : name; }
  bool operator==(const MemberInfo&) const = default;
};

struct View {
  std::vector<MemberInfo> members;  // ordered by id, each id once
  // A digest of ids and addresses: equal on two nodes if, and but for chance only if, they see the
  // same members. It has no order: nobody counts the changes of a DNS name.
  uint64_t revision = 0;
  // The source tells incarnations (etcd): who is not in the view has left.
  bool knows_incarnations = false;
};

// Sorts; of members with one id the first stays.
View MakeView(std::vector<MemberInfo> members, bool knows_incarnations);

// Null if there is none.
const MemberInfo* FindMember(const View& view, std::string_view id);
const MemberInfo* FindAddress(const View& view, std::string_view address);

// The member with the highest weight hash(key, id) among those that `skip` does not name; null if
// none is left. When a member comes or goes, only the keys that it wins or had move: the highest
// random weight of Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998.
const MemberInfo* RendezvousHash(const View& view, std::string_view key,
                                 const std::function<bool(const MemberInfo&)>& skip = nullptr);

// The same on every machine and in every version: nodes compare what came of it.
uint64_t StableHash(std::string_view bytes, uint64_t seed = 0);

// "a, b, c and 4 more".
std::string MemberList(const View& view, size_t names_max = 8);
// Revisions and incarnations as people read them: 16 hexadecimal digits.
std::string Hex(uint64_t number);

// A member's record in etcd, one line of text that an operator can read:
// "shunt1 ADDRESS INCARNATION VERSION".
struct MemberRecord {
  std::string address;
  uint64_t incarnation = 0;
  std::string version;  // of the software
  bool operator==(const MemberRecord&) const = default;
};
std::string FormatRecord(const MemberRecord& record);
// False for anything that FormatRecord does not write.
bool ParseRecord(std::string_view text, MemberRecord* record);

}  // namespace shunt::cluster
