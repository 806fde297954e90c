// Whether a caller is the node that it says it is.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/address.h"
#include "daemon/cluster/peer_table.h"
#include "runtime/core/status.h"

namespace shunt::cluster {
namespace {

constexpr size_t kTextBytesMax = 256;

std::string Words(const v1::PeerIdentity& claim, const std::string& from) {
  return absl::StrCat("the daemon at ", claim.control_address().substr(0, kTextBytesMax),
                      " (incarnation ", Hex(claim.incarnation()), ", calling from ", from, ")");
}

}  // namespace

void PeerTable::Verify(const v1::PeerIdentity& claim, const std::vector<std::string>& tls_names,
                       const std::string& from, Done done) {
  const std::string who = Words(claim, from);
  if (absl::Status status = CheckProtocol(claim, who); !status.ok()) return done(status);
  if (!CheckNodeName(claim.node()).ok() || claim.incarnation() == 0) {
    return done(absl::InvalidArgumentError(
        absl::StrCat(who, " says no usable name and incarnation; expected both")));
  }
  if (claim.node() == self_->name) {
    if (claim.incarnation() == self_->incarnation) return done(absl::OkStatus());
    return done(absl::AlreadyExistsError(
        absl::StrCat("node name '", claim.node(), "' is that of the daemon at ", self_->address,
                     " (incarnation ", Hex(self_->incarnation), "); ", who,
                     " has the same and is refused: expected a name of its own")));
  }
  if (credentials_.tls()) {
    const std::string expected = tls_name_.empty() ? claim.node() : tls_name_;
    if (std::find(tls_names.begin(), tls_names.end(), expected) == tls_names.end()) {
      return done(absl::PermissionDeniedError(
          absl::StrCat(who, " says that it is node '", claim.node(),
                       "', but its certificate is not made out for '", expected, "'")));
    }
  }
  const MemberInfo* member = FindMember(view_, claim.node());
  if (member == nullptr) member = FindAddress(view_, claim.control_address());
  if (member == nullptr || (!member->name.empty() && member->name != claim.node())) {
    events_.unknown_caller();
    return done(absl::UnavailableError(absl::StrCat(
        who, " says that it is node '", claim.node(), "', which is not among the members as node '",
        self_->name, "' sees them: ", MemberList(view_))));
  }
  if (const auto known = verified_.find(claim.node());
      known != verified_.end() && known->second == claim.incarnation()) {
    return done(absl::OkStatus());
  }
  if (!member->name.empty()) return VerifyAt(*member, claim, from, std::move(done));
  VerifyNameUnique(claim, member->id(), from,
                   [this, member = *member, claim, from, done](const absl::Status& status) {
                     if (!status.ok()) return done(status);
                     VerifyAt(member, claim, from, done);
                   });
}

// DNS says no names: the first daemon that is there with a name has it.
void PeerTable::VerifyNameUnique(const v1::PeerIdentity& claim, const std::string& id,
                                 const std::string& from, Done done) {
  const auto other = up_by_name_.find(claim.node());
  if (other == up_by_name_.end() || other->second == id) return done(absl::OkStatus());
  MemberInfo holder{claim.node(), FindUp(claim.node())->control_address,
                    FindUp(claim.node())->incarnation};
  Probe(holder, [claim, holder, from, done](bool is_there) {
    if (!is_there) return done(absl::OkStatus());
    done(absl::AlreadyExistsError(
        absl::StrCat("node name '", claim.node(), "' is that of the daemon at ", holder.address,
                     " (incarnation ", Hex(holder.incarnation), "); ", Words(claim, from),
                     " has the same and is refused: expected a name of its own")));
  });
}

// The member list says where the node is: whoever answers there is it.
void PeerTable::VerifyAt(const MemberInfo& member, const v1::PeerIdentity& claim,
                         const std::string& from, Done done) {
  Ping(member, [this, member, claim, from, done](const absl::StatusOr<v1::PingResponse>& answer) {
    const std::string who = Words(claim, from);
    if (!answer.ok()) {
      return done(absl::UnavailableError(absl::StrCat(
          who, " says that it is node '", claim.node(), "', but at ", member.address,
          ", where the member list has that node, nobody answers: ", answer.status().message())));
    }
    const v1::PeerIdentity& there = answer->identity();
    if (there.node() != claim.node() || there.incarnation() != claim.incarnation()) {
      return done(absl::AlreadyExistsError(absl::StrCat(
          "node name '", claim.node(), "' is that of the daemon at ", member.address, " (node '",
          there.node().substr(0, kTextBytesMax), "', incarnation ", Hex(there.incarnation()), "); ",
          who, " says the same and is refused: expected a name of its own")));
    }
    verified_[claim.node()] = claim.incarnation();
    Peer* const peer = Find(member.id());
    if (peer != nullptr) {
      if (peer->state == State::kUp && peer->info.incarnation != claim.incarnation()) {
        Lose(*peer, "it has restarted");
        verified_[claim.node()] = claim.incarnation();
      }
      // What it will need of us, we need of it. Also: it is there again.
      Contact(member.id(), [](const absl::Status&) {});
    }
    done(absl::OkStatus());
  });
}

}  // namespace shunt::cluster
