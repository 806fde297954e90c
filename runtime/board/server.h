// The daemon's side of a board: posts for ranks that have no libshunt, sees asynchronous operations
// through, and ends what can't succeed. Trusts nothing that it reads: each post is copied once,
// then checked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/board/failure.h"
#include "runtime/board/gather.h"
#include "runtime/board/layout.h"
#include "runtime/board/member.h"

namespace shunt::board {

enum class Service { kPending, kSucceeded, kFailed };

// Thread-compatible: the owner serialises calls, except that Serve may run for different (channel,
// seq) of one board at once.
class Server {
 public:
  // `resolver` answers only for regions that `rank`'s session really owns.
  Server(Board board, RegionResolver* resolver) : board_(board), resolver_(resolver) {}

  struct Ticket {
    uint32_t channel = 0;
    uint64_t seq = 0;
  };
  // Posts `call` for `rank`, whose buffers are `in` and `out` (region 0: none). Resolves and checks
  // them first. `seq` is the rank's next sequence on that channel: the owner counts them.
  absl::StatusOr<Ticket> PostFor(int rank, const Call& call, RegionRef in, RegionRef out,
                                 uint64_t seq);
  // Where a call of `rank` takes place. A rank that sends to itself has two places in one channel.
  Board::Seat SeatOf(int rank, const Call& call) const;

  // Does what can be done now for one operation: nothing until all ranks have posted, then chunks.
  // `rank` is one that asked. Call again after a notification, and for (channel, seq + 1) when this
  // one has succeeded.
  // `work`: false only looks what is decided.
  Service Serve(uint32_t channel, uint64_t seq, bool work = true);
  // ---- On channels that are Remote, in place of Serve

  // What this node's ranks have called, once all of them have: kSucceeded, and `gathered` is
  // filled. kFailed if it cannot succeed.
  Service Gather(uint32_t channel, uint64_t seq, Gathered* gathered);
  // The exchange with the other nodes has written all outputs.
  void Finish(uint32_t channel, uint64_t seq);
  // It has failed, for the reason that goes into the record.
  void Fail(uint32_t channel, uint64_t seq, FailureReason reason, int rank, std::string_view text);

  // Marks a daemon-posted rank's operation as collected, so that its slot can be used again.
  void Retire(uint32_t channel, uint64_t seq, int rank);
  // Counts it in the rank's tally. Before Retire, after which its slot serves others.
  void CountFor(uint32_t channel, uint64_t seq, int rank, bool succeeded);

  // The deadline of (channel, seq), which `rank` waits for, has passed: ends it unless it has just
  // succeeded.
  Service Expire(uint32_t channel, uint64_t seq, int rank);
  // The rank's process ended: the communicator fails. It left: operations that wait for its call
  // end, as each finds out (call Serve for those that the daemon sees through).
  void RankGone(int rank, bool died);
  void Abort(int rank, std::string_view reason);

  bool failed() const { return HasFailed(board_); }
  // The same as FailureStatus, for whoever reports an outcome: waits a moment for the record, once.
  absl::Status OutcomeOfFailed() const { return failed() ? AwaitRecord() : absl::OkStatus(); }
  // Status of the failed communicator, OK if it has not failed. Never waits: of a record that
  // somebody is about to write it says so.
  absl::Status FailureStatus() const;
  // The rank's last call in words, e.g. "all_reduce #12 float32 sum count 1024"; "" if none.
  std::string LastCall(int rank) const;
  // How many collectives the rank has posted.
  uint64_t Posted(int rank) const;

 private:
  bool FailIfGone(const Channel& channel, uint64_t seq) const;
  absl::Status AwaitRecord() const;

  Board board_;
  RegionResolver* resolver_;
  mutable std::atomic<bool> waited_for_record_{false};
};

}  // namespace shunt::board
