#include "daemon/cluster/etcd_client.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/client_call.h"
#include "daemon/cluster/etcd_streams.h"
#include "daemon/cluster/grpc_util.h"
#include "etcd/etcd.grpc.pb.h"

namespace shunt::cluster {
namespace {

namespace pb = ::etcdserverpb;

constexpr auto kCallTimeout = std::chrono::milliseconds(2000);
// etcd takes pings more often than every 5 s for an attack.
constexpr auto kKeepalive = std::chrono::milliseconds(12000);

class Client : public EtcdClient {
 public:
  Client(CallTracker* tracker, const std::vector<std::string>& endpoints,
         const Credentials& credentials)
      : calls_(tracker) {
    for (const std::string& url : endpoints) {
      const size_t slashes = url.find("://");
      const bool tls = url.substr(0, slashes) == "https";
      auto channel =
          MakeChannel(url.substr(slashes + 3), tls ? credentials : Credentials(), "", kKeepalive);
      endpoints_.push_back({url, pb::KV::NewStub(channel), pb::Lease::NewStub(channel),
                            pb::Watch::NewStub(channel)});
    }
  }

  void Grant(std::chrono::seconds ttl, Done<int64_t> done) override {
    pb::LeaseGrantRequest request;
    request.set_ttl(ttl.count());
    Call<pb::LeaseGrantResponse>(
        request, current().lease->async(), &Leases::LeaseGrant,
        [done = std::move(done)](const absl::StatusOr<pb::LeaseGrantResponse>& answer) {
          if (!answer.ok()) return done(answer.status());
          if (!answer->error().empty()) return done(absl::UnavailableError(answer->error()));
          done(answer->id());
        });
  }

  void KeepAlive(int64_t lease, Done<bool> done) override {
    KeepAliveStream::Start(&calls_, current().lease.get(), lease, kCallTimeout,
                           [this, done = std::move(done)](absl::StatusOr<bool> result) {
                             Note(result.status());
                             done(std::move(result));
                           });
  }

  void Revoke(int64_t lease, Done<bool> done) override {
    pb::LeaseRevokeRequest request;
    request.set_id(lease);
    Call<pb::LeaseRevokeResponse>(
        request, current().lease->async(), &Leases::LeaseRevoke,
        [done = std::move(done)](const absl::StatusOr<pb::LeaseRevokeResponse>& answer) {
          if (!answer.ok()) return done(answer.status());
          done(true);
        });
  }

  void PutIf(const std::string& key, int64_t expected, const std::string& value, int64_t lease,
             Done<EtcdPut> done) override {
    pb::TxnRequest request;
    pb::Compare* const compare = request.add_compare();
    compare->set_key(key);
    compare->set_target(pb::Compare::MOD);
    compare->set_mod_revision(expected);  // of a key that is not there: 0
    pb::PutRequest* const put = request.add_success()->mutable_request_put();
    put->set_key(key);
    put->set_value(value);
    put->set_lease(lease);
    request.add_failure()->mutable_request_range()->set_key(key);
    Call<pb::TxnResponse>(request, current().kv->async(), &Keys::Txn,
                          [done = std::move(done)](const absl::StatusOr<pb::TxnResponse>& answer) {
                            if (!answer.ok()) return done(answer.status());
                            EtcdPut result{answer->succeeded(), {}};
                            if (!result.done && answer->responses_size() == 1) {
                              const pb::RangeResponse& range =
                                  answer->responses(0).response_range();
                              if (range.kvs_size() == 1) result.holder = ToKey(range.kvs(0));
                            }
                            done(std::move(result));
                          });
  }

  void List(const std::string& prefix, Done<EtcdListing> done) override {
    pb::RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(PrefixEnd(prefix));
    Call<pb::RangeResponse>(
        request, current().kv->async(), &Keys::Range,
        [done = std::move(done)](const absl::StatusOr<pb::RangeResponse>& answer) {
          if (!answer.ok()) return done(answer.status());
          EtcdListing listing;
          listing.revision = answer->header().revision();
          for (const pb::KeyValue& kv : answer->kvs()) listing.keys.push_back(ToKey(kv));
          done(std::move(listing));
        });
  }

  void Watch(const std::string& prefix, int64_t revision, WatchEvents events) override {
    StopWatch();
    const auto ended = std::move(events.ended);
    events.ended = [this, ended](const absl::Status& why) {
      watch_ = nullptr;
      Note(why);
      ended(why);
    };
    watch_ =
        WatchStream::Start(&calls_, current().watch.get(), prefix, revision, std::move(events));
  }

  const std::string& endpoint() const override { return endpoints_[current_].url; }

 private:
  using Keys = pb::KV::StubInterface::async_interface;
  using Leases = pb::Lease::StubInterface::async_interface;
  struct Endpoint {
    std::string url;
    std::unique_ptr<pb::KV::Stub> kv;
    std::unique_ptr<pb::Lease::Stub> lease;
    std::unique_ptr<pb::Watch::Stub> watch;
  };

  Endpoint& current() { return endpoints_[current_]; }

  void Note(const absl::Status& status) {
    if (status.code() == absl::StatusCode::kUnavailable ||
        status.code() == absl::StatusCode::kDeadlineExceeded) {
      current_ = (current_ + 1) % endpoints_.size();
    }
  }

  template <typename Response, typename Request, typename Async>
  void Call(const Request& request, std::type_identity_t<Async>* async,
            void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                                  grpc::ClientUnaryReactor*),
            RpcDone<Response> done) {
    calls_.Unary<Response>(async, method, request, kCallTimeout,
                           [this, done = std::move(done)](absl::StatusOr<Response> answer) {
                             Note(answer.status());
                             done(std::move(answer));
                           });
  }

  void StopWatch() {
    if (watch_ != nullptr) std::exchange(watch_, nullptr)->Stop();
  }

  std::vector<Endpoint> endpoints_;
  size_t current_ = 0;
  WatchStream* watch_ = nullptr;  // owns itself
  ClientCalls calls_;
};

}  // namespace

std::unique_ptr<EtcdClient> MakeEtcdClient(CallTracker* tracker,
                                           const std::vector<std::string>& endpoints,
                                           const Credentials& credentials) {
  return std::make_unique<Client>(tracker, endpoints, credentials);
}

}  // namespace shunt::cluster
