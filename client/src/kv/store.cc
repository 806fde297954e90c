// Opening and closing, and the calls that ask nobody.
#include "client/src/kv/store.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/kv/posix_files.h"

namespace shunt::client::kv {
namespace {

constexpr uint64_t kPageBytes = 4096;  // slots are aligned for the disk's sake
constexpr uint64_t kSlotsMax = uint64_t{1} << 31;
constexpr uint64_t kBlockBytesMax = uint64_t{1} << 40;
constexpr char kDataName[] = "/blocks.data";

uint64_t Rounded(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

absl::StatusOr<uint32_t> Slots(const char* name, uint64_t bytes, uint64_t slot_bytes) {
  const uint64_t slots = bytes / slot_bytes;
  if (slots < 1 || slots > kSlotsMax) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", bytes, ", expected room for 1 to ",
                                                   kSlotsMax, " slots of ", slot_bytes, " bytes"));
  }
  return static_cast<uint32_t>(slots);
}

absl::Status CheckOptions(const StoreOptions& o) {
  if (o.block_bytes < 1 || o.block_bytes > kBlockBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_bytes is ", o.block_bytes, ", expected 1 to ", kBlockBytesMax));
  }
  const uint64_t slot_bytes = Rounded(o.block_bytes);
  SHUNT_ASSIGN_OR_RETURN(const uint32_t memory, Slots("memory_bytes", o.memory_bytes, slot_bytes));
  // Or a flush of what memory holds could never end.
  const auto below = [&](const char* name, uint64_t bytes) -> absl::Status {
    SHUNT_ASSIGN_OR_RETURN(const uint32_t slots, Slots(name, bytes, slot_bytes));
    if (slots >= memory) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", bytes, ", expected at least memory_bytes, ", o.memory_bytes));
  };
  if (!o.directory.empty()) {
    SHUNT_RETURN_IF_ERROR(below("file_bytes", o.file_bytes));
  } else if (o.file_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("file_bytes is ", o.file_bytes, ", and there is no directory"));
  }
  if (!o.objects.endpoint.empty()) {
    SHUNT_RETURN_IF_ERROR(below("object_bytes", o.object_bytes));
  } else if (o.object_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("object_bytes is ", o.object_bytes, ", and there is no object_endpoint"));
  }
  return absl::OkStatus();
}

}  // namespace

Store::Store(std::shared_ptr<Session> session, const StoreOptions& options)
    : options_(options),
      slot_bytes_(Rounded(options.block_bytes)),
      mover_(std::move(session)),
      memory_map_(static_cast<uint32_t>(options.memory_bytes / slot_bytes_)) {}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::shared_ptr<Session>& session,
                                                   const StoreOptions& options) {
  SHUNT_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Store> store(new Store(session, options));
  SHUNT_RETURN_IF_ERROR(store->OpenTiers());
  store->StartThreads();
  return store;
}

absl::Status Store::OpenTiers() {
  if (!options_.directory.empty()) SHUNT_RETURN_IF_ERROR(OpenFileTier());
  SHUNT_ASSIGN_OR_RETURN(void* const memory,
                         session()->Allocate(uint64_t{memory_map_.slots()} * slot_bytes_));
  memory_data_ = static_cast<std::byte*>(memory);
  if (!options_.objects.endpoint.empty()) {
    SHUNT_ASSIGN_OR_RETURN(void* const staging, session()->Allocate(slot_bytes_));
    staging_data_ = static_cast<std::byte*>(staging);
    object_map_.emplace(static_cast<uint32_t>(options_.object_bytes / slot_bytes_));
    objects_ = std::make_unique<BlockObjects>(&mover_, options_.objects, options_.objects.key);
  }
  return index_ == nullptr ? absl::OkStatus() : Restore();
}

absl::Status Store::OpenFileTier() {
  const auto slots = static_cast<uint32_t>(options_.file_bytes / slot_bytes_);
  SHUNT_ASSIGN_OR_RETURN(directory_, shunt::tiers::OpenLogDirectory(options_.directory));
  {
    // No fork between the lock and the entry in the list of what a child closes.
    ForkGuard guard;
    SHUNT_ASSIGN_OR_RETURN(lock_, shunt::tiers::LockDirectory(options_.directory));
    guard.Add(this);
  }
  SHUNT_ASSIGN_OR_RETURN(index_,
                         shunt::tiers::IndexLog::Open(directory_.get(), slot_bytes_, slots));
  notes_ = index_->notes();
  const std::string data = options_.directory + kDataName;
  struct stat info {};
  if (::stat(data.c_str(), &info) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("look at ", data));
  }
  // Before the file has its full length again: zeros are no block.
  SHUNT_RETURN_IF_ERROR(ForgetLost(static_cast<uint64_t>(info.st_size)));
  uint64_t was_bytes = 0;
  SHUNT_ASSIGN_OR_RETURN(file_, BlockFile::Open(&mover_, data, slots, slot_bytes_, &was_bytes));
  // Its name must last as long as what flushes say lies in it.
  SHUNT_RETURN_IF_ERROR(directory_->Sync());
  file_map_.emplace(slots);
  return absl::OkStatus();
}

absl::Status Store::ForgetLost(uint64_t file_bytes) {
  std::vector<shunt::tiers::Named> lost;
  for (const shunt::tiers::IndexRecord& r : index_->contents().All()) {
    if (r.tier == Tier::kFile && r.slot * slot_bytes_ + r.block.bytes > file_bytes) {
      lost.push_back({r.slot, r.block});
    }
  }
  if (lost.empty()) return absl::OkStatus();
  absl::StrAppend(&notes_, notes_.empty() ? "" : "; ", options_.directory, kDataName, ": it has ",
                  file_bytes, " bytes, and ", lost.size(), " blocks that lay behind them are lost");
  return shunt::tiers::Unname(Tier::kFile, lost, index_.get());
}

absl::Status Store::Restore() {
  std::vector<shunt::tiers::Named> beyond;
  for (const shunt::tiers::IndexRecord& r : index_->contents().All()) {
    const auto slot = static_cast<uint32_t>(r.slot);
    if (r.tier == Tier::kFile) {
      file_map_->Restore(slot, r.block);
    } else if (object_map_ && r.slot < object_map_->slots()) {
      object_map_->Restore(slot, r.block);
    } else if (object_map_) {
      beyond.push_back({r.slot, r.block});
    }
  }
  return shunt::tiers::Unname(Tier::kObjects, beyond, index_.get());
}

void Store::StartThreads() {
  memory_thread_ = std::thread([this] { MemoryLoop(); });
  if (!HasLower()) return;
  reader_thread_ = std::thread([this] { ReaderLoop(); });
  writer_thread_ = std::thread([this] { WriterLoop(); });
}

void Store::OnForkChild() { lock_.Reset(); }

Store::~Store() { Close(); }

void Store::Close() {
  {
    Lock lock(mutex_);
    closing_ = true;
    for (const PutPtr& put : std::exchange(parked_, {})) {
      FailPut(lock, put, absl::CancelledError("the store was closed while the put waited"));
    }
    calls_changed_.wait(lock, [this] { return calls_ == 0; });
    stop_ = true;
    memory_changed_.notify_all();
    reader_changed_.notify_all();
    writer_changed_.notify_all();
  }
  for (auto* thread : {&memory_thread_, &reader_thread_, &writer_thread_}) {
    if (thread->joinable()) thread->join();
  }
  file_.reset();
  ForkGuard().Remove(this);
  // Also for a child that was forked and still has the descriptor.
  if (lock_.valid()) ::flock(lock_.get(), LOCK_UN);
  if (memory_data_ != nullptr) (void)session()->Free(memory_data_);
  if (staging_data_ != nullptr) (void)session()->Free(staging_data_);
}

absl::Status Store::CheckBlocks(const std::vector<CallBlock>& blocks) const {
  if (blocks.empty()) return absl::InvalidArgumentError("count is 0 blocks, expected 1 or more");
  for (size_t i = 0; i < blocks.size(); ++i) {
    const CallBlock& b = blocks[i];
    if (b.bytes < 1 || b.bytes > options_.block_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "blocks[", i, "] has ", b.bytes, " bytes, expected 1 to ", options_.block_bytes));
    }
    if (session()->regions().Find(b.data, b.bytes).region == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("blocks[", i, "]: ", b.bytes, " bytes at 0x",
                       absl::Hex(reinterpret_cast<uintptr_t>(b.data)),
                       " lie in no region of this session, expected memory from shunt_alloc or "
                       "shunt_register"));
    }
  }
  return absl::OkStatus();
}

// Or what one block has overwritten of another would pass for a disk's fault.
absl::Status Store::CheckRoom(const std::vector<CallBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::less<>()(blocks[a].data, blocks[b].data); });
  for (size_t i = 1; i < order.size(); ++i) {
    const CallBlock& before = blocks[order[i - 1]];
    if (!std::less<>()(blocks[order[i]].data, before.data + before.bytes)) continue;
    const auto [first, second] = std::minmax(order[i - 1], order[i]);
    return absl::InvalidArgumentError(
        absl::StrCat("blocks[", second, "]: its room of ", blocks[second].bytes, " bytes at 0x",
                     absl::Hex(reinterpret_cast<uintptr_t>(blocks[second].data)),
                     " overlaps that of blocks[", first, "], expected room for each block"));
  }
  return absl::OkStatus();
}

absl::Status Store::BeginCall(Lock& /*held*/) {
  if (closing_) return absl::FailedPreconditionError("the store is closed");
  ++calls_;
  return absl::OkStatus();
}

void Store::EndCall(Lock& /*held*/, Call* call) {
  call->End();
  --calls_;
  calls_changed_.notify_all();
}

std::optional<Tier> Store::Lookup(std::string_view key) const {
  Lock lock(mutex_);
  if (memory_map_.Find(key)) return Tier::kMemory;
  if (file_map_ && file_map_->Find(key)) return Tier::kFile;
  if (object_map_) {
    if (const auto slot = object_map_->Find(key); slot && !Doubted(*slot)) return Tier::kObjects;
  }
  return std::nullopt;
}

bool Store::Erase(std::string_view key) {
  Lock lock(mutex_);
  bool was_there = false;
  if (const auto slot = memory_map_.Find(key)) {
    was_there = true;
    memory_map_.Doom(*slot);
    if (memory_map_.pins(*slot) == 0) {
      memory_map_.Free(*slot);
      WakePuts();
    }
  }
  // Their slots are free when the index no longer names them.
  for (auto* map : {&file_map_, &object_map_}) {
    if (!*map) continue;
    if (const auto slot = (*map)->Find(key)) {
      was_there = true;
      (*map)->Doom(*slot);
      writer_failed_ = false;
      writer_changed_.notify_all();
    }
  }
  return was_there;
}

StoreFacts Store::Facts() const {
  Lock lock(mutex_);
  StoreFacts facts = facts_;
  const SlotMap* maps[] = {&memory_map_, file_map_ ? &*file_map_ : nullptr,
                           object_map_ ? &*object_map_ : nullptr};
  for (size_t tier = 0; tier < shunt::tiers::kTiers; ++tier) {
    if (maps[tier] == nullptr) continue;
    const SlotMap::Counts counts = maps[tier]->counts();
    facts.tiers[tier].slots = maps[tier]->slots();
    facts.tiers[tier].blocks = counts.clean + counts.dirty;
    facts.tiers[tier].bytes = counts.held_bytes;
  }
  facts.dirty = memory_map_.counts().dirty;
  return facts;
}

}  // namespace shunt::client::kv
