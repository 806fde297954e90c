#include "runtime/board/gather.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/board/arrival.h"
#include "runtime/board/failure.h"
#include "runtime/board/post.h"

namespace shunt::board {
namespace {

constexpr uint64_t kElementsMax = 1ull << 58;

uint64_t TableExtent(const VRow* rows, int world, bool in) {
  uint64_t extent = 0;
  for (int i = 0; i < world; ++i) {
    const uint64_t count = in ? rows[i].send_count : rows[i].recv_count;
    const uint64_t displ = in ? rows[i].send_displ : rows[i].recv_displ;
    uint64_t end;
    if (count == 0) continue;
    if (__builtin_add_overflow(count, displ, &end)) return ~0ull;
    extent = std::max(extent, end);
  }
  return extent;
}

struct Locator {
  const Board& board;
  const Channel& channel;
  uint64_t seq;
  RegionResolver& resolver;
  const PostBody& body;
  int participant;
  size_t element_bytes;

  absl::Status Find(uint8_t place, uint64_t region, uint64_t offset, uint64_t elements,
                    std::byte* slot, const char* what, std::byte** base) const {
    *base = nullptr;
    if (elements == 0) return absl::OkStatus();
    const int rank = board.RankOf(channel.id(), participant);
    if (elements <= kElementsMax) {
      const uint64_t bytes = elements * element_bytes;
      if (place == static_cast<uint8_t>(Place::kRegion)) {
        *base = resolver.Resolve(rank, region, offset, bytes);
      } else if (place == static_cast<uint8_t>(Place::kSlot) && bytes <= channel.inline_bytes() &&
                 !board.shape().device) {
        *base = slot;
      }
    }
    if (*base != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        CallText(board, channel.id(), seq, body), " on communicator ", NameText(board), ": ",
        RankText(board, rank), " gave no valid ", what, ": region ", region, ", offset ", offset,
        ", ", elements, " elements of ", element_bytes, " bytes"));
  }
};

}  // namespace

absl::Status Gather(const Board& board, const Channel& channel, uint64_t seq,
                    RegionResolver& resolver, Gathered* gathered) {
  const int n = channel.participants();
  const int world = board.PlanWorld(channel.id());
  const bool collective = channel.id() == 0;
  absl::InlinedVector<PostBody, 4> posts(n);
  for (int p = 0; p < n; ++p) posts[p] = ReadBody(channel.post(seq, p));
  for (int p = 1; p < n; ++p) {
    if (!SameCall(channel.id(), posts[0], posts[p])) {
      return absl::FailedPreconditionError(MismatchText(board, channel, seq, 0, posts[0], p));
    }
  }
  CollectiveSpec& spec = gathered->spec;
  spec = SpecOf(channel.id(), posts[0]);
  if (collective && (spec.kind == OpKind::kSend || spec.kind == OpKind::kRecv)) {
    return absl::InvalidArgumentError(absl::StrCat(CallText(board, channel.id(), seq, posts[0]),
                                                   " on communicator ", NameText(board),
                                                   " was posted as a collective"));
  }
  if (absl::Status s = ValidateSpec(spec, world); !s.ok()) return s;
  gathered->ranks.assign(n, Gathered::Rank());
  gathered->tables.clear();
  if (spec.kind == OpKind::kAllToAllV) {
    gathered->tables.resize(static_cast<size_t>(n) * world);
    for (int p = 0; p < n; ++p) {
      ReadTable(channel, seq, p, gathered->tables.data() + static_cast<size_t>(p) * world);
    }
  }
  for (int p = 0; p < n; ++p) {
    const PostBody& body = posts[p];
    const int role = board.RoleOf(channel.id(), p);
    uint64_t in = InputBlocks(spec, world, role) * spec.count;
    uint64_t out = OutputBlocks(spec, world, role) * spec.count;
    if (spec.kind == OpKind::kAllToAllV) {
      const VRow* rows = gathered->tables.data() + static_cast<size_t>(p) * world;
      in = TableExtent(rows, world, true);
      out = TableExtent(rows, world, false);
    }
    const size_t element = SizeOf(spec.dtype);
    const Locator locator{board, channel, seq, resolver, body, p, element};
    Gathered::Rank& rank = gathered->ranks[p];
    std::byte* slot_in = InputInLine(body, in * element) ? channel.post(seq, p).body.bytes
                                                         : channel.payload_in(seq, p);
    std::byte* input;
    if (absl::Status s = locator.Find(body.in_place_kind, body.ref.in_region, body.ref.in_offset,
                                      in, slot_in, "input", &input);
        !s.ok()) {
      return s;
    }
    rank.in = input;
    if (absl::Status s = locator.Find(body.out_place_kind, body.ref.out_region, body.ref.out_offset,
                                      out, channel.payload_out(seq, p), "output", &rank.out);
        !s.ok()) {
      return s;
    }
    std::memcpy(rank.scalar.bytes, &body.scalar, sizeof(body.scalar));
    rank.flags = body.flags;
  }
  return absl::OkStatus();
}

}  // namespace shunt::board
