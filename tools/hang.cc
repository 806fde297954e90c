#include "tools/hang.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "tools/output.h"
#include "tools/world_records.h"

namespace shunt::tools {
namespace {

// Daemons say a word every half second, and look at their clocks as often: longer silence is none
// of theirs.
constexpr uint64_t kSilenceNs = 1'250'000'000;
// In a row, of the same bytes: a link that works loses one now and then.
constexpr uint32_t kRetransmits = 2;

// An operation of a communicator, over all nodes.
struct Waiting {
  size_t communicator = 0;
  OperationKey key;
  std::map<int, const v1::CallRecord*> posted;  // null: called, its call is not known
  std::set<int> missing, working;
  bool exchanged = false;  // a node has begun to exchange it with others
  int64_t waited_ns = -1;
};

std::vector<int> Numbers(const std::map<int, const v1::CallRecord*>& ranks) {
  std::vector<int> numbers;
  for (const auto& [rank, call] : ranks) numbers.push_back(rank);
  return numbers;
}

const v1::CallRecord* FindCall(const v1::RankRecord& rank, const OperationKey& key) {
  for (const v1::CallRecord& call : rank.calls()) {
    if (KeyOf(rank.rank(), call) == key) return &call;
  }
  return nullptr;
}

class Finder {
 public:
  Finder(const v1::GetRecordsResponse& records, int64_t older_than_ns)
      : records_(records), older_than_ns_(older_than_ns), communicators_(Communicators(records)) {}

  std::vector<Stuck> Run() {
    for (size_t i = 0; i < communicators_.size(); ++i) {
      if (communicators_[i].first->state() == "closed" || communicators_[i].failed) continue;
      AddWaiting(i);
    }
    for (const Waiting& waiting : waiting_) {
      if (waiting.waited_ns >= 0 && waiting.waited_ns < older_than_ns_) continue;
      found_.push_back(Explain(waiting));
    }
    for (const WorldCommunicator& join : Joins(records_)) AddJoin(join);
    for (const v1::NodeRecords& node : records_.nodes()) {
      for (const v1::TransferRecord& transfer : node.transfers()) AddTransfer(node, transfer);
    }
    AddLinks();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Stuck& a, const Stuck& b) { return a.waited_ns > b.waited_ns; });
    return std::move(found_);
  }

 private:
  // Everything that is open on a communicator and undecided.
  void AddWaiting(size_t index) {
    const WorldCommunicator& c = communicators_[index];
    std::map<OperationKey, Waiting> open;
    std::set<OperationKey> decided;
    for (const auto& [node, part] : c.parts) {
      for (const v1::OpenOperationRecord& record : part->open()) {
        const OperationKey key{record.source(), record.destination(), record.sequence()};
        if (record.decided()) decided.insert(key);
        Waiting& waiting = open[key];
        waiting.communicator = index;
        waiting.key = key;
        for (const int rank : record.posted()) waiting.posted[rank] = nullptr;
        for (const int rank : record.missing()) waiting.missing.insert(rank);
        for (const int rank : record.working()) waiting.working.insert(rank);
      }
      for (const v1::ExchangeRecord& exchange : part->exchanges()) {
        const auto at = open.find({exchange.source(), exchange.destination(), exchange.sequence()});
        if (at != open.end() && exchange.state() == "open") at->second.exchanged = true;
      }
    }
    for (auto& [key, waiting] : open) {
      if (decided.contains(key)) continue;
      AddOtherNodes(c, &waiting);
      for (auto& [rank, call] : waiting.posted) {
        const auto at = c.ranks.find(rank);
        if (at == c.ranks.end()) continue;
        call = FindCall(*at->second.record, key);
        if (call == nullptr || call->state() != "open" || call->posted_ns() == 0) continue;
        waiting.waited_ns =
            std::max(waiting.waited_ns, at->second.node->now_ns() - call->posted_ns());
      }
      waiting_.push_back(std::move(waiting));
    }
  }

  // Ranks on nodes where it is not open.
  static void AddOtherNodes(const WorldCommunicator& c, Waiting* waiting) {
    const auto [source, destination, sequence] = waiting->key;
    std::vector<int> all;
    if (source >= 0) {
      all = {source, destination};
    } else {
      for (int rank = 0; rank < c.first->world_size(); ++rank) all.push_back(rank);
    }
    for (const int rank : all) {
      if (waiting->posted.contains(rank) || waiting->missing.contains(rank)) continue;
      const auto at = c.ranks.find(rank);
      const bool called = at != c.ranks.end() &&
                          (source < 0 ? at->second.record->collectives() >= sequence
                                      : FindCall(*at->second.record, waiting->key) != nullptr);
      if (called) {
        waiting->posted[rank] = nullptr;
      } else {
        waiting->missing.insert(rank);
      }
    }
  }

  StuckRank Describe(const WorldCommunicator& c, int rank) const {
    StuckRank out;
    out.rank = rank;
    out.node = c.NodeOf(rank);
    const auto at = c.ranks.find(rank);
    if (at == c.ranks.end()) return out;
    const RankOf& of = at->second;
    out.pid = of.record->pid();
    out.session = of.record->session();
    out.last_call = of.record->last_call();
    out.collectives = of.record->collectives();
    if (of.process != nullptr) {
      out.process_state = of.process->state();
      out.file = of.process->file();
    }
    return out;
  }

  static std::string Last(const StuckRank& rank) {
    return rank.last_call.empty() ? "it has not called yet"
                                  : absl::StrCat("its last call was ", Printable(rank.last_call));
  }

  // What its process alone tells; the cause, and words.
  static std::optional<std::pair<const char*, std::string>> OfProcess(const StuckRank& rank) {
    if (rank.process_state == "T") {
      return std::pair(cause::kStoppedProcess, "its process is stopped (state T: SIGSTOP)");
    }
    if (rank.process_state == "t") {
      return std::pair(cause::kStoppedProcess, "its process is held by a debugger (state t)");
    }
    if (rank.process_state == "Z" || rank.process_state == "gone") {
      return std::pair(cause::kDeadProcess, "its process has ended");
    }
    if (!rank.file.empty()) {
      return std::pair(cause::kWaitingOnFile,
                       absl::StrCat("its process waits for a file: ", Printable(rank.file)));
    }
    if (rank.process_state == "D") {
      return std::pair(cause::kWaitingOnFile,
                       "its process waits in the kernel, as for a disk (state D)");
    }
    return std::nullopt;
  }

  // What is wrong between two nodes, seen from either.
  std::optional<std::pair<const char*, std::string>> OfLink(const std::string& a,
                                                            const std::string& b) const {
    const auto silent = std::find_if(records_.silent().begin(), records_.silent().end(),
                                     [&](const auto& s) { return s.node() == a || s.node() == b; });
    if (silent != records_.silent().end()) {
      return std::pair(cause::kDeadPeer,
                       absl::StrCat("node ", Printable(silent->node()), " gives no answer (",
                                    Printable(silent->why()), ")", LinkWords(a, b)));
    }
    if (Stalls(a, b) || Stalls(b, a)) {
      return std::pair(cause::kStuckLink,
                       absl::StrCat("the data connection between node ", a, " and node ", b,
                                    " does not move", LinkWords(a, b),
                                    "; both daemons answer, so the network between them is at "
                                    "fault, or one daemon's thread for it"));
    }
    return std::nullopt;
  }

  const v1::LinkRecord* LinkFrom(const std::string& from, const std::string& to) const {
    for (const v1::NodeRecords& node : records_.nodes()) {
      if (node.node() != from) continue;
      for (const v1::LinkRecord& link : node.links()) {
        if (link.node() == to) return &link;
      }
    }
    return nullptr;
  }
  static bool Stalls(const v1::LinkRecord& link) {
    return link.state() == "up" && (link.silent_ns() >= kSilenceNs ||
                                    (link.bytes_unacknowledged() + link.bytes_unsent() != 0 &&
                                     link.retransmits() >= kRetransmits));
  }
  bool Stalls(const std::string& from, const std::string& to) const {
    const v1::LinkRecord* const link = LinkFrom(from, to);
    return link != nullptr && (Stalls(*link) || link->state() != "up");
  }
  std::string LinkWords(const std::string& a, const std::string& b) const {
    std::string text;
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
      const v1::LinkRecord* const link = LinkFrom(from, to);
      if (link == nullptr) continue;
      absl::StrAppend(&text, "; node ", from, " has heard nothing from ", to, " for ",
                      DurationText(static_cast<int64_t>(link->silent_ns())), " and has ",
                      SizeText(link->bytes_unsent() + link->bytes_unacknowledged()),
                      " unsent or unacknowledged to it");
      if (link->retransmits() > 0) {
        absl::StrAppend(&text, ", sent again ", link->retransmits(), " times");
      }
      if (link->state() != "up") absl::StrAppend(&text, ", and is not connected with it");
    }
    return text;
  }

  // Operations that the rank itself waits in, by its session: that may be of another communicator.
  // Not those that it has begun and need not be waiting for.
  std::vector<const Waiting*> WaitsOf(const WorldCommunicator& c, int rank) const {
    std::vector<const Waiting*> waits;
    const auto me = c.ranks.find(rank);
    if (me == c.ranks.end()) return waits;
    for (const Waiting& other : waiting_) {
      const WorldCommunicator& in = communicators_[other.communicator];
      for (const auto& [number, call] : other.posted) {
        if (call == nullptr || !call->waits()) continue;
        const auto at = in.ranks.find(number);
        if (at == in.ranks.end() || at->second.node != me->second.node ||
            at->second.record->session_id() != me->second.record->session_id()) {
          continue;
        }
        waits.push_back(&other);
        break;
      }
    }
    return waits;
  }

  // True if `from`, by whom it waits for and whom those wait for, waits for one of `to`'s posted.
  bool WaitsFor(const Waiting& from, const Waiting& to, std::set<const Waiting*>* seen) const {
    if (!seen->insert(&from).second) return false;
    const WorldCommunicator& c = communicators_[from.communicator];
    for (const int rank : from.missing) {
      for (const Waiting* next : WaitsOf(c, rank)) {
        if (next == &to || WaitsFor(*next, to, seen)) return true;
      }
    }
    return false;
  }

  std::string Words(const Waiting& waiting) const {
    const WorldCommunicator& c = communicators_[waiting.communicator];
    for (const auto& [rank, call] : waiting.posted) {
      if (call != nullptr) return absl::StrCat(CallText(*call), " on ", c.Name());
    }
    return absl::StrCat("operation #", std::get<2>(waiting.key), " on ", c.Name());
  }

  Stuck Explain(const Waiting& waiting) const {
    const WorldCommunicator& c = communicators_[waiting.communicator];
    Stuck stuck;
    stuck.what = Words(waiting);
    stuck.communicator = c.first->name();
    stuck.job = c.first->job();
    stuck.sequence = std::get<2>(waiting.key);
    stuck.waited_ns = waiting.waited_ns;
    for (const auto& [rank, call] : waiting.posted) stuck.waiting.push_back(Describe(c, rank));
    for (const int rank : waiting.missing) stuck.missing.push_back(Describe(c, rank));
    if (!ExplainDifferent(c, waiting, &stuck)) {
      if (waiting.missing.empty()) {
        ExplainMoving(c, waiting, &stuck);
      } else {
        ExplainMissing(c, waiting, &stuck);
      }
    }
    return stuck;
  }

  // Two who have called differently: nothing that anybody does now makes it succeed.
  bool ExplainDifferent(const WorldCommunicator& c, const Waiting& waiting, Stuck* stuck) const {
    int first = -1;
    const v1::CallRecord* of_first = nullptr;
    for (const auto& [rank, call] : waiting.posted) {
      if (call == nullptr) continue;
      if (of_first == nullptr) {
        first = rank;
        of_first = call;
        continue;
      }
      const bool pair = std::get<0>(waiting.key) >= 0;
      const bool same =
          of_first->count() == call->count() && of_first->dtype() == call->dtype() &&
          (pair || (of_first->kind() == call->kind() && of_first->redop() == call->redop() &&
                    of_first->root() == call->root()));
      if (same) continue;
      stuck->cause = cause::kDifferentCalls;
      stuck->reason = absl::StrCat(RankText(c, first), " called ", CallText(*of_first), ", but ",
                                   RankText(c, rank), " called ", CallText(*call),
                                   ": the calls of all ranks must be the same");
      if (!waiting.missing.empty()) {
        absl::StrAppend(&stuck->reason, "; it ends with that error when ",
                        RanksText({waiting.missing.begin(), waiting.missing.end()}),
                        waiting.missing.size() == 1 ? " calls" : " call");
      }
      return true;
    }
    return false;
  }

  void ExplainMissing(const WorldCommunicator& c, const Waiting& waiting, Stuck* stuck) const {
    const auto [source, destination, sequence] = waiting.key;
    std::string cause_found;
    const auto add = [&](const char* cause, const std::string& words) {
      if (cause_found.empty()) cause_found = cause;
      absl::StrAppend(&stuck->reason, stuck->reason.empty() ? "" : "; ", words);
    };
    // Who can say why it is missing comes first.
    std::vector<StuckRank> unexplained;
    size_t named = 0;
    for (const StuckRank& rank : stuck->missing) {
      if (++named > 16) break;
      const std::string who = RankText(c, rank.rank);
      if (c.ranks.find(rank.rank) == c.ranks.end()) {
        const std::string here = stuck->waiting.empty() ? "" : stuck->waiting.front().node;
        if (const auto link = OfLink(here, rank.node)) {
          add(link->first, absl::StrCat(who, " is missing: ", link->second));
        } else {
          unexplained.push_back(rank);
        }
        continue;
      }
      if (const auto of = OfProcess(rank); of.has_value() && of->first != cause::kWaitingOnFile) {
        add(of->first, absl::StrCat(who, " is missing: ", of->second, "; ", Last(rank)));
        continue;
      }
      bool elsewhere = false;
      for (const Waiting* other : WaitsOf(c, rank.rank)) {
        if (other == &waiting) continue;
        std::set<const Waiting*> seen;
        const bool round = other->missing.empty() ? false : WaitsFor(*other, waiting, &seen);
        if (round) {
          cause_found = cause::kWrongOrder;
          add(cause::kWrongOrder,
              absl::StrCat(who, " is missing: it waits in ", Words(*other), ", which waits for ",
                           RanksText({other->missing.begin(), other->missing.end()}),
                           ", who waits here: the calls are in different orders"));
        } else {
          add(cause::kMissingRank, absl::StrCat(who, " is missing: it waits in ", Words(*other),
                                                " itself; ", Last(rank)));
        }
        elsewhere = true;
        break;
      }
      if (elsewhere) continue;
      if (const auto of = OfProcess(rank)) {
        add(of->first, absl::StrCat(who, " is missing: ", of->second, "; ", Last(rank)));
        continue;
      }
      unexplained.push_back(rank);
    }
    for (const StuckRank& rank : unexplained) {
      const std::string who = RankText(c, rank.rank);
      if (source >= 0) {
        const bool lacks_receive = rank.rank == destination;
        add(lacks_receive ? cause::kSendWithoutReceive : cause::kReceiveWithoutSend,
            absl::StrCat(who,
                         lacks_receive ? " has not called the receive for it; "
                                       : " has not called the send for it; ",
                         Last(rank)));
        continue;
      }
      std::string words = absl::StrCat(who, " has not called it; ", Last(rank));
      if (rank.collectives + 1 < sequence) {
        absl::StrAppend(&words, ", ", sequence - rank.collectives, " collectives behind");
      }
      const bool sleeps = rank.process_state == "S", runs = rank.process_state == "R";
      if (sleeps || runs) {
        absl::StrAppend(&words, runs ? "; its process runs (computes)"
                                     : "; its process sleeps, outside of Shunt");
      }
      add(cause::kMissingRank, words);
    }
    stuck->cause = cause_found;
  }

  void ExplainMoving(const WorldCommunicator& c, const Waiting& waiting, Stuck* stuck) const {
    for (const auto& ranks : {std::vector<int>(waiting.working.begin(), waiting.working.end()),
                              Numbers(waiting.posted)}) {
      for (const int rank : ranks) {
        const StuckRank of = Describe(c, rank);
        const auto why = OfProcess(of);
        if (!why.has_value() || why->first == cause::kWaitingOnFile) continue;
        stuck->cause = why->first;
        stuck->reason = absl::StrCat(
            "all ranks have called; ", RankText(c, rank),
            waiting.working.contains(rank) ? " holds a part of the work: " : ": ", why->second);
        return;
      }
    }
    std::set<std::string> nodes;
    for (const auto& [rank, call] : waiting.posted) nodes.insert(c.NodeOf(rank));
    for (const std::string& a : nodes) {
      for (const std::string& b : nodes) {
        if (a >= b) continue;
        const auto link = OfLink(a, b);
        if (!link.has_value()) continue;
        stuck->cause = link->first;
        stuck->reason = absl::StrCat("all ranks have called; ", link->second);
        stuck->node = a;
        return;
      }
    }
    stuck->cause = cause::kSlow;
    stuck->reason =
        nodes.size() > 1
            ? "all ranks have called, and no link stands still: it is moving, or a daemon is busy"
            : "all ranks have called: it is moving, or the ranks find no CPU";
  }

  void AddJoin(const WorldCommunicator& join) {
    int64_t waited = -1;
    for (const auto& [node, part] : join.parts) {
      if (part->waits_since_ns() != 0) {
        waited = std::max(waited, node->now_ns() - part->waits_since_ns());
      }
    }
    if (waited < older_than_ns_) return;
    Stuck stuck;
    stuck.cause = cause::kWorldIncomplete;
    stuck.communicator = join.first->name();
    stuck.job = join.first->job();
    stuck.waited_ns = waited;
    stuck.what = absl::StrCat("the join of ", join.Name());
    std::vector<int> joined, missing;
    for (int rank = 0; rank < join.first->world_size(); ++rank) {
      (join.ranks.contains(rank) ? joined : missing).push_back(rank);
    }
    for (const int rank : joined) stuck.waiting.push_back(Describe(join, rank));
    for (const int rank : missing) {
      StuckRank out;
      out.rank = rank;
      stuck.missing.push_back(out);
    }
    stuck.reason = absl::StrCat(joined.size(), " of ", join.first->world_size(),
                                " ranks have asked to join; missing: ", RanksText(missing));
    for (const v1::SilentNode& silent : records_.silent()) {
      absl::StrAppend(&stuck.reason, "; node ", Printable(silent.node()), " gives no answer (",
                      Printable(silent.why()), ")");
    }
    found_.push_back(std::move(stuck));
  }

  void AddTransfer(const v1::NodeRecords& node, const v1::TransferRecord& transfer) {
    if (transfer.state() != "open") return;
    const int64_t waited = node.now_ns() - transfer.posted_ns();
    if (waited < older_than_ns_) return;
    Stuck stuck;
    stuck.transfer = transfer.id();
    stuck.node = node.node();
    stuck.waited_ns = waited;
    stuck.what = absl::StrCat("transfer ", transfer.id(), ", ", transfer.route(), " of ",
                              SizeText(transfer.bytes()));
    if (!transfer.with().empty()) {
      absl::StrAppend(&stuck.what,
                      transfer.route() == "push" || transfer.route() == "write" ? " to " : " from ",
                      Printable(transfer.with()));
    }
    if (!transfer.node().empty()) absl::StrAppend(&stuck.what, " on node ", transfer.node());
    absl::StrAppend(&stuck.what, ", by pid ", transfer.pid());
    const auto link =
        transfer.node().empty() ? std::nullopt : OfLink(node.node(), std::string(transfer.node()));
    if (transfer.waits_for_grant()) {
      stuck.cause = cause::kGrantsExhausted;
      stuck.reason = GrantWords(node, transfer);
      if (link.has_value()) absl::StrAppend(&stuck.reason, "; ", link->second);
    } else if (transfer.route() == "read" || transfer.route() == "write") {
      stuck.cause = cause::kWaitingOnFile;
      stuck.reason = absl::StrCat("the store has not answered: ", Printable(transfer.with()));
    } else if (link.has_value()) {
      stuck.cause = link->first;
      stuck.reason = link->second;
    } else {
      stuck.cause = cause::kSlow;
      stuck.reason = transfer.node().empty()
                         ? "it is copied, or waits for its turn"
                         : absl::StrCat("the link to node ", transfer.node(),
                                        " does not stand still: it is moving, or the daemon there "
                                        "is busy");
    }
    if (transfer.bytes_posted() != 0 || transfer.bytes_done() != 0) {
      absl::StrAppend(&stuck.reason, "; ", SizeText(transfer.bytes_done()), " of ",
                      SizeText(transfer.bytes()), " are in place, ",
                      SizeText(transfer.bytes_posted() - transfer.bytes_done()), " on their way");
    }
    found_.push_back(std::move(stuck));
  }

  // Who has what may be on its way.
  static std::string GrantWords(const v1::NodeRecords& node, const v1::TransferRecord& waits) {
    std::map<std::string, std::pair<uint64_t, int>> held;  // by node: bytes, transfers
    for (const v1::TransferRecord& other : node.transfers()) {
      if (other.id() == waits.id() || other.bytes_posted() <= other.bytes_done()) continue;
      auto& [bytes, transfers] = held[other.node()];
      bytes += other.bytes_posted() - other.bytes_done();
      ++transfers;
    }
    uint64_t granted = 0, limit = 0;
    for (const v1::LinkRecord& link : node.links()) {
      granted = std::max(granted, link.bytes_granted());
      limit = std::max(limit, link.grant_limit());
    }
    std::string text = absl::StrCat("what may be on its way to node ", node.node(), " is granted (",
                                    SizeText(granted), " of ", SizeText(limit), ")");
    for (const auto& [name, what] : held) {
      absl::StrAppend(&text, "; ", what.second, what.second == 1 ? " transfer" : " transfers",
                      " with node ", name, what.second == 1 ? " holds " : " hold ",
                      SizeText(what.first), " of it");
    }
    return text;
  }

  // Links that stand still, with nothing above that says so.
  void AddLinks() {
    for (const v1::NodeRecords& node : records_.nodes()) {
      for (const v1::LinkRecord& link : node.links()) {
        if (!Stalls(link)) continue;
        const bool told = std::any_of(found_.begin(), found_.end(), [&](const Stuck& s) {
          return s.reason.find(absl::StrCat("from ", link.node())) != std::string::npos ||
                 s.reason.find(absl::StrCat("from ", node.node())) != std::string::npos;
        });
        if (told) continue;
        const auto why = OfLink(node.node(), link.node());
        Stuck stuck;
        stuck.cause = why.has_value() ? why->first : cause::kStuckLink;
        stuck.reason = why.has_value() ? why->second : "it does not move";
        stuck.what = absl::StrCat("the link from node ", node.node(), " to node ", link.node());
        stuck.node = node.node();
        stuck.waited_ns = static_cast<int64_t>(link.silent_ns());
        found_.push_back(std::move(stuck));
      }
    }
  }

  const v1::GetRecordsResponse& records_;
  const int64_t older_than_ns_;
  const std::vector<WorldCommunicator> communicators_;
  std::vector<Waiting> waiting_;
  std::vector<Stuck> found_;
};

}  // namespace

std::vector<Stuck> FindStuck(const v1::GetRecordsResponse& records, int64_t older_than_ns) {
  return Finder(records, older_than_ns).Run();
}

}  // namespace shunt::tools
