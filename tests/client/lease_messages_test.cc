// libshunt's own encoder against protobuf's: the same bytes, field by field.
#include "client/src/lease_messages.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>

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
  join.set_device(true);
  CHECK(Encode(300, Join{"train", "job-1", 3, 4, 60000, "ring", true, true}) ==
        same.SerializeAsString());

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
                                           .deterministic = false,
                                           .device = false});
  CHECK(join.join().rank() == -1);
  CHECK(join.join().world_size() == -5);
}

TEST_CASE("GPU memory is registered with its GPU, its size and how it crosses") {
  v1::LeaseRequest same;
  same.set_id(9);
  v1::RegisterDeviceRequest& request = *same.mutable_register_device();
  request.set_device_uuid(std::string("\0\x01ninety bytes", 16));
  request.set_size_bytes(1ull << 40);
  request.set_ipc_handle(std::string(64, '\xff'));
  CHECK(Encode(9, RegisterDevice{std::string("\0\x01ninety bytes", 16), 1ull << 40,
                                 std::string(64, '\xff')}) == same.SerializeAsString());
  request.clear_ipc_handle();
  CHECK(Encode(9, RegisterDevice{request.device_uuid(), 1ull << 40, ""}) ==
        same.SerializeAsString());

  v1::LeaseReply reply;
  reply.set_id(9);
  reply.mutable_register_device()->set_region_id(~0ull);
  CHECK(std::get<DeviceRegistered>(Decode(reply).response).region_id == ~0ull);
}

TEST_CASE("a captured call arrives with its signature, its buffers and its gate") {
  v1::LeaseRequest same;
  same.set_id(10);
  v1::CaptureCallRequest& request = *same.mutable_capture_call();
  request.set_communicator_id(3);
  request.set_sequence(1);
  request.set_kind(v1::OPERATION_KIND_BROADCAST);
  request.set_data_type(v1::DATA_TYPE_BFLOAT16);
  request.set_reduce_op(v1::REDUCE_OP_MAX);
  request.set_count(1ull << 33);
  request.set_root(2);
  request.mutable_input()->set_region_id(7);
  request.mutable_output()->set_region_id(8);
  request.mutable_output()->set_offset_bytes(4096);
  request.set_scalar(std::string("\0\0\x80?", 4));
  request.mutable_gate()->set_region_id(9);
  request.mutable_gate()->set_offset_bytes(64);
  CaptureCall call{.communicator_id = 3,
                   .sequence = 1,
                   .kind = v1::OPERATION_KIND_BROADCAST,
                   .data_type = v1::DATA_TYPE_BFLOAT16,
                   .reduce_op = v1::REDUCE_OP_MAX,
                   .count = 1ull << 33,
                   .root = 2,
                   .input = {7, 0},
                   .output = {8, 4096},
                   .scalar = std::string("\0\0\x80?", 4),
                   .gate = {9, 64}};
  CHECK(Encode(10, call) == same.SerializeAsString());
  request.clear_input();
  call.input = {};
  CHECK(Encode(10, call) == same.SerializeAsString());

  v1::LeaseReply reply;
  reply.set_id(10);
  reply.mutable_capture_call();
  CHECK(Decode(reply).code == 0);
  const v1::LeaseRequest release = Parse(ReleaseCapture{5, 6});
  CHECK(release.release_capture().communicator_id() == 5);
  CHECK(release.release_capture().sequence() == 6);
}

v1::StridedSet& Set(v1::StridedSet* set, uint64_t region) {
  set->set_region_id(region);
  set->set_offset_bytes(4096);
  set->set_length_bytes(1 << 20);
  for (const int64_t stride : {int64_t{1} << 40, int64_t{0}, int64_t{-8}}) {
    v1::StridedDimension& d = *set->add_dimensions();
    d.set_count(3);
    d.set_stride_bytes(stride);
  }
  return *set;
}

StridedSet Set(uint64_t region) {
  return {region, 4096, 1 << 20, {{3, int64_t{1} << 40}, {3, 0}, {3, -8}}};
}

TEST_CASE("requests of sections are the bytes that protobuf would send") {
  v1::LeaseRequest same;
  same.set_id(5);
  same.mutable_register_agent()->set_name("decode-0");
  CHECK(Encode(5, RegisterAgent{"decode-0"}) == same.SerializeAsString());

  v1::PublishSectionRequest& publish = *same.mutable_publish_section();
  publish.set_name("kv");
  Set(publish.add_sets(), 3);
  Set(publish.add_sets(), ~0ull);
  publish.set_access(v1::SECTION_ACCESS_READ_WRITE);
  publish.add_tenants(1000);
  publish.add_tenants(0);
  publish.add_tenants(~0u);
  CHECK(Encode(5, PublishSection{"kv", {Set(3), Set(~0ull)}, 3, {1000, 0, ~0u}}) ==
        same.SerializeAsString());

  same.mutable_withdraw_section()->set_name("kv");
  CHECK(Encode(5, WithdrawSection{"kv"}) == same.SerializeAsString());

  v1::FetchSectionRequest& fetch = *same.mutable_fetch_section();
  fetch.set_agent("prefill@b");
  fetch.set_section("kv");
  fetch.set_access(v1::SECTION_ACCESS_WRITE);
  CHECK(Encode(5, FetchSection{"prefill@b", "kv", 2}) == same.SerializeAsString());

  Set(same.mutable_prepare_list()->add_sets(), 9);
  CHECK(Encode(5, PrepareList{{Set(9)}}) == same.SerializeAsString());
  same.mutable_release_list()->set_list_id(1ull << 60);
  CHECK(Encode(5, ReleaseList{1ull << 60}) == same.SerializeAsString());
}

TEST_CASE("requests of transfers are the bytes that protobuf would send") {
  v1::LeaseRequest same;
  same.set_id(6);
  same.mutable_wait_transfer()->set_transfer_id(77);
  CHECK(Encode(6, WaitTransfer{77}) == same.SerializeAsString());
  same.mutable_cancel_transfer()->set_transfer_id(78);
  CHECK(Encode(6, CancelTransfer{78}) == same.SerializeAsString());
  same.mutable_watch_transfer()->set_transfer_id(79);
  CHECK(Encode(6, WatchTransfer{79}) == same.SerializeAsString());
  same.mutable_notify()->set_agent("a");
  same.mutable_notify()->set_payload(std::string("\0x", 2));
  CHECK(Encode(6, Notify{"a", std::string("\0x", 2)}) == same.SerializeAsString());
  same.mutable_take_notifications()->set_max(8);
  same.mutable_take_notifications()->set_wait_ms(200);
  CHECK(Encode(6, TakeNotifications{8, 200}) == same.SerializeAsString());
  same.mutable_watch_notifications();
  CHECK(Encode(6, WatchNotifications{}) == same.SerializeAsString());
}

TEST_CASE("every form of a selection is the bytes that protobuf would send") {
  v1::LeaseRequest same;
  same.set_id(6);
  v1::PostTransferRequest& explain = *same.mutable_explain_transfer();
  explain.set_direction(v1::TRANSFER_DIRECTION_PUSH);
  explain.set_transfer_class(v1::TRANSFER_CLASS_LATENCY);
  explain.mutable_local()->set_list_id(4);
  explain.mutable_local()->set_all(true);
  explain.mutable_remote()->set_list_id(5);

  ExplainTransfer mine{1, 1, {}, {}};
  mine.local.list_id = 4;
  mine.remote.list_id = 5;

  for (const auto& [first, count, step] : {std::tuple(0, 3, 1), {7, 1, 2}}) {
    v1::PieceRun& run = *explain.mutable_remote()->mutable_runs()->add_runs();
    run.set_first(static_cast<uint64_t>(first));
    run.set_count(static_cast<uint64_t>(count));
    run.set_step(static_cast<uint64_t>(step));
  }
  mine.remote.form = ring::PostedForm::kRuns;
  mine.remote.runs = {{0, 3, 1}, {7, 1, 2}};
  CHECK(Encode(6, mine) == same.SerializeAsString());

  v1::PieceIds& ids = *explain.mutable_remote()->mutable_ids();
  for (const uint64_t id : {0ull, 300ull, 1ull << 40}) ids.add_ids(id);
  ids.set_unit(16);
  ids.set_repeats(80);
  ids.set_repeat_step(1 << 20);
  mine.remote.form = ring::PostedForm::kIds64;
  mine.remote.ids = {0, 300, 1ull << 40};
  mine.remote.unit = 16;
  mine.remote.repeats = 80;
  mine.remote.repeat_step = 1 << 20;
  CHECK(Encode(6, mine) == same.SerializeAsString());

  v1::RawPiece& piece = *explain.mutable_remote()->mutable_raw()->add_pieces();
  piece.set_region_id(3);
  piece.set_offset_bytes(4096);
  piece.set_length_bytes(1);
  mine.remote.form = ring::PostedForm::kRaw;
  mine.remote.raw = {{3, 4096, 1}};
  CHECK(Encode(6, mine) == same.SerializeAsString());
}

void Fill(v1::ListInfo* info) {
  info->set_list_id(1);
  info->set_pieces(1ull << 40);
  info->set_piece_bytes(4096);
  info->set_bytes(1ull << 52);
}

void CheckInfo(const ListInfo& info) {
  CHECK(info.list_id == 1);
  CHECK(info.pieces == 1ull << 40);
  CHECK(info.piece_bytes == 4096);
  CHECK(info.bytes == 1ull << 52);
}

TEST_CASE("replies about transfers are read as protobuf wrote them") {
  v1::LeaseReply reply;
  reply.set_id(9);
  reply.mutable_register_agent()->set_incarnation(0xfedcba9876543210);
  CHECK(std::get<AgentRegistered>(Decode(reply).response).incarnation == 0xfedcba9876543210);

  Fill(reply.mutable_publish_section()->mutable_list());
  reply.mutable_publish_section()->set_version(4);
  CheckInfo(std::get<SectionPublished>(Decode(reply).response).list);
  CHECK(std::get<SectionPublished>(Decode(reply).response).version == 4);

  Fill(reply.mutable_fetch_section()->mutable_list());
  reply.mutable_fetch_section()->set_incarnation(~0ull - 1);
  reply.mutable_fetch_section()->set_version(6);
  reply.mutable_fetch_section()->set_node("b");
  const auto fetched = std::get<SectionFetched>(Decode(reply).response);
  CheckInfo(fetched.list);
  CHECK(fetched.incarnation == ~0ull - 1);
  CHECK(fetched.version == 6);
  CHECK(fetched.node == "b");

  Fill(reply.mutable_prepare_list()->mutable_list());
  CheckInfo(std::get<ListPrepared>(Decode(reply).response).list);

  reply.mutable_wait_transfer()->set_bytes(10);
  reply.mutable_wait_transfer()->set_route("copy");
  reply.mutable_wait_transfer()->set_waited_ns(11);
  reply.mutable_wait_transfer()->set_moved_ns(12);
  const auto report = std::get<TransferReport>(Decode(reply).response);
  CHECK(report.bytes == 10);
  CHECK(report.route == "copy");
  CHECK(report.waited_ns == 11);
  CHECK(report.moved_ns == 12);

  for (const char* from : {"a", ""}) {
    v1::Notification& n = *reply.mutable_take_notifications()->add_notifications();
    n.set_from(from);
    n.set_payload(std::string("\0p", 2));
  }
  reply.mutable_take_notifications()->set_more(true);
  const auto taken = std::get<NotificationsTaken>(Decode(reply).response);
  REQUIRE(taken.notifications.size() == 2);
  CHECK(taken.notifications[0].from == "a");
  CHECK(taken.notifications[1].from.empty());
  CHECK(taken.notifications[1].payload == std::string("\0p", 2));
  CHECK(taken.more);

  v1::ExplainTransferResponse& explained = *reply.mutable_explain_transfer();
  explained.set_bytes(1);
  explained.set_route("pull");
  explained.set_copy_runs(2);
  explained.set_predicted_ns(3);
  explained.set_bytes_ahead(4);
  const auto read = std::get<TransferExplained>(Decode(reply).response);
  CHECK(read.bytes == 1);
  CHECK(read.route == "pull");
  CHECK(read.copy_runs == 2);
  CHECK(read.predicted_ns == 3);
  CHECK(read.bytes_ahead == 4);
}

TEST_CASE("requests for files and objects are the bytes that protobuf would send") {
  v1::LeaseRequest same;
  same.set_id(300);
  v1::OpenFileRequest& open = *same.mutable_open_file();
  open.set_root("models");
  open.set_path("a/b");
  open.set_access(v1::FILE_ACCESS_READ_WRITE);
  open.set_timeout_ms(7);
  CHECK(Encode(300, OpenFile{"models", "a/b", true, 7}) == same.SerializeAsString());
  same.mutable_open_file()->Clear();
  CHECK(Encode(300, OpenFile{}) == same.SerializeAsString());

  v1::CreateFileRequest& create = *same.mutable_create_file();
  create.set_root("models");
  create.set_path("a/b");
  create.set_size_bytes(1ull << 40);
  create.set_if_absent(true);
  create.set_timeout_ms(8);
  CHECK(Encode(300, CreateFile{"models", "a/b", 1ull << 40, true, 8}) == same.SerializeAsString());

  const ObjectPlace place{"minio", "bucket", "key", "id", "secret", "token"};
  const auto set_place = [](auto& request) {
    request.set_endpoint("minio");
    request.set_bucket("bucket");
    request.set_key("key");
    request.mutable_credentials()->set_access_key_id("id");
    request.mutable_credentials()->set_secret_access_key("secret");
    request.mutable_credentials()->set_session_token("token");
  };
  set_place(*same.mutable_open_object());
  same.mutable_open_object()->set_timeout_ms(9);
  CHECK(Encode(300, OpenObject{place, 9}) == same.SerializeAsString());
  v1::CreateObjectRequest& object = *same.mutable_create_object();
  set_place(object);
  object.set_size_bytes(5);
  object.set_if_absent(true);
  object.set_timeout_ms(10);
  CHECK(Encode(300, CreateObject{place, 5, true, 10}) == same.SerializeAsString());
  // Without keys there are no credentials, not empty ones.
  CHECK_FALSE(Parse(OpenObject{}).open_object().has_credentials());

  CHECK(Parse(CommitDraft{5, 6}).commit_draft().region_id() == 5);
  CHECK(Parse(CommitDraft{5, 6}).commit_draft().timeout_ms() == 6);
  CHECK(Parse(AbortDraft{7}).abort_draft().region_id() == 7);
  CHECK(Parse(SyncFile{8, 9}).sync_file().region_id() == 8);
  CHECK(Parse(SyncFile{8, 9}).sync_file().timeout_ms() == 9);
}

TEST_CASE("replies about files are read as protobuf wrote them") {
  v1::LeaseReply reply;
  reply.mutable_open_file()->set_region_id(1ull << 60);
  reply.mutable_open_file()->set_size_bytes(1ull << 50);
  const auto opened = std::get<FileOpened>(Decode(reply).response);
  CHECK(opened.region_id == 1ull << 60);
  CHECK(opened.size_bytes == 1ull << 50);
  reply.mutable_create_file()->set_region_id(3);
  CHECK(std::get<FileCreated>(Decode(reply).response).region_id == 3);
}

TEST_CASE("a request without fields is still there") {
  CHECK(Parse(WatchNotifications{}).has_watch_notifications());
  CHECK(Parse(TakeNotifications{}).has_take_notifications());
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
  std::string whole = reply.SerializeAsString();
  reply.mutable_fetch_section()->set_incarnation(1ull << 63);
  reply.mutable_fetch_section()->mutable_list()->set_bytes(1ull << 50);
  whole += reply.SerializeAsString();
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
