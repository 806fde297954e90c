// What becomes of a communicator's operations when it loses its aggregators: once, and the same on
// all nodes.
//
// A node that notices the loss closes the aggregated exchange, so that nothing of it changes any
// more, and tells all others once how far it has come; who is told does the same. When a node has
// heard all, it decides; all decide by the same reports, so all decide alike. Until then it begins
// and ends nothing.
//
//   completed   …  N-1 │ N         a node's ranks have the result of N: it cannot run N again
//   pending            │     N     runs it again from its inputs, if nobody has completed it
//
// Operations of channel 0 follow one another on each node, so what is pending anywhere beyond the
// highest completed sequence is one and the same operation. Pure state; the owner carries the
// notes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/exchange/notes.h"

namespace shunt::exchange {

class Failover {
 public:
  enum class Verdict : uint8_t {
    kGoOn,         // whatever was pending has its result
    kRunAgain,     // what is pending beyond `completed`, without aggregators
    kTooLate,      // a node needs what others have completed
    kOverwritten,  // a node's inputs are not what they were
  };

  explicit Failover(int nodes) : reports_(static_cast<size_t>(nodes)) {}

  // The first report of a node counts. True if it was the last that was missing.
  bool Report(int node, LossNote report);
  bool Reported(int node) const { return reports_[static_cast<size_t>(node)].has_value(); }
  bool decided() const { return missing() == 0; }

  // Of those, what follows is for a decided one.
  Verdict verdict() const;
  // The operation that is run again by those who had begun it; 0 if there is none.
  uint64_t RunsAgain() const { return verdict() == Verdict::kRunAgain ? Completed() + 1 : 0; }
  // For an error: what the first node whose operation cannot be saved said.
  std::string Words() const;

 private:
  size_t missing() const;
  uint64_t Completed() const;

  std::vector<std::optional<LossNote>> reports_;  // by node
};

}  // namespace shunt::exchange
