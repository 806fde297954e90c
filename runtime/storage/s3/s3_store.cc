#include "runtime/storage/s3/s3_store.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::storage {

absl::StatusOr<std::unique_ptr<S3Store>> S3Store::Make(S3Options options) {
  // What S3 accepts as parts (Amazon S3 User Guide, "Multipart upload limits").
  constexpr uint64_t kPartMin = 5 << 20, kPartMax = uint64_t{5} << 30;
  if (options.connections_max == 0 || options.attempts_max == 0 || options.range_bytes == 0 ||
      options.part_bytes < kPartMin || options.part_bytes > kPartMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.connections_max, " connections, ", options.attempts_max, " attempts, ranges of ",
        options.range_bytes, " and parts of ", options.part_bytes,
        " bytes; expected at least 1 each and parts of 5 MiB to 5 GiB"));
  }
  SHUNT_ASSIGN_OR_RETURN(Timers timers, Timers::Make());
  SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<Calls> calls, Calls::Make(options));
  std::unique_ptr<S3Store> store(
      new S3Store(std::move(options), std::move(calls), std::move(timers)));
  store->epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!store->epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  for (const int fd : {store->calls_->fd(), store->timers_.fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(store->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl");
    }
  }
  return store;
}

S3Store::~S3Store() {
  std::vector<uint64_t> ids;
  for (const auto& [token, id] : ids_) ids.push_back(id);
  for (const uint64_t id : ids) Stop(id, absl::StatusCode::kCancelled);
  for (const auto& [id, object] : std::exchange(objects_, {})) {
    if (object->draft) RemoveUnheard(object);
  }
  // What a server that does not answer keeps of drafts, it keeps.
  const int64_t limit_ns = DeadlineAfterNs(options_.end_timeout);
  while (!operations_.empty()) {
    Completion one;
    if (Poll(absl::MakeSpan(&one, 1)) > 0 || operations_.empty()) continue;
    const int64_t left_ms = (limit_ns - NowNs()) / 1'000'000;
    if (left_ms <= 0) break;
    pollfd ready{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, static_cast<int>(left_ms));
  }
}

size_t S3Store::Poll(absl::Span<Completion> out) {
  for (uint64_t id; timers_.PopDue(NowNs(), &id);) {
    Stop(id, absl::StatusCode::kDeadlineExceeded);
  }
  while (calls_->Run() && ended_.size() < out.size()) {
  }
  size_t count = 0;
  for (; count < out.size() && !ended_.empty(); ++count) {
    out[count] = std::move(ended_.front());
    ended_.pop_front();
  }
  timers_.Arm();
  return count;
}

S3Store::Operation* S3Store::StartOperation(Kind kind, uint64_t token, int64_t deadline_ns,
                                            std::string what) {
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  operation->id = next_id_++;
  operation->token = token;
  operation->what = std::move(what);
  operation->deadline_ns = deadline_ns;
  timers_.Set(operation->id, deadline_ns);
  ids_[token] = operation->id;
  Operation* const borrowed = operation.get();
  operations_.emplace(borrowed->id, std::move(operation));
  return borrowed;
}

void S3Store::StartCall(Operation* operation, const S3Object& object, Call call, Done done) {
  call.what = object.label;
  call.bucket = object.bucket;
  if (call.key.empty()) call.key = object.key;
  call.deadline_ns = operation->deadline_ns;
  call.urgency = operation->urgency;
  const auto call_id = std::make_shared<uint64_t>(0);
  call.done = [this, id = operation->id, call_id, done = std::move(done)](CallResult result) {
    Operation* const found = operations_.find(id)->second.get();
    found->calls.erase(*call_id);
    done(found, std::move(result));
  };
  *call_id = calls_->Start(std::move(call));
  operation->calls.insert(*call_id);
}

void S3Store::StopCalls(Operation* operation) {
  for (const uint64_t call : operation->calls) calls_->Stop(call);
  operation->calls.clear();
}

void S3Store::EndOperation(Operation* operation) {
  StopCalls(operation);
  timers_.Clear(operation->id);
  std::vector<std::shared_ptr<S3Object>> unused;
  if (operation->kind == Kind::kWrite) {
    for (const std::shared_ptr<S3Object>& draft : operation->objects) {
      if (!operation->status.ok()) draft->broken = true;
      if (--draft->writes == 0 && draft->closed) unused.push_back(draft);
    }
  }
  if (operation->heard) {
    ids_.erase(operation->token);
    ended_.push_back({.token = operation->token,
                      .status = std::move(operation->status),
                      .bytes = operation->bytes,
                      .object = operation->object});
  }
  operations_.erase(operation->id);
  for (const std::shared_ptr<S3Object>& draft : unused) RemoveUnheard(draft);
}

void S3Store::Cancel(uint64_t token) {
  const auto found = ids_.find(token);
  if (found != ids_.end()) Stop(found->second, absl::StatusCode::kCancelled);
}

void S3Store::Stop(uint64_t id, absl::StatusCode code) {
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  Operation* const operation = found->second.get();
  const char* words = code == absl::StatusCode::kCancelled
                          ? ": cancelled"
                          : ": its deadline passed before it ended";
  if (operation->removing) {
    // It ends soon; but a server that does not answer is not waited for.
    if (code != absl::StatusCode::kDeadlineExceeded) return;
    if (operation->kind == Kind::kAbort) {
      operation->status = {code, absl::StrCat(operation->what,
                                              ": the server did not answer in time and may keep "
                                              "parts of it")};
    }
    return EndOperation(operation);
  }
  switch (operation->kind) {
    case Kind::kBegin:
    case Kind::kAbort:
      // The server may have begun an upload already, and must be told to forget it: it goes on
      // without anybody waiting for it.
      ids_.erase(operation->token);
      timers_.Clear(operation->id);
      operation->heard = false;
      operation->deadline_ns = kNeverNs;
      return Fail(operation->token, {code, absl::StrCat(operation->what, words)});
    case Kind::kCommit:
      if (code == absl::StatusCode::kCancelled) {
        code = absl::StatusCode::kUnknown;
        words = ": cancelled, and the server may have it";
      }
      StopCalls(operation);
      RemoveUnheard(operation->objects.front());
      break;
    case Kind::kOpen:
    case Kind::kRead:
    case Kind::kWrite:
      break;
  }
  operation->status = {code, absl::StrCat(operation->what, words)};
  operation->bytes = 0;
  EndOperation(operation);
}

void S3Store::Fail(uint64_t token, absl::Status status) {
  ended_.push_back({.token = token, .status = std::move(status)});
}

absl::StatusOr<std::shared_ptr<S3Object>> S3Store::Find(ObjectId id, bool draft) const {
  const auto found = objects_.find(id);
  const char* const expected = draft ? "a draft" : "an open object";
  if (found == objects_.end()) {
    return absl::NotFoundError(absl::StrCat("object ", id, " is not open, expected ", expected));
  }
  if (found->second->draft != draft) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", id, " (", found->second->label, ") is not ", expected));
  }
  return found->second;
}

void S3Store::PostSync(ObjectId, int64_t, uint64_t token) {
  Fail(token, absl::UnimplementedError("S3 objects are not written in place, expected a draft"));
}

void S3Store::Close(ObjectId object) {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return;
  const std::shared_ptr<S3Object> closed = found->second;
  objects_.erase(found);
  if (!closed->draft) return;
  if (closed->writes == 0) return RemoveUnheard(closed);
  closed->closed = true;  // the last of its writes removes it
}

}  // namespace shunt::storage
