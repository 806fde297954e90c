#include "runtime/board/arrival.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/board/failure.h"
#include "runtime/board/post.h"

namespace shunt::board {
namespace {

constexpr int kMaxNamed = 8;

}  // namespace

bool SameCall(uint32_t channel, const PostBody& a, const PostBody& b) {
  if (a.count != b.count || a.dtype != b.dtype) return false;
  if (channel != 0) return true;
  return a.kind == b.kind && a.redop == b.redop && a.root == b.root;
}

int FindMismatch(const Channel& channel, uint64_t seq, int me, const PostBody& mine) {
  for (int p = 0; p < channel.participants(); ++p) {
    if (p == me) continue;
    const Post& post = channel.post(seq, p);
    if (post.word.load(std::memory_order_acquire) != PostedWord(seq)) continue;
    if (!SameCall(channel.id(), mine, post.body)) return p;
  }
  return -1;
}

bool SealAbsent(const Channel& channel, uint64_t seq) {
  bool failed = false;
  for (int p = 0; p < channel.participants(); ++p) {
    std::atomic<uint64_t>& word = channel.post(seq, p).word;
    uint64_t seen = word.load(std::memory_order_acquire);
    // A newer word means that the operation is long over.
    while (seen >> 2 < seq) {
      if (word.compare_exchange_weak(seen, SealedWord(seq), std::memory_order_seq_cst))
        seen = SealedWord(seq);
    }
    if (seen == SealedWord(seq)) failed = true;
  }
  return failed;
}

CollectiveSpec SpecOf(uint32_t channel, const PostBody& body) {
  CollectiveSpec spec{};
  spec.kind = channel == 0 ? static_cast<OpKind>(body.kind) : OpKind::kSend;
  spec.dtype = static_cast<DataType>(body.dtype);
  spec.redop = static_cast<Redop>(body.redop);
  spec.root = body.root;
  spec.count = body.count;
  return spec;
}

std::string MismatchText(const Board& board, const Channel& channel, uint64_t seq, int a,
                         const PostBody& a_body, int b) {
  const PostBody b_body = ReadBody(channel.post(seq, b));
  return absl::StrCat("the calls of communicator ", NameText(board),
                      " do not match: ", RankText(board, board.RankOf(channel.id(), a)), " called ",
                      CallText(board, channel.id(), seq, a_body), ", ",
                      RankText(board, board.RankOf(channel.id(), b)), " called ",
                      CallText(board, channel.id(), seq, b_body));
}

std::string LeftText(const Board& board, const Channel& channel, uint64_t seq,
                     const PostBody& waiting, int rank) {
  const std::string last = LastCallText(board, rank);
  return absl::StrCat(
      CallText(board, channel.id(), seq, waiting), " on communicator ", NameText(board), ": ",
      RankText(board, rank), " has left; ",
      last.empty() ? "it had never called" : absl::StrCat("its last call was ", last));
}

std::string AbsentText(const Board& board, const Channel& channel, uint64_t seq, int waiter,
                       const PostBody& mine, int64_t waited_ns, int* first_absent) {
  std::string text = absl::StrCat(
      CallText(board, channel.id(), seq, mine), " on communicator ", NameText(board), ": ",
      RankText(board, board.RankOf(channel.id(), waiter)),
      waited_ns < 0 ? " waited until its deadline for "
      : waited_ns < 1'000'000'000
          ? absl::StrCat(" waited ", (waited_ns + 999'999) / 1'000'000, " ms for ")
          : absl::StrFormat(" waited %.1f s for ", static_cast<double>(waited_ns) * 1e-9));
  int absent = 0;
  *first_absent = -1;
  for (int p = 0; p < channel.participants(); ++p) {
    if (channel.post(seq, p).word.load(std::memory_order_acquire) == PostedWord(seq)) continue;
    const int rank = board.RankOf(channel.id(), p);
    if (*first_absent < 0) *first_absent = rank;
    if (++absent > kMaxNamed) continue;
    const std::string last = LastCallText(board, rank);
    absl::StrAppend(
        &text, absent > 1 ? ", " : "", RankText(board, rank),
        last.empty() ? ", which never called" : absl::StrCat(", whose last call was ", last));
  }
  if (absent > kMaxNamed) absl::StrAppend(&text, " and ", absent - kMaxNamed, " more");
  return text;
}

}  // namespace shunt::board
