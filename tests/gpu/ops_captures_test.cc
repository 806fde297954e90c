// Calls that CUDA graphs have captured, replayed through a real daemon and worker.
#include <catch2/catch.hpp>

#include "tests/gpu/cuda_program.h"
#include "tests/gpu/ops_world.h"

namespace shunt::testing {
namespace {

namespace cuda = gpu::testing;

struct Floats {
  Floats(const Rank& rank, size_t count) {
    void* memory = nullptr;
    ExpectOk(shunt_alloc_device(rank.session, 0, count * sizeof(float), &memory));
    data = static_cast<float*>(memory);
  }
  float* data;
};

// What opens and makes on first use must not happen while a stream is being captured.
void WarmUp(const Rank& rank, const OnGpu& gpu, float* data) {
  const shunt_call call = OnStream(gpu.stream());
  ExpectOk(shunt_all_reduce(rank.comm, data, data, 1, SHUNT_FLOAT32, SHUNT_SUM, &call, nullptr));
  ExpectOk(shunt_sync(rank.comm, 0));
  ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
}

TEST_CASE("a captured call takes effect at each replay, until the graph is gone") {
  constexpr int kReplays = 50;
  constexpr uint64_t kCount = 1000;
  const GpuDaemon daemon;
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu& gpu) {
    const Floats in(rank, kCount), middle(rank, kCount), out(rank, kCount);
    WarmUp(rank, gpu, in.data);
    meeting.Wait();
    cuda::BeginCapture(gpu.stream());
    const shunt_call call = OnStream(gpu.stream());
    // Two in a row: the second takes what the first gives.
    const int first = shunt_all_reduce(rank.comm, in.data, middle.data, kCount, SHUNT_FLOAT32,
                                       SHUNT_SUM, &call, nullptr);
    const int second = shunt_all_reduce(rank.comm, middle.data, out.data, kCount, SHUNT_FLOAT32,
                                        SHUNT_MAX, &call, nullptr);
    const gpu::Graph graph = cuda::EndCapture(gpu.stream());
    ExpectOk(first);
    ExpectOk(second);
    const cuda::GraphRun run = cuda::Instantiate(graph);
    meeting.Wait();
    for (int i = 0; i < kReplays; ++i) {
      for (uint64_t k = 0; k < kCount; ++k) {
        in.data[k] = static_cast<float>(i * 3 + rank.rank) + static_cast<float>(k);
      }
      cuda::LaunchGraph(run, gpu.stream());
      ExpectStatus(gpu.driver().Synchronize(gpu.stream()));
      for (uint64_t k = 0; k < kCount; ++k) {
        const float expected = static_cast<float>(i * 6 + 1) + 2 * static_cast<float>(k);
        Expect(out.data[k] == expected, "replay " + std::to_string(i) + ", element " +
                                            std::to_string(k) + ": " + std::to_string(out.data[k]));
      }
    }
    meeting.Wait();
    cuda::DestroyGraphRun(run);
    cuda::DestroyGraph(graph);
    // Ordinary calls go on beside.
    WarmUp(rank, gpu, in.data);
    meeting.Wait();
  }));
}

TEST_CASE("captured calls that differ are told with both in words") {
  const GpuDaemon daemon;
  Meeting meeting(2);
  REQUIRE_NOTHROW(RunDeviceRanks(daemon, 2, [&](const Rank& rank, const OnGpu& gpu) {
    const Floats data(rank, 100);
    WarmUp(rank, gpu, data.data);
    meeting.Wait();
    cuda::BeginCapture(gpu.stream());
    const shunt_call call = OnStream(gpu.stream());
    (void)shunt_all_reduce(rank.comm, data.data, data.data, rank.rank == 0 ? 10 : 20, SHUNT_FLOAT32,
                           SHUNT_SUM, &call, nullptr);
    const gpu::Graph graph = cuda::EndCapture(gpu.stream());
    meeting.Wait();
    ExpectCode(shunt_barrier(rank.comm, nullptr, nullptr), SHUNT_FAILED_PRECONDITION,
               {"do not match", "captured all_reduce #1", "count 10", "count 20"});
    if (graph != nullptr) cuda::DestroyGraph(graph);
  }));
}

}  // namespace
}  // namespace shunt::testing
