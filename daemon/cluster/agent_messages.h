// The messages about agents and what they mean. Pure; believes nothing.
#pragma once

#include "absl/status/statusor.h"
#include "daemon/cluster/agents.h"
#include "shunt/v1/peer.pb.h"

namespace shunt::cluster {

void ToProto(const SectionQuery& query, v1::FetchPeerSectionRequest* out);
// INVALID_ARGUMENT for names that no agent or section can have.
absl::StatusOr<SectionQuery> FromProto(const v1::FetchPeerSectionRequest& in);

void ToProto(SectionAnswer answer, v1::FetchPeerSectionResponse* out);
// INVALID_ARGUMENT for an answer that says nothing, or what `query` did not ask. The section itself
// is not looked at.
absl::StatusOr<SectionAnswer> FromProto(const v1::FetchPeerSectionResponse& in,
                                        const SectionQuery& query);

void ToProto(const AgentNotice& notice, v1::NotifyAgentRequest* out);
// INVALID_ARGUMENT as above, and for a payload that is too long. `node` is the caller's.
absl::StatusOr<AgentNotice> FromProto(const v1::NotifyAgentRequest& in, const std::string& node);

}  // namespace shunt::cluster
