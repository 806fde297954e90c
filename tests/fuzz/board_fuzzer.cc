// The daemon's side of a board on which hostile members write what they like, between its looks and
// during them. Whatever they write: no access outside the board and the regions, no endless loop,
// no crash.
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/board/arrival.h"
#include "runtime/board/records.h"
#include "runtime/board/server.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/input.h"

// The second writer races with everything, on purpose.
#if defined(__SANITIZE_THREAD__)
#define SHUNT_FUZZ_RACES 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHUNT_FUZZ_RACES 0
#endif
#endif
#ifndef SHUNT_FUZZ_RACES
#define SHUNT_FUZZ_RACES 1
#endif

namespace shunt::board {
namespace {

using testing::FuzzInput;
using testing::GuardedMemory;

constexpr size_t kRegionBytes = 64 << 10;

// One region a rank, with exact bounds: id rank + 1.
class Regions : public RegionResolver {
 public:
  explicit Regions(int world) {
    for (int r = 0; r < world; ++r)
      memory_.push_back(std::make_unique<GuardedMemory>(kRegionBytes));
  }
  std::byte* Resolve(int rank, uint64_t region, uint64_t offset, uint64_t bytes) override {
    SHUNT_CHECK(rank >= 0 && static_cast<size_t>(rank) < memory_.size());
    if (region != static_cast<uint64_t>(rank) + 1 || offset > kRegionBytes ||
        bytes > kRegionBytes - offset) {
      return nullptr;
    }
    return memory_[rank]->data() + offset;
  }

 private:
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
};

uint64_t Number(FuzzInput& input) {
  switch (input.Take<uint8_t>() % 6) {
    case 0:
      return input.Take<uint64_t>();
    case 1:
      return ~uint64_t{0} - input.Take<uint8_t>();
    case 2:
      return uint64_t{1} << input.Take<uint8_t>() % 64;
    case 3:
      return input.Take<uint16_t>();
    default:
      return input.Take<uint8_t>() % 40;
  }
}

constexpr uint32_t kCallsKept = 8;

Board BoardOf(std::byte* memory, int world) {
  Board board(memory, world);
  board.KeepCalls(kCallsKept);
  return board;
}

class Target {
 public:
  Target(int world, FuzzInput& input)
      : world_(world),
        input_(input),
        memory_(Board::BytesFor(world)),
        board_(BoardOf(memory_.data(), world)),
        regions_(world),
        server_(board_, &regions_) {
    board_.Initialize(1, 1, "fuzz");
  }

  void Run() {
    while (!input_.empty()) Step();
  }

 private:
  uint32_t ChannelId() {
    return input_.Take<uint8_t>() % 4 == 0 ? input_.Take<uint8_t>() % board_.channel_count() : 0;
  }
  int Rank() { return input_.Take<uint8_t>() % world_; }

  // Some word of the structures that Serve reads: payloads, which it only moves, take most of the
  // bytes.
  std::byte* SomeWord() {
    const Channel channel = board_.channel(ChannelId());
    const uint64_t seq = input_.Take<uint8_t>() % 40;
    const int p = input_.Take<uint8_t>() % channel.participants();
    const size_t word = input_.Take<uint8_t>() % 8 * 8;
    switch (input_.Take<uint8_t>() % 10) {
      case 0:
        return reinterpret_cast<std::byte*>(&channel.fate(seq)) + word;
      case 1:
        return reinterpret_cast<std::byte*>(
                   &channel.lane(seq, input_.Take<uint8_t>() % channel.lanes())) +
               word;
      case 2:
      case 3:
        return reinterpret_cast<std::byte*>(&channel.post(seq, p)) + word;
      case 4:
        return reinterpret_cast<std::byte*>(&channel.progress(seq, p)) + word;
      case 5:
        return reinterpret_cast<std::byte*>(&channel.retired(p)) + word;
      case 6:
        if (channel.id() != 0) return memory_.data();
        return reinterpret_cast<std::byte*>(channel.table(seq, p) + p) + word % 32;
      case 9:  // a rank's calls
        return reinterpret_cast<std::byte*>(&board_.row(0)) +
               (3 * world_ * kLine + 4095) / 4096 * 4096 +
               static_cast<size_t>(Rank()) * recorder::kCallsMax * sizeof(recorder::CallNote) +
               input_.Take<uint8_t>() % (kCallsKept * 8) * 8;
      case 7:
        return memory_.data() + input_.Take<uint16_t>() % sizeof(Header) / 8 * 8;
      default:
        return reinterpret_cast<std::byte*>(&board_.row(0)) +
               input_.Take<uint8_t>() % (3 * world_ * 8) * 8;
    }
  }

  static void Write(std::byte* word, uint64_t value) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word), value, __ATOMIC_RELAXED);
  }

  // A post that looks as a member's would, more or less.
  void PostAsMember() {
    const Channel channel = board_.channel(ChannelId());
    const uint64_t seq = input_.Take<uint8_t>() % 3 + 1;
    PostBody body{};
    body.count = Number(input_);
    body.kind = input_.Take<uint8_t>() % 13;
    body.dtype = input_.Take<uint8_t>() % 13;
    body.redop = input_.Take<uint8_t>() % 7;
    body.root = static_cast<int16_t>(input_.Take<uint8_t>() % 6 - 1);
    body.scalar = input_.Take<uint64_t>();
    const bool same_place = input_.Take<uint8_t>() % 2 == 0;
    const uint8_t places = input_.Take<uint8_t>();
    const uint8_t who = input_.Take<uint8_t>();
    for (int p = 0; p < channel.participants(); ++p) {
      if ((who >> p & 1) != 0 && who % 3 == 0) continue;
      body.flags = input_.Take<uint8_t>() % 4;
      body.in_place_kind = same_place ? 1 : (places >> p) % 5;
      body.out_place_kind = same_place ? 1 : (places >> (p + 2)) % 5;
      const auto region = static_cast<uint64_t>(board_.RankOf(channel.id(), p)) + 1;
      body.ref = {region, input_.Take<uint8_t>() % 4 == 0 ? Number(input_) : 64, region,
                  input_.Take<uint8_t>() % 4 == 0 ? Number(input_) : 32768};
      channel.post(seq, p).body = body;
      channel.post(seq, p).word.store(PostedWord(seq));
    }
  }

  // As the daemon calls it: the request is checked, the board is not.
  void PostForRank() {
    const int rank = Rank();
    Call call;
    call.spec = {static_cast<OpKind>(input_.Take<uint8_t>() % kOpKindCount),
                 static_cast<DataType>(input_.Take<uint8_t>() % kDataTypeCount),
                 static_cast<Redop>(input_.Take<uint8_t>() % kRedopCount), Rank(), Number(input_)};
    call.peer = Rank();
    if (!ValidateSpec(call.spec, world_).ok()) return;
    std::array<std::array<uint64_t, 4>, 4> tables;
    for (auto& table : tables) {
      for (uint64_t& value : table) value = Number(input_);
    }
    call.send_counts = tables[0].data();
    call.send_displs = tables[1].data();
    call.recv_counts = tables[2].data();
    call.recv_displs = tables[3].data();
    const auto region = static_cast<uint64_t>(rank) + 1;
    (void)server_.PostFor(rank, call, {region, Number(input_)}, {region, Number(input_)},
                          input_.Take<uint8_t>() % 40 + 1);
  }

  void Step() {
    switch (input_.Take<uint8_t>() % 10) {
      case 0:
      case 1:
        Write(SomeWord(), Number(input_));
        break;
      case 2:
        PostAsMember();
        break;
      case 3:
      case 4:
        (void)server_.Serve(
            input_.Take<uint8_t>() == 0 ? static_cast<uint32_t>(Number(input_)) : ChannelId(),
            input_.Take<uint8_t>() % 3 == 0 ? Number(input_) : input_.Take<uint8_t>() % 3 + 1);
        break;
      case 5:
        (void)server_.Expire(
            ChannelId(),
            input_.Take<uint8_t>() % 3 == 0 ? Number(input_) : input_.Take<uint8_t>() % 3 + 1,
            Rank());
        break;
      case 6:
        PostForRank();
        break;
      case 7: {
        const int rank = Rank();
        if (input_.Take<uint8_t>() % 2 == 0) {
          server_.RankGone(rank, input_.Take<uint8_t>() % 2 == 0);
        } else {
          server_.Abort(rank, "fuzz");
        }
        break;
      }
      case 8:
        SHUNT_CHECK(server_.LastCall(Rank()).size() < 4096);
        SHUNT_CHECK(server_.FailureStatus().message().size() < 4096);
        for (const OpenOperation& open : OpenOperations(board_, 1'000'000)) {
          SHUNT_CHECK(open.channel < board_.channel_count());
        }
        for (int rank = 0; rank < world_; ++rank) {
          for (const recorder::Call& call : CallsOf(board_, rank, 1'000'000)) {
            SHUNT_CHECK(Text(RecordOf(call)).size() < 4096);
          }
        }
        break;
      case 9:
        if (input_.Take<uint8_t>() % 4 == 0) {
          server_.Retire(ChannelId(), input_.Take<uint8_t>() % 40, Rank());
        } else {
          Race();
        }
        break;
    }
  }

  // Serves an operation while another thread flips words of it between two values.
  void Race() {
#if SHUNT_FUZZ_RACES
    struct Flip {
      std::byte* word;
      uint64_t values[2];
    };
    std::vector<Flip> flips(static_cast<size_t>(input_.Take<uint8_t>() % 4 + 1));
    for (Flip& f : flips) f = {SomeWord(), {Number(input_), Number(input_)}};
    const uint32_t id = ChannelId();
    const uint64_t seq = input_.Take<uint8_t>() % 3 + 1;
    const int rank = Rank();
    std::atomic<bool> stop{false};
    std::thread scribbler([&] {
      for (unsigned i = 0; !stop.load(std::memory_order_relaxed); ++i) {
        for (const Flip& f : flips) Write(f.word, f.values[i & 1]);
      }
    });
    for (int i = 0; i < 20; ++i) (void)server_.Serve(id, seq);
    (void)server_.Expire(id, seq, rank);
    (void)server_.FailureStatus();
    stop = true;
    scribbler.join();
#endif
  }

  const int world_;
  FuzzInput& input_;
  GuardedMemory memory_;
  Board board_;
  Regions regions_;
  Server server_;
};

}  // namespace
}  // namespace shunt::board

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shunt::testing::FuzzInput input(data, size);
  shunt::board::Target(input.Take<uint8_t>() % 4 + 1, input).Run();
  return 0;
}
