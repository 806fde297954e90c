#include "bench/perf/side.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace shunt::bench {

Cut CutOf(uint64_t bytes, uint64_t piece_bytes) {
  const uint64_t piece = std::min(bytes, piece_bytes);
  return {piece, bytes / piece};
}

Side::Side(const std::string& form, const Cut& cut, unsigned seed, uint64_t region)
    : form_(form), ids_(cut.pieces) {
  std::iota(ids_.begin(), ids_.end(), 0);
  if (form != "all") std::shuffle(ids_.begin(), ids_.end(), std::mt19937(seed));
  for (const uint64_t id : ids_) {
    if (form == "runs") runs_.push_back({id, 1, 1});
    if (form == "pieces") pieces_.push_back({region, id * cut.piece_bytes, cut.piece_bytes});
  }
}

Selection Side::Of(const List& list) const {
  if (form_ == "all") return list.All();
  if (form_ == "runs") return list.Runs(runs_);
  if (form_ == "pieces") return list.Pieces(pieces_);
  return list.Ids(ids_);
}

}  // namespace shunt::bench
