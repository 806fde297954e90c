#include "daemon/gpu/gpu_engine.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::daemon {

absl::Status GpuEngine::CheckServes() const {
  if (!workers_->List().empty()) return absl::OkStatus();
  return absl::UnimplementedError("this daemon serves no GPU");
}

absl::StatusOr<GpuMemory> GpuEngine::Hold(uint64_t session, uint64_t region,
                                          const std::string& words) const {
  GpuMemory memory;
  auto host = regions_->Find(session, region);
  if (host.ok()) {
    memory.host = *std::move(host);
    return memory;
  }
  SHUNT_ASSIGN_OR_RETURN(memory.device, devices_->Use(session, region, words));
  return memory;
}

bool GpuEngine::Call::gated() const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const Rank& rank) { return rank.gate.memory >= 0; });
}

absl::StatusOr<std::shared_ptr<GpuWorker>> GpuEngine::WorkerFor(
    absl::Span<const GpuMemory> memory) const {
  for (const GpuMemory& one : memory) {
    if (one.on_gpu()) return one.device.region->worker;
  }
  auto workers = workers_->List();
  if (workers.empty()) return absl::UnavailableError("this daemon serves no GPU any more");
  return std::move(workers.front());
}

bool GpuEngine::Locate(GpuWorker& worker, absl::Span<const GpuMemory> memory,
                       Addresses* addresses) {
  addresses->incarnation = worker.incarnation();
  addresses->at.clear();
  const std::lock_guard lock(mutex_);
  for (const GpuMemory& one : memory) {
    const auto known = known_.find(Key(&worker, one.id()));
    if (known == known_.end() || known->second.incarnation != addresses->incarnation) return false;
    addresses->at.push_back(known->second.at);
  }
  return true;
}

void GpuEngine::Remember(const GpuWorker& worker, uint64_t incarnation, const GpuMemory& memory,
                         const HostAddress& at) {
  Known known{incarnation, at, {}};
  if (memory.on_gpu()) {
    known.region = memory.device.region;
  } else {
    known.region = memory.host;
  }
  const std::lock_guard lock(mutex_);
  // Numbers of regions are never used again: what is gone is only in the way.
  if (known_.size() >= sweep_at_) {
    absl::erase_if(known_, [](const auto& entry) { return entry.second.region.expired(); });
    sweep_at_ = std::max<size_t>(1024, 2 * known_.size());
  }
  known_[Key(&worker, memory.id())] = std::move(known);
}

void GpuEngine::Forget(const GpuWorker& worker, uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  absl::erase_if(known_, [&](const auto& entry) {
    return entry.first.first == &worker && entry.second.incarnation == incarnation;
  });
}

void GpuEngine::Import(std::shared_ptr<GpuWorker> worker, std::vector<GpuMemory> memory,
                       std::function<void(const absl::Status&)> done) {
  auto work = [this, worker = std::move(worker), memory = std::move(memory),
               done = std::move(done)]() mutable {
    // What the call holds is let go of before anybody can see its end.
    const auto finish = [&](const absl::Status& status) {
      memory.clear();
      done(status);
    };
    for (const GpuMemory& one : memory) {
      // Asked for first: an address of a later process is then not taken for one of this.
      const uint64_t incarnation = worker->incarnation();
      HostAddress at;
      absl::Status status;
      if (one.on_gpu()) {
        const absl::StatusOr<uint64_t> address = worker->AddressOf(one.device.region);
        status = address.status();
        if (address.ok()) at.device = *address;
      } else {
        const absl::StatusOr<HostAddress> address = worker->AddressOf(one.host);
        status = address.status();
        if (address.ok()) at = *address;
      }
      if (!status.ok()) {
        return finish(
            absl::Status(status.code(), absl::StrCat("region ", one.id(), ": ", status.message())));
      }
      if (worker->incarnation() == incarnation) Remember(*worker, incarnation, one, at);
    }
    finish(absl::OkStatus());
  };
  helpers_.Add(p2p::OneChunk(std::move(work)), p2p::Priority::kBulk, 1);
}

void GpuEngine::CommandEnded() {
  ended_.fetch_add(1, std::memory_order_seq_cst);
  if (!someone_waits_.load(std::memory_order_seq_cst)) return;
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
    someone_waits_.store(false, std::memory_order_seq_cst);
  }
  for (const auto& again : waiting) again();
}

absl::StatusOr<uint64_t> GpuEngine::Submit(GpuWorker& worker, uint64_t incarnation,
                                           absl::FunctionRef<void(gpu::Command&)> fill,
                                           GpuWorker::Ended ended,
                                           const std::function<void()>& again) {
  const uint64_t before = ended_.load(std::memory_order_seq_cst);
  absl::StatusOr<uint64_t> id = worker.Submit(
      incarnation, fill, [this, ended = std::move(ended)](const absl::Status& outcome) {
        ended(outcome);
        CommandEnded();
      });
  if (!absl::IsResourceExhausted(id.status())) return id;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(again);
    someone_waits_.store(true, std::memory_order_seq_cst);
    if (ended_.load(std::memory_order_seq_cst) == before) return id;
    // One has ended meanwhile, perhaps the last.
    waiting_.pop_back();
  }
  helpers_.Add(p2p::OneChunk(again), p2p::Priority::kLatency, 1);
  return id;
}

absl::Status GpuEngine::FillRuns(Call& call, const Addresses& addresses, uint32_t* runs) const {
  const uint64_t element = SizeOf(call.spec.dtype);
  const size_t world = call.ranks.size();
  *runs = 0;
  for (size_t from = 0; from < world; ++from) {
    for (size_t to = 0; to < world; ++to) {
      const board::VRow& sent = call.tables[from * world + to];
      uint64_t bytes = sent.send_count * element;
      if (bytes == 0) continue;
      const Side& in = call.ranks[from].in;
      const Side& out = call.ranks[to].out;
      const board::VRow& received = call.tables[to * world + from];
      uint64_t source = addresses.at[in.memory].device + in.offset + sent.send_displ * element;
      uint64_t destination =
          addresses.at[out.memory].device + out.offset + received.recv_displ * element;
      while (bytes > 0) {
        if (*runs == gpu::kRunsPerBatch) {
          return absl::UnimplementedError(absl::StrCat(
              "an all_to_all_v of more than ", gpu::kRunsPerBatch, " pieces of ",
              gpu::kRunBytesMax >> 10, " KiB on GPU memory; expected fewer, or several calls"));
        }
        const uint64_t piece = std::min<uint64_t>(bytes, gpu::kRunBytesMax);
        call.batch.runs()[(*runs)++] = {source, destination, piece};
        source += piece;
        destination += piece;
        bytes -= piece;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GpuEngine::Ticket> GpuEngine::Begin(const std::shared_ptr<Call>& call,
                                                   std::function<void()> again) {
  if (!call->failed.ok()) return call->failed;
  Ticket ticket;
  const bool on_gpu = std::any_of(call->memory.begin(), call->memory.end(),
                                  [](const GpuMemory& memory) { return memory.on_gpu(); });
  if (!on_gpu && call->home != nullptr) {
    ticket.worker = call->home;
  } else {
    SHUNT_ASSIGN_OR_RETURN(ticket.worker, WorkerFor(call->memory));
  }
  GpuWorker& worker = *ticket.worker;
  const auto import = [this, worker = ticket.worker, call, again] {
    Import(worker, {call->memory.begin(), call->memory.end()},
           [call, again](const absl::Status& status) {
             call->failed = status;
             again();
           });
    return Ticket();
  };
  Addresses addresses;
  if (!Locate(worker, call->memory, &addresses)) return import();
  uint32_t runs = 0;
  const bool as_runs = call->spec.kind == OpKind::kAllToAllV;
  if (as_runs) {
    if (!call->batch || call->batch.incarnation() != addresses.incarnation) {
      // By way of an import, which tells a worker that is served no more from a busy one.
      call->batch = worker.TakeBatch([import] { import(); });
      if (!call->batch) return Ticket();
    }
    if (absl::Status status = FillRuns(*call, addresses, &runs); !status.ok()) {
      call->batch = RunBatch();
      return status;
    }
  }
  const auto fill = [&](gpu::Command& command) {
    command.lane = call->lane;
    command.flags = call->repeats ? uint32_t{gpu::kRepeats} : 0;
    if (call->gated()) {
      command.gates = static_cast<uint32_t>(call->ranks.size());
      for (size_t i = 0; i < call->ranks.size(); ++i) {
        const Gate& gate = call->ranks[i].gate;
        if (gate.memory < 0) continue;
        const HostAddress& at = addresses.at[gate.memory];
        command.gate[i] = {at.cpu + gate.offset, at.device + gate.offset, gate.generation, 0};
      }
    }
    if (as_runs) {
      command.kind = gpu::CommandKind::kMove;
      command.batch = call->batch.index();
      command.runs = runs;
      for (uint32_t i = 0; i < runs; ++i) command.bytes += call->batch.runs()[i].bytes;
      return;
    }
    command.kind = gpu::CommandKind::kCollective;
    command.op_kind = static_cast<uint8_t>(call->spec.kind);
    command.dtype = static_cast<uint8_t>(call->spec.dtype);
    command.redop = static_cast<uint8_t>(call->spec.redop);
    command.root = call->spec.root;
    command.count = call->spec.count;
    command.places = static_cast<uint32_t>(call->ranks.size());
    for (size_t i = 0; i < call->ranks.size(); ++i) {
      const Rank& rank = call->ranks[i];
      gpu::Place& place = command.place[i];
      if (rank.in.memory >= 0) place.in = addresses.at[rank.in.memory].device + rank.in.offset;
      if (rank.out.memory >= 0) place.out = addresses.at[rank.out.memory].device + rank.out.offset;
      std::memcpy(place.scalar, rank.scalar.bytes, sizeof(place.scalar));
    }
  };
  const absl::StatusOr<uint64_t> id = Submit(
      worker, addresses.incarnation, fill,
      [call](const absl::Status& outcome) {
        call->batch = RunBatch();
        const GpuWorker::Ended ended = std::move(call->ended);
        ended(outcome);
      },
      again);
  if (id.ok()) {
    ticket.id = *id;
    return ticket;
  }
  if (absl::IsResourceExhausted(id.status())) return Ticket();
  if (!absl::IsUnavailable(id.status())) return id.status();
  // Its process is gone. Whoever imports waits for the next one, or hears that there is none.
  Forget(worker, addresses.incarnation);
  return import();
}

}  // namespace shunt::daemon
