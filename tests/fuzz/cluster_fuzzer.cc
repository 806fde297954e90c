// What other daemons and etcd's records say: any bytes give something checked or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/cluster/address.h"
#include "daemon/cluster/agent_messages.h"
#include "daemon/cluster/messages.h"
#include "daemon/cluster/view.h"
#include "runtime/core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shunt::cluster;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  MemberRecord record;
  if (ParseRecord(text, &record)) SHUNT_CHECK(FormatRecord(record) == text);
  if (const auto address = ParseAddress(text, /*port_zero=*/true); address.ok()) {
    SHUNT_CHECK(ParseAddress(FormatAddress(*address), /*port_zero=*/true).ok());
  }
  CheckNodeName(text).IgnoreError();

  // The same bytes as a coordinator's answer, and as a registration.
  shunt::v1::RendezvousMap map;
  if (map.ParseFromArray(data, static_cast<int>(size))) {
    const auto read = FromProto(map, map.rank_nodes_size());
    if (read.ok()) {
      shunt::v1::RendezvousMap again;
      ToProto(**read, &again);
      SHUNT_CHECK(again.rank_nodes_size() == map.rank_nodes_size());
      for (const MappedRank& rank : (*read)->ranks) {
        SHUNT_CHECK(rank.node >= 0 && static_cast<size_t>(rank.node) < (*read)->nodes.size());
      }
    }
  }
  // And as what an aggregator is asked for.
  shunt::v1::OpenSpanRequest open;
  if (open.ParseFromArray(data, static_cast<int>(size))) {
    const auto read = FromProto(open);
    if (read.ok()) {
      SHUNT_CHECK(read->nodes.size() >= 2 && read->ranks.size() >= read->nodes.size());
      for (const MappedRank& rank : read->ranks) {
        SHUNT_CHECK(rank.node >= 0 && static_cast<size_t>(rank.node) < read->nodes.size());
      }
    }
  }
  // And as what is asked of agents, and what is answered.
  SectionQuery query{0, "agent", "section", true, false, 0x0101010101010101, 1};
  shunt::v1::FetchPeerSectionRequest fetch;
  if (fetch.ParseFromArray(data, static_cast<int>(size))) {
    if (const auto read = FromProto(fetch); read.ok()) {
      SHUNT_CHECK(read->agent.size() <= 255 && read->section.size() <= 255);
      query = *read;
    }
  }
  shunt::v1::FetchPeerSectionResponse fetched;
  if (fetched.ParseFromArray(data, static_cast<int>(size))) {
    if (const auto read = FromProto(fetched, query); read.ok()) {
      if (read->kind == SectionAnswer::Kind::kUnchanged) {
        SHUNT_CHECK(read->version == query.known_version);
        SHUNT_CHECK(read->agent_incarnation == query.known_incarnation);
      }
      SHUNT_CHECK(read->kind != SectionAnswer::Kind::kNoSection || read->content.size() <= 512);
    }
  }
  shunt::v1::NotifyAgentRequest notify;
  if (notify.ParseFromArray(data, static_cast<int>(size))) {
    if (const auto read = FromProto(notify, "node"); read.ok()) {
      SHUNT_CHECK(read->payload.size() <= 1024 && read->from.ends_with("@node"));
    }
  }
  shunt::v1::RendezvousRequest request;
  if (request.ParseFromArray(data, static_cast<int>(size))) {
    RendezvousKey key;
    Registration registration;
    FromProto(request, &key, &registration);
    RendezvousTable table(RendezvousTable::Limits(), [] { return uint64_t{1}; });
    const auto answers = table.Register(1, key, registration);
    SHUNT_CHECK(answers.size() == 1 || table.waiting() == 1);
    table.Expire(registration.deadline_ns);
    SHUNT_CHECK(table.waiting() == 0);
  }
  return 0;
}
