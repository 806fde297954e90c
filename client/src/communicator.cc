#include "client/src/communicator.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/cuda/process.h"
#include "client/src/deadline.h"
#include "client/src/group.h"
#include "runtime/board/layout.h"
#include "runtime/core/clock.h"
#include "runtime/core/fnv.h"
#include "runtime/core/status.h"

namespace shunt::client {
namespace {

// A daemon's answer to a join comes at the join's deadline at the latest, and then has to get here.
constexpr std::chrono::seconds kJoinGrace(5);
constexpr size_t kNameBytesMax = 128;

int AvailableCpus() {
  cpu_set_t cpus;
  // Fails on machines with more CPUs than the set has bits: plenty.
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return CPU_SETSIZE;
  return CPU_COUNT(&cpus);
}

// The epoch keeps a split apart from those of the parent's earlier lives, which some ranks may not
// have left.
std::string SplitName(const std::string& parent, uint64_t epoch, uint64_t split, int32_t color) {
  std::string name = absl::StrCat(parent, "/", epoch, ".", split, ".", color);
  if (name.size() <= kNameBytesMax) return name;
  const std::string mark = absl::StrCat("~", absl::Hex(Fnv1a(name), absl::kZeroPad16));
  return absl::StrCat(parent.substr(0, kNameBytesMax - mark.size()), mark);
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Session> session, Options options)
    : session_(std::move(session)), options_(std::move(options)) {}

absl::StatusOr<std::shared_ptr<Communicator>> Communicator::Join(std::shared_ptr<Session> session,
                                                                 const Options& options) {
  // What its buffers may be is asked for them, not here.
  cuda::LookForDriver();
  const uint64_t timeout_ms = std::clamp<int64_t>(options.timeout_ns / 1'000'000, 1, UINT32_MAX);
  const int64_t deadline_ns =
      options.timeout_ns == kNeverNs
          ? kNeverNs
          : DeadlineAfterNs(std::chrono::milliseconds(timeout_ms) + kJoinGrace);
  SHUNT_ASSIGN_OR_RETURN(
      LeaseConnection::Reply reply,
      session->lease().Call(client::Join{options.name, options.job, options.rank,
                                         options.world_size, static_cast<uint32_t>(timeout_ms),
                                         options.algorithm, options.deterministic, options.device},
                            deadline_ns));
  const auto* joined = std::get_if<Joined>(&reply.message.response);
  if (joined == nullptr || reply.fds.size() != 1) {
    return absl::InternalError("shuntd's reply to Join has no board");
  }
  std::shared_ptr<Communicator> communicator(new Communicator(std::move(session), options));
  SHUNT_RETURN_IF_ERROR(communicator->Attach(*joined, reply.fds[0].get()));
  return communicator;
}

absl::Status Communicator::Attach(const Joined& joined, int board_fd) {
  id_ = joined.communicator_id;
  epoch_ = joined.epoch;
  // This node's ranks, by number; the others are reached through the daemon.
  for (const JoinedMember& member : joined.members) numbers_.push_back(member.rank);
  const auto own = std::lower_bound(numbers_.begin(), numbers_.end(), options_.rank);
  if (!std::is_sorted(numbers_.begin(), numbers_.end()) || own == numbers_.end() ||
      *own != options_.rank || numbers_.size() > static_cast<size_t>(options_.world_size)) {
    return absl::InternalError("shuntd's reply to Join names other ranks than this one's node has");
  }
  rank_on_node_ = static_cast<int>(own - numbers_.begin());
  const board::BoardShape shape{static_cast<int>(numbers_.size()), options_.world_size,
                                numbers_.data(), options_.device};
  const size_t bytes = board::Board::BytesFor(shape);
  SHUNT_RETURN_IF_ERROR(CheckSealedMemfd(board_fd, bytes));
  SHUNT_ASSIGN_OR_RETURN(board_memory_, Mapping::Map(board_fd, bytes));
  ::madvise(board_memory_.data(), bytes, MADV_DONTFORK);
  board::MemberOptions member_options;
  if (shape.ranks > AvailableCpus()) member_options.spin_ns = 0;
  // The daemon needs a CPU meanwhile, and so do its peers' interrupts.
  member_options.remote_spin = 4 * shape.ranks <= AvailableCpus();
  // For bench/metrics-cost.
  const char* const count = std::getenv("SHUNT_COUNT");
  member_options.counts = count == nullptr || std::string_view(count) != "0";
  board::MemberHost* const host = this;
  board_ = board::Board(board_memory_.data(), shape);
  member_ = std::make_unique<board::Member>(board_, rank_on_node_, host, member_options);
  if (options_.device) streams_ = std::make_unique<cuda::StreamCalls>(this);
  session_->Add(this);
  return absl::OkStatus();
}

Communicator::~Communicator() {
  if (session_->InForkedChild()) {
    // The board is not mapped here, and the engine's destructor may look at it.
    (void)member_.release();
    (void)streams_.release();
    return;
  }
  Leave();
  session_->Remove(this);
  streams_.reset();
  member_.reset();
  // After Leave: the daemon does not free what an operation uses.
  for (void* data : staging_) (void)session_->Free(data);
}

void Communicator::Leave() {
  if (left_.exchange(true)) return;
  if (streams_ != nullptr) streams_->Settle();
  (void)session_->lease().Call(client::Leave{id_}, RequestDeadlineNs());
  if (streams_ != nullptr) streams_->AfterLeave();
}

void Communicator::Abort(std::string_view reason) {
  member_->Abort(reason);
  if (streams_ != nullptr) streams_->Release();
}

absl::StatusOr<std::shared_ptr<Communicator>> Communicator::Split(int32_t color, int32_t key,
                                                                  int64_t timeout_ns) {
  struct Choice {
    int32_t color;
    int32_t key;
  };
  const uint64_t split = ++splits_;
  const Choice mine{color, key};
  std::vector<Choice> all(static_cast<size_t>(world_size()));
  board::Call call;
  call.spec = {OpKind::kAllGather, DataType::kInt32, Redop::kSum, 0, 2};
  call.in = reinterpret_cast<const std::byte*>(&mine);
  call.out = reinterpret_cast<std::byte*>(all.data());
  call.deadline_ns = DeadlineNs(timeout_ns);
  BeginOperation();
  const absl::Status gathered = member_->Run(call);
  EndOperation();
  if (!gathered.ok()) return gathered;
  if (color < 0) return std::shared_ptr<Communicator>();

  Options options = options_;
  options.name = SplitName(options_.name, epoch_, split, color);
  options.rank = 0;
  options.world_size = 0;
  options.timeout_ns = timeout_ns;
  for (int32_t r = 0; r < world_size(); ++r) {
    const Choice& other = all[static_cast<size_t>(r)];
    if (other.color != color) continue;
    ++options.world_size;
    if (std::pair(other.key, r) < std::pair(key, rank())) ++options.rank;
  }
  return Join(session_, options);
}

absl::Status Communicator::Watch(uint32_t channel, uint64_t sequence, int event_fd) {
  return session_->lease()
      .Call(WatchOperation{id_, channel, sequence}, RequestDeadlineNs(), {&event_fd, 1})
      .status();
}

// ---- Groups

Group* Communicator::FindGroup() {
  std::lock_guard lock(mutex_);
  for (const auto& group : groups_) {
    if (group->owner() == std::this_thread::get_id()) return group.get();
  }
  return nullptr;
}

absl::Status Communicator::BeginGroup() {
  if (FindGroup() != nullptr) {
    return absl::FailedPreconditionError(
        "this thread has a group open on this communicator already");
  }
  std::lock_guard lock(mutex_);
  groups_.push_back(std::make_unique<Group>());
  open_groups_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

std::unique_ptr<Group> Communicator::TakeGroup() {
  std::lock_guard lock(mutex_);
  for (auto at = groups_.begin(); at != groups_.end(); ++at) {
    if ((*at)->owner() != std::this_thread::get_id()) continue;
    std::unique_ptr<Group> group = std::move(*at);
    groups_.erase(at);
    open_groups_.fetch_sub(1, std::memory_order_relaxed);
    return group;
  }
  return nullptr;
}

// ---- What the engine asks for

std::byte* Communicator::Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) {
  RegionTable::Memory memory;
  if (rank == rank_on_node_) {
    memory = session_->regions().Own(region);
  } else {
    memory = session_->PeerRegion(region);
  }
  if (memory.data == nullptr || offset > memory.bytes || bytes > memory.bytes - offset)
    return nullptr;
  return memory.data + offset;
}

absl::Status Communicator::Notify(uint32_t channel, uint64_t seq, bool serve, int64_t deadline_ns) {
  board::Call call;
  call.deadline_ns = deadline_ns;
  return Submit(serve ? ring::Opcode::kServe : ring::Opcode::kKick, channel, seq, call);
}

absl::Status Communicator::Serve(uint32_t channel, uint64_t seq, const board::Call& call) {
  return Submit(ring::Opcode::kServe, channel, seq, call);
}

absl::Status Communicator::Submit(ring::Opcode opcode, uint32_t channel, uint64_t seq,
                                  const board::Call& call) {
  ring::Submission entry{};
  entry.opcode = static_cast<uint32_t>(opcode);
  entry.channel = channel;
  entry.communicator_id = id_;
  entry.sequence = seq;
  entry.deadline_ns = call.deadline_ns;
  entry.gate_region = call.gate.words.region;
  entry.gate_offset = call.gate.words.offset;
  entry.gate_generation = call.gate.generation;
  return session_->Submit(entry);
}

absl::StatusOr<board::MemberHost::Staging> Communicator::AllocateStaging(size_t bytes) {
  SHUNT_ASSIGN_OR_RETURN(void* const data, session_->Allocate(bytes));
  std::lock_guard lock(mutex_);
  staging_.push_back(data);
  return Staging{session_->regions().OwnId(data), static_cast<std::byte*>(data)};
}

}  // namespace shunt::client
