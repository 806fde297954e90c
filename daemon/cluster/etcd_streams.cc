#include "daemon/cluster/etcd_streams.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace shunt::cluster {

namespace pb = ::etcdserverpb;

std::string PrefixEnd(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

EtcdKey ToKey(const pb::KeyValue& kv) {
  return {kv.key(), kv.value(), kv.mod_revision(), kv.lease()};
}

WatchStream::WatchStream(ClientCalls* owner, EtcdClient::WatchEvents events)
    : ClientCall(owner), events_(std::move(events)) {}

WatchStream* WatchStream::Start(ClientCalls* owner, pb::Watch::Stub* stub,
                                const std::string& prefix, int64_t revision,
                                EtcdClient::WatchEvents events) {
  auto* const stream = new WatchStream(owner, std::move(events));
  pb::WatchCreateRequest* const create = stream->request_.mutable_create_request();
  create->set_key(prefix);
  create->set_range_end(PrefixEnd(prefix));
  create->set_start_revision(revision);
  stub->async()->Watch(&stream->context_, stream);
  stream->StartWrite(&stream->request_);
  stream->StartRead(&stream->response_);
  stream->StartCall();
  return stream;
}

void WatchStream::Stop() {
  stopped_ = true;  // not cleared: one of them may be running
  context_.TryCancel();
}

void WatchStream::OnReadDone(bool ok) {
  if (!ok) return;  // OnDone follows
  if (response_.canceled()) {
    why_ = response_.compact_revision() != 0
               ? absl::OutOfRangeError(absl::StrCat("etcd has dropped what was before revision ",
                                                    response_.compact_revision()))
               : absl::UnavailableError(
                     absl::StrCat("etcd ended the watch: ", response_.cancel_reason()));
    return context_.TryCancel();
  }
  if (response_.created()) {
    OnLoop([this] {
      if (!stopped_ && events_.started) events_.started();
    });
  }
  std::vector<EtcdEvent> events;
  for (const pb::Event& event : response_.events()) {
    events.push_back({event.type() == pb::Event::DELETE, ToKey(event.kv())});
  }
  if (!events.empty()) {
    OnLoop([this, events = std::move(events), revision = response_.header().revision()] {
      if (!stopped_ && events_.changed) events_.changed(events, revision);
    });
  }
  StartRead(&response_);
}

void WatchStream::Ended(const absl::Status& status) {
  if (stopped_ || !events_.ended) return;
  if (!why_.ok()) return events_.ended(why_);
  events_.ended(status.ok() ? absl::UnavailableError("etcd ended the watch") : status);
}

KeepAliveStream::KeepAliveStream(ClientCalls* owner, EtcdClient::Done<bool> done)
    : ClientCall(owner), done_(std::move(done)) {}

void KeepAliveStream::Start(ClientCalls* owner, pb::Lease::Stub* stub, int64_t lease,
                            std::chrono::nanoseconds timeout, EtcdClient::Done<bool> done) {
  auto* const stream = new KeepAliveStream(owner, std::move(done));
  stream->request_.set_id(lease);
  stream->context_.set_deadline(After(timeout));
  stub->async()->LeaseKeepAlive(&stream->context_, stream);
  stream->StartWriteLast(&stream->request_, grpc::WriteOptions());
  stream->StartRead(&stream->response_);
  stream->StartCall();
}

void KeepAliveStream::OnReadDone(bool ok) {
  answered_ = ok;
  if (ok) context_.TryCancel();
}

void KeepAliveStream::Ended(const absl::Status& status) {
  if (!answered_)
    return done_(status.ok() ? absl::UnavailableError("etcd did not answer") : status);
  if (response_.ttl() > 0) return done_(true);
  done_(absl::NotFoundError(absl::StrCat("etcd has no lease ", request_.id())));
}

}  // namespace shunt::cluster
