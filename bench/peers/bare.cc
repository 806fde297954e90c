// Recursive doubling over plain sockets as a peer: what the wire and the kernel cost, no library.
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "bench/bounds/tcp_doubling.h"
#include "bench/harness/backend.h"
#include "bench/harness/worker.h"
#include "bench/peers/flags.h"

namespace shunt::bench {
namespace {

class BareBackend final : public Backend {
 public:
  BareBackend(int rank, int ranks, TcpDoubling doubling)
      : rank_(rank), ranks_(ranks), doubling_(std::move(doubling)) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  absl::Status Prepare(const Call& call) override {
    const Problem& p = call.problem;
    call_ = call;
    if (p.op != Operation::kAllReduce || p.dtype != DataType::kFloat32 || p.redop != Redop::kSum ||
        SizeBytes(p) > TcpDoubling::kBytesMax) {
      return absl::UnimplementedError("bare: only all_reduce, sum of float32, up to 64K");
    }
    return absl::OkStatus();
  }

  bool Run() override {
    const size_t count = call_.problem.count;
    if (call_.output != call_.input) std::memcpy(call_.output, call_.input, count * sizeof(float));
    return doubling_.AllReduce(static_cast<float*>(call_.output), count);
  }

  std::string LastError() const override { return "a connection broke"; }

 private:
  const int rank_;
  const int ranks_;
  TcpDoubling doubling_;
  Call call_;
};

int Main(int argc, char** argv) {
  const PeerFlags flags = ParsePeerFlags(argc, argv);
  auto page = ControlPage::Attach(flags.control);
  if (!page.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::string(page.status().message()).c_str());
    return 1;
  }
  Control* control = page->get();
  auto doubling = TcpDoubling::Connect(flags.rank, control->ranks, flags.address, flags.directory);
  if (!doubling.ok()) {
    control->Fail(std::string(doubling.status().message()));
    return 1;
  }
  BareBackend backend(flags.rank, control->ranks, *std::move(doubling));
  return ServeBenchmark(control, backend);
}

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) { return shunt::bench::Main(argc, argv); }
