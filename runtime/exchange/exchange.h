// One collective on one node: runs the node's network plan over its ranks' memory. A passive state
// machine: no thread, no clock; completions of the transport drive it.
//
//   every slice of the data runs the plan by itself, `window` of them at a time:
//
//     slice 0   send ──► receive, reduce ──► send ──► …          the link carries one slice
//     slice 1        send ──► receive, reduce ──► …              while another is reduced
//
// Local ranks never cost a pass of their own: what arrives is combined with all their inputs at
// once, and written to all their outputs at once. Data lies in scratch memory only where it must: a
// message that is one piece of a rank's buffer is sent from there and received into there.
//
// Same inputs, same bits: what two nodes have is combined in the nodes' order, whenever it comes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/collectives/exec/reduce.h"
#include "runtime/exchange/block_layout.h"
#include "runtime/exchange/buffer_pool.h"
#include "runtime/transport/transport.h"

namespace shunt::exchange {

class Exchange {
 public:
  // Null where the rank has no such buffer, or takes no part on this side.
  struct LocalRank {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    Scalar scalar{};  // premul_sum
  };
  // What a node does for a plan: the same for every operation of that shape.
  struct Program {
    std::vector<NetStep> steps;
    std::vector<uint32_t> ordinals;  // of each step among the messages with its peer
    std::vector<uint32_t> steps_of_round;
    std::vector<uint32_t> reach;  // by round: beyond the last step of it and of those before
    absl::flat_hash_map<uint32_t, uint32_t> last_recv;  // by block: the last step that receives it
    // The blocks are the nodes' whole vectors, and one step combines them at the end.
    bool combines = false;
  };
  static std::shared_ptr<const Program> ProgramOf(const NetSpec& net, int node);

  struct Setup {
    std::shared_ptr<const Program> program;  // of shape.net and node
    Shape shape;   // its map outlives the exchange; net.participants == map->nodes()
    int node = 0;  // this one; participants and more: an aggregator
    std::vector<LocalRank> local;  // in the order of map->ranks_of[node]
    const PairTable* pairs = nullptr;
    // Its peer and step are filled in.
    transport::Message header;
    absl::Span<const transport::PeerId> peers;  // by participant; outlives the exchange
    uint32_t window = 4;                        // slices at a time, at most 255
    // So many messages leave at a time, the earliest slice's first. Where all send to all, few keep
    // them from meeting at one receiver while another has none.
    uint32_t sends_max = ~0u;
  };

  // Tokens that it posts with are `token_base` | less than 2^32; the owner brings their completions
  // back.
  Exchange(Setup setup, transport::Transport* transport, BufferPool* pool, uint64_t token_base);
  // Everything that was posted must have ended, or its communicator be closed.
  ~Exchange();
  Exchange(const Exchange&) = delete;

  void Start();
  void OnCompletion(const transport::Completion& completion);

  // All outputs are written, and nothing is in flight. After a failure: nothing more will be
  // posted.
  bool done() const { return done_; }
  const absl::Status& status() const { return status_; }
  // True if the operation can be run again from its inputs: nothing has been written, or granted to
  // a peer to be written, that they lie in.
  bool intact() const { return !wrote_outputs_ || !overlaps_; }
  // Who the failure came from, by number in the plan; -1 without one.
  int failed_peer() const { return failed_peer_; }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    size_t bytes = 0;  // as taken from the pool; 0: not the pool's
  };
  enum class Where : uint8_t { kInputs, kScratch, kOutputs };
  struct Value {
    Where where = Where::kInputs;
    Buffer scratch;
  };
  struct Step {
    enum class State : uint8_t { kWaiting, kPosted, kArrived, kDone };
    State state = State::kWaiting;
    bool direct = false;  // received where it belongs
    Buffer buffer;
  };
  struct Slice {
    uint32_t index = 0;
    uint32_t first_open = 0;
    std::vector<Step> steps;
    std::vector<uint32_t> open_of_round;
    uint32_t earliest = 0;                        // the first round with an open step
    absl::flat_hash_map<uint32_t, Value> values;  // those that are not kInputs
  };

  void BeginSlice(Slice& slice, uint32_t index);
  // Does what can be done now; true if that was all.
  bool Ends(Slice& slice);
  // The next slice in place of one that has ended; false if there is none.
  bool Renew(Slice& slice);
  void Advance(Slice& slice);
  void AdvanceAll();
  // Slices wait for one another to send: whatever ends, all of them have a look.
  bool TakesTurns() const { return setup_.sends_max != ~0u; }
  static void End(Slice& slice, Step& step, const NetStep& of);
  // One look over the open steps; true if some step ended meanwhile.
  bool Look(Slice& slice);

  void PostSend(Slice& slice, uint32_t step);
  void PostRecv(Slice& slice, uint32_t step, bool ready);
  void Apply(Slice& slice, uint32_t step);
  void ApplyCopy(Slice& slice, uint32_t step);
  void ApplyReduce(Slice& slice, uint32_t step);
  void ApplyCombine(Slice& slice, uint32_t step);
  // Puts what never comes from elsewhere into the outputs.
  void PlaceOwn(Slice& slice);

  // Combines this node's inputs to the block in scratch memory.
  void Materialise(Slice& slice, uint32_t block, Value& value);
  // True if the step gives this node the block's last value, the outputs'.
  bool Final(uint32_t step, uint32_t block) const {
    return !program_.combines && program_.last_recv.at(block) == step;
  }
  const std::byte* Input(int local, const Extent& extent) const;
  // The outputs of this node's ranks for the extent.
  void Outputs(const Extent& extent, absl::InlinedVector<std::byte*, 8>* out) const;
  void Pieces(Slice& slice, uint32_t block, std::vector<absl::Span<const std::byte>>* pieces);
  bool OneOutputPiece(Slice& slice, uint32_t step, absl::Span<std::byte>* piece);
  size_t BytesOf(uint32_t block, uint32_t slice) const;
  size_t MessageBytes(const Slice& slice, uint32_t step) const;
  bool Holds(uint32_t block) const;
  Buffer Take(size_t bytes);
  void Give(Buffer& buffer);
  bool OutputsOverlapInputs() const;
  uint64_t Token(const Slice& slice, uint32_t step) const;
  transport::Message Header(const Slice& slice, uint32_t step) const;
  void Fail(absl::Status status);

  const Setup setup_;
  transport::Transport* const transport_;
  BufferPool* const pool_;
  const uint64_t token_base_;
  const size_t element_bytes_;
  const bool reduces_;
  // Some output shares memory with an input. If none does, a block may come home before others are
  // done with it, and an operation may run again from its inputs.
  const bool overlaps_;
  bool wrote_outputs_ = false;
  int failed_peer_ = -1;

  const Program& program_;
  const std::vector<NetStep>& plan_;
  std::vector<Slice> slices_;   // the window
  std::vector<uint8_t> turns_;  // places in it, the earliest slice's first, where they take turns
  uint32_t next_slice_ = 0;
  uint32_t slices_ended_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t sends_in_flight_ = 0;
  bool done_ = false;
  absl::Status status_;
  // A few blocks as a rule.
  class Blocks {
   public:
    void clear() {
      few_.clear();
      if (!many_.empty()) many_.clear();
    }
    void insert(uint32_t block) {
      if (few_.size() < kFew) {
        few_.push_back(block);
      } else {
        many_.insert(block);
      }
    }
    bool contains(uint32_t block) const {
      return std::find(few_.begin(), few_.end(), block) != few_.end() ||
             (!many_.empty() && many_.contains(block));
    }

   private:
    static constexpr size_t kFew = 16;
    absl::InlinedVector<uint32_t, kFew> few_;
    absl::flat_hash_set<uint32_t> many_;
  };
  // Of Look, kept for their memory.
  Blocks reading_, writing_;
};

}  // namespace shunt::exchange
