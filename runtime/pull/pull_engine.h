// Moves transfers between this node and others over a transport that somebody else owns and polls.
//
//   Start ──► ask ──────────────────────────────► resolve (the daemon's) ──► side
//     sink:   receives posted, class by class        source: sends
//             ◄───────────── slices ──────────────
//
// Slices go from and into their pieces; small ones are gathered and scattered, in the pool.
// The receiving end decides what is under way: it grants a bounded number of bytes in all, and the
// next grant goes to the most urgent class, in turn among its transfers. Not thread-safe but for
// what says otherwise: the thread that polls the transport is the driving thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/p2p/work_pool.h"
#include "runtime/pull/ask.h"
#include "runtime/pull/fair_queue.h"
#include "runtime/pull/flow.h"
#include "runtime/transport/transport.h"

namespace shunt::pull {

class PullEngine {
 public:
  // What a peer's ask comes to.
  struct Incoming {
    Side side;
    // When it is over here, before the other node can know: OK if all bytes are where they belong.
    std::function<void(const absl::Status&)> ended;
  };
  // Once, on the driving thread.
  using Resolved = std::function<void(absl::StatusOr<Incoming>)>;
  struct Options {
    transport::Transport* transport = nullptr;
    p2p::WorkPool* pool = nullptr;
    // Runs it on the driving thread soon. Thread-safe.
    std::function<void(std::function<void()>)> post;
    // Looks up what a peer asks for; `array` has the elements of its form. The transfer may be
    // cancelled meanwhile, by its id.
    std::function<void(transport::PeerId peer, FlowId flow, const Ask& ask,
                       std::vector<std::byte> array, Resolved resolved)>
        resolve;
    // The connection to a peer is of no use for transfers any more; another one may be.
    std::function<void(transport::PeerId peer, const std::string& why)> broken;
    uint64_t token_base = 0;  // tokens have this upper half
    // Bytes that are granted to others and have not come: what a class may have under way with
    // those before it. Each transfer may have one slice in any case.
    uint64_t grant_bytes = 8 << 20;
    // The same of what is gathered and not sent.
    uint64_t gathered_bytes = 16 << 20;
    // Pieces that are shorter on the average are copied together: naming each to the transport
    // would cost more.
    uint64_t place_bytes = 2 << 10;
    // A peer that says nothing to a stop for so long, or moves nothing on while one is drained, is
    // dropped: memory would be held for ever.
    int64_t silence_ns = 10'000'000'000;
    int64_t drain_ns = 120'000'000'000;  // and one that drains for so long
  };
  explicit PullEngine(Options options);
  // What is not over is forgotten. Stop comes first, or the transport is gone already.
  ~PullEngine();
  // The transport touches no memory of it any more.
  void Stop();

  // Both ends of a fresh connection, with the same communicator; `low`: this one's name is smaller.
  void PeerUp(transport::PeerId peer, uint64_t communicator, bool low);
  void PeerLost(transport::PeerId peer, const std::string& why);

  struct Outgoing {
    transport::PeerId peer = 0;
    Ask ask;
    std::vector<std::byte> array;
    Side side;
    std::function<void(const absl::Status&)> ended;  // on the driving thread
  };
  // UNAVAILABLE, by `ended`, if the peer is not up.
  void Start(FlowId id, Outgoing outgoing);
  // For Start. Thread-safe.
  FlowId NewId() { return next_flow_.fetch_add(1); }
  // Ends it soon, with that, unless it has all been moved. Unknown ones are ignored.
  void Cancel(FlowId flow, const absl::Status& why);

  // Of the transport.
  bool Owns(uint64_t token) const { return token >> 32 == options_.token_base >> 32; }
  bool IsCommunicator(uint64_t communicator) const {
    return by_communicator_.contains(communicator);
  }
  void OnCompletion(const transport::Completion& completion);
  void OnNote(const transport::Completion& completion);
  // After a batch of these: posts what may be posted now.
  void Pump();
  // Now and then: what time it is.
  void Tick(int64_t now_ns);

  size_t flows() const { return flows_.size(); }
  // What is under way, for who looks on.
  struct FlowView {
    FlowId id = 0;
    transport::PeerId peer = 0;
    bool initiator = false;  // this node asked
    bool source = false;     // this node sends
    transport::Class service_class = transport::Class::kBulk;
    uint64_t bytes = 0;
    uint64_t bytes_done = 0;
    uint32_t tenant = 0;  // who asked, by the word of its daemon
    std::string agent;    // whose memory was asked for
    std::string from;     // who asked; empty if it is no agent
  };
  std::vector<FlowView> View() const;
  // How far each is; for the recorder. Those that wait for their turn too.
  struct FlowProgress {
    FlowId id = 0;
    transport::PeerId peer = 0;
    bool source = false;
    uint64_t posted_bytes = 0;  // granted, or given to the transport
    uint64_t done_bytes = 0;
    // It could go on, but what may be under way is taken by others; or it is not begun, for its
    // turn has not come.
    bool waits = false;
  };
  std::vector<FlowProgress> Progress() const;
  uint64_t granted_bytes() const;
  uint64_t grant_limit() const { return options_.grant_bytes; }

 private:
  // Of a transfer's messages.
  enum Step : uint32_t { kSliceStep = 0, kArrayStep = 1, kAskStep = 2 };
  enum class OpKind : uint8_t { kAskSend, kAskReceive, kArraySend, kArrayReceive, kSlice };
  struct Op {
    bool live = false;
    uint32_t generation = 0;  // of its place: what comes for an earlier one is ignored
    OpKind kind = OpKind::kSlice;
    transport::PeerId peer = 0;
    FlowId flow = 0;
    uint64_t number = 0;  // of an ask
    uint32_t slice = 0;
    bool direct = false;  // from or into the side's own memory
    bool empty = false;   // sent without content
    std::vector<std::byte> bytes;
    std::unique_ptr<std::byte[]> staging;
  };
  struct Waiting {
    FlowId id;
    Outgoing outgoing;
  };
  struct Peer {
    Peer();
    uint64_t communicator = 0;
    uint32_t channel_out = 1, channel_in = 2;
    uint64_t next_number = 1;
    uint64_t asks_posted = 0;                       // receives for asks 1 to this
    std::set<uint64_t> asks_waited;                 // of those, what has not come
    std::array<FairQueue<Waiting>, 3> waiting;      // by class, the most urgent first
    uint64_t moved = 0;                             // payload to it and from it, when last looked
    int64_t moved_ns = 0;                           // and when that has changed
    uint64_t arrays_in = 0;                         // bytes, of those that are not over
    absl::flat_hash_map<uint64_t, FlowId> out, in;  // by number
    absl::flat_hash_map<uint64_t, Note> early_stops;
    std::deque<Note> unsent;
  };

  void PostAskReceives(transport::PeerId id, Peer& peer);
  void StartWaiting(transport::PeerId id, Peer& peer);
  void SendAsk(transport::PeerId id, Peer& peer, Waiting waiting);
  void OnAsk(Peer& peer, Op op);
  void LookUp(Flow& flow, std::vector<std::byte> array);
  void OnResolved(FlowId id, absl::StatusOr<Incoming> incoming);
  void OnSlice(Flow& flow, Op op);
  void PostSlice(Flow& flow);
  // `places`: none if it is in staging memory, or empty.
  void SendSlice(FlowId id, Op op, const std::vector<iovec>& places);
  void SliceDone(Flow& flow, Op op);
  bool MayPost(const Flow& flow) const;
  // Ends the flow if it is over.
  void Check(FlowId id);
  void End(FlowId id, const absl::Status& status);
  void Stop(Flow& flow, const absl::Status& why);
  bool Silent(const Flow& flow) const;
  void Sever(Flow& flow, const absl::Status& why);
  // False if the other end cannot have posted so many.
  bool TakeFrontier(Flow& flow, const Note& stop) const;
  // Withdraws all that is posted for it and ends its transfers.
  void Drop(transport::PeerId id, const absl::Status& why);
  // A peer that does not keep to the protocol.
  void Break(transport::PeerId id, const std::string& why);
  void Tell(transport::PeerId id, Peer& peer, Note note);
  void FlushNotes(transport::PeerId id, Peer& peer);
  transport::Message MessageOf(const Flow& flow, uint32_t step, uint32_t slice) const;
  uint64_t Keep(Op op);
  Op Take(uint32_t index);
  // A slice that is not under way any more.
  void ForgetSlice(const Flow& flow, Op& op);
  std::unique_ptr<std::byte[]> TakeStaging();
  void GiveStaging(std::unique_ptr<std::byte[]> staging);
  // In the pool, then `then` on the driving thread; both here if it is little.
  void Work(uint64_t bytes, transport::Class service_class, std::function<void()> work,
            std::function<void()> then);

  const Options options_;
  std::atomic<FlowId> next_flow_ = 1;
  absl::flat_hash_map<transport::PeerId, std::unique_ptr<Peer>> peers_;
  absl::flat_hash_map<uint64_t, transport::PeerId> by_communicator_;
  absl::flat_hash_map<FlowId, std::shared_ptr<Flow>> flows_;
  std::array<std::deque<FlowId>, 3> turns_;  // by class: whose turn it is
  std::vector<Op> ops_;
  std::vector<uint32_t> free_ops_;
  std::vector<std::unique_ptr<std::byte[]>> staging_;
  std::array<uint64_t, 3> granted_{};   // bytes, by class
  std::array<uint64_t, 3> gathered_{};  // of these, what lies in staging memory
  int64_t now_ns_ = 0, looked_ns_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // of the driving thread
};

}  // namespace shunt::pull
