// The Admin service's answers as JSON: what `shuntctl --json` prints and the status page reads.
// docs/shuntctl.md has every field; they are only ever added to.
#pragma once

#include "runtime/core/json.h"
#include "shunt/v1/admin.pb.h"

namespace shunt::daemon {

Json ToJson(const v1::GetStatusResponse& status);
Json ToJson(const v1::SessionInfo& session);
Json ToJson(const v1::CommunicatorInfo& communicator);
Json ToJson(const v1::GetTopologyResponse& topology);
Json ToJson(const v1::Link& link);
Json ToJson(const v1::TransferInfo& transfer);
Json ToJson(const v1::ExplainResponse& explanation);
Json ToJson(const v1::StatusPage& page);
// Their parts.
Json ToJson(const v1::ClusterStatus& cluster);
Json ToJson(const v1::NodeStatus& node);
Json ToJson(const v1::MemberInfo& member);
Json ToJson(const v1::NumaNode& node);
Json ToJson(const v1::Nic& nic);
Json ToJson(const v1::Gpu& gpu);
Json ToJson(const v1::GpuStatus& gpu);
Json ToJson(const v1::ExplainCandidate& candidate);
Json ToJson(const v1::LogEntry& entry);

template <typename List>
Json ListToJson(const List& list) {
  Json json = Json::List();
  for (const auto& one : list) json.Append(ToJson(one));
  return json;
}

}  // namespace shunt::daemon
