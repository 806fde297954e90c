#include "runtime/p2p/overlap_numbers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/utf8.h"
#include "runtime/p2p/disjoint.h"

namespace shunt::p2p {
namespace {

constexpr size_t kListedIdsMax = size_t{1} << 22;
constexpr uint64_t kBitsMax = uint64_t{1} << 30;  // 128 MiB, whatever the list of ids is
// A bit map is worth its zeroing up to so many bits for each id.
constexpr uint64_t kBitsPerId = 512;
constexpr uint64_t kPiecesPerRun = 64;  // on average; longer runs are compared as such
constexpr uint64_t kSegmentPairsMax = 1 << 22;

// Segments of each set beside one another, by their first piece.
using Segments = std::vector<Selection::Segment>;
Segments BySet(const Selection& selection) {
  Segments segments = selection.segments();
  std::sort(segments.begin(), segments.end(), [](const auto& a, const auto& b) {
    return std::tie(a.set, a.first) < std::tie(b.set, b.first);
  });
  return segments;
}

bool Intersect(const Selection::Segment& a, const Selection::Segment& b) {
  return Intersect(Progression{a.first, a.count, a.step}, Progression{b.first, b.count, b.step});
}

uint64_t LastPiece(const Selection::Segment& s) { return s.first + (s.count - 1) * s.step; }

absl::Status BothReadAndWritten(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("source and destination overlap: ", what, " is in both"));
}

absl::Status TooManyPairs() {
  return absl::ResourceExhaustedError(absl::StrCat("the runs are interleaved: more than ",
                                                   kSegmentPairsMax,
                                                   " pairs of them would have to be compared"));
}

std::string PieceText(const PreparedList& list, const Selection::Segment& s) {
  return absl::StrCat("the run of pieces ", list.first_piece(s.set) + s.first, " to ",
                      list.first_piece(s.set) + LastPiece(s), " in steps of ", s.step);
}

absl::Status CheckRuns(const Segments& reads, const Segments& writes, const PreparedList& list) {
  uint64_t pairs = 0;
  for (size_t i = 0; i < writes.size(); ++i) {
    for (size_t k = i + 1; k < writes.size(); ++k) {
      const Selection::Segment &a = writes[i], &b = writes[k];
      if (b.set != a.set || b.first > LastPiece(a)) break;
      if (++pairs > kSegmentPairsMax) return TooManyPairs();
      if (Intersect(a, b)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the destination is written twice: ", PieceText(list, a), " and ",
                         PieceText(list, b), " have a piece in common"));
      }
    }
  }
  size_t from = 0;
  for (const Selection::Segment& a : reads) {
    while (from < writes.size() && writes[from].set < a.set) ++from;
    for (size_t k = from; k < writes.size() && writes[k].set == a.set; ++k) {
      if (writes[k].first > LastPiece(a)) break;
      if (++pairs > kSegmentPairsMax) return TooManyPairs();
      if (Intersect(a, writes[k])) return BothReadAndWritten(PieceText(list, a));
    }
  }
  return absl::OkStatus();
}

// A set of numbers between two bounds; one at a time in a thread. The memory is kept for the next
// one: touching new pages would take as long as the whole check.
class Bits {
 public:
  Bits(uint64_t low, uint64_t high) : low_(low), words_(Kept()) {
    words_.assign((high - low) / 64 + 1, 0);
  }
  ~Bits() {
    if (words_.capacity() > kWordsKeptMax) std::vector<uint64_t>().swap(words_);
  }
  Bits(const Bits&) = delete;
  Bits& operator=(const Bits&) = delete;
  // False if it is there already.
  bool Add(uint64_t number) {
    const uint64_t at = number - low_;
    const uint64_t bit = uint64_t{1} << (at % 64);
    if ((words_[at / 64] & bit) != 0) return false;
    words_[at / 64] |= bit;
    return true;
  }
  bool Has(uint64_t number) const {
    const uint64_t at = number - low_;
    return number >= low_ && at / 64 < words_.size() && (words_[at / 64] >> (at % 64) & 1) != 0;
  }

 private:
  static constexpr size_t kWordsKeptMax = size_t{1} << 18;  // 2 MiB

  static std::vector<uint64_t>& Kept() {
    static thread_local std::vector<uint64_t> words;
    return words;
  }

  uint64_t low_;
  std::vector<uint64_t>& words_;
};

bool Dense(uint64_t low, uint64_t high, uint64_t ids) {
  return high - low < kBitsMax && (high - low) / kBitsPerId <= ids;
}

absl::Status WrittenTwice(const Selection& selection, const char* what, uint64_t number) {
  return absl::InvalidArgumentError(
      absl::StrCat("the destination is written twice: ", what, " ", number, " of section \"",
                   Printable(selection.list()->section().name), "\" is named more than once"));
}

// All ids, repeats included; at most kListedIdsMax, or nothing.
std::optional<std::vector<uint64_t>> AllIds(const Selection& selection) {
  const IdShape& shape = selection.shape();
  if (shape.repeats > kListedIdsMax / selection.ids()) return std::nullopt;
  std::vector<uint64_t> all;
  all.reserve(shape.repeats * selection.ids());
  for (uint64_t r = 0; r < shape.repeats; ++r) {
    for (uint64_t i = 0; i < selection.ids(); ++i) {
      all.push_back(selection.id(i) + r * shape.repeat_step);
    }
  }
  return all;
}

bool RepeatsApart(const IdShape& shape, uint64_t low, uint64_t high) {
  return shape.repeats == 1 || shape.repeat_step > high - low;
}

absl::Status CheckIds(const Selection* source, const Selection& destination) {
  const auto [low, high] = destination.id_range();
  const bool apart = RepeatsApart(destination.shape(), low, high);
  if (apart && Dense(low, high, destination.ids())) {
    Bits written(low, high);
    for (uint64_t i = 0; i < destination.ids(); ++i) {
      if (!written.Add(destination.id(i)))
        return WrittenTwice(destination, "id", destination.id(i));
    }
    for (uint64_t i = 0; source != nullptr && i < source->ids(); ++i) {
      if (written.Has(source->id(i))) return BothReadAndWritten(absl::StrCat("id ", source->id(i)));
    }
    return absl::OkStatus();
  }
  std::vector<uint64_t> all;
  if (apart) {
    for (uint64_t i = 0; i < destination.ids(); ++i) all.push_back(destination.id(i));
  } else if (auto ids = AllIds(destination); ids.has_value()) {
    all = *std::move(ids);
  } else {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more than ", kListedIdsMax, " ids whose repeats interleave: expected repeats ",
        "in steps of more than ", high - low));
  }
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  return twice == all.end() ? absl::OkStatus() : WrittenTwice(destination, "id", *twice);
}

struct Named {
  uint64_t low = UINT64_MAX;
  uint64_t high = 0;
  uint64_t pieces = 0;
};
Named NamedBy(const Selection& selection) {
  Named named;
  for (const Selection::Segment& s : selection.segments()) {
    const uint64_t before = selection.list()->first_piece(s.set);
    named.low = std::min(named.low, before + s.first);
    named.high = std::max(named.high, before + LastPiece(s));
    named.pieces += s.count;  // each has a byte: 2^62 at most
  }
  return named;
}

// Calls body(piece) with all that the runs name, until it returns false; false then.
template <typename Body>
bool ForEachPiece(const Selection& selection, const Body& body) {
  for (const Selection::Segment& s : selection.segments()) {
    uint64_t piece = selection.list()->first_piece(s.set) + s.first;
    for (uint64_t i = 0; i < s.count; ++i, piece += s.step) {
      if (!body(piece)) return false;
    }
  }
  return true;
}

// Many short runs: a bit for each piece is quicker than sorting them.
bool Scattered(const Selection& selection, const Named& named) {
  return named.pieces / kPiecesPerRun <= selection.segments().size();
}

absl::Status CheckPieces(const Selection* source, const Selection& destination,
                         const Named& named) {
  Bits written(named.low, named.high);
  uint64_t at = 0;
  if (!ForEachPiece(destination, [&](uint64_t piece) { return written.Add(at = piece); })) {
    return WrittenTwice(destination, "piece", at);
  }
  if (source != nullptr &&
      !ForEachPiece(*source, [&](uint64_t piece) { return !written.Has(at = piece); })) {
    return BothReadAndWritten(absl::StrCat("piece ", at));
  }
  return absl::OkStatus();
}

}  // namespace

bool NumbersTell(const Selection& source, const Selection& destination) {
  if (source.form() != destination.form()) return false;
  if (source.form() == Selection::Form::kRuns) return true;
  // With equal repeats that don't reach into one another, ids meet in the first walk or never.
  const IdShape &a = source.shape(), &b = destination.shape();
  const auto [low, high] = destination.id_range();
  return a.unit == b.unit && a.repeats == b.repeats &&
         (a.repeats == 1 || a.repeat_step == b.repeat_step) &&
         RepeatsApart(a, std::min(low, source.id_range().first),
                      std::max(high, source.id_range().second)) &&
         Dense(low, high, destination.ids());
}

absl::Status CheckNumbers(const Selection* source, const Selection& destination) {
  if (destination.form() == Selection::Form::kIds) return CheckIds(source, destination);
  if (source == nullptr && destination.segments().size() == 1) return absl::OkStatus();
  const Named named = NamedBy(destination);
  if (Scattered(destination, named) && Dense(named.low, named.high, named.pieces) &&
      (source == nullptr || Scattered(*source, NamedBy(*source)))) {
    return CheckPieces(source, destination, named);
  }
  return CheckRuns(source != nullptr ? BySet(*source) : Segments(), BySet(destination),
                   *destination.list());
}

}  // namespace shunt::p2p
