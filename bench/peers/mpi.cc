// An MPI library as a peer. One source, compiled once with OpenMPI's and once with MPICH's mpi.h.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/backend.h"
#include "bench/harness/worker.h"
#include "bench/peers/flags.h"

namespace shunt::bench {
namespace {

// The MPI type for arithmetic; none for the 8- and 16-bit floats, which MPI does not know.
std::optional<MPI_Datatype> ArithmeticType(DataType dtype) {
  switch (dtype) {
    case DataType::kInt8:
      return MPI_INT8_T;
    case DataType::kUint8:
      return MPI_UINT8_T;
    case DataType::kInt32:
      return MPI_INT32_T;
    case DataType::kUint32:
      return MPI_UINT32_T;
    case DataType::kInt64:
      return MPI_INT64_T;
    case DataType::kUint64:
      return MPI_UINT64_T;
    case DataType::kFloat32:
      return MPI_FLOAT;
    case DataType::kFloat64:
      return MPI_DOUBLE;
    default:
      return std::nullopt;
  }
}

// For moving data any type of the right size will do.
MPI_Datatype MovableType(DataType dtype) {
  if (const auto type = ArithmeticType(dtype)) return *type;
  return SizeOf(dtype) == 1 ? MPI_UINT8_T : MPI_UINT16_T;
}

std::optional<MPI_Op> OpOf(Redop redop) {
  switch (redop) {
    case Redop::kSum:
      return MPI_SUM;
    case Redop::kProd:
      return MPI_PROD;
    case Redop::kMin:
      return MPI_MIN;
    case Redop::kMax:
      return MPI_MAX;
    default:
      return std::nullopt;
  }
}

class MpiBackend final : public Backend {
 public:
  MpiBackend() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  absl::Status Prepare(const Call& call) override {
    call_ = call;
    const Problem& p = call.problem;
    const uint64_t whole = p.count * p.ranks;
    if (whole > static_cast<uint64_t>(std::numeric_limits<int>::max())) {
      return absl::UnimplementedError("MPI counts are ints; the operation is too large");
    }
    count_ = static_cast<int>(p.count);
    type_ = MovableType(p.dtype);
    if (Reduces(p.op)) {
      const auto type = ArithmeticType(p.dtype);
      const auto op = OpOf(p.redop);
      if (!type || !op) {
        return absl::UnimplementedError("MPI has no " + std::string(shunt::Name(p.redop)) + " of " +
                                        std::string(shunt::Name(p.dtype)));
      }
      type_ = *type;
      op_ = *op;
    }
    counts_.assign(static_cast<size_t>(ranks_), count_);
    displacements_.clear();
    if (p.op == Operation::kAllToAllV) {
      const VectorLayout layout = LayoutOf(p, rank_);
      counts_.assign(layout.counts.begin(), layout.counts.end());
      displacements_.assign(layout.displacements.begin(), layout.displacements.end());
    }
    return absl::OkStatus();
  }

  bool Run() override {
    code_ = Call();
    return code_ == MPI_SUCCESS;
  }

  std::string LastError() const override {
    char words[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code_, words, &length);
    return std::string(words, static_cast<size_t>(length));
  }

  // MPI_IN_PLACE leaves a scattered reduction at the buffer's start.
  const void* Result(const bench::Call& call) const override {
    const bool moved = call.in_place && call.problem.op == Operation::kReduceScatter;
    return moved ? call.input : call.output;
  }

 private:
  int Call() {
    const Problem& p = call_.problem;
    const MPI_Comm comm = MPI_COMM_WORLD;
    const bool root = rank_ == p.root;
    void* const in = call_.input;
    void* const out = call_.output;
    const void* const source = call_.in_place ? MPI_IN_PLACE : in;
    switch (p.op) {
      case Operation::kAllReduce:
        return MPI_Allreduce(source, out, count_, type_, op_, comm);
      case Operation::kReduce:
        return MPI_Reduce(root ? source : in, out, count_, type_, op_, p.root, comm);
      case Operation::kBroadcast:
        // MPI has one buffer; who wants a second copy at the root makes it.
        if (root && in != out) std::memcpy(out, in, p.count * SizeOf(p.dtype));
        return MPI_Bcast(out, count_, type_, p.root, comm);
      case Operation::kAllGather:
        return MPI_Allgather(source, count_, type_, out, count_, type_, comm);
      case Operation::kReduceScatter: {
        void* const target = call_.in_place ? in : out;
        if (call_.variant == 0) {
          return MPI_Reduce_scatter_block(source, target, count_, type_, op_, comm);
        }
        return MPI_Reduce_scatter(source, target, counts_.data(), type_, op_, comm);
      }
      case Operation::kAllToAll:
        return MPI_Alltoall(in, count_, type_, out, count_, type_, comm);
      case Operation::kAllToAllV:
        return MPI_Alltoallv(in, counts_.data(), displacements_.data(), type_, out, counts_.data(),
                             displacements_.data(), type_, comm);
      case Operation::kGather:
        return MPI_Gather(root ? source : in, count_, type_, out, count_, type_, p.root, comm);
      case Operation::kScatter: {
        void* const target = root && call_.in_place ? MPI_IN_PLACE : out;
        return MPI_Scatter(in, count_, type_, target, count_, type_, p.root, comm);
      }
      case Operation::kSendRecv:
        return MPI_Sendrecv(in, count_, type_, (rank_ + 1) % ranks_, 0, out, count_, type_,
                            (rank_ + ranks_ - 1) % ranks_, 0, comm, MPI_STATUS_IGNORE);
      case Operation::kBarrier:
        return MPI_Barrier(comm);
    }
    return MPI_ERR_UNKNOWN;
  }

  int rank_ = 0;
  int ranks_ = 0;
  bench::Call call_;
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
  MPI_Op op_ = MPI_SUM;
  std::vector<int> counts_;
  std::vector<int> displacements_;
  int code_ = MPI_SUCCESS;
};

int Main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const PeerFlags flags = ParsePeerFlags(argc, argv);
  auto page = ControlPage::Attach(flags.control);
  if (!page.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::string(page.status().message()).c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MpiBackend backend;
  const int code = ServeBenchmark(page->get(), backend);
  // After a failure other ranks may hang in a call: the launcher must end them.
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) { return shunt::bench::Main(argc, argv); }
