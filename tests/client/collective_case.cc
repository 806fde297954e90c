#include "tests/client/collective_case.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runtime/collectives/plan/local_plan.h"
#include "tests/collectives/reference.h"

namespace shunt::testing {
namespace {

// Data repeats after so many elements, so that results are computed once a period. Prime: no block
// size hides a wrong offset.
constexpr size_t kPeriod = 257;
constexpr std::byte kUntouched{0xa5};
constexpr size_t kGuardBytes = 64;

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Full mantissas, exponents around 1: sums depend on their order.
uint64_t ElementBits(DataType type, uint64_t hash) {
  const auto build = [hash](int mantissa_bits, int bias, int spread) {
    const uint64_t sign = hash >> 63;
    const uint64_t exponent =
        static_cast<uint64_t>(bias - spread / 2) + (hash >> 40) % static_cast<uint64_t>(spread);
    const uint64_t mantissa = hash & ((uint64_t{1} << mantissa_bits) - 1);
    return std::pair(sign, exponent << mantissa_bits | mantissa);
  };
  const auto with_sign = [](std::pair<uint64_t, uint64_t> v, int bits) {
    return v.first << (bits - 1) | v.second;
  };
  switch (type) {
    case DataType::kFloat16:
      return with_sign(build(10, 15, 4), 16);
    case DataType::kBfloat16:
      return with_sign(build(7, 127, 8), 16);
    case DataType::kFloat32:
      return with_sign(build(23, 127, 12), 32);
    case DataType::kFloat64:
      return with_sign(build(52, 1023, 40), 64);
    case DataType::kFloat8E4M3:
      return with_sign(build(3, 7, 4), 8);
    case DataType::kFloat8E5M2:
      return with_sign(build(2, 15, 4), 8);
    default:
      return SizeOf(type) == 8 ? hash : hash & ((uint64_t{1} << (8 * SizeOf(type))) - 1);
  }
}

// One period of a block: what `rank` gives for `block`.
std::vector<uint64_t> InputPeriod(const Case& c, int rank, int block) {
  std::vector<uint64_t> period(kPeriod);
  for (size_t i = 0; i < kPeriod; ++i) {
    const uint64_t seed =
        c.salt * 1000003 + static_cast<uint64_t>(rank) * 131 + static_cast<uint64_t>(block) * 7919;
    period[i] = ElementBits(c.dtype, Mix(seed * 65537 + i + 1));
  }
  return period;
}

uint64_t Factor(const Case& c, int rank) {
  return ElementBits(c.dtype, Mix(c.salt * 31 + static_cast<uint64_t>(rank) + 77));
}

// The reference makes its tables on first use, by one thread.
void MakeReferenceTables() {
  static const bool made = [] {
    for (const DataType t :
         {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
      (void)DecodeSmallFloat(t, 0);
    }
    return true;
  }();
  (void)made;
}

std::vector<uint64_t> ReducedPeriod(const Case& c, int world, int block) {
  MakeReferenceTables();
  std::vector<std::vector<uint64_t>> inputs;
  std::vector<uint64_t> factors;
  for (int r = 0; r < world; ++r) {
    inputs.push_back(InputPeriod(c, r, block));
    factors.push_back(Factor(c, r));
  }
  std::vector<uint64_t> result(kPeriod);
  std::vector<uint64_t> column(static_cast<size_t>(world));
  for (size_t i = 0; i < kPeriod; ++i) {
    for (size_t r = 0; r < inputs.size(); ++r) column[r] = inputs[r][i];
    result[i] = ReferenceReduce(c.dtype, c.redop, world, column, factors);
  }
  return result;
}

void Fill(std::byte* data, const std::vector<uint64_t>& period, size_t element, uint64_t count) {
  for (uint64_t i = 0; i < std::min<uint64_t>(count, kPeriod); ++i)
    std::memcpy(data + i * element, &period[i], element);
  for (uint64_t at = kPeriod; at < count; at += kPeriod) {
    std::memcpy(data + at * element, data, std::min<uint64_t>(kPeriod, count - at) * element);
  }
}

void ExpectData(const std::byte* data, const std::vector<uint64_t>& period, size_t element,
                uint64_t count, const std::string& what) {
  for (uint64_t i = 0; i < count; ++i) {
    if (std::memcmp(data + i * element, &period[i % kPeriod], element) == 0) continue;
    uint64_t seen = 0;
    std::memcpy(&seen, data + i * element, element);
    throw Wrong(what + ": element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
                std::to_string(seen) + ", expected " + std::to_string(period[i % kPeriod]));
  }
}

void ExpectUntouched(const std::byte* data, size_t bytes, const std::string& what) {
  Expect(std::all_of(data, data + bytes, [](std::byte b) { return b == kUntouched; }),
         what + " was written");
}

// The expected output block `block` of `rank`.
std::vector<uint64_t> OutputPeriod(const Case& c, int world, int rank, int block) {
  switch (c.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      return ReducedPeriod(c, world, 0);
    case OpKind::kReduceScatter:
      return ReducedPeriod(c, world, rank);
    case OpKind::kBroadcast:
      return InputPeriod(c, c.root, 0);
    case OpKind::kAllGather:
    case OpKind::kGather:
      return InputPeriod(c, block, 0);
    case OpKind::kAllToAll:
      return InputPeriod(c, block, rank);
    case OpKind::kScatter:
      return InputPeriod(c, c.root, rank);
    default:
      return InputPeriod(c, (rank + world - 1) % world, 0);  // the ring
  }
}

}  // namespace

bool MayRunInPlace(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kBroadcast ||
         kind == OpKind::kAllGather || kind == OpKind::kReduceScatter || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

std::string Case::Describe() const {
  static constexpr const char* kWhere[] = {"region", "malloc", "mixed", "device", "device mixed"};
  static constexpr const char* kMode[] = {"blocking", "async", "group", "stream"};
  return std::string(Name(kind)) + " " + std::string(Name(dtype)) + " " + std::string(Name(redop)) +
         " count " + std::to_string(count) + " root " + std::to_string(root) + " " +
         kWhere[static_cast<int>(where)] + " " + kMode[static_cast<int>(mode)] +
         (in_place ? " in place" : "");
}

CaseRunner::CaseRunner(const Rank& rank, size_t bytes, bool on_device, void* stream)
    : rank_(rank), bytes_(bytes + 2 * kGuardBytes), stream_(stream) {
  for (Buffer* b : {&in_, &out_}) {
    void* data = nullptr;
    ExpectOk(shunt_alloc(rank.session, bytes_, &data));
    b->region = static_cast<std::byte*>(data);
    b->heap.resize(bytes_);
    if (!on_device) continue;
    ExpectOk(shunt_alloc_device(rank.session, 0, bytes_, &data));
    b->device = static_cast<std::byte*>(data);
  }
}

CaseRunner::~CaseRunner() {
  for (Buffer* b : {&in_, &out_}) {
    (void)shunt_free(rank_.session, b->region);
    if (b->device != nullptr) (void)shunt_free_device(rank_.session, b->device);
  }
}

void CaseRunner::Finish(const Case& c, const std::vector<int>& codes,
                        const std::vector<shunt_op*>& ops) {
  for (const int code : codes) {
    if (code != SHUNT_OK) throw Wrong(c.Describe() + ": " + shunt_last_error());
  }
  if (c.mode == Mode::kGroup) {
    if (shunt_group_end(rank_.comm, nullptr) != SHUNT_OK)
      throw Wrong(c.Describe() + ": " + shunt_last_error());
  }
  if (c.mode == Mode::kStream && shunt_sync(rank_.comm, 0) != SHUNT_OK)
    throw Wrong(c.Describe() + ": " + shunt_last_error());
  std::string words;
  for (shunt_op* op : ops) {
    if (op == nullptr) continue;
    if (shunt_op_wait(op, SHUNT_FOREVER) != SHUNT_OK) words = shunt_last_error();
    shunt_op_release(op);
  }
  if (!words.empty()) throw Wrong(c.Describe() + ": " + words);
}

int CaseRunner::Submit(const Case& c, const void* in, void* out, const shunt_call* call,
                       shunt_op** op) {
  const auto dtype = static_cast<shunt_dtype>(c.dtype);
  const auto redop = static_cast<shunt_redop>(c.redop);
  switch (c.kind) {
    case OpKind::kAllReduce:
      return shunt_all_reduce(rank_.comm, in, out, c.count, dtype, redop, call, op);
    case OpKind::kReduce:
      return shunt_reduce(rank_.comm, in, out, c.count, dtype, redop, c.root, call, op);
    case OpKind::kBroadcast:
      return shunt_broadcast(rank_.comm, in, out, c.count, dtype, c.root, call, op);
    case OpKind::kAllGather:
      return shunt_all_gather(rank_.comm, in, out, c.count, dtype, call, op);
    case OpKind::kReduceScatter:
      return shunt_reduce_scatter(rank_.comm, in, out, c.count, dtype, redop, call, op);
    case OpKind::kAllToAll:
      return shunt_all_to_all(rank_.comm, in, out, c.count, dtype, call, op);
    case OpKind::kGather:
      return shunt_gather(rank_.comm, in, out, c.count, dtype, c.root, call, op);
    case OpKind::kScatter:
      return shunt_scatter(rank_.comm, in, out, c.count, dtype, c.root, call, op);
    case OpKind::kSend:
      return shunt_send(rank_.comm, in, c.count, dtype, (rank_.rank + 1) % rank_.world, call, op);
    case OpKind::kRecv:
      return shunt_recv(rank_.comm, out, c.count, dtype,
                        (rank_.rank + rank_.world - 1) % rank_.world, call, op);
    default:
      return shunt_barrier(rank_.comm, call, op);
  }
}

void CaseRunner::Run(const Case& c) {
  const int me = rank_.rank;
  const int n = rank_.world;
  const size_t element = SizeOf(c.dtype);
  const uint64_t block = c.count * element;
  Where in_where = c.where;
  Where out_where = c.where;
  const uint64_t turn = static_cast<uint64_t>(me) + c.salt;
  if (c.where == Where::kMixed) {
    in_where = turn % 2 == 0 ? Where::kRegion : Where::kMalloc;
    out_where = turn % 2 == 0 ? Where::kMalloc : Where::kRegion;
  } else if (c.where == Where::kDeviceMixed) {
    in_where = turn % 2 == 0 ? Where::kRegion : Where::kDevice;
    out_where = turn / 2 % 2 == 0 ? Where::kRegion : Where::kDevice;
  }
  std::byte* in = in_.At(in_where) + kGuardBytes;
  std::byte* out = out_.At(out_where) + kGuardBytes;
  if (c.kind == OpKind::kAllToAllV) return RunAllToAllV(c, in, out);

  const bool ring = c.kind == OpKind::kSend || c.kind == OpKind::kRecv;
  const CollectiveSpec spec{c.kind, c.dtype, c.redop, c.root, c.count};
  const uint32_t in_blocks = ring ? 1 : InputBlocks(spec, n, me);
  const uint32_t out_blocks = ring ? 1 : OutputBlocks(spec, n, me);
  const bool in_place = c.in_place && in_blocks != 0 && out_blocks != 0;
  if (in_place && in_blocks > out_blocks) {
    out = in + static_cast<size_t>(c.kind == OpKind::kScatter ? c.root : me) * block;
  }
  if (!in_place || in_blocks <= out_blocks)
    std::memset(out - kGuardBytes, 0xa5, out_blocks * block + 2 * kGuardBytes);
  if (in_place && in_blocks <= out_blocks) {
    in = out_blocks == 1
             ? out
             : out + static_cast<size_t>(c.kind == OpKind::kGather ? c.root : me) * block;
  }
  for (uint32_t b = 0; b < in_blocks; ++b) {
    Fill(in + b * block, InputPeriod(c, me, static_cast<int>(b)), element, c.count);
  }

  uint64_t factor = Factor(c, me);
  shunt_call call{};
  call.struct_size = sizeof(call);
  call.scalar = &factor;
  if (c.mode == Mode::kStream) {
    call.flags = SHUNT_CALL_STREAM;
    call.stream = stream_;
  }
  const shunt_call* options =
      c.redop == Redop::kPremulSum || c.mode == Mode::kStream ? &call : nullptr;
  std::vector<int> codes;
  std::vector<shunt_op*> ops(2, nullptr);
  if (c.mode == Mode::kGroup) codes.push_back(shunt_group_begin(rank_.comm));
  const auto submit = [&](Case part, size_t i) {
    codes.push_back(Submit(part, in, out, options, c.mode == Mode::kAsync ? &ops[i] : nullptr));
  };
  if (ring) {
    Case send = c;
    send.kind = OpKind::kSend;
    Case recv = c;
    recv.kind = OpKind::kRecv;
    // Blocking, neighbours take turns.
    const bool send_first = c.mode != Mode::kBlocking || me % 2 == 0;
    submit(send_first ? send : recv, 0);
    submit(send_first ? recv : send, 1);
  } else {
    submit(c, 0);
  }
  Finish(c, codes, ops);

  for (uint32_t b = 0; b < out_blocks; ++b) {
    ExpectData(out + b * block, OutputPeriod(c, n, me, static_cast<int>(b)), element, c.count,
               c.Describe() + ", block " + std::to_string(b));
  }
  if (!in_place) {
    ExpectUntouched(out - kGuardBytes, kGuardBytes, c.Describe() + ": memory before the output");
    ExpectUntouched(out + out_blocks * block, kGuardBytes,
                    c.Describe() + ": memory behind the output");
    for (uint32_t b = 0; b < in_blocks; ++b) {
      ExpectData(in + b * block, InputPeriod(c, me, static_cast<int>(b)), element, c.count,
                 c.Describe() + ", input block " + std::to_string(b));
    }
  }
}

void CaseRunner::RunAllToAllV(const Case& c, std::byte* in, std::byte* out) {
  const int me = rank_.rank;
  const int n = rank_.world;
  const size_t element = SizeOf(c.dtype);
  // Every pair has its own count, none at all among them, and there are gaps between the blocks.
  const auto count_of = [&](int from, int to) {
    const uint64_t extra = static_cast<uint64_t>(from * 3 + to) % 5;
    return c.count == 0 || extra == 2 ? 0 : c.count + extra;
  };
  std::vector<uint64_t> send_counts, send_displs, recv_counts, recv_displs;
  uint64_t sent = 0, received = 0;
  for (int r = 0; r < n; ++r) {
    send_counts.push_back(count_of(me, r));
    send_displs.push_back(sent);
    sent += send_counts.back() + 1;
    recv_counts.push_back(count_of(r, me));
    recv_displs.push_back(received);
    received += recv_counts.back() + 3;
  }
  std::memset(out - kGuardBytes, 0xa5, received * element + 2 * kGuardBytes);
  for (int r = 0; r < n; ++r) {
    const auto at = static_cast<size_t>(r);
    Fill(in + send_displs[at] * element, InputPeriod(c, me, r), element, send_counts[at]);
  }
  shunt_call call{};
  call.struct_size = sizeof(call);
  call.flags = SHUNT_CALL_STREAM;
  call.stream = stream_;
  std::vector<int> codes;
  std::vector<shunt_op*> ops(1, nullptr);
  if (c.mode == Mode::kGroup) codes.push_back(shunt_group_begin(rank_.comm));
  codes.push_back(shunt_all_to_all_v(
      rank_.comm, in, send_counts.data(), send_displs.data(), out, recv_counts.data(),
      recv_displs.data(), static_cast<shunt_dtype>(c.dtype),
      c.mode == Mode::kStream ? &call : nullptr, c.mode == Mode::kAsync ? &ops[0] : nullptr));
  // The tables need not outlive the call.
  for (auto* table : {&send_displs, &send_counts}) std::fill(table->begin(), table->end(), ~0ull);
  Finish(c, codes, ops);
  for (int r = 0; r < n; ++r) {
    const auto at = static_cast<size_t>(r);
    std::byte* block = out + recv_displs[at] * element;
    ExpectData(block, InputPeriod(c, r, me), element, recv_counts[at],
               c.Describe() + ", from rank " + std::to_string(r));
    ExpectUntouched(block + recv_counts[at] * element, 3 * element,
                    c.Describe() + ": the gap between blocks");
  }
  ExpectUntouched(out - kGuardBytes, kGuardBytes, c.Describe() + ": memory before the output");
}

}  // namespace shunt::testing
