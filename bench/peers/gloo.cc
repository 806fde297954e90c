// Gloo over its TCP transport as a peer, on loopback or on its node's address.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "bench/harness/backend.h"
#include "bench/harness/worker.h"
#include "bench/peers/flags.h"

namespace shunt::bench {
namespace {

using ReduceFunction = void (*)(void*, const void*, const void*, size_t);

template <typename T>
ReduceFunction FunctionOf(Redop redop) {
  switch (redop) {
    case Redop::kSum:
      return &gloo::sum<T>;
    case Redop::kProd:
      return &gloo::product<T>;
    case Redop::kMin:
      return &gloo::min<T>;
    case Redop::kMax:
      return &gloo::max<T>;
    default:
      return nullptr;
  }
}

class GlooBackend final : public Backend {
 public:
  GlooBackend(int rank, int ranks, const std::string& directory, const std::string& address)
      : rank_(rank), ranks_(ranks) {
    gloo::transport::tcp::attr attributes(address.c_str());
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  absl::Status Prepare(const Call& call) override {
    run_ = nullptr;
    try {
      Dispatch(call);
    } catch (const std::exception& error) {
      return absl::InternalError(error.what());
    }
    if (run_ == nullptr) {
      const Problem& p = call.problem;
      return absl::UnimplementedError("Gloo has no " + std::string(bench::Name(p.op)) +
                                      (Reduces(p.op)
                                           ? " with " + std::string(shunt::Name(p.redop)) + " of " +
                                                 std::string(shunt::Name(p.dtype))
                                           : ""));
    }
    return absl::OkStatus();
  }

  bool Run() override {
    try {
      run_();
      return true;
    } catch (const std::exception& error) {
      error_ = error.what();
      return false;
    }
  }

  std::string LastError() const override { return error_; }

  const void* Result(const Call& call) const override {
    return call.problem.op == Operation::kReduceScatter ? result_ : call.output;
  }

 private:
  void Dispatch(const Call& call) {
    if (Reduces(call.problem.op)) {
      switch (call.problem.dtype) {
        case DataType::kInt8:
          return PrepareReducing<int8_t>(call);
        case DataType::kUint8:
          return PrepareReducing<uint8_t>(call);
        case DataType::kInt32:
          return PrepareReducing<int32_t>(call);
        case DataType::kUint32:
          return PrepareReducing<uint32_t>(call);
        case DataType::kInt64:
          return PrepareReducing<int64_t>(call);
        case DataType::kUint64:
          return PrepareReducing<uint64_t>(call);
        case DataType::kFloat16:
          return PrepareReducing<gloo::float16>(call);
        case DataType::kFloat32:
          return PrepareReducing<float>(call);
        case DataType::kFloat64:
          return PrepareReducing<double>(call);
        default:
          return;
      }
    }
    // Moving bytes: the element type does not matter.
    PrepareMoving(call);
  }

  template <typename T>
  void PrepareReducing(const Call& call) {
    const Problem& p = call.problem;
    const ReduceFunction function = FunctionOf<T>(p.redop);
    if (function == nullptr) return;
    T* const in = static_cast<T*>(call.input);
    T* const out = static_cast<T*>(call.output);
    if (p.op == Operation::kAllReduce) {
      auto options = std::make_shared<gloo::AllreduceOptions>(context_);
      options->setAlgorithm(call.variant == 0 ? gloo::AllreduceOptions::Algorithm::RING
                                              : gloo::AllreduceOptions::Algorithm::BCUBE);
      if (!call.in_place) options->setInput(in, p.count);
      options->setOutput(out, p.count);
      options->setReduceFunction(function);
      run_ = [options] { gloo::allreduce(*options); };
    } else if (p.op == Operation::kReduce) {
      auto options = std::make_shared<gloo::ReduceOptions>(context_);
      // Other ranks than the root need an output too, as scratch.
      scratch_.resize(p.count * sizeof(T));
      T* const target = rank_ == p.root ? out : reinterpret_cast<T*>(scratch_.data());
      options->setInput(in, p.count);
      options->setOutput(target, p.count);
      options->setRoot(p.root);
      options->setReduceFunction(function);
      run_ = [options] { gloo::reduce(*options); };
    } else {
      PrepareReduceScatter<T>(call);
    }
  }

  // The one reduce_scatter that this version has works in place, on floats, and destroys its input.
  template <typename T>
  void PrepareReduceScatter(const Call& call) {
    if constexpr (std::is_floating_point_v<T>) {
      const Problem& p = call.problem;
      if (p.redop != Redop::kSum) return;
      const size_t bytes = p.count * ranks_ * sizeof(T);
      const T* source = nullptr;
      T* work = static_cast<T*>(call.input);
      if (!call.in_place) {
        scratch_.resize(bytes);
        source = work;
        work = reinterpret_cast<T*>(scratch_.data());
      }
      result_ = work;
      auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<T>>(
          context_, std::vector<T*>{work}, static_cast<int>(p.count * ranks_),
          std::vector<int>(static_cast<size_t>(ranks_), static_cast<int>(p.count)));
      run_ = [algorithm, source, work, bytes] {
        if (source != nullptr) std::memcpy(work, source, bytes);
        algorithm->run();
      };
    }
  }

  void PrepareMoving(const Call& call) {
    const Problem& p = call.problem;
    const size_t block = p.count * SizeOf(p.dtype);
    const bool root = rank_ == p.root;
    char* const in = static_cast<char*>(call.input);
    char* const out = static_cast<char*>(call.output);
    switch (p.op) {
      case Operation::kBroadcast: {
        auto options = std::make_shared<gloo::BroadcastOptions>(context_);
        if (root && !call.in_place) options->setInput(in, block);
        options->setOutput(out, block);
        options->setRoot(p.root);
        run_ = [options] { gloo::broadcast(*options); };
        return;
      }
      case Operation::kAllGather: {
        auto options = std::make_shared<gloo::AllgatherOptions>(context_);
        if (!call.in_place) options->setInput(in, block);
        options->setOutput(out, block * ranks_);
        run_ = [options] { gloo::allgather(*options); };
        return;
      }
      case Operation::kAllToAll: {
        auto options = std::make_shared<gloo::AlltoallOptions>(context_);
        options->setInput(in, block * ranks_);
        options->setOutput(out, block * ranks_);
        run_ = [options] { gloo::alltoall(*options); };
        return;
      }
      case Operation::kAllToAllV: {
        const VectorLayout layout = LayoutOf(p, rank_);
        std::vector<int64_t> counts;
        for (const uint64_t count : layout.counts) {
          counts.push_back(static_cast<int64_t>(count * SizeOf(p.dtype)));
        }
        auto options = std::make_shared<gloo::AlltoallvOptions>(context_);
        options->setInput(in, counts);
        options->setOutput(out, counts);
        run_ = [options] { gloo::alltoallv(*options); };
        return;
      }
      case Operation::kGather: {
        auto options = std::make_shared<gloo::GatherOptions>(context_);
        options->setInput(in, block);
        if (root) options->setOutput(out, block * ranks_);
        options->setRoot(p.root);
        run_ = [options] { gloo::gather(*options); };
        return;
      }
      case Operation::kScatter: {
        auto options = std::make_shared<gloo::ScatterOptions>(context_);
        std::vector<char*> blocks;
        for (int r = 0; root && r < ranks_; ++r) blocks.push_back(in + r * block);
        if (root) options->setInputs(blocks, block);
        options->setOutput(out, block);
        options->setRoot(p.root);
        run_ = [options] { gloo::scatter(*options); };
        return;
      }
      case Operation::kSendRecv: {
        if (ranks_ == 1) return;
        std::shared_ptr<gloo::transport::UnboundBuffer> source =
            context_->createUnboundBuffer(in, block);
        std::shared_ptr<gloo::transport::UnboundBuffer> target =
            context_->createUnboundBuffer(out, block);
        run_ = [this, source, target] {
          source->send((rank_ + 1) % ranks_, 1);
          target->recv((rank_ + ranks_ - 1) % ranks_, 1);
          target->waitRecv();
          source->waitSend();
        };
        return;
      }
      case Operation::kBarrier: {
        auto options = std::make_shared<gloo::BarrierOptions>(context_);
        run_ = [options] { gloo::barrier(*options); };
        return;
      }
      default:
        return;
    }
  }

  const int rank_;
  const int ranks_;
  std::shared_ptr<gloo::Context> context_;
  std::function<void()> run_;
  std::vector<char> scratch_;
  const void* result_ = nullptr;
  std::string error_;
};

int Main(int argc, char** argv) {
  const PeerFlags flags = ParsePeerFlags(argc, argv);
  auto page = ControlPage::Attach(flags.control);
  if (!page.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::string(page.status().message()).c_str());
    return 1;
  }
  Control* control = page->get();
  try {
    GlooBackend backend(flags.rank, control->ranks, flags.directory, flags.address);
    return ServeBenchmark(control, backend);
  } catch (const std::exception& error) {
    control->Fail(error.what());
    return 1;
  }
}

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) { return shunt::bench::Main(argc, argv); }
