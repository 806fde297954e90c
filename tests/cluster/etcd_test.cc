// Membership from a real etcd: leases, watches, compaction, and etcd going away.
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/etcd_client.h"
#include "etcd/etcd.grpc.pb.h"
#include "tests/cluster/node.h"
#include "tests/cluster/program.h"
#include "tests/cluster/proxy.h"
#include "tests/support/temp_dir.h"

namespace shunt::cluster::testing {
namespace {

using namespace std::chrono_literals;
namespace pb = ::etcdserverpb;

constexpr char kPrefix[] = "/shunt/shunt/members/";

bool Contains(const absl::Status& status, std::string_view part) {
  return std::string_view(status.message().data(), status.message().size()).find(part) !=
         std::string_view::npos;
}

// A private etcd, and what its operator does.
class Etcd {
 public:
  Etcd() : binary_(ProgramOrSkip("etcd", {"/usr/bin/etcd"})), ports_(FreePorts(2)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto channel =
        grpc::CreateCustomChannel(Loopback(port()), grpc::InsecureChannelCredentials(), arguments);
    kv_ = pb::KV::NewStub(channel);
    lease_ = pb::Lease::NewStub(channel);
  }

  uint16_t port() const { return ports_[0]; }
  std::string url() const { return "http://" + Loopback(port()); }

  void Start() {
    const std::string peer = "http://" + Loopback(ports_[1]);
    program_ = std::make_unique<Program>(
        std::vector<std::string>{binary_, "--name", "test", "--data-dir", dir_ / "data",
                                 "--listen-client-urls", url(), "--advertise-client-urls", url(),
                                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                                 "--initial-cluster", "test=" + peer, "--logger", "zap"},
        dir_ / "log");
    List();
  }
  void Kill() { program_.reset(); }

  std::vector<pb::KeyValue> List() {
    pb::RangeRequest request;
    request.set_key(kPrefix);
    request.set_range_end("/shunt/shunt/members0");
    const auto answer = Call<pb::RangeResponse>(request, &pb::KV::Stub::Range);
    revision = answer.header().revision();
    return {answer.kvs().begin(), answer.kvs().end()};
  }
  pb::KeyValue Find(const std::string& node) {
    for (const pb::KeyValue& kv : List()) {
      if (kv.key() == kPrefix + node) return kv;
    }
    return {};
  }
  void Put(const std::string& node, const std::string& value) {
    pb::PutRequest request;
    request.set_key(kPrefix + node);
    request.set_value(value);
    revision = Call<pb::PutResponse>(request, &pb::KV::Stub::Put).header().revision();
  }
  void Delete(const std::string& node) {
    pb::DeleteRangeRequest request;
    request.set_key(kPrefix + node);
    revision =
        Call<pb::DeleteRangeResponse>(request, &pb::KV::Stub::DeleteRange).header().revision();
  }
  void Compact() {
    List();
    pb::CompactionRequest request;
    request.set_revision(revision);
    request.set_physical(true);
    Call<pb::CompactionResponse>(request, &pb::KV::Stub::Compact);
  }
  void Revoke(int64_t id) {
    grpc::ClientContext context;
    pb::LeaseRevokeRequest request;
    pb::LeaseRevokeResponse response;
    request.set_id(id);
    REQUIRE(lease_->LeaseRevoke(&context, request, &response).ok());
  }

  int64_t revision = 0;

 private:
  template <typename Response, typename Request>
  Response Call(const Request& request,
                grpc::Status (pb::KV::Stub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*)) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    Response response;
    const grpc::Status status = (kv_.get()->*method)(&context, request, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return response;
  }

  const std::string binary_;
  const shunt::testing::TempDir dir_;
  const std::vector<uint16_t> ports_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<pb::KV::Stub> kv_;
  std::unique_ptr<pb::Lease::Stub> lease_;
};

std::unique_ptr<Node> Start(const std::string& name, const std::string& url) {
  return std::make_unique<Node>(name, 0, std::vector<std::string>(),
                                [&](Cluster::Options* options) {
                                  options->config.membership = MembershipKind::kEtcd;
                                  options->config.etcd_endpoints = {url};
                                });
}

bool Meets(Node& one, Node& other, const std::string& name) {
  const Joining first = one.Join(name, {0}, 2);
  const Joining second = other.Join(name, {1}, 2);
  INFO(first.Get().status().ToString());
  INFO(second.Get().status().ToString());
  CHECK(first.Get().ok());
  CHECK(second.Get().ok());
  return first.Get().ok() && second.Get().ok();
}

TEST_CASE("nodes come and go at run time") {
  Etcd etcd;
  etcd.Start();
  auto a = Start("a", etcd.url());
  auto b = Start("b", etcd.url());
  REQUIRE(a->WaitUp("b"));
  CHECK(Meets(*a, *b, "x"));
  auto c = Start("c", etcd.url());
  REQUIRE(a->WaitUp("c"));
  REQUIRE(c->WaitUp("b"));
  CHECK(Meets(*a, *c, "y"));
  CHECK(etcd.List().size() == 3);
  c.reset();
  CHECK(a->WaitLog("lost c: "));
  // It has said goodbye: nobody waits for its lease to run out.
  CHECK(etcd.List().size() == 2);
  REQUIRE(Eventually([&] { return (*a)->GetView().view.members.size() == 2; }));
  CHECK(Meets(*a, *b, "z"));
}

TEST_CASE("a lost lease is a new incarnation") {
  Etcd etcd;
  etcd.Start();
  auto a = Start("a", etcd.url());
  auto b = Start("b", etcd.url());
  REQUIRE(a->WaitUp("b"));
  const uint64_t before = a->FindUp("b").incarnation;
  CHECK(before == (*b)->GetView().self.incarnation);
  etcd.Revoke(etcd.Find("b").lease());
  REQUIRE(b->WaitLog("renewed: its record is gone from etcd"));
  REQUIRE(a->WaitLog("lost b: "));
  REQUIRE(Eventually([&] {
    const PeerInfo now = a->FindUp("b");
    return now.incarnation != 0 && now.incarnation != before &&
           now.incarnation == (*b)->GetView().self.incarnation;
  }));
  CHECK(Meets(*a, *b, "x"));
}

TEST_CASE("etcd tells a watch that starts in a compacted past so") {
  Etcd etcd;
  etcd.Start();
  etcd.Put("x", "1");
  etcd.Put("x", "2");
  etcd.Compact();
  Node loop("unused", 0, {});
  CallTracker tracker(loop.loop());
  std::unique_ptr<EtcdClient> client;
  Outcome<bool> ended;
  loop.Post([&] {
    client = MakeEtcdClient(&tracker, {etcd.url()}, Credentials());
    EtcdClient::WatchEvents events;
    events.ended = [&](const absl::Status& why) { ended.Set(why); };
    client->Watch(kPrefix, 1, std::move(events));
  });
  CHECK(ended.Get().status().code() == absl::StatusCode::kOutOfRange);
  loop.Post([&] { client.reset(); });
  tracker.WaitIdle();
}

TEST_CASE("a compacted watch lists again: what came and went meanwhile is known") {
  Etcd etcd;
  etcd.Start();
  Proxy proxy(etcd.port());
  auto a = Start("a", "http://" + Loopback(proxy.port()));
  auto b = Start("b", etcd.url());
  REQUIRE(a->WaitUp("b"));
  etcd.Put("gone", "shunt1 127.0.0.1:9 00000000000000aa 0");
  REQUIRE(Eventually([&] { return (*a)->GetView().view.members.size() == 3; }));
  proxy.Cut();
  REQUIRE(Eventually([&] { return !(*a)->GetView().membership.ok(); }));
  etcd.Delete("gone");
  etcd.Put("new", "shunt1 127.0.0.1:9 00000000000000bb 0");
  etcd.Compact();
  proxy.Mend();
  REQUIRE(Eventually([&] {
    const View view = (*a)->GetView().view;
    return FindMember(view, "new") != nullptr && FindMember(view, "gone") == nullptr;
  }));
  REQUIRE(Eventually([&] { return (*a)->GetView().membership.ok(); }));
  // The watch goes on from there.
  etcd.Delete("new");
  REQUIRE(Eventually([&] { return (*a)->GetView().view.members.size() == 2; }));
  // All the while it was the same incarnation.
  CHECK(b->WaitUp("a"));
  for (const std::string& line : b->log()) CHECK(line.find("lost") == std::string::npos);
}

TEST_CASE("etcd down at the start: joining says so, and works once it is there") {
  Etcd etcd;
  auto a = Start("a", etcd.url());
  REQUIRE(a->started().ToString() == "OK");
  const absl::Status status = a->Join("x", {0}, 1).Get().status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Contains(
      status, "communicator 'x' of job 'job': the members cannot be known: etcd at " + etcd.url()));
  etcd.Start();
  REQUIRE(Eventually([&] { return (*a)->GetView().membership.ok(); }));
  CHECK(a->Join("x", {0}, 1).Get().status().ToString() == "OK");
}

TEST_CASE("etcd down later: peers stay, joining says so, and all goes on when it is back") {
  Etcd etcd;
  etcd.Start();
  auto a = Start("a", etcd.url());
  auto b = Start("b", etcd.url());
  REQUIRE(a->WaitUp("b"));
  REQUIRE(b->WaitUp("a"));
  const uint64_t incarnation = a->FindUp("b").incarnation;
  etcd.Kill();
  REQUIRE(Eventually([&] { return !(*a)->GetView().membership.ok(); }));
  const absl::Status status = a->Join("x", {0}, 1, 500ms).Get().status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Contains(status, etcd.url()));
  CHECK((*a)->GetView().view.members.size() == 2);
  etcd.Start();
  CHECK(Meets(*a, *b, "x"));
  CHECK(a->FindUp("b").incarnation == incarnation);
  for (const std::string& line : a->log()) CHECK(line.find("lost") == std::string::npos);
}

TEST_CASE(
    "a second daemon with a node's name waits, says why, and comes in when the first leaves") {
  Etcd etcd;
  etcd.Start();
  auto a = Start("a", etcd.url());
  auto b = Start("b", etcd.url());
  REQUIRE(a->WaitUp("b"));
  const std::string address = (*b)->GetView().self.address;
  auto second = Start("b", etcd.url());
  const absl::Status status = second->Join("x", {0}, 1).Get().status();
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(Contains(status, "node name 'b' is that of the daemon at " + address));
  CHECK(a->FindUp("b").control_address == address);
  b.reset();
  REQUIRE(Eventually(
      [&] { return a->FindUp("b").incarnation == (*second)->GetView().self.incarnation; }));
}

TEST_CASE("what a killed daemon left under a name does not keep the next one out") {
  Etcd etcd;
  etcd.Start();
  etcd.Put("a", "shunt1 " + Loopback(FreePorts(1)[0]) + " 00000000000000aa 0.1.0");
  auto a = Start("a", etcd.url());
  CHECK(a->Join("x", {0}, 1).Get().status().ToString() == "OK");
}

TEST_CASE("a record that is none is left out, and the others go on") {
  Etcd etcd;
  etcd.Start();
  etcd.Put("junk", "\x01\x02 not a record");
  auto a = Start("a", etcd.url());
  auto b = Start("b", etcd.url());
  REQUIRE(a->WaitUp("b"));
  CHECK((*a)->GetView().view.members.size() == 2);
  CHECK(Meets(*a, *b, "x"));
}

}  // namespace
}  // namespace shunt::cluster::testing
