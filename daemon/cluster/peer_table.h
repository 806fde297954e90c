// The other daemons, as this one knows them: who of the members is there, under which incarnation,
// and since when not. All on the event loop's thread.
//
//   kNew ──Contact──► kCalling ──Hello answered──► kUp ──its Watch call ends──► kDown ──► kCalling
//   …
//                        │                                                        ▲
//                        ├── nobody answers ──────────────────────────────────────┤
//                        └── refused, by it or by us ──► kRefused ──(later)───────┘
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "daemon/cluster/call_tracker.h"
#include "daemon/cluster/peer_rpc.h"
#include "daemon/cluster/view.h"
#include "daemon/event_loop.h"

namespace shunt::cluster {

// A peer that is up.
struct PeerInfo {
  std::string name;
  uint64_t incarnation = 0;
  std::string control_address;
  std::vector<std::string> data_addresses;
  // 32 bytes each. What this node presents on a data connection to the peer, and what the peer
  // presents on one to this node. Secret.
  std::string token_out;
  std::string token_in;
};

// What this daemon says of itself.
struct SelfInfo {
  std::string cluster;
  std::string name;
  std::string address;
  uint64_t incarnation = 0;
  std::string version;
  uint32_t protocol_min = 1;
  uint32_t protocol_max = 1;
  std::vector<std::string> data_addresses;
  std::string data_transport = "tcp";
  Role role = Role::kNode;
};
v1::PeerIdentity Identity(const SelfInfo& self);

class PeerTable {
 public:
  struct Events {
    // A token was made that this peer will present; the peer does not have it yet.
    std::function<void(const std::string& name, uint64_t incarnation, const std::string& token_in)>
        expected;
    std::function<void(const PeerInfo& peer)> up;
    std::function<void(const PeerInfo& peer, std::string_view why)> lost;
    // Somebody has become reachable or unreachable.
    std::function<void()> reach_changed;
    // A daemon that says hello is not in the view.
    std::function<void()> unknown_caller;
  };
  enum class State { kNew, kCalling, kUp, kDown, kRefused, kSelf };
  static std::string_view Name(State state);
  struct Row {
    MemberInfo member;  // with name and incarnation, if the peer is up
    State state = State::kNew;
    std::string why;          // of kDown and kRefused
    Role role = Role::kNode;  // as it said last
  };

  // `tls_name`: what members' certificates are made out for; "": their names.
  PeerTable(CallTracker* tracker, const SelfInfo* self, Credentials credentials,
            std::string tls_name, Events events);
  ~PeerTable();

  // The members from now on. Up to kEagerMax of them are greeted at once, others when they are
  // needed; an aggregator, who may be needed by everybody, greets them all. A peer that is up stays
  // so while it answers, unless the view knows incarnations and has it no more.
  void SetView(const View& view);

  // Calls `done` when the member is up, at once if it is, or with why it cannot be reached.
  using Done = std::function<void(const absl::Status&)>;
  void Contact(const std::string& id, Done done);
  // It is not what it said: greets it again.
  void Recontact(const std::string& id, std::string_view why);

  // True if nobody answered there last time, or it was refused.
  bool Down(const MemberInfo& member) const;
  bool IsSelf(const MemberInfo& member) const;
  // True if it said so when it was greeted last: it has no ranks, and brings none together.
  bool Aggregates(const MemberInfo& member) const;
  // Those that are up, by name.
  std::vector<const PeerInfo*> Aggregators() const;
  // True while somebody is greeted for the first time: it may turn out to be an aggregator.
  bool Greeting() const;
  // Null if there is none; by name only for peers that are up.
  const PeerInfo* FindUp(std::string_view name) const;
  // Null if there is none. It may be replaced whenever somebody becomes unreachable or the view
  // changes: the callbacks of calls in flight then do not come, and the generation is another.
  PeerClient* ClientOf(const std::string& id);
  uint64_t GenerationOf(const std::string& id) const;
  std::string IdOf(std::string_view name, std::string_view address) const;
  std::vector<Row> Rows() const;
  // OK, or that another node holds this one's name for another daemon's.
  absl::Status own_name() const;

  // The callee's side. Whether the caller is who it says: see peer.proto.
  void Verify(const v1::PeerIdentity& claim, const std::vector<std::string>& tls_names,
              const std::string& from, Done done);
  // For a caller that was verified.
  void AnswerHello(const v1::PeerIdentity& caller, v1::HelloResponse* response);

  // Asks whether `member`, with this name and incarnation, is alive at its address.
  void Probe(const MemberInfo& member, std::function<void(bool)> done);

  // This node is another incarnation: nobody knows it any more.
  void Reset(std::string_view why);

 private:
  static constexpr size_t kEagerMax = 64;
  struct Peer {
    MemberInfo member;
    bool in_view = true;
    std::unique_ptr<PeerClient> client;
    uint64_t generation = 0;  // of the client
    State state = State::kNew;
    Role role = Role::kNode;  // as it said last
    PeerInfo info;            // kUp
    absl::Status why;
    bool name_taken = false;  // it says that our name is another daemon's
    uint64_t watch = 0;       // which Watch call is the current one
    int64_t delay_ns = 0;     // before the last try
    int64_t up_since_ns = 0;
    daemon::EventLoop::TimerId retry = 0;
    std::vector<Done> waiters;
  };

  Peer* Find(const std::string& id);
  void Connect(Peer& peer);
  void Call(Peer& peer);
  void OnHello(Peer& peer, const absl::StatusOr<v1::HelloResponse>& answer);
  absl::Status CheckAnswer(const Peer& peer, const v1::PeerIdentity& identity) const;
  absl::Status CheckProtocol(const v1::PeerIdentity& identity, const std::string& who) const;
  void Watch(Peer& peer);
  void Lose(Peer& peer, std::string_view why);
  void Fail(Peer& peer, State state, const absl::Status& why);
  void RetryAfter(Peer& peer, int64_t delay_ns);
  void Tell(Peer& peer, const absl::Status& status);
  void Ping(const MemberInfo& member, RpcDone<v1::PingResponse> done);
  void VerifyAt(const MemberInfo& member, const v1::PeerIdentity& claim, const std::string& from,
                Done done);
  void VerifyNameUnique(const v1::PeerIdentity& claim, const std::string& id,
                        const std::string& from, Done done);
  std::string Issue(const std::string& name, uint64_t incarnation);
  std::string TlsName(const MemberInfo& member) const;

  CallTracker* const tracker_;
  daemon::EventLoop* const loop_;
  const SelfInfo* const self_;
  const Credentials credentials_;
  const std::string tls_name_;
  const Events events_;
  View view_;
  uint64_t generations_ = 0;
  std::map<std::string, std::unique_ptr<Peer>> peers_;          // by member id
  std::map<std::string, std::string, std::less<>> up_by_name_;  // name → member id
  struct Issued {
    uint64_t incarnation = 0;
    std::string token;
  };
  std::map<std::string, Issued> issued_;      // by name
  std::map<std::string, uint64_t> verified_;  // by name: the incarnation that is there
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace shunt::cluster
