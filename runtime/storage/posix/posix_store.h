// Files as a store: io_uring or threads for the bytes, threads for calls that only block.
//
//   posix_store.cc   what is posted, stopped, and has ended
//   objects.cc       objects and drafts: checks, and jobs that block, for the pool
//   transfers.cc     pieces to single reads and writes, bounded by the queue depth
//
// An operation that a disk or a network file system is busy with can't be called back: its
// completion waits for it, also after Cancel or its deadline.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/storage/coverage.h"
#include "runtime/storage/posix/draft.h"
#include "runtime/storage/posix/engine.h"
#include "runtime/storage/posix/options.h"
#include "runtime/storage/posix/pool.h"
#include "runtime/storage/posix/root.h"
#include "runtime/storage/posix/transfers.h"
#include "runtime/storage/store.h"
#include "runtime/storage/timers.h"

namespace shunt::storage {

class PosixStore : public Store {
 public:
  // Opens the roots. NOT_FOUND and the like name the one that can't be opened. The process ignores
  // SIGXFSZ from then on, unless it handles it.
  static absl::StatusOr<std::unique_ptr<PosixStore>> Make(PosixOptions options);
  ~PosixStore() override;

  Features features() const override { return {.descriptors = true, .in_place = true}; }
  void PostOpen(OpenRequest request, uint64_t token) override;
  void PostRead(TransferRequest request, uint64_t token) override;
  void PostWrite(TransferRequest request, uint64_t token) override;
  void PostSync(ObjectId object, int64_t deadline_ns, uint64_t token) override;
  void PostBegin(BeginRequest request, uint64_t token) override;
  void PostCommit(ObjectId draft, int64_t deadline_ns, uint64_t token) override;
  void PostAbort(ObjectId draft, uint64_t token) override;
  void Close(ObjectId object) override;
  void Cancel(uint64_t token) override;
  void AddMemory(absl::Span<std::byte> memory) override { engine_->AddMemory(memory); }
  void RemoveMemory(absl::Span<std::byte> memory) override { engine_->RemoveMemory(memory); }
  size_t Poll(absl::Span<Completion> out) override;
  int fd() const override { return epoll_.get(); }

  // "io_uring" or "threads".
  const char* engine() const { return engine_->name(); }

 private:
  // A blocking call on a thread, and what its result means here.
  struct Job {
    uint64_t token = 0;
    std::string what;
    std::function<void(Completion*)> finish;
  };

  PosixStore(PosixOptions options, Timers timers);
  absl::Status Start();
  void StartJob(uint64_t token, int64_t deadline_ns, std::string what, std::function<void()> work,
                std::function<void(Completion*)> finish);
  void StartTransfer(bool write, const TransferRequest& request, uint64_t token);
  absl::Status Resolve(bool write, const TransferRequest& request, std::vector<FilePiece>* pieces);
  void EndTransfer(Transfer* transfer);
  void AbortDraft(std::shared_ptr<StoredFile> file, uint64_t token, absl::Status status);
  void Stop(uint64_t id, absl::StatusCode code);
  void Fail(uint64_t token, absl::Status status);
  absl::StatusOr<std::shared_ptr<StoredFile>> Find(ObjectId id, bool draft) const;
  const Root* FindRoot(const std::string& name) const;
  std::shared_ptr<StoredFile> NewFile();
  bool idle() const { return jobs_.empty() && transfers_.empty(); }

  const PosixOptions options_;
  Timers timers_;
  std::vector<Root> roots_;
  UniqueFd wake_;
  UniqueFd epoll_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Pump> pump_;

  uint64_t next_id_ = 1;  // of objects, jobs and transfers alike
  absl::flat_hash_map<ObjectId, std::shared_ptr<StoredFile>> objects_;
  absl::flat_hash_map<uint64_t, Job> jobs_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  absl::flat_hash_map<uint64_t, uint64_t> ids_;  // by token
  std::deque<Completion> ended_;
};

}  // namespace shunt::storage
