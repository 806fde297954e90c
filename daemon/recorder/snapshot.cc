// A node's records, as a message: what is kept, and what is under way.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "daemon/node_engine.h"
#include "daemon/recorder/process_state.h"
#include "daemon/recorder/recorder.h"
#include "daemon/services.h"
#include "runtime/board/post.h"
#include "runtime/board/records.h"
#include "runtime/core/clock.h"
#include "runtime/core/utf8.h"
#include "runtime/exchange/choice.h"

namespace shunt::daemon {
namespace {

// Calls in one answer; some 100 bytes each. Every rank has its share.
constexpr size_t kCallsMax = 200'000;
constexpr size_t kTransfersMax = 100'000;
constexpr size_t kTextBytesMax = 1024;

std::string Text(std::string_view text) { return Printable(text.substr(0, kTextBytesMax)); }

int64_t RealtimeNs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

const char* StateName(recorder::CallState state) {
  return state == recorder::CallState::kOpen        ? "open"
         : state == recorder::CallState::kSucceeded ? "ok"
                                                    : "failed";
}

const char* RouteOf(uint64_t words, bool remote) {
  if (remote || board::ServedIn(words)) return "daemon";
  const board::Place in = board::InPlaceOf(words), out = board::OutPlaceOf(words);
  if (in == board::Place::kStaged || out == board::Place::kStaged) return "staged";
  if (in == board::Place::kRegion || out == board::Place::kRegion) return "pass";
  return "board";
}

// False if its words make no sense.
bool AddCall(const recorder::Call& call, int world, bool spans_nodes, v1::CallRecord* out) {
  const uint64_t kind = call.words & 0xff, dtype = call.words >> 8 & 0xff;
  const uint64_t redop = call.words >> 16 & 0xff;
  if (kind >= kOpKindCount || dtype >= kDataTypeCount || redop >= kRedopCount) return false;
  CollectiveSpec spec{};
  spec.kind = static_cast<OpKind>(kind);
  spec.dtype = static_cast<DataType>(dtype);
  spec.redop = static_cast<Redop>(redop);
  spec.count = call.count;
  const bool pair = spec.kind == OpKind::kSend || spec.kind == OpKind::kRecv;
  out->set_number(call.number);
  out->set_sequence(call.sequence);
  out->set_kind(std::string(Name(spec.kind)));
  if (spec.kind != OpKind::kBarrier) out->set_dtype(std::string(Name(spec.dtype)));
  if (Reduces(spec.kind)) out->set_redop(std::string(Name(spec.redop)));
  out->set_count(call.count);
  out->set_bytes(pair ? call.count * SizeOf(spec.dtype) : exchange::BytesOf(spec, world));
  out->set_root(pair || HasRoot(spec.kind) ? static_cast<int16_t>(call.words >> 32) : -1);
  out->set_posted_ns(call.posted_ns);
  out->set_moved_ns(call.moved_ns);
  out->set_ended_ns(call.ended_ns);
  out->set_state(StateName(call.state));
  out->set_waits(board::WaitsIn(call.words));
  out->set_route(RouteOf(call.words, spans_nodes && !pair));
  return true;
}

// The last `most` of them; `open_only`: of these, those that are open, and the last of all.
void AddCalls(const std::vector<recorder::Call>& calls, int world, bool spans_nodes, bool open_only,
              size_t most, v1::RankRecord* out) {
  const size_t first = calls.size() > most ? calls.size() - most : 0;
  for (size_t i = first; i < calls.size(); ++i) {
    if (open_only && calls[i].state != recorder::CallState::kOpen && i + 1 != calls.size()) {
      continue;
    }
    v1::CallRecord record;
    if (AddCall(calls[i], world, spans_nodes, &record)) *out->add_calls() = std::move(record);
  }
}

void AddExchanges(const std::vector<std::shared_ptr<const ExchangeNote>>& notes, bool open_only,
                  v1::CommunicatorRecord* out) {
  for (const auto& note : notes) {
    const int64_t ended = note->ended_ns.load(std::memory_order_acquire);
    if (open_only && ended != 0) continue;
    v1::ExchangeRecord* const record = out->add_exchanges();
    record->set_source(note->source);
    record->set_destination(note->destination);
    record->set_sequence(note->sequence);
    record->set_kind(note->kind);
    record->set_bytes(note->bytes);
    record->set_arrived_ns(note->arrived_ns);
    record->set_began_ns(note->began_ns.load(std::memory_order_acquire));
    record->set_algorithm(note->algorithm.load(std::memory_order_relaxed));
    record->set_slices(note->slices.load(std::memory_order_relaxed));
    record->set_ended_ns(ended);
    record->set_state(ended == 0                                     ? "open"
                      : note->failed.load(std::memory_order_relaxed) ? "failed"
                                                                     : "ok");
  }
}

void AddCommunicator(const Communicator& c, const Recorder& recorder, bool open_only, size_t most,
                     int64_t now, v1::CommunicatorRecord* out) {
  const board::Board& board = c.board();
  const absl::Status failure = c.FailureStatus();
  out->set_wire_id(c.wire_id());
  out->set_communicator_id(c.id());
  out->set_epoch(c.epoch());
  out->set_name(c.key().name);
  out->set_job(c.key().job);
  out->set_uid(c.key().uid);
  out->set_world_size(c.world());
  out->set_state(failure.ok() ? "ready" : "failed");
  out->set_failure(Text({failure.message().data(), failure.message().size()}));
  for (std::string& node : c.NodeNames()) out->add_nodes(std::move(node));
  const std::vector<Member> members = c.members();
  for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
    v1::RankRecord* const record = out->add_ranks();
    record->set_rank(c.numbers()[rank]);
    record->set_pid(members[rank].pid);
    record->set_session_id(members[rank].session_id);
    record->set_session(Text(members[rank].name));
    record->set_gone(members[rank].gone);
    record->set_collectives(c.Posted(rank));
    record->set_last_call(Text(c.LastCall(rank)));
    AddCalls(board::CallsOf(board, rank, now), c.world(), c.spans_nodes(), open_only, most, record);
  }
  for (const board::OpenOperation& open : board::OpenOperations(board, now)) {
    v1::OpenOperationRecord* const record = out->add_open();
    record->set_source(open.source);
    record->set_destination(open.destination);
    record->set_sequence(open.sequence);
    record->set_decided(open.decided);
    for (const int rank : open.posted) record->add_posted(c.numbers()[rank]);
    for (const int rank : open.missing) record->add_missing(c.numbers()[rank]);
    for (const int rank : open.working) record->add_working(c.numbers()[rank]);
  }
  AddExchanges(recorder.ExchangesOf(c.id()), open_only, out);
}

void AddPast(const PastCommunicator& past, size_t most, v1::CommunicatorRecord* out) {
  out->set_wire_id(past.wire_id);
  out->set_communicator_id(past.id);
  out->set_epoch(past.epoch);
  out->set_name(past.name);
  out->set_job(past.job);
  out->set_uid(past.uid);
  out->set_world_size(past.world);
  out->set_state("closed");
  out->set_failure(Text(past.failure));
  for (const std::string& node : past.nodes) out->add_nodes(node);
  for (const PastCommunicator::Rank& rank : past.ranks) {
    v1::RankRecord* const record = out->add_ranks();
    record->set_rank(rank.number);
    record->set_pid(rank.pid);
    record->set_session_id(rank.session);
    record->set_session(Text(rank.name));
    record->set_gone(true);
    record->set_collectives(rank.collectives);
    record->set_last_call(Text(rank.last_call));
    AddCalls(rank.calls, past.world, past.wire_id != 0, false, most, record);
  }
  AddExchanges(past.exchanges, false, out);
}

void AddJoining(const CommunicatorView& view, v1::CommunicatorRecord* out) {
  out->set_communicator_id(view.id);
  out->set_epoch(view.epoch);
  out->set_name(view.key.name);
  out->set_job(view.key.job);
  out->set_uid(view.key.uid);
  out->set_world_size(view.world);
  out->set_state("joining");
  out->set_waits_since_ns(view.waits_since_ns);
  for (const CommunicatorView::Rank& rank : view.ranks) {
    v1::RankRecord* const record = out->add_ranks();
    record->set_rank(rank.rank);
    record->set_pid(rank.pid);
    record->set_session_id(rank.session_id);
  }
}

void AddTransfer(const TransferNote& note, v1::TransferRecord* out) {
  out->set_id(note.id);
  out->set_session_id(note.session);
  out->set_pid(note.pid);
  out->set_uid(note.uid);
  out->set_route(note.route);
  out->set_with(Text(note.with));
  out->set_node(note.node);
  out->set_bytes(note.bytes);
  out->set_posted_ns(note.posted_ns);
  out->set_began_ns(note.began_ns);
  out->set_ended_ns(note.ended_ns);
  out->set_state(note.ended_ns == 0 ? "open" : note.outcome.ok() ? "ok" : "failed");
  out->set_error(Text({note.outcome.message().data(), note.outcome.message().size()}));
}

// What is known on the engine's thread alone.
void AddEngine(const NodeEngine::EngineView& view,
               const absl::flat_hash_map<uint64_t, int>& transfer_of_flow,
               v1::NodeRecords* records) {
  for (const auto& link : view.links) {
    v1::LinkRecord* const out = records->add_links();
    out->set_node(link.node.name);
    out->set_state(link.up ? "up" : link.gone.empty() ? "connecting" : "lost");
    out->set_why(Text(link.gone));
    if (!link.up) continue;
    out->set_bytes_unsent(link.state.unsent_bytes);
    out->set_bytes_unacknowledged(link.state.unacknowledged_bytes);
    out->set_silent_ns(
        static_cast<uint64_t>(std::max<int64_t>(0, view.now_ns - link.state.came_ns)));
    out->set_retransmits(link.state.retransmits);
    out->set_bytes_granted(view.granted_bytes);
    out->set_grant_limit(view.grant_limit);
  }
  std::sort(records->mutable_links()->begin(), records->mutable_links()->end(),
            [](const auto& a, const auto& b) { return a.node() < b.node(); });
  for (const pull::PullEngine::FlowProgress& flow : view.flows) {
    const auto at = transfer_of_flow.find(flow.id);
    if (at == transfer_of_flow.end()) continue;
    v1::TransferRecord* const out = records->mutable_transfers(at->second);
    out->set_bytes_posted(flow.posted_bytes);
    out->set_bytes_done(flow.done_bytes);
    out->set_waits_for_grant(flow.waits);
  }
}

}  // namespace

Services::Viewer Services::ViewerOf(const Peer& peer) {
  return {peer.uid, peer.uid == 0 || peer.uid == ::geteuid()};
}

void Services::CollectRecords(const Viewer& viewer, bool open_only,
                              std::function<void(v1::NodeRecords)> done) const {
  const auto sees = [&viewer](uint32_t uid) { return viewer.all || viewer.uid == uid; };
  const Recorder& recorder = *context_.recorder;
  v1::NodeRecords records;
  records.set_node(context_.operations->node);
  records.set_calls_kept(recorder::RingSize(recorder.calls()));

  std::map<int32_t, uint32_t> processes;
  for (const SessionPtr& session : context_.sessions->List()) {
    if (sees(session->peer.uid)) processes.emplace(session->peer.pid, session->peer.uid);
  }
  for (const auto& [pid, uid] : processes) {
    ProcessState state = LookAtProcess(pid);
    v1::ProcessRecord* const out = records.add_processes();
    out->set_pid(pid);
    out->set_uid(uid);
    out->set_state(std::move(state.state));
    out->set_file(std::move(state.file));
  }

  std::vector<std::shared_ptr<Communicator>> communicators;
  size_t ranks = 1;
  for (const std::shared_ptr<Communicator>& c : context_.communicators->List()) {
    if (!sees(c->key().uid)) continue;
    ranks += c->numbers().size();
    communicators.push_back(c);
  }
  std::sort(communicators.begin(), communicators.end(),
            [](const auto& a, const auto& b) { return a->id() < b->id(); });
  std::vector<std::shared_ptr<const PastCommunicator>> past;
  if (!open_only) past = recorder.Past();
  std::erase_if(past, [&](const auto& p) { return !sees(p->uid); });
  for (const auto& p : past) ranks += p->ranks.size();
  const size_t most = std::max<size_t>(1, kCallsMax / ranks);
  records.set_cut(most < records.calls_kept());
  for (const auto& p : past) AddPast(*p, most, records.add_communicators());
  const int64_t now = NowNs();
  for (const std::shared_ptr<Communicator>& c : communicators) {
    AddCommunicator(*c, recorder, open_only, most, now, records.add_communicators());
  }
  for (const CommunicatorView& view : context_.communicators->View()) {
    if (view.state == "joining" && sees(view.key.uid)) {
      AddJoining(view, records.add_communicators());
    }
  }

  if (!open_only) {
    for (const TransferNote& note : recorder.Transfers()) {
      if (sees(note.uid)) AddTransfer(note, records.add_transfers());
    }
  }
  absl::flat_hash_map<uint64_t, int> transfer_of_flow;
  for (const std::shared_ptr<const Transfer>& transfer : context_.transfers->Running()) {
    const Transfer::Setup& setup = transfer->setup();
    if (!sees(setup.session->peer.uid)) continue;
    if (records.transfers_size() >= static_cast<int>(kTransfersMax)) {
      records.set_cut(true);
      break;
    }
    if (setup.flow != 0) transfer_of_flow[setup.flow] = records.transfers_size();
    AddTransfer({setup.id, setup.session->id, setup.session->peer.pid, setup.session->peer.uid,
                 RouteName(setup.route), setup.with, setup.node, setup.bytes, transfer->posted_ns(),
                 transfer->began_ns(), 0, absl::OkStatus()},
                records.add_transfers());
  }
  const auto stamp = [](v1::NodeRecords* r) {
    r->set_now_ns(NowNs());
    r->set_realtime_ns(RealtimeNs());
  };
  if (context_.operations->engine == nullptr) {
    stamp(&records);
    return done(std::move(records));
  }
  auto shared = std::make_shared<v1::NodeRecords>(std::move(records));
  context_.operations->engine->Look([shared, transfer_of_flow = std::move(transfer_of_flow), stamp,
                                     all = viewer.all,
                                     done = std::move(done)](const NodeEngine::EngineView& view) {
    AddEngine(view, transfer_of_flow, shared.get());
    stamp(shared.get());
    done(std::move(*shared));
  });
}

}  // namespace shunt::daemon
