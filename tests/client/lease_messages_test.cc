// libshunt's own encoder against protobuf's: the same bytes, field by field.
#include "client/src/lease_messages.h"

#include <catch2/catch.hpp>
#include <string>

#include "shunt/v1/session.pb.h"

namespace shunt::client {
namespace {

v1::LeaseRequest Parse(const LeaseRequest& request, uint64_t id = 7) {
  v1::LeaseRequest parsed;
  REQUIRE(parsed.ParseFromString(Encode(id, request)));
  CHECK(parsed.id() == id);
  return parsed;
}

LeaseReply Decode(const v1::LeaseReply& reply) {
  auto decoded = DecodeLeaseReply(reply.SerializeAsString());
  REQUIRE(decoded.ok());
  return *decoded;
}

TEST_CASE("requests are the bytes that protobuf would send") {
  v1::LeaseRequest same;
  same.set_id(300);
  v1::JoinRequest& join = *same.mutable_join();
  join.set_name("train");
  join.set_job("job-1");
  join.set_rank(3);
  join.set_world_size(4);
  join.set_timeout_ms(60000);
  join.set_algorithm("ring");
  join.set_deterministic(true);
  CHECK(Encode(300, Join{"train", "job-1", 3, 4, 60000, "ring", true}) == same.SerializeAsString());

  v1::OpenSessionRequest& open = *same.mutable_open_session();
  open.set_name("program");
  open.set_client_version("0.1.0");
  open.set_ring_entries(256);
  CHECK(Encode(300, OpenSession{"program", "0.1.0", 256}) == same.SerializeAsString());
}

TEST_CASE("each request arrives with its fields") {
  CHECK(Parse(AllocateRegion{1 << 20}).allocate_region().size_bytes() == 1 << 20);
  CHECK(Parse(FreeRegion{~0ull}).free_region().region_id() == ~0ull);
  CHECK(Parse(MapRegion{5}).map_region().region_id() == 5);
  CHECK(Parse(Leave{6}).leave().communicator_id() == 6);
  const v1::LeaseRequest watch = Parse(WatchOperation{1, 2, 3});
  CHECK(watch.watch_operation().communicator_id() == 1);
  CHECK(watch.watch_operation().channel() == 2);
  CHECK(watch.watch_operation().sequence() == 3);
  const v1::LeaseRequest join = Parse(Join{.name = "n",
                                           .job = "",
                                           .rank = -1,
                                           .world_size = -5,
                                           .timeout_ms = 0,
                                           .algorithm = "",
                                           .deterministic = false});
  CHECK(join.join().rank() == -1);
  CHECK(join.join().world_size() == -5);
}

TEST_CASE("a request without fields is still there") {
  CHECK(Parse(Leave{}).has_leave());
  CHECK(Parse(OpenSession{}).has_open_session());
  CHECK(Parse(CloseSession{}).has_close_session());
}

TEST_CASE("replies are read as protobuf wrote them") {
  v1::LeaseReply reply;
  reply.set_id(9);
  v1::JoinResponse& join = *reply.mutable_join();
  join.set_communicator_id(77);
  join.set_epoch(3);
  join.set_warm(true);
  for (int r = 0; r < 3; ++r) {
    v1::Member& member = *join.add_members();
    member.set_rank(r);
    member.set_pid(1000 + r);
    member.set_session_id(2000 + static_cast<uint64_t>(r));
    member.set_name("rank");
  }
  const LeaseReply decoded = Decode(reply);
  CHECK(decoded.id == 9);
  const auto& joined = std::get<Joined>(decoded.response);
  CHECK(joined.communicator_id == 77);
  CHECK(joined.epoch == 3);
  CHECK(joined.warm);
  REQUIRE(joined.members.size() == 3);
  CHECK(joined.members[2].pid == 1002);
  CHECK(joined.members[2].session_id == 2002);

  v1::OpenSessionResponse& open = *reply.mutable_open_session();
  open.set_session_id(5);
  open.set_token("secret");
  open.set_lease_socket("/x");
  open.set_incarnation(6);
  open.set_ring_entries(256);
  open.set_memory_quota_bytes(1ull << 40);
  const auto opened = std::get<SessionOpened>(Decode(reply).response);
  CHECK(opened.session_id == 5);
  CHECK(opened.incarnation == 6);
  CHECK(opened.ring_entries == 256);
  CHECK(opened.memory_quota_bytes == 1ull << 40);

  reply.mutable_allocate_region()->set_region_id(8);
  reply.mutable_allocate_region()->set_size_bytes(4096);
  const auto allocated = std::get<RegionAllocated>(Decode(reply).response);
  CHECK(allocated.region_id == 8);
  CHECK(allocated.size_bytes == 4096);

  reply.mutable_map_region()->set_size_bytes(8192);
  CHECK(std::get<RegionMapped>(Decode(reply).response).size_bytes == 8192);
}

TEST_CASE("a failure keeps its code and words") {
  v1::LeaseReply reply;
  reply.set_id(1);
  reply.set_code(8);
  reply.set_message("quota of 1 MiB");
  const LeaseReply decoded = Decode(reply);
  CHECK(decoded.code == 8);
  CHECK(decoded.message == "quota of 1 MiB");
  CHECK(std::holds_alternative<std::monostate>(decoded.response));
}

TEST_CASE("every truncation of a reply is refused or read in part, never beyond its end") {
  v1::LeaseReply reply;
  reply.set_id(1ull << 63);
  reply.mutable_join()->set_epoch(1ull << 40);
  reply.mutable_join()->add_members()->set_name("somebody");
  const std::string whole = reply.SerializeAsString();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    const auto decoded = DecodeLeaseReply(part);
    v1::LeaseReply by_protobuf;
    CHECK(decoded.ok() == by_protobuf.ParseFromString(part));
  }
}

TEST_CASE("unknown fields of a newer daemon are skipped") {
  v1::LeaseReply reply;
  reply.set_id(4);
  std::string bytes = reply.SerializeAsString();
  bytes += std::string(
      "\xa2\x06\x03"
      "abc",
      6);  // field 100, bytes
  bytes += std::string(
      "\xad\x06"
      "\0\0\0\0",
      6);  // field 101, fixed32
  const auto decoded = DecodeLeaseReply(bytes);
  REQUIRE(decoded.ok());
  CHECK(decoded->id == 4);
}

}  // namespace
}  // namespace shunt::client
