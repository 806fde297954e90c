// etcd's two streams: watching keys, and keeping a lease. Both own themselves (client_call.h).
#pragma once

#include <cstdint>
#include <string>

#include "daemon/cluster/client_call.h"
#include "daemon/cluster/etcd_client.h"
#include "etcd/etcd.grpc.pb.h"

namespace shunt::cluster {

// The first key after all that begin with `prefix`, as etcd's range_end wants it.
std::string PrefixEnd(std::string prefix);

EtcdKey ToKey(const etcdserverpb::KeyValue& kv);

// A watch: read until it ends.
class WatchStream
    : public ClientCall<
          grpc::ClientBidiReactor<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse>> {
 public:
  // The stream is there until `ended` is called or the owner is destroyed.
  static WatchStream* Start(ClientCalls* owner, etcdserverpb::Watch::Stub* stub,
                            const std::string& prefix, int64_t revision,
                            EtcdClient::WatchEvents events);
  // Nothing is called any more, and the stream is not there for the caller any more. On the loop.
  void Stop();

 private:
  WatchStream(ClientCalls* owner, EtcdClient::WatchEvents events);
  void OnReadDone(bool ok) override;
  void Ended(const absl::Status& status) override;

  const EtcdClient::WatchEvents events_;
  bool stopped_ = false;  // the loop's
  etcdserverpb::WatchRequest request_;
  etcdserverpb::WatchResponse response_;
  absl::Status why_;  // etcd's own word, if it ended the watch
};

// One question, one answer on a stream.
class KeepAliveStream
    : public ClientCall<grpc::ClientBidiReactor<etcdserverpb::LeaseKeepAliveRequest,
                                                etcdserverpb::LeaseKeepAliveResponse>> {
 public:
  static void Start(ClientCalls* owner, etcdserverpb::Lease::Stub* stub, int64_t lease,
                    std::chrono::nanoseconds timeout, EtcdClient::Done<bool> done);

 private:
  KeepAliveStream(ClientCalls* owner, EtcdClient::Done<bool> done);
  void OnReadDone(bool ok) override;
  void Ended(const absl::Status& status) override;

  const EtcdClient::Done<bool> done_;
  etcdserverpb::LeaseKeepAliveRequest request_;
  etcdserverpb::LeaseKeepAliveResponse response_;
  bool answered_ = false;
};

}  // namespace shunt::cluster
