#include "runtime/storage/store_host.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "runtime/core/check.h"
#include "runtime/core/status.h"

namespace shunt::storage {
namespace {

constexpr size_t kBatch = 64;

absl::Status BeingClosed() { return absl::CancelledError("the store is being closed"); }

Completion Closed(uint64_t token) { return {.token = token, .status = BeingClosed()}; }

}  // namespace

absl::StatusOr<std::unique_ptr<StoreHost>> StoreHost::Start(std::unique_ptr<Store> store,
                                                            std::function<void()> on_start) {
  // A std::function must be one that can be copied.
  const auto made = std::make_shared<std::unique_ptr<Store>>(std::move(store));
  return Start([made] { return absl::StatusOr<std::unique_ptr<Store>>(std::move(*made)); },
               std::move(on_start));
}

absl::StatusOr<std::unique_ptr<StoreHost>> StoreHost::Start(Make make,
                                                            std::function<void()> on_start) {
  SHUNT_ASSIGN_OR_RETURN(UniqueFd wake, MakeEventFd());
  std::unique_ptr<StoreHost> host(
      new StoreHost(std::move(make), std::move(wake), std::move(on_start)));
  // Not std::thread, which throws where there is none to be had.
  if (const int error = ::pthread_create(&host->thread_, nullptr, &Main, host.get()); error != 0) {
    return absl::ResourceExhaustedError(
        ErrnoStatus(error, "starting the thread of a store").message());
  }
  host->joinable_ = true;
  return host;
}

void* StoreHost::Main(void* host) {
  auto* const self = static_cast<StoreHost*>(host);
  if (self->on_start_) self->on_start_();
  self->MakeStore();
  self->Loop();
  return nullptr;
}

void StoreHost::MakeStore() {
  auto made = std::exchange(make_, nullptr)();
  if (made.ok()) {
    store_ = *std::move(made);
    return;
  }
  none_ = made.status();
  BeginStop();
}

StoreHost::~StoreHost() { Stop(); }

// A descriptor of the client's can't be copied, as a std::function must be.
uint64_t StoreHost::Open(OpenRequest request, const Done& done) {
  auto asked = std::make_shared<OpenRequest>(std::move(request));
  return Post(Counted(done, nullptr),
              [asked](Store& store, uint64_t token) { store.PostOpen(std::move(*asked), token); });
}

uint64_t StoreHost::Open(std::function<OpenRequest()> make, const Done& done) {
  return Post(Counted(done, nullptr), [make = std::move(make)](Store& store, uint64_t token) {
    store.PostOpen(make(), token);
  });
}

uint64_t StoreHost::Read(TransferRequest request, const Done& done) {
  auto asked = std::make_shared<TransferRequest>(std::move(request));
  return Post(Counted(done, &StoreTally::bytes_read),
              [asked](Store& store, uint64_t token) { store.PostRead(std::move(*asked), token); });
}

uint64_t StoreHost::Write(TransferRequest request, const Done& done) {
  auto asked = std::make_shared<TransferRequest>(std::move(request));
  return Post(Counted(done, &StoreTally::bytes_written),
              [asked](Store& store, uint64_t token) { store.PostWrite(std::move(*asked), token); });
}

uint64_t StoreHost::Sync(ObjectId object, int64_t deadline_ns, const Done& done) {
  return Post(Counted(done, nullptr), [object, deadline_ns](Store& store, uint64_t token) {
    store.PostSync(object, deadline_ns, token);
  });
}

uint64_t StoreHost::Begin(BeginRequest request, const Done& done) {
  request.budget = Guarded(std::move(request.budget));
  return Post(Counted(done, nullptr), [request = std::move(request)](Store& store, uint64_t token) {
    store.PostBegin(request, token);
  });
}

uint64_t StoreHost::Commit(ObjectId draft, int64_t deadline_ns, const Done& done) {
  return Post(Counted(done, nullptr), [draft, deadline_ns](Store& store, uint64_t token) {
    store.PostCommit(draft, deadline_ns, token);
  });
}

uint64_t StoreHost::Abort(ObjectId draft, const Done& done) {
  return Post(Counted(done, nullptr),
              [draft](Store& store, uint64_t token) { store.PostAbort(draft, token); });
}

void StoreHost::Close(ObjectId object) {
  Push([this, object] {
    if (store_ != nullptr) store_->Close(object);
  });
}

void StoreHost::Cancel(uint64_t token) {
  Push([this, token] {
    if (store_ != nullptr) store_->Cancel(token);
  });
}

StoreHost::Done StoreHost::Counted(const Done& done, Count StoreTally::*bytes) const {
  if (tally_ == nullptr) return done;
  return [tally = tally_, done, bytes](const Completion& completion) {
    (completion.status.ok() ? tally->succeeded : tally->failed).Add();
    if (bytes != nullptr && completion.status.ok()) (*tally.*bytes).Add(completion.bytes);
    done(completion);
  };
}

uint64_t StoreHost::Post(const Done& done, std::function<void(Store&, uint64_t)> post) {
  const uint64_t token = next_token_.fetch_add(1);
  const bool runs = Push([this, token, done, post = std::move(post)] {
    if (store_ == nullptr) return Call([&] { done({.token = token, .status = none_}); });
    under_way_.emplace(token, done);
    post(*store_, token);
  });
  // Whoever sees that it is closed sees why, too.
  if (!runs) done({.token = token, .status = none_});
  return token;
}

bool StoreHost::Run(std::function<void()> closure) {
  return Push([this, closure = std::move(closure)]() mutable {
    Call([&] { std::exchange(closure, nullptr)(); });
  });
}

void StoreHost::Call(const std::function<void()>& callback) {
  {
    const std::lock_guard lock(calling_);
    if (!left_) return callback();
  }
  rests_.store(true);
  for (;;) ::pause();  // what it could touch or free is gone
}

// A budget is others' code, too: what a draft has taken is given back when the store goes, which
// may be long after it was left behind.
Budget StoreHost::Guarded(Budget budget) {
  if (!budget) return budget;
  return [this, budget = std::move(budget)](
             uint64_t bytes, std::string_view what) -> absl::StatusOr<std::shared_ptr<void>> {
    absl::StatusOr<std::shared_ptr<void>> taken;
    Call([&] { taken = budget(bytes, what); });
    if (!taken.ok()) return taken;
    return std::shared_ptr<void>(
        nullptr, [this, held = *std::move(taken)](void*) mutable { Call([&] { held.reset(); }); });
  };
}

bool StoreHost::Push(std::function<void()> command) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  commands_.push_back(std::move(command));
  // The thread looks at them all before it sleeps.
  if (commands_.size() == 1) SignalEventFd(wake_.get());
  return true;
}

void StoreHost::BeginStop() {
  serves_.store(false);
  const std::lock_guard lock(mutex_);
  stop_ = true;
  SignalEventFd(wake_.get());
}

void StoreHost::Stop() {
  BeginStop();
  const std::lock_guard lock(join_mutex_);
  if (std::exchange(joinable_, false)) ::pthread_join(thread_, nullptr);
}

bool StoreHost::StopBy(int64_t deadline_ns) {
  BeginStop();
  {
    std::unique_lock lock(mutex_);
    const std::chrono::nanoseconds left(deadline_ns - NowNs());
    ended_.wait_for(lock, left, [this] { return finished(); });
  }
  {
    const std::lock_guard lock(calling_);
    left_ = !finished();
    if (left_) return false;
  }
  Stop();
  return true;
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
    SHUNT_CHECK(!node.empty());
    Call([&] { std::exchange(node.mapped(), nullptr)(ended[i]); });
  }
  return count;
}

void StoreHost::Finish() {
  Call([] {});  // who was left frees nothing
  // From now on nobody touches memory of a transfer.
  store_.reset();
  if (none_.ok()) none_ = BeingClosed();
  for (auto& waiting : std::exchange(under_way_, {})) {
    Call([&] { std::exchange(waiting.second, nullptr)(Closed(waiting.first)); });
  }
  // What was posted meanwhile, also by these.
  for (;;) {
    std::vector<std::function<void()>> commands;
    {
      const std::lock_guard lock(mutex_);
      closed_ = commands_.empty();
      if (closed_) break;
      commands.swap(commands_);
    }
    for (const std::function<void()>& command : commands) command();
  }
  // Under the lock, so that who waits can't miss it.
  const std::lock_guard lock(mutex_);
  finished_.store(true);
  ended_.notify_all();
}

}  // namespace shunt::storage
