#include "bench/perf/shunt_backend.h"

#include <shunt.h>

#include <string>
#include <utility>

#include "bench/harness/pattern.h"
#include "bench/perf/gpu_rank.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

class ShuntBackend final : public Backend {
 public:
  ShuntBackend(int rank, int ranks, shunt_session* session, shunt_comm* comm,
               std::unique_ptr<GpuRank> gpu)
      : rank_(rank), ranks_(ranks), session_(session), comm_(comm), gpu_(std::move(gpu)) {}
  ~ShuntBackend() override {
    if (gpu_ != nullptr) gpu_->DropGraph();
    shunt_leave(comm_);
    shunt_close(session_);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  absl::StatusOr<void*> Allocate(Memory memory, size_t bytes) override {
    if (memory == Memory::kMalloc) return Backend::Allocate(memory, bytes);
    void* buffer = nullptr;
    if (memory == Memory::kCuda) {
      const int code = shunt_alloc_device(session_, gpu_->device(), bytes, &buffer);
      if (code != SHUNT_OK) return ShuntStatus(code, "shunt_alloc_device");
      return buffer;
    }
    const int code = shunt_alloc(session_, bytes, &buffer);
    if (code != SHUNT_OK) return ShuntStatus(code, "shunt_alloc");
    return buffer;
  }

  bool HostReaches(Memory memory) const override { return memory != Memory::kCuda; }
  absl::Status Copy(void* destination, const void* source, size_t bytes) override {
    return gpu_->Copy(destination, source, bytes);
  }

  void Free(Memory memory, void* buffer) override {
    if (memory == Memory::kMalloc) return Backend::Free(memory, buffer);
    if (memory == Memory::kCuda) {
      gpu_->DropGraph();
      shunt_free_device(session_, buffer);
      return;
    }
    shunt_free(session_, buffer);
  }

  absl::Status Prepare(const Call& call) override {
    call_ = call;
    const Problem& p = call.problem;
    options_ = shunt_call{};
    options_.struct_size = sizeof(options_);
    on_stream_ = call.memory == Memory::kCuda;
    if (on_stream_) {
      gpu_->DropGraph();
      options_.flags = SHUNT_CALL_STREAM;
      options_.stream = gpu_->stream();
    }
    if (Reduces(p.op) && p.redop == Redop::kPremulSum) {
      FillScalar(p, rank_, scalar_);
      options_.scalar = scalar_;
    }
    dtype_ = static_cast<shunt_dtype>(p.dtype);
    redop_ = static_cast<shunt_redop>(p.redop);
    if (p.op == Operation::kAllToAllV) layout_ = LayoutOf(p, rank_);
    return absl::OkStatus();
  }

  bool Run() override {
    code_ = Call();
    // On a stream: until this rank's result is there.
    if (on_stream_ && code_ == SHUNT_OK) code_ = shunt_sync(comm_, 0);
    return code_ == SHUNT_OK;
  }

  int64_t RunMany(int64_t times) override {
    if (!on_stream_) return Backend::RunMany(times);
    const absl::StatusOr<int64_t> ns =
        gpu_->TimeNs(times, {call_.graph_calls, call_.after_kernel_us}, [this]() -> absl::Status {
          const int code = Call();
          return code == SHUNT_OK ? absl::OkStatus() : ShuntStatus(code, "a call on a stream");
        });
    code_ = ns.ok() ? shunt_sync(comm_, 0) : SHUNT_INTERNAL;
    if (code_ == SHUNT_OK) return *ns;
    words_ = ns.ok() ? "" : std::string(ns.status().message());
    return -1;
  }

  std::string LastError() const override {
    if (!words_.empty()) return words_;
    return std::string(shunt_code_name(code_)) + ": " + shunt_last_error();
  }

 private:
  int Call() {
    const Problem& p = call_.problem;
    const uint64_t n = p.count;
    const void* const in = call_.input;
    void* const out = call_.output;
    switch (p.op) {
      case Operation::kAllReduce:
        return shunt_all_reduce(comm_, in, out, n, dtype_, redop_, &options_, nullptr);
      case Operation::kReduce:
        return shunt_reduce(comm_, in, out, n, dtype_, redop_, p.root, &options_, nullptr);
      case Operation::kBroadcast:
        return shunt_broadcast(comm_, in, out, n, dtype_, p.root, &options_, nullptr);
      case Operation::kAllGather:
        return shunt_all_gather(comm_, in, out, n, dtype_, &options_, nullptr);
      case Operation::kReduceScatter:
        return shunt_reduce_scatter(comm_, in, out, n, dtype_, redop_, &options_, nullptr);
      case Operation::kAllToAll:
        return shunt_all_to_all(comm_, in, out, n, dtype_, &options_, nullptr);
      case Operation::kAllToAllV:
        return shunt_all_to_all_v(comm_, in, layout_.counts.data(), layout_.displacements.data(),
                                  out, layout_.counts.data(), layout_.displacements.data(), dtype_,
                                  &options_, nullptr);
      case Operation::kGather:
        return shunt_gather(comm_, in, out, n, dtype_, p.root, &options_, nullptr);
      case Operation::kScatter:
        return shunt_scatter(comm_, in, out, n, dtype_, p.root, &options_, nullptr);
      case Operation::kSendRecv:
        return SendRecv(in, out, n);
      case Operation::kBarrier:
        return shunt_barrier(comm_, &options_, nullptr);
    }
    return SHUNT_INTERNAL;
  }

  int SendRecv(const void* in, void* out, uint64_t n) {
    int code = shunt_group_begin(comm_);
    if (code != SHUNT_OK) return code;
    code = shunt_send(comm_, in, n, dtype_, (rank_ + 1) % ranks_, &options_, nullptr);
    if (code == SHUNT_OK) {
      code = shunt_recv(comm_, out, n, dtype_, (rank_ + ranks_ - 1) % ranks_, &options_, nullptr);
    }
    const int end = shunt_group_end(comm_, nullptr);
    return code != SHUNT_OK ? code : end;
  }

  const int rank_;
  const int ranks_;
  shunt_session* session_;
  shunt_comm* comm_;
  const std::unique_ptr<GpuRank> gpu_;  // null: without GPU memory
  bool on_stream_ = false;
  std::string words_;
  bench::Call call_;
  shunt_call options_{};
  alignas(8) char scalar_[8] = {};
  shunt_dtype dtype_ = SHUNT_FLOAT32;
  shunt_redop redop_ = SHUNT_SUM;
  VectorLayout layout_;
  int code_ = SHUNT_OK;
};

}  // namespace

absl::Status ShuntStatus(int code, const std::string& what) {
  return absl::Status(static_cast<absl::StatusCode>(code),
                      what + ": " + shunt_code_name(code) + ": " + shunt_last_error());
}

absl::StatusOr<std::unique_ptr<Backend>> OpenShuntBackend(int rank, int ranks,
                                                          const std::string& socket,
                                                          const std::string& name, bool gpu) {
  std::unique_ptr<GpuRank> own_gpu;
  if (gpu) {
    SHUNT_ASSIGN_OR_RETURN(own_gpu, GpuRank::Open(rank));
  }
  shunt_open_options open{};
  open.struct_size = sizeof(open);
  open.socket = socket.c_str();
  shunt_session* session = nullptr;
  int code = shunt_open(&open, &session);
  if (code != SHUNT_OK) return ShuntStatus(code, "shunt_open");
  shunt_join_options join{};
  join.struct_size = sizeof(join);
  join.name = name.c_str();
  join.rank = rank;
  join.world_size = ranks;
  join.flags = gpu ? SHUNT_JOIN_DEVICE : 0;
  shunt_comm* comm = nullptr;
  code = shunt_join(session, &join, &comm);
  if (code != SHUNT_OK) {
    const absl::Status status = ShuntStatus(code, "shunt_join");
    shunt_close(session);
    return status;
  }
  return std::make_unique<ShuntBackend>(rank, ranks, session, comm, std::move(own_gpu));
}

}  // namespace shunt::bench
