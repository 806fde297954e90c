#include "bench/perf/shunt_backend.h"

#include <shunt.h>

#include <string>
#include <utility>

#include "bench/harness/pattern.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

class ShuntBackend final : public Backend {
 public:
  ShuntBackend(int rank, int ranks, shunt_session* session, shunt_comm* comm)
      : rank_(rank), ranks_(ranks), session_(session), comm_(comm) {}
  ~ShuntBackend() override {
    shunt_leave(comm_);
    shunt_close(session_);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  absl::StatusOr<void*> Allocate(Memory memory, size_t bytes) override {
    if (memory == Memory::kMalloc) return Backend::Allocate(memory, bytes);
    void* buffer = nullptr;
    const int code = shunt_alloc(session_, bytes, &buffer);
    if (code != SHUNT_OK) return ShuntStatus(code, "shunt_alloc");
    return buffer;
  }

  void Free(Memory memory, void* buffer) override {
    if (memory == Memory::kMalloc) return Backend::Free(memory, buffer);
    shunt_free(session_, buffer);
  }

  absl::Status Prepare(const Call& call) override {
    call_ = call;
    const Problem& p = call.problem;
    options_ = shunt_call{};
    options_.struct_size = sizeof(options_);
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
    return code_ == SHUNT_OK;
  }

  std::string LastError() const override {
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
                                                          const std::string& name) {
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
  shunt_comm* comm = nullptr;
  code = shunt_join(session, &join, &comm);
  if (code != SHUNT_OK) {
    const absl::Status status = ShuntStatus(code, "shunt_join");
    shunt_close(session);
    return status;
  }
  return std::make_unique<ShuntBackend>(rank, ranks, session, comm);
}

}  // namespace shunt::bench
