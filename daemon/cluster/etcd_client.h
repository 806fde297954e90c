// The calls to etcd that the membership needs, without gRPC's headers. On the event loop's thread;
// none blocks. Its endpoints are asked in turn: a call that finds its endpoint unreachable fails,
// and the next call goes to the next one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/cluster/call_tracker.h"
#include "daemon/cluster/peer_rpc.h"

namespace shunt::cluster {

struct EtcdKey {
  std::string key;
  std::string value;
  int64_t mod_revision = 0;
  int64_t lease = 0;
};

struct EtcdEvent {
  bool deleted = false;
  EtcdKey key;  // without a value if deleted
};

struct EtcdListing {
  int64_t revision = 0;  // of the store
  std::vector<EtcdKey> keys;
};

struct EtcdPut {
  bool done = false;
  EtcdKey holder;  // what is there if it was not done
};

class EtcdClient {
 public:
  virtual ~EtcdClient() = default;
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // A new lease's id.
  virtual void Grant(std::chrono::seconds ttl, Done<int64_t> done) = 0;
  // NOT_FOUND if there is no such lease any more.
  virtual void KeepAlive(int64_t lease, Done<bool> done) = 0;
  virtual void Revoke(int64_t lease, Done<bool> done) = 0;
  // Writes the key if its mod_revision is `expected` (0: if it is not there).
  virtual void PutIf(const std::string& key, int64_t expected, const std::string& value,
                     int64_t lease, Done<EtcdPut> done) = 0;
  virtual void List(const std::string& prefix, Done<EtcdListing> done) = 0;

  // What happens to the keys from `revision` on. One watch at a time: another call replaces it.
  struct WatchEvents {
    std::function<void()> started;
    // `revision` of the store up to which all is told.
    std::function<void(const std::vector<EtcdEvent>& events, int64_t revision)> changed;
    // It has ended: OUT_OF_RANGE if the store has forgotten `revision`, else why.
    std::function<void(const absl::Status& why)> ended;
  };
  virtual void Watch(const std::string& prefix, int64_t revision, WatchEvents events) = 0;

  // Which endpoint the next call goes to.
  virtual const std::string& endpoint() const = 0;
};

std::unique_ptr<EtcdClient> MakeEtcdClient(CallTracker* tracker,
                                           const std::vector<std::string>& endpoints,
                                           const Credentials& credentials);

}  // namespace shunt::cluster
