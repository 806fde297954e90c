// Draining: the daemon begins nothing new, lets what runs end, and then says so; until it is taken
// back or the daemon ends. Sessions stay, with their memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "daemon/communicator_table.h"
#include "daemon/event_loop.h"
#include "daemon/transfer/transfer_table.h"

namespace shunt::daemon {

// Thread-safe. It outlives neither the loop nor the tables, and is not destroyed while the loop
// runs.
class Drain {
 public:
  enum class State {
    kServing,
    kDraining,  // running operations may end
    kDrained,   // nothing runs: communicators were ended, transfers too
  };
  // "serving", "draining", "drained".
  static std::string_view Name(State state);

  Drain(EventLoop* loop, CommunicatorTable* communicators, TransferTable* transfers)
      : loop_(loop), communicators_(communicators), transfers_(transfers) {}

  // Joins that wait end at once. What still runs after `grace` is ended; asked again, it counts
  // anew.
  void Begin(std::chrono::nanoseconds grace);
  // Works again. What was ended stays so.
  void Undo();

  struct View {
    State state = State::kServing;
    double seconds_left = 0;   // kDraining
    size_t communicators = 0;  // with a call under way
    size_t transfers = 0;      // in flight
    bool cut_off = false;      // kDrained: something still ran and was ended
  };
  View view() const;
  bool active() const { return view_state() != State::kServing; }

 private:
  State view_state() const;
  size_t BusyCommunicators() const;
  void Look(uint64_t turn);

  EventLoop* const loop_;
  CommunicatorTable* const communicators_;
  TransferTable* const transfers_;
  mutable std::mutex mutex_;
  State state_ = State::kServing;
  uint64_t turn_ = 0;  // of Begin: a look of an earlier one does nothing
  int64_t deadline_ns_ = 0;
  bool cut_off_ = false;
};

}  // namespace shunt::daemon
