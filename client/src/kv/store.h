// A store of blocks in tiers. Three threads of its own do what takes time; which block is where is
// decided under one lock, in which nothing waits.
//
//   caller ── put, get: slots, transfers ──► in flight ──► memory thread: ends, parked puts
//                 └── blocks that lie below ──► reader: file, objects; promotes
//   writer: dirty memory ──► file ──► objects; un-names what was erased; flushes
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/fork_guard.h"
#include "client/src/kv/below.h"
#include "client/src/kv/call.h"
#include "client/src/kv/mover.h"
#include "client/src/session.h"
#include "runtime/core/fd.h"
#include "runtime/kv/index_log.h"
#include "runtime/kv/slot_map.h"
#include "runtime/kv/write_down.h"

namespace shunt::client::kv {

using shunt::tiers::SlotMap;
using shunt::tiers::Tier;

struct StoreOptions {
  uint64_t block_bytes = 0;
  uint64_t memory_bytes = 0;
  std::string directory;  // "": no file tier
  uint64_t file_bytes = 0;
  ObjectPlace objects;  // its endpoint is "": none; its key is the prefix
  uint64_t object_bytes = 0;
};

// A block of a call: the caller's memory for it.
struct CallBlock {
  std::string key;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

struct TierFacts {
  uint64_t slots = 0;
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  uint64_t hits = 0;
  uint64_t hit_bytes = 0;
  uint64_t written = 0;
  uint64_t evictions = 0;
};

struct StoreFacts {
  std::array<TierFacts, shunt::tiers::kTiers> tiers;
  uint64_t puts = 0;
  uint64_t puts_present = 0;
  uint64_t put_bytes = 0;
  uint64_t misses = 0;
  uint64_t promotions = 0;
  uint64_t dropped = 0;
  uint64_t corrupt = 0;
  uint64_t errors = 0;
  uint64_t dirty = 0;
  uint64_t rewrites = 0;
};

// Thread-safe. See shunt_kv.h for what the calls do.
class Store final : private ForkTarget {
 public:
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::shared_ptr<Session>& session,
                                                     const StoreOptions& options);
  // Closes. Not in a forked child: the threads in it are the parent's.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const std::string& notes() const { return notes_; }
  const std::shared_ptr<Session>& session() const { return mover_.session(); }

  // Keys have 1 to 64 bytes. INVALID_ARGUMENT for blocks that are no such, FAILED_PRECONDITION once
  // it closes.
  absl::StatusOr<std::shared_ptr<Call>> Put(std::vector<CallBlock> blocks, int64_t deadline_ns);
  absl::StatusOr<std::shared_ptr<Call>> Get(std::vector<CallBlock> blocks, int64_t deadline_ns);
  absl::StatusOr<std::shared_ptr<Call>> Flush(int64_t deadline_ns);
  std::optional<Tier> Lookup(std::string_view key) const;
  bool Erase(std::string_view key);
  StoreFacts Facts() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  static size_t Number(Tier tier) { return static_cast<size_t>(tier); }

  struct PutState {
    std::shared_ptr<Call> call;
    std::vector<CallBlock> blocks;
    size_t next = 0;        // the first that has no slot yet
    bool for_room = false;  // what it waits for: room, or another put of a key
  };
  using PutPtr = std::shared_ptr<PutState>;
  // A transfer between the caller's memory and the memory tier, and what is done when it has ended.
  struct InFlight {
    absl::StatusOr<std::shared_ptr<Transfer>> transfer;
    std::function<void(Lock&, const absl::Status&)> then;
  };
  // A block of a get, and the slot, pinned, that it lies in.
  struct GetBlock {
    size_t number = 0;
    uint32_t slot = 0;
    std::string key;
    std::byte* data = nullptr;
    uint64_t bytes = 0;
    uint32_t sum = 0;
    absl::Status outcome;
    bool wrong = false;  // it was read, and is not what the index says
  };
  struct GetState {
    std::shared_ptr<Call> call;
    size_t parts = 0;
  };
  using GetPtr = std::shared_ptr<GetState>;
  struct ReadJob {
    GetPtr get;
    Tier tier = Tier::kFile;
    std::vector<GetBlock> blocks;
  };
  struct FlushState {
    std::shared_ptr<Call> call;
    std::vector<std::pair<uint32_t, uint64_t>> left;  // memory slots and their generations
  };

  Store(std::shared_ptr<Session> session, const StoreOptions& options);
  absl::Status OpenTiers();
  absl::Status OpenFileTier();
  absl::Status ForgetLost(uint64_t file_bytes);
  absl::Status Restore();
  void StartThreads();
  void Close();
  void OnForkChild() override;

  absl::Status CheckBlocks(const std::vector<CallBlock>& blocks) const;
  // Of a get: no block's room is another's too.
  static absl::Status CheckRoom(const std::vector<CallBlock>& blocks);
  absl::Status BeginCall(Lock& lock);
  void EndCall(Lock& lock, Call* call);

  // ---- Memory (store_memory.cc)
  bool HasLower() const { return file_map_ || object_map_; }
  std::byte* MemoryAt(uint32_t slot) const { return memory_data_ + slot * slot_bytes_; }
  // A slot for it: free, or of the oldest block that may go. Nothing: wait.
  std::optional<uint32_t> TakeMemorySlot(const std::string& key);
  void UnpinMemory(uint32_t slot);
  // A tier below has lost its block: what memory has of it is to be written again. False if no tier
  // has it any more.
  bool LostBelow(const std::string& key);
  // The first to go below: blocks that memory does not hold, which would have to be written again.
  // There are some, as the tier below has as many slots as memory at least.
  std::vector<uint32_t> OldestBelow(const SlotMap& map, size_t max) const;
  // Whether the last get of the object in `slot` has not found it.
  bool Doubted(uint32_t slot) const;
  // Who puts the key has its bytes: an object that may be gone is not needed.
  void ForgetDoubted(const std::string& key);
  // `bytes`: how many the block has.
  bool TouchPresent(const std::string& key, std::optional<Tier>* tier, uint64_t* bytes = nullptr);
  void MemoryLoop();
  void ExpireParked(Lock& lock);
  void WakePuts();

  // ---- Puts (store_put.cc)
  void AdvancePut(Lock& lock, const PutPtr& put);
  void PutArrived(Lock& lock, const PutPtr& put, const std::vector<std::pair<size_t, uint32_t>>& to,
                  const absl::Status& status);
  void FailPut(Lock& lock, const PutPtr& put, const absl::Status& status);

  // ---- Gets (store_get.cc)
  void StartMemoryPart(Lock& lock, const GetPtr& get, std::vector<GetBlock> blocks);
  void EndPart(Lock& lock, const GetPtr& get, Tier tier, std::vector<GetBlock>& blocks);
  void ReaderLoop();
  void Read(Lock& lock, ReadJob& job);
  void Verify(std::vector<GetBlock>& blocks) const;
  void Promote(Lock& lock, const std::vector<GetBlock>& blocks, int64_t deadline_ns);

  // ---- Writing down (store_writer.cc)
  void WriterLoop();
  bool WriterHasWork() const;
  bool WantsRoom() const;
  absl::Status WriterStep(Lock& lock);
  absl::Status UnnameDoomed(Lock& lock, Tier tier);
  std::vector<uint32_t> NextDirty();
  absl::Status MakeFileRoom(Lock& lock, size_t count);
  absl::Status WriteToFile(Lock& lock, const std::vector<uint32_t>& slots);
  absl::Status WriteToObjects(Lock& lock, const std::vector<uint32_t>& slots);
  absl::Status DemoteToObjects(Lock& lock, const std::vector<uint32_t>& file_slots);
  absl::StatusOr<bool> MakeObjectRoom(Lock& lock);
  absl::Status PutObject(Lock& lock, const shunt::tiers::Block& block, const std::byte* data);
  absl::Status EndFlushes(Lock& lock);
  void ExpireFlushes(Lock& lock);
  void WaitUnpinned(Lock& lock);
  int64_t FirstFlushNs() const;
  // Nobody waits any more for what the writer does.
  bool NobodyWaits() const { return closing_ && flushes_.empty(); }
  void WriterFailed(Lock& lock, const absl::Status& status);
  size_t BatchBlocks() const;

  const StoreOptions options_;
  const uint64_t slot_bytes_;
  Mover mover_;
  std::string notes_;

  std::byte* memory_data_ = nullptr;   // a region
  std::byte* staging_data_ = nullptr;  // of the writer: blocks between file and objects
  UniqueFd lock_;
  std::unique_ptr<shunt::tiers::LogDirectory> directory_;
  std::unique_ptr<shunt::tiers::IndexLog> index_;  // the writer's
  std::unique_ptr<BlockFile> file_;
  std::unique_ptr<BlockObjects> objects_;

  mutable std::mutex mutex_;  // the rest
  SlotMap memory_map_;
  std::optional<SlotMap> file_map_, object_map_;
  // Objects that were not found, by slot, with the slot's generation. All are not found while the
  // bucket or the endpoint is a wrong one, which is no reason to forget them.
  std::map<uint32_t, uint64_t> doubted_;
  StoreFacts facts_;
  size_t calls_ = 0;  // under way
  bool closing_ = false;
  bool stop_ = false;

  std::condition_variable memory_changed_, reader_changed_, writer_changed_, calls_changed_;
  std::deque<InFlight> in_flight_;
  std::deque<PutPtr> parked_;
  bool retry_parked_ = false;
  std::deque<ReadJob> reads_;
  std::deque<FlushState> flushes_;
  bool writer_failed_ = false;  // at what nobody waits for: tried again when somebody does
  bool pinned_ = false;         // all that could be given up is being read

  std::thread memory_thread_, reader_thread_, writer_thread_;
};

}  // namespace shunt::client::kv
