#include "runtime/board/pass.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/board/arrival.h"
#include "runtime/board/failure.h"
#include "runtime/board/post.h"

namespace shunt::board {
namespace {

// A claim costs two cache-line transfers, so chunks are long beside that; and short beside the
// cache, so that the ranks' streams of one chunk stay in it.
constexpr size_t kMinChunkBytes = 16 << 10;
constexpr size_t kMaxChunkBytes = 128 << 10;
constexpr uint64_t kChunksPerLane = 8;
constexpr uint64_t kMaxChunks = 60'000;
constexpr uint64_t kWindowAlign = 64;

// Claim and count words: sequence (24 bits), window (20), number (20).
constexpr int kFieldBits = 20;
constexpr uint64_t kFieldMask = (1u << kFieldBits) - 1;
constexpr uint64_t kTagMask = (1u << 24) - 1;

constexpr uint64_t Pack(uint64_t seq, uint32_t window, uint32_t number) {
  return (seq & kTagMask) << (2 * kFieldBits) | static_cast<uint64_t>(window) << kFieldBits |
         number;
}
constexpr uint64_t Tag(uint64_t word) { return word >> (2 * kFieldBits); }
constexpr uint32_t Window(uint64_t word) { return word >> kFieldBits & kFieldMask; }
constexpr uint32_t Number(uint64_t word) { return word & kFieldMask; }

// All slots' marks are renewed this often: well before a tag comes round.
constexpr uint64_t kRenewPeriod = 1 << 20;
static_assert(kRenewPeriod < kTagMask / 8);

// True if a word's tag belongs to an operation after `seq`: this one is long over.
bool Newer(uint64_t word, uint64_t seq) {
  const uint32_t ahead = (Tag(word) - seq) & kTagMask;
  return ahead != 0 && ahead < (kTagMask >> 1) && word != 0;
}

// An operation whose inputs and outputs exceed the workers' own caches writes past them: it would
// evict what the ranks compute with, and read each output line only to overwrite it.
uint64_t CacheBytes(int workers) {
  static const uint64_t level2 = [] {
    const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? static_cast<uint64_t>(bytes) : 1ull << 20;
  }();
  static const int cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return level2 * std::min(workers, cpus);
}

uint64_t ExtentElements(const VRow* rows, int n, bool in) {
  uint64_t extent = 0;
  for (int i = 0; i < n; ++i) {
    const uint64_t count = in ? rows[i].send_count : rows[i].recv_count;
    const uint64_t displ = in ? rows[i].send_displ : rows[i].recv_displ;
    uint64_t end;
    if (count == 0) continue;
    if (__builtin_add_overflow(count, displ, &end) || end > (1ull << 58)) return ~0ull;
    extent = std::max(extent, end);
  }
  return extent;
}

}  // namespace

absl::Status Pass::Build(const Board& board, const Channel& channel, uint64_t seq,
                         RegionResolver& resolver, int only_output_of) {
  channel_ = channel;
  seq_ = seq;
  participants_ = channel.participants();
  lanes_ = channel.lanes();
  posts_.resize(participants_);
  buffers_.resize(participants_);
  for (int p = 0; p < participants_; ++p) posts_[p] = ReadBody(channel.post(seq, p));
  for (int p = 1; p < participants_; ++p) {
    if (!SameCall(channel.id(), posts_[0], posts_[p])) {
      return absl::FailedPreconditionError(MismatchText(board, channel, seq, 0, posts_[0], p));
    }
  }
  spec_ = SpecOf(channel.id(), posts_[0]);
  // Only a hostile member posts one here: its plan is of two participants, whatever the world's
  // size.
  if (channel.id() == 0 && (spec_.kind == OpKind::kSend || spec_.kind == OpKind::kRecv)) {
    return absl::InvalidArgumentError(absl::StrCat(CallText(board, channel.id(), seq, posts_[0]),
                                                   " on communicator ", NameText(board),
                                                   " was posted as a collective"));
  }
  if (absl::Status s = ValidateSpec(spec_, participants_); !s.ok()) return s;
  element_bytes_ = SizeOf(spec_.dtype);
  elements_ = spec_.count;
  if (spec_.kind == OpKind::kAllToAllV) {
    const size_t rows = static_cast<size_t>(participants_) * participants_;
    tables_.resize(rows);
    for (int p = 0; p < participants_; ++p) {
      ReadTable(channel, seq, p, tables_.data() + static_cast<size_t>(p) * participants_);
    }
    if (absl::Status s = CheckTables(board); !s.ok()) return s;
    elements_ = 0;
    for (const VRow& row : tables_) elements_ = std::max(elements_, row.send_count);
  }
  for (int p = 0; p < participants_; ++p) {
    absl::Status s = Locate(board, p, resolver);
    if (!s.ok() && only_output_of < 0) return s;
  }
  if (only_output_of < 0) {
    if (absl::Status s = CheckOverlap(board); !s.ok()) return s;
  }
  if (spec_.redop == Redop::kPremulSum && Reduces(spec_.kind)) {
    scalars_.resize(participants_);
    for (int p = 0; p < participants_; ++p) std::memcpy(scalars_[p].bytes, &posts_[p].scalar, 8);
  }
  CutIntoChunks();
  if (only_output_of >= 0 && StagedOutput(only_output_of) == nullptr) {
    return absl::InternalError(
        absl::StrCat(CallText(board, channel.id(), seq, posts_[only_output_of]),
                     ": the staging buffer that holds the result is gone"));
  }
  if (windows_ > kFieldMask) {
    return absl::InvalidArgumentError(
        absl::StrCat(CallText(board, channel.id(), seq, posts_[0]),
                     " is too long for memory outside regions: it takes more than ", kFieldMask,
                     " staging windows"));
  }
  return absl::OkStatus();
}

// Callers check their own buffers; what a post says may be anything, and copies between overlapping
// ranges are undefined. Buffers of different ranks lie in different regions, those of a rank's send
// to itself may not.
absl::Status Pass::CheckOverlap(const Board& board) const {
  for (int i = 0; i < participants_; ++i) {
    for (int o = 0; o < participants_; ++o) {
      if (board.RankOf(channel_.id(), i) != board.RankOf(channel_.id(), o)) continue;
      const Side& in = buffers_[i].in;
      const Side& out = buffers_[o].out;
      if (in.bytes == 0 || out.bytes == 0 || in.place != Place::kRegion ||
          out.place != Place::kRegion)
        continue;
      const auto a = reinterpret_cast<uintptr_t>(in.base);
      const auto b = reinterpret_cast<uintptr_t>(out.base);
      if (a + in.bytes <= b || b + out.bytes <= a) continue;
      if (i == o && spec_.kind != OpKind::kAllToAllV &&
          PlacementOf(spec_, participants_, i, a, b) != Placement::kForbidden) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          CallText(board, channel_.id(), seq_, posts_[i]), " on communicator ", NameText(board),
          ": input and output of ", RankText(board, board.RankOf(channel_.id(), i)), " overlap"));
    }
  }
  return absl::OkStatus();
}

absl::Status Pass::CheckTables(const Board& board) const {
  for (int i = 0; i < participants_; ++i) {
    for (int j = 0; j < participants_; ++j) {
      const uint64_t sent = row(i)[j].send_count;
      const uint64_t received = row(j)[i].recv_count;
      if (sent != received) {
        return absl::FailedPreconditionError(absl::StrCat(
            "all_to_all_v #", seq_, " on communicator ", NameText(board), ": ", RankText(board, i),
            " sends ", sent, " elements to ", RankText(board, j), ", which expects ", received));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Pass::Locate(const Board& board, int p, RegionResolver& resolver) {
  const PostBody& body = posts_[p];
  const int rank = board.RankOf(channel_.id(), p);
  uint64_t in_elements, out_elements;
  if (spec_.kind == OpKind::kAllToAllV) {
    in_elements = ExtentElements(row(p), participants_, true);
    out_elements = ExtentElements(row(p), participants_, false);
  } else {
    in_elements = InputBlocks(spec_, participants_, p) * spec_.count;
    out_elements = OutputBlocks(spec_, participants_, p) * spec_.count;
  }
  const auto find = [&](Place place, uint64_t region, uint64_t offset, uint64_t elements,
                        std::byte* slot, Side* side, const char* what) -> absl::Status {
    side->place = place;
    if (elements == 0) return absl::OkStatus();
    const uint64_t bytes = elements * element_bytes_;
    side->bytes = bytes;
    switch (place) {
      case Place::kSlot:
        if (spec_.kind != OpKind::kAllToAllV && bytes <= channel_.inline_bytes()) side->base = slot;
        break;
      case Place::kRegion:
        if (elements <= (1ull << 58)) side->base = resolver.Resolve(rank, region, offset, bytes);
        break;
      case Place::kStaged:
        staged_ = true;
        side->base = resolver.Resolve(rank, region, offset, 2 * staging_window_bytes());
        break;
      case Place::kNone:
        break;
    }
    if (side->base != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        CallText(board, channel_.id(), seq_, body), " on communicator ", NameText(board), ": ",
        RankText(board, rank), " gave no valid ", what, ": region ", region, ", offset ", offset,
        ", ", elements, " elements of ", element_bytes_, " bytes"));
  };
  std::byte* slot_in = InputInLine(body, in_elements * element_bytes_)
                           ? channel_.post(seq_, p).body.bytes
                           : channel_.payload_in(seq_, p);
  Buffers& b = buffers_[p];
  if (absl::Status s = find(static_cast<Place>(body.in_place_kind), body.ref.in_region,
                            body.ref.in_offset, in_elements, slot_in, &b.in, "input");
      !s.ok()) {
    return s;
  }
  return find(static_cast<Place>(body.out_place_kind), body.ref.out_region, body.ref.out_offset,
              out_elements, channel_.payload_out(seq_, p), &b.out, "output");
}

void Pass::CutIntoChunks() {
  steps_ = StepCount(spec_, participants_);
  if (elements_ == 0) steps_ = 0;
  window_elements_ = elements_;
  if (staged_) {
    uint64_t blocks = 1;
    for (int p = 0; p < participants_; ++p) {
      blocks = std::max<uint64_t>(
          {blocks, InputBlocks(spec_, participants_, p), OutputBlocks(spec_, participants_, p)});
    }
    if (spec_.kind == OpKind::kAllToAllV) blocks = participants_;
    const uint64_t fit =
        staging_window_bytes() / (blocks * element_bytes_) / kWindowAlign * kWindowAlign;
    window_elements_ = std::min(elements_, std::max(fit, kWindowAlign));
  }
  windows_ = 0;
  if (steps_ == 0) return;
  windows_ = static_cast<uint32_t>(
      std::min<uint64_t>((elements_ - 1) / window_elements_ + 1, kFieldMask + 1));

  const uint64_t step_bytes = window_elements_ * element_bytes_;
  const uint64_t window_bytes = step_bytes * steps_;
  const uint64_t wanted = std::clamp<uint64_t>(window_bytes / (lanes_ * kChunksPerLane),
                                               kMinChunkBytes, kMaxChunkBytes);
  uint64_t per_step = std::max<uint64_t>(1, (step_bytes + wanted - 1) / wanted);
  per_step = std::min(per_step, std::max<uint64_t>(1, kMaxChunks / steps_));
  chunk_elements_ = (window_elements_ + per_step - 1) / per_step;
  // Whole cache lines, so that two workers never write one line.
  chunk_elements_ = (chunk_elements_ + kWindowAlign - 1) / kWindowAlign * kWindowAlign;
  chunks_per_step_ =
      static_cast<uint32_t>((window_elements_ + chunk_elements_ - 1) / chunk_elements_);
  chunks_ = steps_ * chunks_per_step_;

  ChooseStores(step_bytes);
  const LocalStep first = StepAt(spec_, participants_, 0);
  if (first.dst_count == 1) return;
  for (int p = participants_ - 1; p >= 0; --p) {
    if (buffers_[p].out.place == Place::kStaged) shared_output_ = p;
  }
}

// Inputs come first in the caches, since somebody has just written them; outputs stay as far as
// there is room beside them, and the rest goes past. A cliff would stand where an operation just
// outgrows the caches otherwise.
void Pass::ChooseStores(uint64_t step_bytes) {
  const LocalStep first = StepAt(spec_, participants_, 0);
  const Side& in = buffers_[first.dst_first].in;
  const Side& out = buffers_[first.dst_first].out;
  // In place, each output line has just been read: a plain store costs nothing more.
  if (Reduces(spec_.kind) && in.place == out.place &&
      in.base + first.src_block * step_bytes == out.base + first.dst_block * step_bytes) {
    return;
  }
  const uint64_t all_steps = elements_ * element_bytes_ * steps_;
  const uint64_t read = all_steps * first.src_count;
  const uint64_t written = all_steps * first.dst_count;
  // Near the caches' whole size the streams already evict one another.
  const uint64_t room = CacheBytes(participants_) / 4 * 3;
  const uint64_t beside = room > read ? room - read : 0;
  if (beside < written) plain_eighths_ = static_cast<uint32_t>(beside * 8 / written);
}

uint64_t Pass::WindowLength(uint32_t window) const {
  return std::min(window_elements_, elements_ - WindowBegin(window));
}

bool Pass::WindowReady(uint32_t window) const {
  if (!staged_) return true;
  const uint64_t tag = seq_ << 32;
  for (int p = 0; p < participants_; ++p) {
    const StageProgress& progress = channel_.progress(seq_, p);
    if (buffers_[p].in.place == Place::kStaged) {
      const uint64_t in = progress.staged_in.load(std::memory_order_acquire);
      if ((in >> 32 << 32) != tag || (in & 0xffffffff) <= window) return false;
    }
    if (buffers_[p].out.place == Place::kStaged) {
      // Until it takes the first one out, the word is an older operation's: that operation is over
      // for this rank.
      const uint64_t out = progress.taken_out.load(std::memory_order_acquire);
      const uint64_t taken = (out >> 32 << 32) == tag ? out & 0xffffffff : 0;
      if (taken + 2 <= window) return false;
    }
  }
  return true;
}

bool Pass::OutputTakenFrom(int p) const {
  if (shared_output_ != p) return true;
  for (int i = 0; i < participants_; ++i) {
    if (i == p || buffers_[i].out.place != Place::kStaged) continue;
    const uint64_t out = channel_.progress(seq_, i).taken_out.load(std::memory_order_acquire);
    if (out != (seq_ << 32 | windows_)) return false;
  }
  return true;
}

bool Pass::Claim(int lane, uint32_t* window, uint32_t* chunk) {
  std::atomic<uint64_t>& word = channel_.lane(seq_, lane).next;
  uint64_t seen = word.load(std::memory_order_acquire);
  while (true) {
    uint32_t w = 0, c = 0;
    if (Tag(seen) == (seq_ & kTagMask)) {
      w = Window(seen);
      c = Number(seen);
    } else if (Newer(seen, seq_)) {
      return false;
    }
    const uint32_t in_lane = LaneBegin(lane + 1) - LaneBegin(lane);
    if (c >= in_lane) {
      ++w;
      c = 0;
    }
    if (in_lane == 0 || w >= windows_ || !WindowReady(w)) return false;
    // Window w - 2 lies in the same staging buffers: none of its chunks may still be in the works.
    if (w >= 2 && !WindowDone(w - 2)) return false;
    if (word.compare_exchange_weak(seen, Pack(seq_, w, c + 1), std::memory_order_acq_rel)) {
      *window = w;
      *chunk = LaneBegin(lane) + c;
      return true;
    }
  }
}

void Pass::AddDone(uint32_t window, uint32_t chunks) {
  std::atomic<uint64_t>& word = channel_.fate(seq_).done[window & 1];
  uint64_t seen = word.load(std::memory_order_relaxed);
  uint64_t next;
  do {
    const bool same = Tag(seen) == (seq_ & kTagMask) && Window(seen) == window && seen != 0;
    next = Pack(seq_, window, (same ? Number(seen) : 0) + chunks);
  } while (!word.compare_exchange_weak(seen, next, std::memory_order_seq_cst));
}

bool Pass::WindowDone(uint32_t window) const {
  const uint64_t seen = channel_.fate(seq_).done[window & 1].load(std::memory_order_acquire);
  if (Newer(seen, seq_)) return true;
  if (Tag(seen) != (seq_ & kTagMask)) return false;
  return Window(seen) > window || (Window(seen) == window && Number(seen) >= chunks_);
}

bool Pass::AllDone() const {
  if (windows_ == 0) return true;
  return WindowDone(windows_ - 1) && (windows_ < 2 || WindowDone(windows_ - 2));
}

bool Pass::Work(int first_lane, uint32_t max_chunks) {
  uint32_t ran = 0;
  // Claims come from shared memory: a hostile rank that keeps resetting them must not keep a worker
  // for ever.
  max_chunks = static_cast<uint32_t>(
      std::min<uint64_t>(max_chunks, static_cast<uint64_t>(chunks_) * windows_));
  for (int i = 0; i < lanes_ && ran < max_chunks; ++i) {
    const int lane = (first_lane + i) % lanes_;
    uint32_t window, chunk, current = 0, unreported = 0;
    while (ran < max_chunks && Claim(lane, &window, &chunk)) {
      if (unreported != 0 && window != current) {
        AddDone(current, unreported);
        unreported = 0;
      }
      current = window;
      Run(window, chunk);
      ++unreported;
      ++ran;
    }
    if (unreported != 0) AddDone(current, unreported);
  }
  return ran != 0;
}

std::byte* Pass::Address(const Side& side, uint64_t block_begin, uint32_t block, uint32_t window,
                         uint64_t element) const {
  if (side.place == Place::kStaged) {
    return side.base + (window & 1) * staging_window_bytes() +
           (block * window_elements_ + element) * element_bytes_;
  }
  return side.base + (block_begin + WindowBegin(window) + element) * element_bytes_;
}

void Pass::Run(uint32_t window, uint32_t chunk) const {
  const LocalStep step = StepAt(spec_, participants_, chunk / chunks_per_step_);
  const uint64_t begin = chunk % chunks_per_step_ * chunk_elements_;
  uint64_t block_elements = WindowLength(window);
  const bool v = spec_.kind == OpKind::kAllToAllV;
  if (v) {
    const uint64_t sent = row(step.src_first)[step.dst_first].send_count;
    block_elements =
        sent > WindowBegin(window) ? std::min(sent - WindowBegin(window), window_elements_) : 0;
  }
  if (begin >= block_elements) return;
  const uint64_t count = std::min(chunk_elements_, block_elements - begin);

  const std::byte* srcs[kMaxLocalRanks];
  std::byte* dsts[kMaxLocalRanks];
  for (int i = 0; i < step.src_count; ++i) {
    const int p = step.src_first + i;
    const uint64_t at = v ? row(p)[step.dst_first].send_displ : step.src_block * spec_.count;
    srcs[i] = Address(buffers_[p].in, at, step.src_block, window, begin);
  }
  size_t n_dsts = 0;
  for (int i = 0; i < step.dst_count; ++i) {
    const int p = step.dst_first + i;
    const Side& side = buffers_[p].out;
    if (side.place == Place::kStaged && shared_output_ >= 0 && p != shared_output_) continue;
    const uint64_t at = v ? row(p)[step.src_first].recv_displ : step.dst_block * spec_.count;
    dsts[n_dsts++] = Address(side, at, step.dst_block, window, begin);
  }
  // Staging buffers are for the cache.
  const bool plain = staged_ || chunk % 8 < plain_eighths_;
  const StorePolicy store = plain ? StorePolicy::kTemporal : StorePolicy::kStreaming;
  if (Reduces(spec_.kind)) {
    ReduceInto({spec_.dtype, spec_.redop, participants_, store},
               absl::MakeConstSpan(srcs, step.src_count), scalars_,
               absl::MakeConstSpan(dsts, n_dsts), count);
  } else {
    CopyInto(srcs[0], absl::MakeConstSpan(dsts, n_dsts), count * element_bytes_, store);
  }
}

void RenewMarks(const Channel& channel, uint64_t seq, int participant) {
  if (seq % kRenewPeriod >= static_cast<uint64_t>(channel.slots())) return;
  // Nobody works on the slot's last operation any more, nor on this one before its last post. A
  // worker of the daemon that comes late must see a newer operation, not an empty word.
  const uint64_t fresh = Pack(seq, 0, 0);
  if (participant < channel.lanes())
    channel.lane(seq, participant).next.store(fresh, std::memory_order_relaxed);
  StageProgress& progress = channel.progress(seq, participant);
  progress.staged_in.store(seq << 32, std::memory_order_relaxed);
  progress.taken_out.store(seq << 32, std::memory_order_relaxed);
  if (participant != 0) return;
  for (std::atomic<uint64_t>& done : channel.fate(seq).done)
    done.store(fresh, std::memory_order_relaxed);
}

namespace {

// Elements and place of one block of a window in a participant's own buffer.
struct BlockRange {
  uint64_t begin;
  uint64_t count;
};

uint32_t Blocks(const Pass& pass, int participant, bool in) {
  const int n = pass.participants();
  if (pass.spec().kind == OpKind::kAllToAllV) return n;
  return in ? InputBlocks(pass.spec(), n, participant) : OutputBlocks(pass.spec(), n, participant);
}

BlockRange RangeOf(const Pass& pass, int participant, uint32_t window, uint32_t block, bool in) {
  if (pass.spec().kind != OpKind::kAllToAllV) {
    return {block * pass.spec().count + pass.WindowBegin(window), pass.WindowLength(window)};
  }
  const VRow& row = pass.row(participant)[block];
  const uint64_t total = in ? row.send_count : row.recv_count;
  const uint64_t displ = in ? row.send_displ : row.recv_displ;
  const uint64_t begin = pass.WindowBegin(window);
  if (total <= begin) return {0, 0};
  return {displ + begin, std::min(total - begin, pass.window_elements())};
}

}  // namespace

void CopyWindowIn(const Pass& pass, int participant, uint32_t window, const std::byte* in,
                  std::byte* staging) {
  const size_t size = SizeOf(pass.spec().dtype);
  std::byte* to = staging + (window & 1) * pass.staging_window_bytes();
  for (uint32_t b = 0; b < Blocks(pass, participant, true); ++b) {
    const BlockRange r = RangeOf(pass, participant, window, b, true);
    // What is staged is read at once: it must stay in the cache.
    if (r.count != 0)
      std::memcpy(to + b * pass.window_elements() * size, in + r.begin * size, r.count * size);
  }
}

void CopyWindowOut(const Pass& pass, int participant, uint32_t window, const std::byte* staging,
                   std::byte* out) {
  const size_t size = SizeOf(pass.spec().dtype);
  const std::byte* from = staging + (window & 1) * pass.staging_window_bytes();
  for (uint32_t b = 0; b < Blocks(pass, participant, false); ++b) {
    const BlockRange r = RangeOf(pass, participant, window, b, false);
    std::byte* to = out + r.begin * size;
    if (r.count != 0)
      CopyInto(from + b * pass.window_elements() * size, {&to, 1}, r.count * size, pass.store());
  }
}

}  // namespace shunt::board
