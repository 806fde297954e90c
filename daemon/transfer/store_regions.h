// Regions that are files or objects: what a session has opened in a store.
//
//   OpenFile ──► StoreHost ──► StoreRegion ◄── StoreUse, of a transfer ──► pieces of its object
//
// Files are opened by their clients, or lie below configured roots: the daemon's rights are not a
// client's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session.h"
#include "runtime/memory/region_table.h"
#include "runtime/p2p/prepared_list.h"
#include "runtime/storage/posix/options.h"
#include "runtime/storage/s3/options.h"
#include "runtime/storage/store_host.h"

namespace shunt::daemon {

// Of lists of such regions: no byte of theirs is one of memory. Those of other nodes are odd.
inline constexpr p2p::Space kStoreSpace = 2;

struct StoreRegion {
  ~StoreRegion();

  uint64_t id = 0;
  memory::Owner owner;
  bool is_object = false;
  bool writable = false;
  bool draft = false;
  uint64_t bytes = 0;
  std::string label;  // for errors: "file models/a"
  std::shared_ptr<storage::StoreHost> host;
  storage::ObjectId object = 0;
  // A draft's: its store has been told how it ends.
  std::atomic<bool> over = false;
};

// Says that a transfer uses the region: it is not freed meanwhile.
struct StoreUse {
  std::shared_ptr<StoreRegion> region;
  std::shared_ptr<const std::string> count;
};

// Thread-safe.
class StoreRegions {
 public:
  using SessionPtr = std::shared_ptr<Session>;
  struct Endpoint {
    std::string name;
    storage::S3Endpoint endpoint;
  };
  struct Options {
    std::vector<storage::PosixRoot> roots = {};
    std::vector<Endpoint> endpoints = {};
    uint64_t session_regions = 4096;
    uint64_t total_regions = 4096;
  };
  // `ids` numbers them; it outlives this.
  StoreRegions(Options options, memory::RegionTable* ids);
  ~StoreRegions() { Stop(); }

  // Opens the roots, if there are any; otherwise the first use starts the store. Errors name the
  // root.
  absl::Status Start();
  // What is under way ends, and is told. Nothing can be opened afterwards.
  void Stop();

  // All of these call back once, perhaps at once, perhaps on a store's thread.
  using Opened = std::function<void(const absl::StatusOr<std::shared_ptr<StoreRegion>>&)>;
  using Told = std::function<void(const absl::Status&)>;
  void OpenFile(const SessionPtr& session, storage::OpenRequest request, Opened opened);
  void CreateFile(const SessionPtr& session, storage::BeginRequest request, Opened opened);
  struct ObjectPlace {
    std::string endpoint;
    std::string access_key, secret_key, session_token;
  };
  void OpenObject(const SessionPtr& session, const ObjectPlace& place, storage::OpenRequest request,
                  Opened opened);
  void CreateObject(const SessionPtr& session, const ObjectPlace& place,
                    storage::BeginRequest request, Opened opened);
  void Commit(uint64_t session, uint64_t id, int64_t deadline_ns, Told told);
  void Abort(uint64_t session, uint64_t id, Told told);
  void Sync(uint64_t session, uint64_t id, int64_t deadline_ns, Told told);

  // NOT_FOUND as RegionTable's.
  absl::StatusOr<std::shared_ptr<StoreRegion>> Find(uint64_t session, uint64_t id) const;
  absl::StatusOr<StoreUse> Use(uint64_t session, uint64_t id, std::string words);
  bool Has(uint64_t session, uint64_t id) const { return Find(session, id).ok(); }
  // FAILED_PRECONDITION names what uses it. A draft is aborted.
  absl::Status Free(uint64_t session, uint64_t id);
  // All of it goes; what transfers use goes when they end.
  void SessionGone(uint64_t session);
  std::vector<std::shared_ptr<StoreRegion>> List(uint64_t session) const;

 private:
  struct Entry {
    std::shared_ptr<StoreRegion> region;
    std::shared_ptr<std::string> use;  // words for its last use; shared as long as it is in use
  };
  struct ObjectHost {
    ObjectPlace place;
    std::shared_ptr<storage::StoreHost> host;
  };
  struct OfSession {
    std::unordered_map<uint64_t, Entry> regions;
    uint64_t opening = 0;
    std::vector<ObjectHost> hosts;
  };

  absl::StatusOr<std::shared_ptr<storage::StoreHost>> Files();
  absl::StatusOr<std::shared_ptr<storage::StoreHost>> Objects(const SessionPtr& session,
                                                              const ObjectPlace& place);
  // Room for one more.
  absl::Status Reserve(const SessionPtr& session);
  // What a reservation has become: a region, or nothing.
  absl::Status Take(const SessionPtr& session, const std::shared_ptr<StoreRegion>& region,
                    const storage::Completion& completion);
  void Open(const SessionPtr& session, std::shared_ptr<StoreRegion> region,
            storage::OpenRequest request, Opened opened);
  void Create(const SessionPtr& session, std::shared_ptr<StoreRegion> region,
              storage::BeginRequest request, Opened opened);
  // mutex_ held.
  absl::StatusOr<Entry*> FindLocked(uint64_t session, uint64_t id);
  absl::StatusOr<std::shared_ptr<StoreRegion>> TakeOut(uint64_t session, uint64_t id,
                                                       bool in_use_too, bool draft);
  void ForgetFinishedLocked();

  const Options options_;
  memory::RegionTable* const ids_;

  std::mutex files_mutex_;  // held while the store is started
  std::shared_ptr<storage::StoreHost> files_;

  mutable std::mutex mutex_;
  bool stopped_ = false;
  uint64_t total_ = 0;  // regions, and what is to be one
  std::unordered_map<uint64_t, OfSession> sessions_;
  std::vector<std::shared_ptr<storage::StoreHost>> leaving_;  // of sessions that have ended
};

}  // namespace shunt::daemon
