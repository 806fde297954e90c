// Transfers in C++: agents, sections, lists and transfers over shunt.h, which says what each call
// does. Included by shunt/client.h.
//
//   shunt::Agent agent = session.Agent("decode");
//   shunt::List own = agent.Publish("kv", {shunt::Blocks(cache.data(), block_bytes, blocks)});
//   shunt::List theirs = agent.Fetch("prefill", "kv");
//   agent.Pull(own.Ids(my_blocks), theirs.Ids(their_blocks), {.notification = "done"}).Wait();
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shunt/client.h"

namespace shunt {

// Pieces of memory from Session::Allocate; see shunt_set.
inline shunt_set Piece(const void* pointer, uint64_t bytes) {
  shunt_set set{};
  set.pointer = pointer;
  set.bytes = bytes;
  return set;
}
// `count` pieces of `bytes` each, `stride_bytes` apart (0: one after the other).
inline shunt_set Blocks(const void* pointer, uint64_t bytes, uint64_t count,
                        int64_t stride_bytes = 0) {
  shunt_set set = Piece(pointer, bytes);
  set.dimensions = 1;
  set.dims[0] = {count, stride_bytes == 0 ? static_cast<int64_t>(bytes) : stride_bytes};
  return set;
}
// Up to three dimensions, the last one running fastest.
inline shunt_set Strided(const void* pointer, uint64_t bytes,
                         std::initializer_list<shunt_dimension> dimensions) {
  if (dimensions.size() > 3) {
    throw Error(SHUNT_INVALID_ARGUMENT,
                std::to_string(dimensions.size()) + " dimensions, expected at most 3");
  }
  shunt_set set = Piece(pointer, bytes);
  for (const shunt_dimension& d : dimensions) set.dims[set.dimensions++] = d;
  return set;
}

// How ids name pieces; see shunt_selection.
struct IdShape {
  uint64_t unit = 1;
  uint64_t repeats = 1;
  uint64_t repeat_step = 0;
};

namespace internal {

struct ListHandle {
  ListHandle(SessionHandle s, shunt_list* l) : session(std::move(s)), list(l) {}
  ~ListHandle() { shunt_list_release(list); }
  ListHandle(const ListHandle&) = delete;
  ListHandle& operator=(const ListHandle&) = delete;
  SessionHandle session;
  shunt_list* list;
};

}  // namespace internal

// One side of a transfer. Refers to the array that it was made from, until the transfer is posted.
class Selection {
 public:
  const shunt_selection& get() const { return selection_; }

 private:
  friend class List;
  Selection(std::shared_ptr<const internal::ListHandle> list, shunt_form form, const void* data,
            uint64_t count, IdShape shape = {})
      : list_(std::move(list)) {
    selection_.struct_size = sizeof(selection_);
    selection_.list = list_->list;
    selection_.form = form;
    selection_.data = data;
    selection_.count = count;
    selection_.unit = shape.unit;
    selection_.repeats = shape.repeats;
    selection_.repeat_step = shape.repeat_step;
  }

  std::shared_ptr<const internal::ListHandle> list_;
  shunt_selection selection_{};
};

// Pieces that transfers name: of a section, or of one's own memory. Copies are the same list.
class List {
 public:
  shunt_list_facts facts() const {
    shunt_list_facts facts{};
    facts.struct_size = sizeof(facts);
    ThrowIfError(shunt_list_info(get(), &facts));
    return facts;
  }
  uint64_t pieces() const { return facts().pieces; }
  uint64_t bytes() const { return facts().bytes; }
  shunt_list* get() const { return list_->list; }

  // Selections of it. Arrays are not copied.
  Selection All() const { return {list_, SHUNT_FORM_ALL, nullptr, 0}; }
  Selection Runs(const std::vector<shunt_run>& runs) const {
    return {list_, SHUNT_FORM_RUNS, runs.data(), runs.size()};
  }
  Selection Ids(const std::vector<uint32_t>& ids, IdShape shape = {}) const {
    return {list_, SHUNT_FORM_IDS32, ids.data(), ids.size(), shape};
  }
  Selection Ids(const std::vector<uint64_t>& ids, IdShape shape = {}) const {
    return {list_, SHUNT_FORM_IDS64, ids.data(), ids.size(), shape};
  }
  Selection Ids(const uint32_t* ids, uint64_t count, IdShape shape = {}) const {
    return {list_, SHUNT_FORM_IDS32, ids, count, shape};
  }
  Selection Ids(const uint64_t* ids, uint64_t count, IdShape shape = {}) const {
    return {list_, SHUNT_FORM_IDS64, ids, count, shape};
  }
  Selection Pieces(const std::vector<shunt_piece>& pieces) const {
    return {list_, SHUNT_FORM_PIECES, pieces.data(), pieces.size()};
  }
  // Of one's own memory.
  Selection Pointers(const std::vector<shunt_span>& spans) const {
    return {list_, SHUNT_FORM_POINTERS, spans.data(), spans.size()};
  }

 private:
  friend class Agent;
  List(internal::SessionHandle session, shunt_list* list)
      : list_(std::make_shared<internal::ListHandle>(std::move(session), list)) {}

  std::shared_ptr<const internal::ListHandle> list_;
};

struct TransferOptions {
  std::chrono::nanoseconds timeout{0};  // 0: 60 s; max(): none
  shunt_priority priority = SHUNT_PRIORITY_BULK;
  std::optional<std::string> notification = std::nullopt;
};

// A transfer in flight. Destroying it waits for its end.
class Transfer {
 public:
  Transfer() = default;
  Transfer(Transfer&& other) noexcept
      : session_(std::move(other.session_)), transfer_(std::exchange(other.transfer_, nullptr)) {}
  Transfer& operator=(Transfer&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(transfer_, other.transfer_);
    return *this;
  }
  ~Transfer() { shunt_transfer_release(transfer_); }

  // True when it has ended well; throws if it has failed.
  bool Done() {
    int done = 0;
    ThrowIfError(shunt_transfer_poll(transfer_, &done));
    return done != 0;
  }
  // Until it has ended; throws if it fails. A timeout is a DEADLINE_EXCEEDED too, and it goes on.
  void Wait(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) {
    ThrowIfError(shunt_transfer_wait(transfer_, timeout.count()));
  }
  void Cancel() { ThrowIfError(shunt_transfer_cancel(transfer_)); }
  // Once it has ended well.
  shunt_report Report() {
    shunt_report report{};
    report.struct_size = sizeof(report);
    ThrowIfError(shunt_transfer_report(transfer_, &report));
    return report;
  }
  // For poll() and friends; owned by this object.
  int Fd() {
    int fd = -1;
    ThrowIfError(shunt_transfer_fd(transfer_, &fd));
    return fd;
  }

 private:
  friend class Agent;
  explicit Transfer(internal::SessionHandle session) : session_(std::move(session)) {}

  internal::SessionHandle session_;
  shunt_transfer* transfer_ = nullptr;
};

struct Notification {
  std::string from;
  std::string payload;
};

// A session under a name. Copies are the same agent.
class Agent {
 public:
  const std::string& name() const { return name_; }
  uint64_t incarnation() const { return incarnation_; }

  // Publishes, or replaces, a section; the result is the same pieces for transfers of one's own.
  List Publish(const std::string& section, const std::vector<shunt_set>& sets,
               shunt_access access = SHUNT_ACCESS_DEFAULT,
               const std::vector<uint32_t>& tenants = {}) {
    shunt_publish_options options{};
    options.struct_size = sizeof(options);
    options.access = access;
    options.tenants = tenants.data();
    options.tenant_count = static_cast<uint32_t>(tenants.size());
    shunt_list* list = nullptr;
    ThrowIfError(
        shunt_section_publish(get(), section.c_str(), sets.data(), sets.size(), &options, &list));
    return {session_, list};
  }
  void Withdraw(const std::string& section) {
    ThrowIfError(shunt_section_withdraw(get(), section.c_str()));
  }
  List Fetch(const std::string& agent, const std::string& section,
             shunt_access access = SHUNT_ACCESS_DEFAULT) {
    shunt_list* list = nullptr;
    ThrowIfError(shunt_section_fetch(get(), agent.c_str(), section.c_str(), access, &list));
    return {session_, list};
  }
  List Prepare(const std::vector<shunt_set>& sets) {
    shunt_list* list = nullptr;
    ThrowIfError(shunt_list_prepare(get(), sets.data(), sets.size(), &list));
    return {session_, list};
  }

  Transfer Pull(const Selection& local, const Selection& remote,
                const TransferOptions& options = {}) {
    return Post(SHUNT_PULL, local, remote, options);
  }
  Transfer Push(const Selection& local, const Selection& remote,
                const TransferOptions& options = {}) {
    return Post(SHUNT_PUSH, local, remote, options);
  }
  shunt_explanation Explain(shunt_direction direction, const Selection& local,
                            const Selection& remote, const TransferOptions& options = {}) {
    shunt_explanation explanation{};
    explanation.struct_size = sizeof(explanation);
    const shunt_transfer_options o = Convert(options);
    ThrowIfError(
        shunt_transfer_explain(get(), direction, &local.get(), &remote.get(), &o, &explanation));
    return explanation;
  }

  void Notify(const std::string& agent, const std::string& payload) {
    ThrowIfError(shunt_notify(get(), agent.c_str(), payload.data(), payload.size()));
  }
  // What has come, oldest first; waits for the first one. Empty after `timeout`.
  std::vector<Notification> Notifications(std::chrono::nanoseconds timeout = {}, uint32_t max = 0) {
    shunt_notifications* taken = nullptr;
    ThrowIfError(shunt_notifications_take(get(), max, timeout.count(), &taken));
    const std::unique_ptr<shunt_notifications, void (*)(shunt_notifications*)> owner(
        taken, shunt_notifications_release);
    std::vector<Notification> result;
    for (uint64_t i = 0; i < taken->count; ++i) {
      const shunt_notification& n = taken->items[i];
      result.push_back({n.from, std::string(static_cast<const char*>(n.payload), n.bytes)});
    }
    return result;
  }
  // Readable when there may be some; owned by the session.
  int NotificationsFd() {
    int fd = -1;
    ThrowIfError(shunt_notifications_fd(get(), &fd));
    return fd;
  }

 private:
  friend class Session;
  Agent(internal::SessionHandle session, std::string name)
      : session_(std::move(session)), name_(std::move(name)) {
    ThrowIfError(shunt_agent_register(get(), name_.c_str(), &incarnation_));
  }

  shunt_session* get() const { return session_.get(); }
  static shunt_transfer_options Convert(const TransferOptions& options) {
    shunt_transfer_options o{};
    o.struct_size = sizeof(o);
    o.timeout_ns = options.timeout.count();
    o.priority = options.priority;
    if (options.notification) {
      o.notification = options.notification->data();
      o.notification_bytes = options.notification->size();
    }
    return o;
  }
  Transfer Post(shunt_direction direction, const Selection& local, const Selection& remote,
                const TransferOptions& options) {
    const shunt_transfer_options o = Convert(options);
    Transfer transfer(session_);
    ThrowIfError(shunt_transfer_post(get(), direction, &local.get(), &remote.get(), &o,
                                     &transfer.transfer_));
    return transfer;
  }

  internal::SessionHandle session_;
  std::string name_;
  uint64_t incarnation_ = 0;
};

inline shunt::Agent Session::Agent(const std::string& name) { return {session_, name}; }

}  // namespace shunt
