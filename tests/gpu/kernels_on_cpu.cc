#include "tests/gpu/kernels_on_cpu.h"

#include "runtime/gpu/kernels/move_body.h"
#include "runtime/gpu/kernels/reduce_body.h"

namespace shunt::gpu::testing {
namespace {

constexpr uint32_t kThreads = 32, kPart = 4096;

template <class Body>
void ForThreads(uint32_t blocks, const Body& body) {
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      body(Where{block, blocks, thread, kThreads});
    }
  }
}

template <class Codec, class MinMaxCodec = Codec, class Params>
void Reduce(const Params& params) {
  const uint32_t steps = params.scatter != 0 ? params.destinations : 1;
  for (uint32_t y = 0; y < steps; ++y) {
    ForThreads(3, [&](const Where& where) { ReduceAny<Codec, MinMaxCodec>(params, y, where); });
  }
}

}  // namespace

template <class Form>
void ReduceOnCpu(const ReduceParamsOf<Form>& params) {
  switch (static_cast<DataType>(params.dtype)) {
    case DataType::kInt8:
      return Reduce<IntCodec<int8_t>>(params);
    case DataType::kUint8:
      return Reduce<IntCodec<uint8_t>>(params);
    case DataType::kInt32:
      return Reduce<IntCodec<int32_t>>(params);
    case DataType::kUint32:
      return Reduce<IntCodec<uint32_t>>(params);
    case DataType::kInt64:
      return Reduce<IntCodec<int64_t>>(params);
    case DataType::kUint64:
      return Reduce<IntCodec<uint64_t>>(params);
    case DataType::kFloat16:
      return Reduce<Float16Codec>(params);
    case DataType::kBfloat16:
      return Reduce<Bfloat16Codec>(params);
    case DataType::kFloat32:
      return Reduce<Float32Codec>(params);
    case DataType::kFloat64:
      return Reduce<Float64Codec>(params);
    case DataType::kFloat8E4M3:
      return Reduce<E4M3Codec>(params);
    case DataType::kFloat8E5M2:
      return Reduce<E5M2Codec, E5M2KeepInfCodec>(params);
  }
}

template <class Form>
void SpreadOnCpu(const SpreadParamsOf<Form>& params) {
  SpreadParamsOf<Form> sized = params;
  sized.part = kPart;
  const bool pairs = params.pattern == SpreadPattern::kPairs;
  const uint32_t segments = pairs ? params.segments * params.segments : params.segments;
  for (uint32_t segment = 0; segment < segments; ++segment) {
    ForThreads(static_cast<uint32_t>((params.bytes + kPart - 1) / kPart),
               [&](const Where& where) { SpreadBody(sized, segment, where); });
  }
}

template <class Form>
void MoveOnCpu(const MoveParamsOf<Form>& params) {
  MoveParamsOf<Form> sized = params;
  sized.part = kPart;
  sized.parts = 2;
  sized.team = kThreads;
  ForThreads(params.runs * sized.parts, [&](const Where& where) { MoveByTeam(sized, where); });
}

template void ReduceOnCpu(const ReduceParamsOf<Small>&);
template void ReduceOnCpu(const ReduceParamsOf<Large>&);
template void SpreadOnCpu(const SpreadParamsOf<Small>&);
template void SpreadOnCpu(const SpreadParamsOf<Large>&);
template void MoveOnCpu(const MoveParamsOf<Small>&);
template void MoveOnCpu(const MoveParamsOf<Large>&);

}  // namespace shunt::gpu::testing
