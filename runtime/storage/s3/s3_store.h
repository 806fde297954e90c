// Objects of one S3 endpoint as a store, with one set of keys. Checksums and TLS are computed in
// Poll.
//
//   s3_store.cc   what is posted, stopped, and has ended
//   reading.cc    open (HEAD), ranged GETs in parallel
//   writing.cc    drafts, in one part or many, which are sent as they are complete
//   committing.cc how drafts end: one PUT, the completion of an upload, or its removal
//
//   calls.h       signing, retries, how many at a time   ─► http.h ─► libcurl
//   identity.h    keys, and when they are got anew
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "runtime/storage/budget.h"
#include "runtime/storage/coverage.h"
#include "runtime/storage/s3/calls.h"
#include "runtime/storage/s3/options.h"
#include "runtime/storage/store.h"
#include "runtime/storage/timers.h"

namespace shunt::storage {

// An open object or a draft.
struct S3Object {
  ObjectId id = 0;
  std::string bucket, key;
  std::string label;  // for errors: "bucket/key"
  uint64_t bytes = 0;
  std::string etag;  // of an object: that of another by its name differs

  struct Part {
    uint64_t covered = 0;                 // bytes of it that were written
    std::vector<std::byte> staging = {};  // until all are there
    std::shared_ptr<void> paid = {};      // for that
    std::string etag = {};                // once it was sent
  };
  bool draft = false;
  bool if_absent = false;
  std::string upload;  // the upload's id; empty for a draft that is sent by one PUT
  uint64_t part_bytes = 0;
  std::vector<Part> parts;
  Coverage written;
  Charge charge;
  uint32_t writes = 0;
  bool broken = false;
  bool closed = false;  // to be removed after the last write
};

class S3Store : public Store {
 public:
  // Takes the keys that are there; UNAUTHENTICATED if there are none, INVALID_ARGUMENT for a
  // malformed endpoint. Connects to nothing yet.
  static absl::StatusOr<std::unique_ptr<S3Store>> Make(S3Options options);
  ~S3Store() override;

  Features features() const override { return {}; }
  void PostOpen(OpenRequest request, uint64_t token) override;
  void PostRead(TransferRequest request, uint64_t token) override;
  void PostWrite(TransferRequest request, uint64_t token) override;
  void PostSync(ObjectId object, int64_t deadline_ns, uint64_t token) override;
  void PostBegin(BeginRequest request, uint64_t token) override;
  void PostCommit(ObjectId draft, int64_t deadline_ns, uint64_t token) override;
  void PostAbort(ObjectId draft, uint64_t token) override;
  void Close(ObjectId object) override;
  void Cancel(uint64_t token) override;
  size_t Poll(absl::Span<Completion> out) override;
  int fd() const override { return epoll_.get(); }

 private:
  enum class Kind : uint8_t { kOpen, kRead, kWrite, kBegin, kCommit, kAbort };
  struct Operation {
    Kind kind = Kind::kOpen;
    uint64_t id = 0;
    uint64_t token = 0;
    bool heard = true;      // somebody waits for its completion
    bool removing = false;  // has its result, and removes an upload yet
    std::string what;
    int64_t deadline_ns = kNeverNs;
    Urgency urgency = Urgency::kLatency;             // of what is no transfer
    std::vector<std::shared_ptr<S3Object>> objects;  // that it keeps
    absl::flat_hash_set<uint64_t> calls;             // under way
    absl::Status status;
    uint64_t bytes = 0;
    ObjectId object = 0;
  };
  using Done = std::function<void(Operation*, CallResult)>;

  S3Store(S3Options options, std::unique_ptr<Calls> calls, Timers timers)
      : options_(std::move(options)), calls_(std::move(calls)), timers_(std::move(timers)) {}
  Operation* StartOperation(Kind kind, uint64_t token, int64_t deadline_ns, std::string what);
  // `done` is called unless the operation has ended by then.
  void StartCall(Operation* operation, const S3Object& object, Call call, Done done);
  void StopCalls(Operation* operation);
  void EndOperation(Operation* operation);
  void Stop(uint64_t id, absl::StatusCode code);
  void Fail(uint64_t token, absl::Status status);
  absl::StatusOr<std::shared_ptr<S3Object>> Find(ObjectId id, bool draft) const;

  // reading.cc
  void Explain(Operation* operation, const std::shared_ptr<S3Object>& object, CallResult head);
  void Opened(Operation* operation, const std::shared_ptr<S3Object>& object, uint64_t bytes,
              std::string etag);
  void StartRange(Operation* operation, const S3Object& object, uint64_t offset, Spans into);

  // writing.cc
  struct PartWrite;
  absl::Status CheckWrite(const TransferRequest& request, std::vector<PartWrite>* writes);
  void WritePart(Operation* operation, PartWrite* write);
  void SendPart(Operation* operation, const std::shared_ptr<S3Object>& draft, size_t part,
                Spans data);
  std::vector<std::string> BodyHeaders(const Spans& data) const;

  // committing.cc
  void CommitWhole(Operation* operation, const std::shared_ptr<S3Object>& draft);
  void CommitParts(Operation* operation, const std::shared_ptr<S3Object>& draft);
  void CheckAbsent(Operation* operation, const std::shared_ptr<S3Object>& draft);
  void CheckWhetherCommitted(Operation* operation, const std::shared_ptr<S3Object>& draft,
                             bool lost);
  // Ends the operation with the status that it has when nothing is left of the upload.
  void RemoveUpload(Operation* operation, const std::shared_ptr<S3Object>& draft);
  void RemoveParts(Operation* operation, const std::shared_ptr<S3Object>& draft,
                   const std::string& upload, uint32_t round);
  void RemoveUnheard(const std::shared_ptr<S3Object>& draft);
  void StopWrites(const S3Object& draft);

  const S3Options options_;
  std::unique_ptr<Calls> calls_;
  Timers timers_;
  UniqueFd epoll_;

  uint64_t next_id_ = 1;  // of objects and operations alike
  uint64_t staged_bytes_ = 0;
  absl::flat_hash_map<ObjectId, std::shared_ptr<S3Object>> objects_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Operation>> operations_;
  absl::flat_hash_map<uint64_t, uint64_t> ids_;  // by token
  std::deque<Completion> ended_;
};

}  // namespace shunt::storage
