#include "tests/board/calls.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "tests/collectives/reference.h"

namespace shunt::testing {
namespace {

constexpr size_t kMargin = 128;  // bytes around a buffer that must stay as they are
constexpr std::byte kUntouched{0xee};

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

template <class T>
uint64_t Bits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

void Append(std::vector<std::byte>* out, uint64_t element, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&element);
  out->insert(out->end(), bytes, bytes + size);
}

uint64_t Reduced(const Case& c, int n, uint64_t index) {
  if (c.redop == Redop::kSum && c.dtype == DataType::kUint32) {
    uint32_t sum = 0;
    for (int p = 0; p < n; ++p) sum += static_cast<uint32_t>(InputElement(c, p, index));
    return sum;
  }
  if (c.redop == Redop::kSum && c.dtype == DataType::kFloat32) {
    float sum = 0;
    for (int p = 0; p < n; ++p) {
      const auto bits = static_cast<uint32_t>(InputElement(c, p, index));
      float x;
      std::memcpy(&x, &bits, 4);
      sum = p == 0 ? x : sum + x;
    }
    return Bits(sum);
  }
  thread_local std::vector<uint64_t> contributions, factors;
  contributions.clear();
  factors.clear();
  for (int p = 0; p < n; ++p) {
    contributions.push_back(InputElement(c, p, index));
    factors.push_back(InputElement(c, p, ~0ull));
  }
  return ReferenceReduce(c.dtype, c.redop, n, contributions, factors);
}

uint64_t VSendDispl(const Case& c, int from, int to) {
  uint64_t at = 3;
  for (int k = 0; k < to; ++k) at += VCount(c, from, k) + 2;
  return at;
}

// Blocks lie in the opposite order.
uint64_t VRecvDispl(const Case& c, int n, int from, int to) {
  uint64_t at = 1;
  for (int k = n - 1; k > from; --k) at += VCount(c, k, to) + 1;
  return at;
}

const char* MemoryText(Memory m) {
  switch (m) {
    case Memory::kRegion:
      return "region";
    case Memory::kPlain:
      return "plain";
    case Memory::kMixed:
      return "mixed ranks";
    case Memory::kInRegion:
      return "in region, out plain";
    case Memory::kOutRegion:
      return "in plain, out region";
  }
  return "";
}

}  // namespace

std::string Case::Text() const {
  const auto word = [](std::string_view s) { return absl::string_view(s.data(), s.size()); };
  return absl::StrCat(word(Name(kind)), " count ", count, " ", word(Name(dtype)), " ",
                      word(Name(redop)), " root ", root, " ", MemoryText(memory),
                      in_place ? " in place" : "", " seed ", seed);
}

uint64_t InputElement(const Case& c, int rank, uint64_t index) {
  const uint64_t h = Mix(Mix(c.seed * 1000003 + static_cast<uint64_t>(rank) + 1) + index);
  const int small = static_cast<int>(h % 2001) - 1000;
  switch (c.dtype) {
    case DataType::kFloat32:
      return Bits(static_cast<float>(small) / 7);
    case DataType::kFloat64:
      return Bits(static_cast<double>(small) / 7);
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return h & 0xbfff;  // below 2 in size
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      return h & 0xbf;
    default:
      return SizeOf(c.dtype) == 8 ? h : h & ((1ull << (8 * SizeOf(c.dtype))) - 1);
  }
}

uint64_t VCount(const Case& c, int from, int to) {
  const uint64_t h =
      Mix(c.seed + static_cast<uint64_t>(from) * 131 + static_cast<uint64_t>(to)) % 5;
  return h == 0 ? 0 : c.count * h / 4;
}

CaseRunner::CaseRunner(World* world, int rank, int slot, int slots)
    : world_(world),
      rank_(rank),
      region_(world->region(rank) +
              world->region_bytes() / static_cast<size_t>(slots) * static_cast<size_t>(slot)),
      region_bytes_(world->region_bytes() / static_cast<size_t>(slots)) {}

void CaseRunner::Place(uint64_t in_bytes, uint64_t out_bytes) {
  const Memory m = case_.memory;
  const bool in_region =
      m == Memory::kRegion || m == Memory::kInRegion || (m == Memory::kMixed && rank_ % 2 == 0);
  const bool out_region =
      m == Memory::kRegion || m == Memory::kOutRegion || (m == Memory::kMixed && rank_ % 2 == 0);
  const size_t in_room = in_bytes + 2 * kMargin;
  const size_t out_room = out_bytes + 2 * kMargin;
  const size_t half = region_bytes_ / 2 / 64 * 64;
  SHUNT_CHECK(in_room <= half && out_room <= half);
  std::byte* in_base = region_;
  std::byte* out_base = region_ + half;
  if (!in_region) {
    plain_in_.resize(in_room);
    in_base = plain_in_.data();
  }
  if (!out_region) {
    plain_out_.resize(out_room);
    out_base = plain_out_.data();
  }
  std::memset(out_base, static_cast<int>(kUntouched), out_room);
  in_ = in_base + kMargin;
  out_ = out_base + kMargin;
  out_bytes_ = out_bytes;
  if (!case_.in_place || in_bytes == 0 || out_bytes == 0) return;
  // One of the two lies inside the other.
  const uint64_t block = case_.count * SizeOf(case_.dtype);
  const int own = HasRoot(case_.kind) ? case_.root : rank_;
  switch (case_.kind) {
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
      std::memset(in_base, static_cast<int>(kUntouched), in_room);
      out_ = in_ + block * static_cast<uint64_t>(own);
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      in_ = out_ + block * static_cast<uint64_t>(own);
      break;
    default:
      in_ = out_;
  }
}

void CaseRunner::FillInput(uint64_t in_elements) {
  const size_t size = SizeOf(case_.dtype);
  for (uint64_t i = 0; i < in_elements; ++i) {
    const uint64_t element = InputElement(case_, rank_, i);
    std::memcpy(in_ + i * size, &element, size);
  }
}

bool CaseRunner::Prepare(const Case& c) {
  case_ = c;
  call_ = {};
  call_.spec = {c.kind, c.dtype, c.redop, c.root, c.count};
  call_.deadline_ns = Soon();
  const int n = world_->ranks();
  const size_t size = SizeOf(c.dtype);
  uint64_t in_elements = 0, out_elements = 0;
  const auto world_blocks = static_cast<uint64_t>(n) * c.count;
  switch (c.kind) {
    case OpKind::kBarrier:
      break;
    case OpKind::kAllReduce:
      in_elements = out_elements = c.count;
      break;
    case OpKind::kReduce:
      in_elements = c.count;
      out_elements = rank_ == c.root ? c.count : 0;
      break;
    case OpKind::kBroadcast:
      in_elements = rank_ == c.root ? c.count : 0;
      out_elements = c.count;
      break;
    case OpKind::kAllGather:
      in_elements = c.count;
      out_elements = world_blocks;
      break;
    case OpKind::kReduceScatter:
      in_elements = world_blocks;
      out_elements = c.count;
      break;
    case OpKind::kAllToAll:
      in_elements = out_elements = world_blocks;
      break;
    case OpKind::kGather:
      in_elements = c.count;
      out_elements = rank_ == c.root ? world_blocks : 0;
      break;
    case OpKind::kScatter:
      in_elements = rank_ == c.root ? world_blocks : 0;
      out_elements = c.count;
      break;
    case OpKind::kAllToAllV:
      for (auto* v : {&send_counts_, &send_displs_, &recv_counts_, &recv_displs_}) v->clear();
      for (int p = 0; p < n; ++p) {
        send_counts_.push_back(VCount(c, rank_, p));
        send_displs_.push_back(VSendDispl(c, rank_, p));
        recv_counts_.push_back(VCount(c, p, rank_));
        recv_displs_.push_back(VRecvDispl(c, n, p, rank_));
        in_elements = std::max(in_elements, send_displs_.back() + send_counts_.back());
        out_elements = std::max(out_elements, recv_displs_.back() + recv_counts_.back());
      }
      call_.send_counts = send_counts_.data();
      call_.send_displs = send_displs_.data();
      call_.recv_counts = recv_counts_.data();
      call_.recv_displs = recv_displs_.data();
      break;
    case OpKind::kSend:
    case OpKind::kRecv:
      if (rank_ != c.source && rank_ != c.destination) return false;
      call_.spec.kind = rank_ == c.source ? OpKind::kSend : OpKind::kRecv;
      call_.peer = rank_ == c.source ? c.destination : c.source;
      in_elements = rank_ == c.source ? c.count : 0;
      out_elements = rank_ == c.source ? 0 : c.count;
      break;
  }
  Place(in_elements * size, out_elements * size);
  FillInput(in_elements);
  call_.in = in_elements == 0 ? nullptr : in_;
  call_.out = out_elements == 0 ? nullptr : out_;
  const uint64_t factor = InputElement(c, rank_, ~0ull);
  std::memcpy(call_.scalar.bytes, &factor, sizeof(factor));
  return true;
}

std::vector<std::byte> CaseRunner::Expected() const {
  const Case& c = case_;
  const int n = world_->ranks();
  const size_t size = SizeOf(c.dtype);
  std::vector<std::byte> want;
  if (out_bytes_ == 0) return want;
  want.reserve(out_bytes_);
  const auto copy = [&](int from, uint64_t first) {
    for (uint64_t i = 0; i < c.count; ++i) Append(&want, InputElement(c, from, first + i), size);
  };
  const uint64_t mine = static_cast<uint64_t>(rank_) * c.count;
  switch (c.kind) {
    case OpKind::kBarrier:
      break;
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      for (uint64_t i = 0; i < c.count; ++i) Append(&want, Reduced(c, n, i), size);
      break;
    case OpKind::kReduceScatter:
      for (uint64_t i = 0; i < c.count; ++i) Append(&want, Reduced(c, n, mine + i), size);
      break;
    case OpKind::kBroadcast:
      copy(c.root, 0);
      break;
    case OpKind::kScatter:
      copy(c.root, mine);
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      for (int p = 0; p < n; ++p) copy(p, 0);
      break;
    case OpKind::kAllToAll:
      for (int p = 0; p < n; ++p) copy(p, mine);
      break;
    case OpKind::kSend:
    case OpKind::kRecv:
      copy(c.source, 0);
      break;
    case OpKind::kAllToAllV:
      want.assign(out_bytes_, kUntouched);
      for (int p = 0; p < n; ++p) {
        const uint64_t count = VCount(c, p, rank_);
        const uint64_t from = VSendDispl(c, p, rank_);
        const uint64_t to = VRecvDispl(c, n, p, rank_);
        for (uint64_t i = 0; i < count; ++i) {
          const uint64_t element = InputElement(c, p, from + i);
          std::memcpy(want.data() + (to + i) * size, &element, size);
        }
      }
      break;
  }
  return want;
}

std::string CaseRunner::Check() {
  const std::vector<std::byte> want = Expected();
  SHUNT_CHECK(want.size() == out_bytes_);
  const bool right = out_bytes_ == 0 || std::memcmp(out_, want.data(), out_bytes_) == 0;
  for (size_t i = 0; !right && i < out_bytes_; ++i) {
    if (out_[i] == want[i]) continue;
    return absl::StrCat("rank ", rank_, " of ", world_->ranks(), ": ", case_.Text(), ": byte ", i,
                        " of ", out_bytes_, " is ", static_cast<int>(out_[i]), ", expected ",
                        static_cast<int>(want[i]));
  }
  const bool inside =
      case_.in_place && (case_.kind == OpKind::kReduceScatter || case_.kind == OpKind::kScatter);
  if (out_bytes_ == 0 || inside) return "";
  for (size_t i = 0; i < kMargin; ++i) {
    if (out_[-1 - static_cast<std::ptrdiff_t>(i)] == kUntouched &&
        out_[out_bytes_ + i] == kUntouched)
      continue;
    return absl::StrCat("rank ", rank_, ": ", case_.Text(), ": wrote outside its output, ", i,
                        " bytes away");
  }
  return "";
}

void CaseRunner::RunAndCheck(const Case& c) {
  if (!Prepare(c)) return;
  if (const absl::Status s = world_->member(rank_).Run(call_); !s.ok()) {
    world_->Complain(absl::StrCat("rank ", rank_, ": ", c.Text(), ": ", s.ToString()));
    return;
  }
  if (std::string wrong = Check(); !wrong.empty()) world_->Complain(std::move(wrong));
}

}  // namespace shunt::testing
