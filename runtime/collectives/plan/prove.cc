#include "runtime/collectives/plan/prove.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace shunt {
namespace {

using Contribution = std::pair<int32_t, uint32_t>;  // rank, block of its input

// The definitions of the operations, written without a look at StepAt: what block `block` of rank
// `rank`'s output must hold in the end, in rank order.
std::vector<Contribution> Definition(const CollectiveSpec& spec, int world, int rank,
                                     uint32_t block) {
  const auto everyone = [world](uint32_t from_block) {
    std::vector<Contribution> all;
    all.reserve(static_cast<size_t>(world));
    for (int r = 0; r < world; ++r) all.emplace_back(r, from_block);
    return all;
  };
  switch (spec.kind) {
    case OpKind::kBarrier:
      return {};
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      return everyone(0);
    case OpKind::kReduceScatter:
      return everyone(static_cast<uint32_t>(rank));
    case OpKind::kBroadcast:
      return {{spec.root, 0}};
    case OpKind::kScatter:
      return {{spec.root, static_cast<uint32_t>(rank)}};
    case OpKind::kAllGather:
    case OpKind::kGather:
      return {{static_cast<int32_t>(block), 0}};
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
      return {{static_cast<int32_t>(block), static_cast<uint32_t>(rank)}};
    case OpKind::kSend:
    case OpKind::kRecv:
      return {{0, 0}};
  }
  return {};
}

// A rank's memory is a row of cells, one block each. Out of place the output follows the input; in
// place they overlap by these rules.
struct Layout {
  uint32_t in, out;  // cell of block 0
  uint32_t cells;
};

Layout LayoutOf(const CollectiveSpec& spec, int world, int rank, ProofPlacement placement) {
  const uint32_t inputs = InputBlocks(spec, world, rank);
  const uint32_t outputs = OutputBlocks(spec, world, rank);
  if (placement == ProofPlacement::kOutOfPlace || inputs == 0 || outputs == 0) {
    return {0, inputs, inputs + outputs};
  }
  const auto own = static_cast<uint32_t>(rank);
  switch (spec.kind) {
    case OpKind::kAllGather:
    case OpKind::kGather:
      return {own, 0, outputs};
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
      return {0, own, inputs};
    default:
      return {0, 0, inputs > outputs ? inputs : outputs};
  }
}

struct Cell {
  static constexpr int64_t kNone = -1;
  static constexpr int64_t kSeveral = -2;

  int64_t reader = kNone;  // step
  int64_t writer = kNone;
  std::vector<Contribution> value;  // if written
};

class Run {
 public:
  Run(const CollectiveSpec& spec, int world, ProofPlacement placement)
      : spec_(spec), world_(world), memory_(world), layouts_(world) {
    for (int rank = 0; rank < world; ++rank) {
      layouts_[rank] = LayoutOf(spec, world, rank, placement);
      memory_[rank].resize(layouts_[rank].cells);
    }
  }

  absl::Status Step(uint32_t index, const LocalStep& step) {
    if (!InWorld(step.src_first, step.src_count) || !InWorld(step.dst_first, step.dst_count)) {
      return Error("step ", index, " names a rank outside the world");
    }
    if (step.src_count != 1 && !Reduces(spec_.kind)) {
      return Error("step ", index, " copies from ", step.src_count, " ranks");
    }
    std::vector<Contribution> value;
    for (int rank = step.src_first; rank < step.src_first + step.src_count; ++rank) {
      if (step.src_block >= InputBlocks(spec_, world_, rank)) {
        return Error("step ", index, " reads block ", step.src_block, " of rank ", rank,
                     ", which has ", InputBlocks(spec_, world_, rank));
      }
      value.emplace_back(rank, step.src_block);
      Cell& cell = memory_[rank][layouts_[rank].in + step.src_block];
      cell.reader = cell.reader == Cell::kNone || cell.reader == index ? index : Cell::kSeveral;
    }
    for (int rank = step.dst_first; rank < step.dst_first + step.dst_count; ++rank) {
      if (step.dst_block >= OutputBlocks(spec_, world_, rank)) {
        return Error("step ", index, " writes block ", step.dst_block, " of rank ", rank,
                     ", which has ", OutputBlocks(spec_, world_, rank));
      }
      Cell& cell = memory_[rank][layouts_[rank].out + step.dst_block];
      if (cell.writer != Cell::kNone) {
        return Error("steps ", cell.writer, " and ", index, " write block ", step.dst_block,
                     " of rank ", rank);
      }
      cell.writer = index;
      cell.value = value;
    }
    return absl::OkStatus();
  }

  absl::Status Check() const {
    for (int rank = 0; rank < world_; ++rank) {
      for (const Cell& cell : memory_[rank]) {
        // A step may overwrite what it reads itself: it reads each element before it writes it.
        if (cell.writer != Cell::kNone && cell.reader != Cell::kNone &&
            cell.reader != cell.writer) {
          return Error("step ", cell.writer, " overwrites a block of rank ", rank,
                       " that another step reads");
        }
      }
      for (uint32_t block = 0; block < OutputBlocks(spec_, world_, rank); ++block) {
        const Cell& cell = memory_[rank][layouts_[rank].out + block];
        if (cell.writer == Cell::kNone) {
          return Error("no step writes block ", block, " of rank ", rank);
        }
        if (cell.value != Definition(spec_, world_, rank, block)) {
          return Error("step ", cell.writer, " gives block ", block, " of rank ", rank,
                       " the wrong contributions");
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  bool InWorld(int32_t first, int32_t count) const {
    return first >= 0 && count >= 1 && first < world_ && count <= world_ - first;
  }

  template <class... Args>
  absl::Status Error(const Args&... args) const {
    const std::string_view name = Name(spec_.kind);
    return absl::InternalError(absl::StrCat(absl::string_view(name.data(), name.size()), " of ",
                                            world_, " ranks: ", args...));
  }

  const CollectiveSpec& spec_;
  const int world_;
  std::vector<std::vector<Cell>> memory_;
  std::vector<Layout> layouts_;
};

}  // namespace

absl::Status ProveSteps(const CollectiveSpec& spec, int world, ProofPlacement placement,
                        uint32_t step_count, absl::FunctionRef<LocalStep(uint32_t)> step_at) {
  Run run(spec, world, placement);
  for (uint32_t i = 0; i < step_count; ++i) {
    if (absl::Status status = run.Step(i, step_at(i)); !status.ok()) return status;
  }
  return run.Check();
}

absl::Status ProveLocalPlan(const CollectiveSpec& spec, int world, ProofPlacement placement) {
  return ProveSteps(spec, world, placement, StepCount(spec, world),
                    [&](uint32_t index) { return StepAt(spec, world, index); });
}

}  // namespace shunt
