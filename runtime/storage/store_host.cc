#include "runtime/storage/store_host.h"

#include <poll.h>

#include <array>
#include <utility>

#include "runtime/core/status.h"

namespace shunt::storage {
namespace {

constexpr size_t kBatch = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<StoreHost>> StoreHost::Start(std::unique_ptr<Store> store,
                                                            std::function<void()> on_start) {
  SHUNT_ASSIGN_OR_RETURN(UniqueFd wake, MakeEventFd());
  std::unique_ptr<StoreHost> host(new StoreHost(std::move(store), std::move(wake)));
  host->thread_ = std::thread([host = host.get(), on_start = std::move(on_start)] {
    if (on_start) on_start();
    host->Loop();
  });
  return host;
}

StoreHost::~StoreHost() { Stop(); }

// A descriptor of the client's can't be copied, as a std::function must be.
uint64_t StoreHost::Open(OpenRequest request, Done done) {
  auto asked = std::make_shared<OpenRequest>(std::move(request));
  return Post(std::move(done),
              [asked](Store& store, uint64_t token) { store.PostOpen(std::move(*asked), token); });
}

uint64_t StoreHost::Read(TransferRequest request, Done done) {
  auto asked = std::make_shared<TransferRequest>(std::move(request));
  return Post(std::move(done),
              [asked](Store& store, uint64_t token) { store.PostRead(std::move(*asked), token); });
}

uint64_t StoreHost::Write(TransferRequest request, Done done) {
  auto asked = std::make_shared<TransferRequest>(std::move(request));
  return Post(std::move(done),
              [asked](Store& store, uint64_t token) { store.PostWrite(std::move(*asked), token); });
}

uint64_t StoreHost::Sync(ObjectId object, int64_t deadline_ns, Done done) {
  return Post(std::move(done), [object, deadline_ns](Store& store, uint64_t token) {
    store.PostSync(object, deadline_ns, token);
  });
}

uint64_t StoreHost::Begin(BeginRequest request, Done done) {
  return Post(std::move(done), [request = std::move(request)](Store& store, uint64_t token) {
    store.PostBegin(request, token);
  });
}

uint64_t StoreHost::Commit(ObjectId draft, int64_t deadline_ns, Done done) {
  return Post(std::move(done), [draft, deadline_ns](Store& store, uint64_t token) {
    store.PostCommit(draft, deadline_ns, token);
  });
}

uint64_t StoreHost::Abort(ObjectId draft, Done done) {
  return Post(std::move(done),
              [draft](Store& store, uint64_t token) { store.PostAbort(draft, token); });
}

void StoreHost::Close(ObjectId object) {
  Run([this, object] { store_->Close(object); });
}

void StoreHost::Cancel(uint64_t token) {
  Run([this, token] { store_->Cancel(token); });
}

uint64_t StoreHost::Post(Done done, std::function<void(Store&, uint64_t)> post) {
  const uint64_t token = next_token_.fetch_add(1);
  Run([this, token, done = std::move(done), post = std::move(post)] {
    under_way_.emplace(token, done);
    post(*store_, token);
  });
  return token;
}

void StoreHost::Run(std::function<void()> closure) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  commands_.push_back(std::move(closure));
  // The thread looks at them all before it sleeps.
  if (commands_.size() == 1) SignalEventFd(wake_.get());
}

void StoreHost::BeginStop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  SignalEventFd(wake_.get());
}

void StoreHost::Stop() {
  BeginStop();
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void StoreHost::Loop() {
  while (RunCommands()) {
    if (TakeEnded() > 0) continue;
    std::array<pollfd, 2> ready = {pollfd{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                   pollfd{.fd = store_->fd(), .events = POLLIN, .revents = 0}};
    ::poll(ready.data(), ready.size(), -1);
  }
  Finish();
}

bool StoreHost::RunCommands() {
  DrainEventFd(wake_.get());
  std::vector<std::function<void()>> commands;
  bool stop = false;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
    stop = stop_;
  }
  for (const std::function<void()>& command : commands) command();
  return !stop;
}

size_t StoreHost::TakeEnded() {
  std::array<Completion, kBatch> ended;
  const size_t count = store_->Poll(absl::MakeSpan(ended));
  for (size_t i = 0; i < count; ++i) {
    auto node = under_way_.extract(ended[i].token);
    node.mapped()(ended[i]);
  }
  return count;
}

void StoreHost::Finish() {
  // From now on nobody touches memory of a transfer.
  store_.reset();
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    // May own what posts more when it goes: not under the lock.
  }
  for (auto& [token, done] : std::exchange(under_way_, {})) {
    done({.token = token, .status = absl::CancelledError("the store is being closed")});
  }
  std::vector<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(commands_);
  }
  dropped.clear();
  finished_.store(true);
}

}  // namespace shunt::storage
