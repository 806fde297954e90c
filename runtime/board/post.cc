#include "runtime/board/post.h"

#include <algorithm>
#include <cstring>

#include "runtime/board/arrival.h"
#include "runtime/board/pass.h"

namespace shunt::board {
namespace {

uint64_t ExtentBytes(const uint64_t* counts, const uint64_t* displs, int n, size_t element_bytes) {
  uint64_t extent = 0;
  for (int p = 0; p < n; ++p) {
    uint64_t end;
    if (counts[p] == 0) continue;
    if (__builtin_add_overflow(counts[p], displs[p], &end)) return ~0ull;
    extent = std::max(extent, end);
  }
  uint64_t bytes;
  return __builtin_mul_overflow(extent, element_bytes, &bytes) ? ~0ull : bytes;
}

// Words of the board are read and written whole, also where they are no atomics by type.
using Word = uint64_t __attribute__((may_alias));

void ReadWords(void* to, const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(Word); ++i) {
    static_cast<Word*>(to)[i] =
        __atomic_load_n(static_cast<const Word*>(from) + i, __ATOMIC_RELAXED);
  }
}

void WriteWords(void* to, const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(Word); ++i) {
    __atomic_store_n(static_cast<Word*>(to) + i, static_cast<const Word*>(from)[i],
                     __ATOMIC_RELAXED);
  }
}

// What LastCall and the rank's ring hold of a call.
uint64_t WordsOf(const Board& board, const Channel& channel, int participant, const PostBody& body,
                 bool waits) {
  int root_or_peer = body.root;
  if (channel.id() != 0) {
    const Board::Pair pair = board.PairOf(channel.id());
    root_or_peer = board.RoleOf(channel.id(), participant) == 0 ? pair.destination : pair.source;
  }
  const uint64_t how = static_cast<uint64_t>(body.in_place_kind & 3) |
                       static_cast<uint64_t>(body.out_place_kind & 3) << 2 |
                       static_cast<uint64_t>(body.flags & kServed) << 4 |
                       static_cast<uint64_t>(waits) << 5;
  return static_cast<uint64_t>(static_cast<uint16_t>(root_or_peer)) << 32 | how << 24 |
         static_cast<uint64_t>(body.redop) << 16 | static_cast<uint64_t>(body.dtype) << 8 |
         body.kind;
}

}  // namespace

PostBody ReadBody(const Post& post) {
  PostBody body;
  ReadWords(&body, &post.body, sizeof(body));
  return body;
}

void ReadTable(const Channel& channel, uint64_t seq, int participant, VRow* rows) {
  ReadWords(rows, channel.table(seq, participant), channel.table_rows() * sizeof(VRow));
}

void FillSignature(const Call& call, PostBody* body) {
  const CollectiveSpec& spec = call.spec;
  body->kind = static_cast<uint8_t>(spec.kind);
  body->dtype = spec.kind == OpKind::kBarrier ? 0 : static_cast<uint8_t>(spec.dtype);
  body->redop = Reduces(spec.kind) ? static_cast<uint8_t>(spec.redop) : 0;
  body->root = HasRoot(spec.kind) ? static_cast<int16_t>(spec.root) : 0;
  body->count = spec.kind == OpKind::kBarrier || spec.kind == OpKind::kAllToAllV ? 0 : spec.count;
  std::memcpy(&body->scalar, call.scalar.bytes, sizeof(body->scalar));
}

Extents ExtentsOf(const Board& board, const Call& call, const PostBody& signature,
                  const Channel& channel, int participant) {
  const int n = board.PlanWorld(channel.id());
  const size_t element = SizeOf(call.spec.dtype);
  if (call.spec.kind == OpKind::kAllToAllV) {
    return {ExtentBytes(call.send_counts, call.send_displs, n, element),
            ExtentBytes(call.recv_counts, call.recv_displs, n, element)};
  }
  const CollectiveSpec plan = SpecOf(channel.id(), signature);
  const uint64_t block = plan.count * element;
  const int role = board.RoleOf(channel.id(), participant);
  return {InputBlocks(plan, n, role) * block, OutputBlocks(plan, n, role) * block};
}

void WriteTable(const Call& call, const Channel& channel, uint64_t seq, int participant) {
  if (call.spec.kind != OpKind::kAllToAllV) return;
  VRow* rows = channel.table(seq, participant);
  for (int p = 0; p < channel.table_rows(); ++p) {
    const VRow row = {call.send_counts[p], call.send_displs[p], call.recv_counts[p],
                      call.recv_displs[p]};
    WriteWords(&rows[p], &row, sizeof(row));
  }
}

bool WritePost(const Board& board, const Channel& channel, uint64_t seq, int participant,
               const PostBody& body, int64_t posted_ns, bool waits, uint64_t* note) {
  RenewMarks(channel, seq, participant);
  Post& post = channel.post(seq, participant);
  WriteWords(&post.body, &body, sizeof(body));
  const int rank = board.RankOf(channel.id(), participant);
  LastCall& last = board.last_call(rank);
  last.sequence.store(seq, std::memory_order_relaxed);
  last.count.store(body.count, std::memory_order_relaxed);
  const uint64_t words = WordsOf(board, channel, participant, body, waits);
  last.words.store(words, std::memory_order_relaxed);
  if (const recorder::CallRing calls = board.calls(rank); calls.size() != 0) {
    *note = last.calls.load(std::memory_order_relaxed) + 1;
    last.calls.store(*note, std::memory_order_relaxed);
    calls.Begin(*note, seq, words, body.count, posted_ns);
  }
  return Publish(post, seq);
}

void NoteWaits(const Board& board, const Channel& channel, uint64_t seq, int participant,
               const PostBody& body, bool waits, uint64_t note) {
  const uint64_t words = WordsOf(board, channel, participant, body, waits);
  const int rank = board.RankOf(channel.id(), participant);
  board.calls(rank).SetWords(note, words);
  LastCall& last = board.last_call(rank);
  // Another thread may be calling: what it writes is for people.
  if (last.sequence.load(std::memory_order_relaxed) == seq) {
    last.words.store(words, std::memory_order_relaxed);
  }
}

}  // namespace shunt::board
