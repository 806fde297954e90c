// Measures a fresh connection. One side asks, the other answers; a passive state machine that
// completions of the transport drive, with the owner's clock.
//
//   asks                                  answers
//   8 bytes ─────────────────────────────►
//           ◄───────────────────────────── 8 bytes           round trip, and the work in it: the
//           best of kRounds
//   kBurst × 8 bytes ────────────────────►
//           ◄───────────────────────────── 8 bytes           a message's own time if many go
//           together, the best of kBursts
//   kBulkBytes ──────────────────────────►
//           ◄───────────────────────────── 8 bytes           rate, the best of kBulks
//   the numbers ─────────────────────────►                   both have them
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/exchange/link_numbers.h"
#include "runtime/transport/transport.h"

namespace shunt::exchange {

class LinkProbe {
 public:
  static constexpr int kRounds = 16, kBurst = 32, kBursts = 4, kBulks = 3;
  static constexpr size_t kBulkBytes = 1 << 20;

  // `communicator` is open towards `peer` only, on both sides. Tokens that it posts with are
  // `token_base` | less than 2^32.
  LinkProbe(bool asks, transport::PeerId peer, uint64_t communicator,
            transport::Transport* transport, uint64_t token_base);
  LinkProbe(const LinkProbe&) = delete;

  struct Moment {
    int64_t now_ns = 0;
    int64_t busy_ns = 0;  // of which the owner has worked; 0 if it doesn't know
  };
  void Start(Moment now);
  void OnCompletion(const transport::Completion& completion, Moment now);
  // Ended, well or not.
  bool done() const { return done_; }
  // What was measured; nothing if it failed.
  const LinkNumbers& numbers() const { return numbers_; }

 private:
  // A part of the exchange above: messages one way, then one back.
  struct Part {
    int messages;
    size_t bytes;
    bool answered;
  };
  static constexpr int kParts = kRounds + kBursts + kBulks + 1;
  static Part PartAt(int part);

  void Begin(Moment now);
  void EndPart(Moment now);
  void Send(size_t bytes, uint32_t step);
  void Receive(size_t bytes, uint32_t step);
  transport::Message Header(uint32_t step) const;

  const bool asks_;
  const transport::PeerId peer_;
  const uint64_t communicator_;
  transport::Transport* const transport_;
  const uint64_t token_base_;
  std::vector<std::byte> out_, in_;
  int part_ = 0;
  int open_ = 0;  // completions that are due
  bool answering_ = false;
  bool done_ = false;
  Moment began_;
  int64_t round_trip_ns_ = 0, work_ns_ = 0;
  LinkNumbers numbers_;
};

}  // namespace shunt::exchange
