// Regions that are files or objects: what a session has opened in a store.
//
//   Open ──► StoreHost ──► StoreRegion ◄── StoreUse, of a transfer ──► pieces of its object
//
// Files are opened by their clients, or lie below configured roots: the daemon's rights are not a
// client's. Each user has stores of its own (StoreHosts).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client_fd.h"
#include "daemon/session.h"
#include "daemon/transfer/store_hosts.h"
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
  std::shared_ptr<const std::string> use;  // what for; its holders are counted
};

// Thread-safe.
class StoreRegions {
 public:
  using SessionPtr = std::shared_ptr<Session>;
  struct Endpoint {
    std::string name;
    storage::S3Endpoint endpoint;
    // The daemon's own keys, and who may use them beside root and the daemon's own user.
    storage::S3CredentialSource credentials = {};
    std::vector<uint32_t> users = {};
    bool has_credentials() const {
      return credentials.kind != storage::S3CredentialSource::Kind::kAnonymous;
    }
  };
  struct Plugin {
    std::string name;  // used as a root's
    std::string library;
    std::string options;
  };
  struct Options {
    std::vector<storage::PosixRoot> roots = {};
    std::vector<Endpoint> endpoints = {};
    std::vector<Plugin> plugins = {};
    uint64_t session_regions = 4096;
    uint64_t user_regions = 4096;
    uint64_t total_regions = 4096;
    StoreHosts::Limits hosts = {};
    StoreHosts::At at = {};
    storage::StoreTallies* tallies = nullptr;  // outlives this; null: nobody counts
  };
  // `ids` numbers regions, and counts memory that stores take for a session; it outlives this.
  StoreRegions(Options options, memory::RegionTable* ids);
  ~StoreRegions();

  // Looks at the roots. Errors name the one that is wrong.
  absl::Status Start();
  // Everybody who waits is told, and what is under way ends; a store that does not answer by then
  // is left behind. Nothing can be opened afterwards.
  void Stop(int64_t deadline_ns);

  // All of these call back once, perhaps at once, perhaps on a store's thread.
  using Opened = std::function<void(const absl::StatusOr<std::shared_ptr<StoreRegion>>&)>;
  using Told = std::function<void(const absl::Status&)>;
  // Where an object is, and the keys that its requests are signed with.
  struct ObjectPlace {
    std::string endpoint;
    std::string access_key, secret_key, session_token;
    bool daemon_keys = false;  // those of the endpoint's configuration, instead of these
  };
  // No place: a file, by a descriptor or below a root, or an object of a plugin that is named as a
  // root is.
  using Place = std::optional<ObjectPlace>;
  void Open(const SessionPtr& session, const Place& place, storage::OpenRequest request,
            ClientFd descriptor, Opened opened);
  void Create(const SessionPtr& session, const Place& place, storage::BeginRequest request,
              Opened opened);
  void Commit(const SessionPtr& session, uint64_t id, int64_t deadline_ns, Told told);
  void Abort(const SessionPtr& session, uint64_t id, Told told);
  void Sync(const SessionPtr& session, uint64_t id, int64_t deadline_ns, Told told);

  // NOT_FOUND as RegionTable's.
  absl::StatusOr<std::shared_ptr<StoreRegion>> Find(uint64_t session, uint64_t id) const;
  absl::StatusOr<StoreUse> Use(uint64_t session, uint64_t id, std::string words);
  bool Has(uint64_t session, uint64_t id) const { return Find(session, id).ok(); }
  // FAILED_PRECONDITION names what uses it. A draft is aborted.
  absl::Status Free(uint64_t session, uint64_t id);
  // All of it goes, and who waits for its store is told; what transfers use goes when they end.
  void SessionGone(uint64_t session);
  std::vector<std::shared_ptr<StoreRegion>> List(uint64_t session) const;

 private:
  struct Entry {
    std::shared_ptr<StoreRegion> region;
    std::shared_ptr<std::string> use;  // words for its last use; shared as long as it is in use
  };
  struct OfSession {
    memory::Owner owner;
    std::unordered_map<uint64_t, Entry> regions;
    uint64_t opening = 0;
    std::unordered_map<uint64_t, Told> waiting;  // for a store: by a number of the call's
  };
  struct OfUser {
    uint64_t sessions = 0;
    uint64_t regions = 0;  // and what is to be one
  };

  // store_places.cc: the store that the place is in.
  using Host = absl::StatusOr<std::shared_ptr<storage::StoreHost>>;
  Host HostOf(const Session& session, const Place& place, const std::string& container);
  Host FilesOf(const Session& session);
  Host ObjectsOf(const Session& session, const ObjectPlace& place);
  // What is being opened, and who is to tell of it.
  struct Opening {
    std::shared_ptr<StoreRegion> region;
    std::function<bool()> mine;
  };
  absl::StatusOr<Opening> Begin(const SessionPtr& session, const Place& place,
                                const std::string& container, const std::string& name,
                                const Opened& opened);
  // Room for one more.
  absl::Status Reserve(const SessionPtr& session);
  // What a reservation has become: a region, or nothing.
  absl::Status Take(const SessionPtr& session, const std::shared_ptr<StoreRegion>& region,
                    const storage::Completion& completion);
  // Remembers a call that waits for a store: `told` is called if the session ends before the result
  // is, which is true for who is to tell the outcome. RESOURCE_EXHAUSTED if too many wait.
  absl::StatusOr<std::function<bool()>> Await(const Session& session, Told told);
  storage::StoreHost::Done TakeAndTell(const SessionPtr& session, Opening opening, Opened opened);
  static storage::StoreHost::Done Tell(std::function<bool()> mine, Told told,
                                       std::shared_ptr<StoreUse> use);
  // mutex_ held.
  OfSession& SessionLocked(const Session& session);
  absl::StatusOr<Entry*> FindLocked(uint64_t session, uint64_t id);
  absl::StatusOr<std::shared_ptr<StoreRegion>> TakeOut(uint64_t session, uint64_t id,
                                                       bool in_use_too, bool draft);
  void CountOutLocked(memory::Owner owner, uint64_t regions);

  const Options options_;
  memory::RegionTable* const ids_;
  StoreHosts hosts_;

  mutable std::mutex mutex_;
  bool stopped_ = false;
  uint64_t next_wait_ = 1;
  uint64_t total_ = 0;  // regions, and what is to be one
  std::unordered_map<uint64_t, OfSession> sessions_;
  std::unordered_map<uint32_t, OfUser> users_;
};

}  // namespace shunt::daemon
