// What nodes tell each other of a communicator, beside its data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/exchange/link_numbers.h"

namespace shunt::exchange {

// No more operations succeed.
struct FailedNote {
  uint8_t reason = 0;  // the board's
  std::string words;
  bool operator==(const FailedNote&) const = default;
};

// What the sender's ranks called there: an answer to a message that does not match it.
struct CalledNote {
  uint32_t channel = 0;
  uint64_t sequence = 0;
  std::string words;
  bool operator==(const CalledNote&) const = default;
};

// A rank has left, and called nothing after that many collectives.
struct LeftNote {
  int32_t rank = 0;
  uint64_t collectives = 0;
  std::string words;  // who
  bool operator==(const LeftNote&) const = default;
};

// How all nodes change to other link numbers at once: policy_switch.h.
struct ProposeNote {
  uint32_t version = 0;
  uint64_t from = 0;  // the first sequence that the numbers are for
  LinkNumbers numbers;
  bool operator==(const ProposeNote&) const = default;
};
struct AgreeNote {
  uint32_t version = 0;
  bool agrees = false;
  bool operator==(const AgreeNote&) const = default;
};
struct DecideNote {
  uint32_t version = 0;
  bool yes = false;
  bool operator==(const DecideNote&) const = default;
};

// To an aggregator: the sender begins to send it what it adds, or has closed the communicator.
struct PresenceNote {
  bool open = false;
  bool operator==(const PresenceNote&) const = default;
};
// From node 0 to an aggregator: an all_reduce that all nodes run through it.
struct AddNote {
  uint64_t sequence = 0;
  uint64_t signature = 0;  // of its messages
  uint8_t dtype = 0;
  uint8_t redop = 0;
  uint64_t count = 0;
  uint16_t aggregators = 0;
  uint16_t index = 0;   // the receiver's among them
  uint32_t slices = 1;  // that the nodes cut it into
  bool operator==(const AddNote&) const = default;
};
// An aggregator is lost: how far the sender has come. See failover.h.
struct LossNote {
  uint64_t completed = 0;  // the highest sequence of channel 0 whose results its ranks have
  uint64_t pending = 0;    // that it was running through aggregators; 0: none
  bool intact = false;     // the inputs of that
  bool has_result = false;
  std::string why;   // which aggregator, and how that was noticed
  std::string call;  // what is pending
  bool operator==(const LossNote&) const = default;
};

using Note = std::variant<FailedNote, CalledNote, LeftNote, ProposeNote, AgreeNote, DecideNote,
                          PresenceNote, AddNote, LossNote>;

// Words that are too long are cut. `bytes_max` is at least 64.
std::string Encode(const Note& note, size_t bytes_max);
// Nothing if the bytes are no note, or one of a later version. Words come out printable.
std::optional<Note> Decode(std::string_view bytes);

}  // namespace shunt::exchange
