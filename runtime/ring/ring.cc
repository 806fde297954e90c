#include "runtime/ring/ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/futex.h"

namespace shunt::ring {
namespace {

Submission* SubmissionsIn(std::byte* memory) {
  return reinterpret_cast<Submission*>(memory + sizeof(Header));
}

Completion* CompletionsIn(std::byte* memory, uint32_t entries) {
  return reinterpret_cast<Completion*>(memory + sizeof(Header) +
                                       static_cast<size_t>(entries) * sizeof(Submission));
}

// Entries are copied word by word with relaxed atomics: the other process may be writing the same
// bytes, and then any mixture of words is a fine value, but not undefined behaviour.
template <typename T>
void CopyShared(T& to, T& from) {
  static_assert(sizeof(T) % 8 == 0 && alignof(T) >= 8);
  auto* source = reinterpret_cast<uint64_t*>(&from);
  uint64_t words[sizeof(T) / 8];
  for (size_t i = 0; i < std::size(words); ++i) {
    words[i] = std::atomic_ref<uint64_t>(source[i]).load(std::memory_order_relaxed);
  }
  std::memcpy(&to, words, sizeof(T));
}

template <typename T>
void StoreShared(T& to, const T& from) {
  static_assert(sizeof(T) % 8 == 0 && alignof(T) >= 8);
  uint64_t words[sizeof(T) / 8];
  std::memcpy(words, &from, sizeof(T));
  auto* target = reinterpret_cast<uint64_t*>(&to);
  for (size_t i = 0; i < std::size(words); ++i) {
    std::atomic_ref<uint64_t>(target[i]).store(words[i], std::memory_order_relaxed);
  }
}

}  // namespace

absl::Status CheckEntries(uint32_t entries) {
  if (entries < 2 || entries > kMaxEntries || !std::has_single_bit(entries)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ring of ", entries, " entries: expected a power of two from 2 to ", kMaxEntries));
  }
  return absl::OkStatus();
}

void Initialize(std::byte* memory, uint32_t entries) {
  SHUNT_CHECK(CheckEntries(entries).ok());
  auto* header = reinterpret_cast<Header*>(memory);
  header->magic = kMagic;
  header->version = kVersion;
  header->entries = entries;
  header->daemon_sleeps.store(1, std::memory_order_release);
}

absl::StatusOr<RingClient> RingClient::Attach(std::byte* memory, size_t bytes, uint32_t entries) {
  if (absl::Status status = CheckEntries(entries); !status.ok()) return status;
  if (bytes < BytesFor(entries)) {
    return absl::InvalidArgumentError(absl::StrCat("ring of ", entries, " entries has ", bytes,
                                                   " bytes, expected ", BytesFor(entries)));
  }
  auto* header = reinterpret_cast<Header*>(memory);
  if (header->magic != kMagic || header->version != kVersion || header->entries != entries) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ring: magic ", absl::Hex(header->magic), ", version ", header->version, ", ",
        header->entries, " entries; expected ", absl::Hex(kMagic), ", ", kVersion, ", ", entries));
  }
  RingClient client;
  client.header_ = header;
  client.submissions_ = SubmissionsIn(memory);
  client.completions_ = CompletionsIn(memory, entries);
  client.mask_ = entries - 1;
  client.sq_tail_ = header->sq_tail.load(std::memory_order_relaxed);
  client.cq_head_ = header->cq_head.load(std::memory_order_relaxed);
  return client;
}

RingClient& RingClient::operator=(RingClient&& other) noexcept {
  header_ = other.header_;
  submissions_ = other.submissions_;
  completions_ = other.completions_;
  mask_ = other.mask_;
  sq_tail_ = other.sq_tail_;
  cq_head_ = other.cq_head_;
  outstanding_.store(other.outstanding_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return *this;
}

RingClient::Pushed RingClient::Push(const Submission& submission) {
  const bool completes = Completes(submission.opcode);
  // A completion lowers `outstanding_` only after its slot is free, so this may refuse too early,
  // never too late.
  if (completes && outstanding_.load(std::memory_order_acquire) > mask_) return Pushed::kFull;
  if (sq_tail_ - header_->sq_head.load(std::memory_order_acquire) > mask_) return Pushed::kFull;
  if (completes) outstanding_.fetch_add(1, std::memory_order_relaxed);
  StoreShared(submissions_[sq_tail_ & mask_], submission);
  // Against MayNotSleep, all four accesses sequentially consistent: either it sees the new tail or
  // this sees the flag.
  header_->sq_tail.store(++sq_tail_, std::memory_order_seq_cst);
  if (header_->daemon_sleeps.load(std::memory_order_seq_cst) != 0 &&
      header_->daemon_sleeps.exchange(0, std::memory_order_relaxed) != 0) {
    return Pushed::kDoneRingDoorbell;
  }
  return Pushed::kDone;
}

size_t RingClient::PopCompletions(std::span<Completion> out) {
  const uint32_t tail = header_->cq_tail.load(std::memory_order_acquire);
  const size_t count = std::min<size_t>({tail - cq_head_, out.size(), mask_ + 1});
  for (size_t i = 0; i < count; ++i) {
    CopyShared(out[i], completions_[(cq_head_ + i) & mask_]);
  }
  if (count == 0) return 0;
  cq_head_ += static_cast<uint32_t>(count);
  header_->cq_head.store(cq_head_, std::memory_order_release);
  outstanding_.fetch_sub(static_cast<uint32_t>(count), std::memory_order_release);
  return count;
}

bool RingClient::WaitForCompletion(std::chrono::nanoseconds timeout) {
  if (header_->cq_tail.load(std::memory_order_acquire) != cq_head_) return true;
  header_->client_sleeps.store(1, std::memory_order_seq_cst);  // against Complete
  if (header_->cq_tail.load(std::memory_order_seq_cst) == cq_head_) {
    FutexWait(&header_->cq_tail, cq_head_, timeout);
  }
  header_->client_sleeps.store(0, std::memory_order_relaxed);
  return header_->cq_tail.load(std::memory_order_acquire) != cq_head_;
}

RingServer::RingServer(std::byte* memory, uint32_t entries)
    : header_(reinterpret_cast<Header*>(memory)),
      submissions_(SubmissionsIn(memory)),
      completions_(CompletionsIn(memory, entries)),
      mask_(entries - 1) {}

RingServer& RingServer::operator=(RingServer&& other) noexcept {
  header_ = other.header_;
  submissions_ = other.submissions_;
  completions_ = other.completions_;
  mask_ = other.mask_;
  sq_head_ = other.sq_head_;
  cq_tail_ = other.cq_tail_;
  outstanding_.store(other.outstanding_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return *this;
}

absl::StatusOr<bool> RingServer::Pop(Submission* out) {
  const uint32_t tail = header_->sq_tail.load(std::memory_order_acquire);
  const uint32_t waiting = tail - sq_head_;
  if (waiting == 0) return false;
  if (waiting > mask_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat("submission ring: tail ", tail, " is ", waiting,
                                                   " entries past head ", sq_head_, ", at most ",
                                                   mask_ + 1, " fit"));
  }
  CopyShared(*out, submissions_[sq_head_ & mask_]);
  header_->sq_head.store(++sq_head_, std::memory_order_release);
  if (Completes(out->opcode)) {
    if (outstanding_.load(std::memory_order_relaxed) > mask_) {
      return absl::InvalidArgumentError(
          absl::StrCat("submission ring: more than ", mask_ + 1, " operations outstanding"));
    }
    outstanding_.fetch_add(1, std::memory_order_relaxed);
  }
  return true;
}

bool RingServer::Complete(uint64_t token, int32_t code) {
  // Wrong only if the client submitted more than it may have outstanding: then it loses what it did
  // not collect.
  const bool room = cq_tail_ - header_->cq_head.load(std::memory_order_acquire) <= mask_;
  StoreShared(completions_[cq_tail_ & mask_], Completion{token, code, 0});
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  header_->cq_tail.store(++cq_tail_, std::memory_order_seq_cst);  // against WaitForCompletion
  if (header_->client_sleeps.load(std::memory_order_seq_cst) != 0) FutexWake(&header_->cq_tail);
  return room;
}

bool RingServer::MayNotSleep() {
  header_->daemon_sleeps.store(1, std::memory_order_seq_cst);
  return header_->sq_tail.load(std::memory_order_seq_cst) != sq_head_;
}

}  // namespace shunt::ring
