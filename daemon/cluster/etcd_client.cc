#include "daemon/cluster/etcd_client.h"

#include "absl/strings/str_cat.h"
#include "daemon/cluster/grpc_util.h"
#include "etcd/etcd.grpc.pb.h"

namespace shunt::cluster {
namespace {

namespace pb = ::etcdserverpb;

constexpr auto kCallTimeout = std::chrono::milliseconds(2000);
// etcd takes pings more often than every 5 s for an attack.
constexpr auto kKeepalive = std::chrono::milliseconds(12000);

// The first key after all that begin with `prefix`, as etcd's range_end wants it.
std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

EtcdKey ToKey(const pb::KeyValue& kv) {
  return {kv.key(), kv.value(), kv.mod_revision(), kv.lease()};
}

// A watch: one stream, read until it ends. Owns itself from StartCall to OnDone.
class WatchStream : public grpc::ClientBidiReactor<pb::WatchRequest, pb::WatchResponse> {
 public:
  // On the loop; cleared when nobody listens any more.
  struct Listener {
    EtcdClient::WatchEvents events;
    grpc::ClientContext* context = nullptr;  // while the stream lives
  };

  static std::shared_ptr<Listener> Start(CallTracker* tracker, pb::Watch::Stub* stub,
                                         const std::string& prefix, int64_t revision,
                                         EtcdClient::WatchEvents events) {
    auto listener = std::make_shared<Listener>();
    listener->events = std::move(events);
    auto* stream = new WatchStream(tracker, listener);
    listener->context = &stream->context_;
    pb::WatchCreateRequest* create = stream->request_.mutable_create_request();
    create->set_key(prefix);
    create->set_range_end(PrefixEnd(prefix));
    create->set_start_revision(revision);
    tracker->Begin();
    stub->async()->Watch(&stream->context_, stream);
    stream->StartWrite(&stream->request_);
    stream->StartRead(&stream->response_);
    stream->StartCall();
    return listener;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;  // OnDone follows
    const pb::WatchResponse& response = response_;
    if (response.canceled()) {
      status_ =
          response.compact_revision() != 0
              ? absl::OutOfRangeError(absl::StrCat("etcd has dropped what was before revision ",
                                                   response.compact_revision()))
              : absl::UnavailableError(
                    absl::StrCat("etcd ended the watch: ", response.cancel_reason()));
      context_.TryCancel();
      return;
    }
    if (response.created()) {
      tracker_->loop()->Post([listener = listener_] {
        if (listener->events.started) listener->events.started();
      });
    }
    std::vector<EtcdEvent> events;
    for (const pb::Event& event : response.events()) {
      events.push_back({event.type() == pb::Event::DELETE, ToKey(event.kv())});
    }
    if (!events.empty()) {
      tracker_->loop()->Post([listener = listener_, events = std::move(events),
                              revision = response.header().revision()] {
        if (listener->events.changed) listener->events.changed(events, revision);
      });
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    if (status_.ok()) {
      status_ = status.ok() ? absl::UnavailableError("etcd ended the watch") : FromGrpc(status);
    }
    tracker_->End([this] {
      listener_->context = nullptr;
      const auto ended = listener_->events.ended;
      listener_->events = {};
      const absl::Status why = status_;
      delete this;
      if (ended) ended(why);
    });
  }

 private:
  WatchStream(CallTracker* tracker, std::shared_ptr<Listener> listener)
      : tracker_(tracker), listener_(std::move(listener)) {}

  CallTracker* const tracker_;
  const std::shared_ptr<Listener> listener_;
  grpc::ClientContext context_;
  pb::WatchRequest request_;
  pb::WatchResponse response_;
  absl::Status status_;
};

// One question, one answer on a stream.
class KeepAliveStream
    : public grpc::ClientBidiReactor<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse> {
 public:
  KeepAliveStream(CallTracker* tracker, std::shared_ptr<bool> open, int64_t lease,
                  EtcdClient::Done<bool> done)
      : tracker_(tracker), open_(std::move(open)), done_(std::move(done)) {
    request_.set_id(lease);
    context_.set_deadline(After(kCallTimeout));
  }

  void Start(pb::Lease::Stub* stub) {
    tracker_->Begin();
    stub->async()->LeaseKeepAlive(&context_, this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    answered_ = ok;
    if (ok) context_.TryCancel();
  }

  void OnDone(const grpc::Status& status) override {
    absl::StatusOr<bool> result = true;
    if (!answered_) {
      result = status.ok() ? absl::UnavailableError("etcd did not answer") : FromGrpc(status);
    } else if (response_.ttl() <= 0) {
      result = absl::NotFoundError(absl::StrCat("etcd has no lease ", request_.id()));
    }
    tracker_->End([this, result] {
      const auto done = std::move(done_);
      const bool open = *open_;
      delete this;
      if (open) done(result);
    });
  }

 private:
  CallTracker* const tracker_;
  const std::shared_ptr<bool> open_;
  EtcdClient::Done<bool> done_;
  grpc::ClientContext context_;
  pb::LeaseKeepAliveRequest request_;
  pb::LeaseKeepAliveResponse response_;
  bool answered_ = false;
};

class Client : public EtcdClient {
 public:
  Client(CallTracker* tracker, const std::vector<std::string>& endpoints,
         const Credentials& credentials)
      : tracker_(tracker), calls_(tracker) {
    for (const std::string& url : endpoints) {
      const size_t slashes = url.find("://");
      const bool tls = url.substr(0, slashes) == "https";
      auto channel =
          MakeChannel(url.substr(slashes + 3), tls ? credentials : Credentials(), "", kKeepalive);
      endpoints_.push_back({url, pb::KV::NewStub(channel), pb::Lease::NewStub(channel),
                            pb::Watch::NewStub(channel)});
    }
  }

  ~Client() override {
    *open_ = false;
    StopWatch();
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
    auto* stream = new KeepAliveStream(tracker_, open_, lease,
                                       [this, done = std::move(done)](absl::StatusOr<bool> result) {
                                         Note(result.status());
                                         done(std::move(result));
                                       });
    stream->Start(current().lease.get());
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
      Note(why);
      ended(why);
    };
    watch_ =
        WatchStream::Start(tracker_, current().watch.get(), prefix, revision, std::move(events));
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
  void Call(const Request& request, Async* async,
            void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                                  std::function<void(grpc::Status)>),
            RpcDone<Response> done) {
    calls_.Begin<Response>(
        request, kCallTimeout,
        [async, method](grpc::ClientContext* context, const Request* in, Response* out,
                        std::function<void(grpc::Status)> callback) {
          (async->*method)(context, in, out, std::move(callback));
        },
        [this, done = std::move(done)](absl::StatusOr<Response> answer) {
          Note(answer.status());
          done(std::move(answer));
        });
  }

  void StopWatch() {
    if (watch_ == nullptr) return;
    watch_->events = {};
    if (watch_->context != nullptr) watch_->context->TryCancel();
    watch_ = nullptr;
  }

  CallTracker* const tracker_;
  std::vector<Endpoint> endpoints_;
  size_t current_ = 0;
  std::shared_ptr<bool> open_ = std::make_shared<bool>(true);
  std::shared_ptr<WatchStream::Listener> watch_;
  UnaryCalls calls_;
};

}  // namespace

std::unique_ptr<EtcdClient> MakeEtcdClient(CallTracker* tracker,
                                           const std::vector<std::string>& endpoints,
                                           const Credentials& credentials) {
  return std::make_unique<Client>(tracker, endpoints, credentials);
}

}  // namespace shunt::cluster
