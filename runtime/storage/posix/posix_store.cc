#include "runtime/storage/posix/posix_store.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/storage/check.h"
#include "runtime/storage/posix/errors.h"

namespace shunt::storage {
namespace {

absl::Status Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "epoll_ctl");
}

// io_uring may write on the owner's thread: a client's file beyond RLIMIT_FSIZE would end the
// process. Ignored, the signal leaves an error of that write.
void IgnoreFileSizeSignal() {
  struct ::sigaction now {};
  if (::sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    ::signal(SIGXFSZ, SIG_IGN);
  }
}

absl::Status Stopped(absl::StatusCode code, absl::string_view what) {
  return {code, absl::StrCat(what, code == absl::StatusCode::kCancelled
                                       ? ": cancelled"
                                       : ": its deadline passed before it ended")};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PosixStore>> PosixStore::Make(PosixOptions options) {
  if (options.queue_depth == 0 || options.queue_depth > 4096 || options.io_threads == 0 ||
      options.job_threads == 0 || options.io_bytes_max < 4096 ||
      options.io_bytes_max > (1u << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("queue depth ", options.queue_depth, ", ", options.io_threads, " and ",
                     options.job_threads, " threads, ", options.io_bytes_max,
                     " bytes a read; expected 1 to 4096, at least 1 each, 4096 to 2^30"));
  }
  SHUNT_ASSIGN_OR_RETURN(Timers timers, Timers::Make());
  std::unique_ptr<PosixStore> store(new PosixStore(std::move(options), std::move(timers)));
  SHUNT_RETURN_IF_ERROR(store->Start());
  return store;
}

PosixStore::PosixStore(PosixOptions options, Timers timers)
    : options_(std::move(options)), timers_(std::move(timers)) {}

absl::Status PosixStore::Start() {
  IgnoreFileSizeSignal();
  for (const PosixRoot& root : options_.roots) {
    if (FindRoot(root.name) != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("root '", root.name, "' is configured twice, expected once"));
    }
    SHUNT_ASSIGN_OR_RETURN(Root opened, Root::Open(root.name, root.path));
    roots_.push_back(std::move(opened));
  }
  SHUNT_ASSIGN_OR_RETURN(wake_, MakeEventFd());
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  SHUNT_RETURN_IF_ERROR(Watch(epoll_.get(), wake_.get()));
  SHUNT_RETURN_IF_ERROR(Watch(epoll_.get(), timers_.fd()));
  SHUNT_ASSIGN_OR_RETURN(pool_, Pool::Make(options_.job_threads, wake_.get()));
  if (options_.engine != IoEngine::kThreads) {
    auto uring = MakeUringEngine(options_.queue_depth, wake_.get());
    if (uring.ok()) {
      engine_ = *std::move(uring);
    } else if (options_.engine == IoEngine::kUring || !absl::IsUnimplemented(uring.status())) {
      return uring.status();
    }
  }
  if (engine_ == nullptr) {
    SHUNT_ASSIGN_OR_RETURN(engine_, MakeThreadEngine(options_.io_threads, wake_.get()));
  }
  pump_ = std::make_unique<Pump>(engine_.get(), options_.queue_depth, options_.io_bytes_max);
  return absl::OkStatus();
}

PosixStore::~PosixStore() {
  if (pump_ == nullptr) return;  // not started
  std::vector<uint64_t> ids;
  for (const auto& [token, id] : ids_) ids.push_back(id);
  for (const uint64_t id : ids) Stop(id, absl::StatusCode::kCancelled);
  while (!idle()) {
    Completion one;
    if (Poll(absl::MakeSpan(&one, 1)) > 0 || idle()) continue;
    pollfd ready{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, -1);
  }
  objects_.clear();  // their last jobs go to the pool
  pump_.reset();
  engine_.reset();
  pool_.reset();
}

size_t PosixStore::Poll(absl::Span<Completion> out) {
  for (bool moved = true; moved;) {
    DrainEventFd(wake_.get());
    moved = false;
    for (uint64_t id; timers_.PopDue(NowNs(), &id);) {
      Stop(id, absl::StatusCode::kDeadlineExceeded);
    }
    for (uint64_t id; pool_->Reap(&id); moved = true) {
      const auto found = jobs_.find(id);
      Job job = std::move(found->second);
      jobs_.erase(found);
      ids_.erase(job.token);
      timers_.Clear(id);
      Completion completion{.token = job.token};
      job.finish(&completion);
      ended_.push_back(std::move(completion));
    }
    if (pump_->Run([this](Transfer* transfer) { EndTransfer(transfer); })) moved = true;
    // Enough to hand out: what else has ended can wait for the next call.
    if (ended_.size() >= out.size()) break;
  }
  size_t count = 0;
  for (; count < out.size() && !ended_.empty(); ++count) {
    out[count] = std::move(ended_.front());
    ended_.pop_front();
  }
  timers_.Arm();
  return count;
}

void PosixStore::StartJob(uint64_t token, int64_t deadline_ns, std::string what,
                          std::function<void()> work, std::function<void(Completion*)> finish) {
  const uint64_t id = next_id_++;
  timers_.Set(id, deadline_ns);
  ids_[token] = id;
  jobs_.emplace(id, Job{.token = token, .what = std::move(what), .finish = std::move(finish)});
  pool_->Post(id, std::move(work));
}

void PosixStore::Cancel(uint64_t token) {
  const auto found = ids_.find(token);
  if (found != ids_.end()) Stop(found->second, absl::StatusCode::kCancelled);
}

void PosixStore::Stop(uint64_t id, absl::StatusCode code) {
  if (const auto found = transfers_.find(id); found != transfers_.end()) {
    pump_->Stop(found->second.get(), Stopped(code, found->second->write ? "write" : "read"));
    return;
  }
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || !pool_->Withdraw(id)) return;
  const Job job = std::move(found->second);
  jobs_.erase(found);
  ids_.erase(job.token);
  timers_.Clear(id);
  Fail(job.token, Stopped(code, job.what));
}

void PosixStore::Fail(uint64_t token, absl::Status status) {
  ended_.push_back({.token = token, .status = std::move(status)});
}

const Root* PosixStore::FindRoot(const std::string& name) const {
  const auto found = std::find_if(roots_.begin(), roots_.end(),
                                  [&](const Root& root) { return root.name() == name; });
  return found == roots_.end() ? nullptr : &*found;
}

}  // namespace shunt::storage
