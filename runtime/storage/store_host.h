// A store with a thread of its own, for callers on any thread.
//
//   Read, Open, ... ──► commands ──► thread: makes the store, Post*, Poll ──► callback, on that
//   thread
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/storage/store.h"
#include "runtime/storage/store_tally.h"

namespace shunt::storage {

// Thread-safe. Callbacks must not block, and may post more. With nothing to do it uses no CPU.
class StoreHost {
 public:
  using Done = std::function<void(const Completion&)>;

  using Make = std::function<absl::StatusOr<std::unique_ptr<Store>>()>;

  // `on_start`, then `make`, are called on the thread before anything else: making a store may wait
  // for a disk. If that fails, so does all that is posted. RESOURCE_EXHAUSTED without a thread.
  static absl::StatusOr<std::unique_ptr<StoreHost>> Start(Make make,
                                                          std::function<void()> on_start = {});
  static absl::StatusOr<std::unique_ptr<StoreHost>> Start(std::unique_ptr<Store> store,
                                                          std::function<void()> on_start = {});
  // Stop. Not on the store's own thread, unless it has finished.
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;

  // Where what is posted from here on is counted. Before anybody else has it.
  void CountIn(std::shared_ptr<StoreTally> tally) { tally_ = std::move(tally); }

  // As Store's functions of the same names. Each calls `done` once and gives what Cancel takes. In
  // the order in which one thread posts them they reach the store. What comes after the end is
  // CANCELLED at once, on the thread that posts it.
  uint64_t Open(OpenRequest request, const Done& done);
  // The request is made on the store's thread, and never if it does not reach the store: what it
  // needs is then dropped with `make`.
  uint64_t Open(std::function<OpenRequest()> make, const Done& done);
  uint64_t Read(TransferRequest request, const Done& done);
  uint64_t Write(TransferRequest request, const Done& done);
  uint64_t Sync(ObjectId object, int64_t deadline_ns, const Done& done);
  uint64_t Begin(BeginRequest request, const Done& done);
  uint64_t Commit(ObjectId draft, int64_t deadline_ns, const Done& done);
  uint64_t Abort(ObjectId draft, const Done& done);
  void Close(ObjectId object);
  void Cancel(uint64_t token);
  // Calls it on the store's thread, in turn with what is posted; false, after the end, if it will
  // not.
  bool Run(std::function<void()> closure);

  // Destroys the store: what is under way is cancelled, and its callbacks called.
  void BeginStop();
  bool finished() const { return finished_.load(); }
  // False once the store could not be made, or it is to stop.
  bool serves() const { return serves_.load(); }
  // The same as BeginStop, and waits for the end.
  void Stop();
  // The same, but waits until then at most. False: a file system or a server does not answer, and
  // the thread is left behind. It calls nothing back and frees nothing any more, and this object
  // must stay for good.
  bool StopBy(int64_t deadline_ns);
  // True once such a thread has come back, and rests for good.
  bool rests() const { return rests_.load(); }

 private:
  StoreHost(Make make, UniqueFd wake, std::function<void()> on_start)
      : make_(std::move(make)), wake_(std::move(wake)), on_start_(std::move(on_start)) {}
  static void* Main(void* host);
  Done Counted(const Done& done, Count StoreTally::*bytes) const;
  uint64_t Post(const Done& done, std::function<void(Store&, uint64_t)> post);
  bool Push(std::function<void()> command);
  void Call(const std::function<void()>& callback);
  Budget Guarded(Budget budget);
  void MakeStore();
  void Loop();
  bool RunCommands();  // false once it is to stop
  size_t TakeEnded();
  void Finish();

  std::shared_ptr<StoreTally> tally_;              // null: nobody counts
  Make make_;                                      // the thread's
  std::unique_ptr<Store> store_;                   // the thread's; null once it is closed
  absl::Status none_;                              // the thread's: why there is no store
  absl::flat_hash_map<uint64_t, Done> under_way_;  // the thread's
  const UniqueFd wake_;
  const std::function<void()> on_start_;
  std::atomic<uint64_t> next_token_ = 1;
  std::atomic<bool> finished_ = false;
  std::atomic<bool> serves_ = true;
  std::atomic<bool> rests_ = false;

  std::mutex calling_;  // held while others' code is called
  bool left_ = false;

  std::mutex mutex_;
  std::condition_variable ended_;
  bool stop_ = false;
  bool closed_ = false;  // nothing runs any more
  std::vector<std::function<void()>> commands_;

  std::mutex join_mutex_;
  bool joinable_ = false;
  pthread_t thread_ = {};
};

}  // namespace shunt::storage
