#include "bench/perf/transfer_rank.h"

#include <shunt/client.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness/record.h"
#include "bench/harness/worker.h"
#include "bench/perf/gpu_rank.h"
#include "bench/perf/side.h"
#include "runtime/core/clock.h"

namespace shunt::bench {
namespace {

// A rank's process.
class Rank {
 public:
  Rank(const PerfOptions& options, int rank, const std::string& socket, Control* control,
       const std::string& peer_node, Found* found)
      : options_(options),
        rank_(rank),
        half_(options.ranks / 2),
        control_(control),
        peer_node_(peer_node),
        all_(found),
        found_(found + rank),
        session_(Session::Options{socket, absl::StrCat("perf-", rank)}),
        agent_(session_.Agent(AgentName(rank))) {
    const size_t bytes = *std::max_element(options.sizes.begin(), options.sizes.end());
    const bool moves = rank >= half_;
    if (options.memory == Memory::kCuda || (options.memory == Memory::kCudaHost && moves)) {
      gpu_ = Value(GpuRank::Open(rank));
      on_gpu_ = session_.AllocateDevice<uint8_t>(bytes, gpu_->device());
      copy_.resize(bytes);
      data_ = on_gpu_.data();
    } else {
      memory_ = session_.Allocate<uint8_t>(bytes);
      data_ = memory_.data();
    }
    ThrowIfError(shunt_region_id(session_.get(), data_, &found_->region));
  }

  bool Execute(const Command& command) {
    const Cut cut = CutOf(command.problem.count, options_.piece_bytes);
    const bool moves = rank_ >= half_;
    const bool source = moves == (options_.op == "push");
    for (uint64_t i = 0; i < cut.bytes(); ++i) {
      host()[i] = source ? ByteAt(i) : static_cast<uint8_t>(~ByteAt(i));
    }
    if (gpu_ != nullptr) Check(gpu_->Copy(data_, host(), cut.bytes()));
    const List own = agent_.Publish("pieces", {Blocks(data_, cut.piece_bytes, cut.pieces)});
    if (!RankBarrier(control_)) return false;
    const Side mine(options_.form, cut, 1, found_->region);
    const Side theirs(options_.form, cut, 2, all_[rank_ % half_].region);
    if (moves) {
      const List remote = agent_.Fetch(AgentName(rank_ - half_) + peer_node_, "pieces",
                                       source ? SHUNT_ACCESS_WRITE : SHUNT_ACCESS_READ);
      Measure(mine.Of(own), theirs.Of(remote), source);
    }
    if (!RankBarrier(control_)) return false;
    if (gpu_ != nullptr) Check(gpu_->Copy(host(), data_, cut.bytes()));
    found_->wrong = source || !options_.check ? 0 : Wrong(cut, mine, theirs, moves);
    return RankBarrier(control_);
  }

 private:
  static void Check(const absl::Status& status) {
    if (!status.ok()) {
      throw Error(static_cast<int>(status.code()), std::string(status.message()));
    }
  }
  template <typename T>
  static T Value(absl::StatusOr<T> result) {
    Check(result.status());
    return *std::move(result);
  }
  // The memory, or what the host has of it.
  uint8_t* host() { return gpu_ == nullptr ? data_ : copy_.data(); }

  std::string AgentName(int rank) const {
    return absl::StrCat("perf-", control_->driver_pid, "-", rank);
  }

  void Measure(const Selection& local, const Selection& remote, bool push) {
    std::vector<double> each, posts;
    found_->transfers = 0;
    for (int block = -1; block < options_.blocks; ++block) {  // the first one warms up
      int64_t post_ns = 0;
      int64_t count = 0;
      const int64_t begun = NowNs();
      int64_t now = begun;
      while (options_.iterations > 0 ? count < options_.iterations
                                     : now - begun < options_.block_ns) {
        std::vector<Transfer> transfers;
        for (int i = 0; i < options_.in_flight; ++i) {
          const int64_t before = NowNs();
          transfers.push_back(push ? agent_.Push(local, remote) : agent_.Pull(local, remote));
          post_ns += NowNs() - before;
          ++count;
        }
        for (Transfer& transfer : transfers) transfer.Wait();
        now = NowNs();
      }
      found_->transfers += static_cast<uint64_t>(count);
      if (block < 0) continue;
      each.push_back(static_cast<double>(now - begun) / 1e3 / static_cast<double>(count));
      posts.push_back(static_cast<double>(post_ns) / 1e3 / static_cast<double>(count));
    }
    found_->time_us = Median(each);
    found_->post_us = Median(posts);
  }

  // Of the receiving rank: bytes that are not the sender's.
  uint64_t Wrong(const Cut& cut, const Side& mine, const Side& theirs, bool moves) {
    const Side& here = moves ? mine : theirs;
    const Side& there = moves ? theirs : mine;
    uint64_t wrong = 0;
    for (uint64_t piece = 0; piece < cut.pieces; ++piece) {
      const uint8_t* got = host() + here.id(piece) * cut.piece_bytes;
      const uint64_t sent = there.id(piece) * cut.piece_bytes;
      for (uint64_t i = 0; i < cut.piece_bytes; ++i) wrong += got[i] != ByteAt(sent + i);
    }
    return wrong;
  }

  const PerfOptions& options_;
  const int rank_;
  const int half_;
  Control* const control_;
  const std::string peer_node_;
  const Found* const all_;
  Found* const found_;
  Session session_;
  Agent agent_;
  std::unique_ptr<GpuRank> gpu_;  // null: the memory is the host's
  Buffer<uint8_t> memory_;
  DeviceBuffer<uint8_t> on_gpu_;
  std::vector<uint8_t> copy_;  // of on_gpu_
  uint8_t* data_ = nullptr;    // of whichever it is
};

}  // namespace

int ServeTransfers(const PerfOptions& options, int rank, const std::string& socket,
                   Control* control, const std::string& peer_node, Found* found) {
  const auto fail = [&](const Error& error) {
    control->Fail(absl::StrCat("rank ", rank, ": ", error.what()));
    return false;
  };
  try {
    Rank self(options, rank, socket, control, peer_node, found);
    return ServeCommands(control, rank, [&](const Command& command) {
      try {
        return self.Execute(command);
      } catch (const Error& error) {
        return fail(error);
      }
    });
  } catch (const Error& error) {
    fail(error);
    return 1;
  }
}

}  // namespace shunt::bench
