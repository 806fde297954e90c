// Nodes of an exchange on a network in virtual time, each rank with buffers of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/exchange/exchange.h"
#include "runtime/transport/fake/network.h"

namespace shunt::testing {

// One call of all ranks: what goes in, and what came out.
struct CallCase {
  CollectiveSpec call{};
  std::vector<int32_t> node_of;  // by rank
  Algorithm algorithm = Algorithm::kRing;
  int aggregators = 0;
  uint32_t slices = 1;
  uint32_t window = 2;
  uint32_t sends_max = ~0u;
  bool in_place = false;
  uint64_t seed = 1;  // of inputs
  uint64_t network_seed = 1;
  int64_t jitter_ns = 50'000;
  // all_to_all_v: elements from rank to rank.
  std::vector<std::vector<uint64_t>> pair_counts;
};

class Cluster {
 public:
  explicit Cluster(const CallCase& c);

  // Runs to the end; "" or what went wrong.
  std::string Run();

  const exchange::NodeMap& map() const { return map_; }
  const std::vector<std::byte>& input(int rank) const { return inputs_[rank]; }
  // The output's part of the rank's memory; empty where it has none.
  std::vector<std::byte> Output(int rank) const;
  // False if something outside the outputs was written.
  bool MarginsWhole() const;
  uint64_t PayloadSent(int node) const;
  uint64_t Factor(int rank) const;

 private:
  struct Pairs;
  struct Buffers {
    std::vector<std::byte> in, out;
    std::byte* in_at = nullptr;
    std::byte* out_at = nullptr;
    size_t out_bytes = 0;
  };
  void MakeBuffers(int rank);

  CallCase case_;
  exchange::NodeMap map_;
  transport::FakeNetwork network_;
  exchange::BufferPool pool_;
  std::vector<std::vector<std::byte>> inputs_;  // as they were
  std::vector<Buffers> buffers_;
  std::vector<transport::PeerId> peers_;
  std::unique_ptr<Pairs> pairs_;

 public:
  ~Cluster();
};

}  // namespace shunt::testing
