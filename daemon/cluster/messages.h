// The messages of a rendezvous and what they mean. Pure.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/cluster/rendezvous_table.h"
#include "shunt/v1/peer.pb.h"

namespace shunt::cluster {

void ToProto(const CommunicatorMap& map, v1::RendezvousMap* out);
// Believes nothing: FAILED_PRECONDITION says what is wrong with the map. `world_size` as asked for.
absl::StatusOr<std::shared_ptr<const CommunicatorMap>> FromProto(const v1::RendezvousMap& in,
                                                                 int32_t world_size);

// What an aggregator hears of a communicator: its number, its nodes, and where its ranks are.
// FAILED_PRECONDITION as above.
void ToProto(const CommunicatorMap& map, v1::OpenSpanRequest* out);
absl::StatusOr<CommunicatorMap> FromProto(const v1::OpenSpanRequest& in);

void ToProto(const RendezvousKey& key, const Registration& registration,
             v1::RendezvousRequest* out);
// The deadline is left out: it comes as a timeout.
void FromProto(const v1::RendezvousRequest& in, RendezvousKey* key, Registration* registration);

}  // namespace shunt::cluster
