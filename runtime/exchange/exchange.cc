#include "runtime/exchange/exchange.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"

namespace shunt::exchange {
namespace {

// Receives are granted this many rounds ahead, so that no sender waits for a grant.
constexpr uint32_t kRoundsAhead = 2;
constexpr int kStepBits = 24;

bool Receives(const NetStep& step) {
  return step.kind == NetStep::Kind::kRecv || step.kind == NetStep::Kind::kRecvReduce;
}

}  // namespace

Exchange::Exchange(Setup setup, transport::Transport* transport, BufferPool* pool,
                   uint64_t token_base)
    : setup_(std::move(setup)),
      transport_(transport),
      pool_(pool),
      token_base_(token_base),
      element_bytes_(SizeOf(setup_.shape.call.dtype)),
      reduces_(Reduces(setup_.shape.call.kind)),
      overlaps_(OutputsOverlapInputs()),
      program_(*setup_.program),
      plan_(program_.steps) {
  SHUNT_CHECK(setup_.window >= 1 && setup_.window <= 255);
}

Exchange::~Exchange() {
  for (Slice& slice : slices_) {
    for (Step& step : slice.steps) Give(step.buffer);
    for (auto& [block, value] : slice.values) Give(value.scratch);
  }
}

std::shared_ptr<const Exchange::Program> Exchange::ProgramOf(const NetSpec& net, int node) {
  auto program = std::make_shared<Program>();
  const uint32_t count = NetStepCount(net, node);
  SHUNT_CHECK(count < (1u << kStepBits));
  absl::flat_hash_map<int32_t, uint32_t> sent, received;
  program->steps.reserve(count);
  program->ordinals.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    program->steps.push_back(NetStepAt(net, node, i));
    const NetStep& step = program->steps.back();
    program->combines |= step.kind == NetStep::Kind::kCombine;
    const size_t rounds = std::max<size_t>(program->reach.size(), step.round + 1);
    program->steps_of_round.resize(rounds);
    program->reach.resize(rounds);
    ++program->steps_of_round[step.round];
    program->reach[step.round] = i + 1;
    program->ordinals.push_back(Receives(step) ? received[step.peer]++ : sent[step.peer]++);
    if (!Receives(step)) continue;
    ForEachBlock(net, node, step, [&](uint32_t block) { program->last_recv[block] = i; });
  }
  for (size_t round = 1; round < program->reach.size(); ++round) {
    program->reach[round] = std::max(program->reach[round], program->reach[round - 1]);
  }
  return program;
}

void Exchange::Start() {
  const uint32_t window = std::min(setup_.window, setup_.shape.slices);
  slices_.resize(window);
  for (uint32_t slot = 0; slot < window; ++slot) {
    // With nothing to wait for, the first one takes all.
    if (next_slice_ == setup_.shape.slices) break;
    BeginSlice(slices_[slot], next_slice_++);
    if (TakesTurns()) {
      turns_.push_back(static_cast<uint8_t>(slot));
    } else {
      Advance(slices_[slot]);
    }
  }
  if (TakesTurns()) AdvanceAll();
}

void Exchange::BeginSlice(Slice& slice, uint32_t index) {
  slice.index = index;
  slice.first_open = 0;
  slice.steps.assign(plan_.size(), Step());
  slice.open_of_round = program_.steps_of_round;
  slice.earliest = 0;
  slice.values.clear();
  PlaceOwn(slice);
}

bool Exchange::Ends(Slice& slice) {
  while (status_.ok() && Look(slice)) {
  }
  return status_.ok() && slice.first_open == plan_.size();
}

bool Exchange::Renew(Slice& slice) {
  for (auto& [block, value] : slice.values) Give(value.scratch);
  slice.values.clear();
  ++slices_ended_;
  if (next_slice_ < setup_.shape.slices) {
    BeginSlice(slice, next_slice_++);
    return true;
  }
  // Steps of a plan that has ended are never looked at again.
  slice.steps.clear();
  done_ = slices_ended_ == setup_.shape.slices;
  return false;
}

void Exchange::Advance(Slice& slice) {
  while (Ends(slice)) {
    if (!Renew(slice)) return;
  }
}

// One that begins is the last to have its turn, also if it takes the place of the first.
void Exchange::AdvanceAll() {
  for (auto turn = turns_.begin(); turn != turns_.end();) {
    Slice& slice = slices_[*turn];
    if (!Ends(slice)) {
      ++turn;
    } else if (Renew(slice)) {
      std::rotate(turn, turn + 1, turns_.end());
    } else {
      turn = turns_.erase(turn);
    }
  }
}

void Exchange::End(Slice& slice, Step& step, const NetStep& of) {
  step.state = Step::State::kDone;
  --slice.open_of_round[of.round];
}

bool Exchange::Look(Slice& slice) {
  const NetSpec& net = setup_.shape.net;
  reading_.clear();
  writing_.clear();
  bool ended = false;
  while (slice.first_open < plan_.size() &&
         slice.steps[slice.first_open].state == Step::State::kDone) {
    ++slice.first_open;
  }
  // No step waits for one of a later round, so the earliest open round always goes on.
  const auto rounds = static_cast<uint32_t>(program_.reach.size());
  while (slice.earliest < rounds && slice.open_of_round[slice.earliest] == 0) ++slice.earliest;
  if (slice.earliest == rounds) return false;
  const uint32_t latest = std::min(slice.earliest + kRoundsAhead, rounds - 1);
  for (uint32_t i = slice.first_open; i < program_.reach[latest] && status_.ok(); ++i) {
    const NetStep& step = plan_[i];
    Step& state = slice.steps[i];
    if (state.state == Step::State::kDone) continue;
    const bool receives = Receives(step);
    // A combination writes outputs, which may be the inputs that are being sent.
    const bool alone = step.kind != NetStep::Kind::kSend;
    bool ready = true;
    ForEachBlock(net, setup_.node, step, [&](uint32_t block) {
      ready = ready && !writing_.contains(block) && (!alone || !reading_.contains(block));
    });
    if (state.state == Step::State::kWaiting && step.round <= latest) {
      if (receives) {
        PostRecv(slice, i, ready);
      } else if (ready && step.kind == NetStep::Kind::kSend) {
        if (sends_in_flight_ < setup_.sends_max) PostSend(slice, i);
      } else if (ready) {
        ApplyCombine(slice, i);
        ended = true;
        continue;
      }
    } else if (state.state == Step::State::kArrived && ready) {
      Apply(slice, i);
      ended = true;
      continue;
    }
    ForEachBlock(net, setup_.node, step,
                 [&](uint32_t block) { (receives ? writing_ : reading_).insert(block); });
  }
  return ended;
}

// ---- Sending

void Exchange::PostSend(Slice& slice, uint32_t step) {
  std::vector<absl::Span<const std::byte>> pieces;
  ForEachBlock(setup_.shape.net, setup_.node, plan_[step],
               [&](uint32_t block) { Pieces(slice, block, &pieces); });
  absl::Span<const std::byte> message;
  Step& state = slice.steps[step];
  if (pieces.size() == 1) {
    message = pieces.front();
  } else if (!pieces.empty()) {
    size_t bytes = 0;
    for (const auto& piece : pieces) bytes += piece.size();
    state.buffer = Take(bytes);
    std::byte* at = state.buffer.data;
    for (const auto& piece : pieces) {
      SHUNT_CHECK(at != nullptr);  // no piece is empty
      std::memcpy(at, piece.data(), piece.size());
      at += piece.size();
    }
    message = absl::MakeConstSpan(state.buffer.data, bytes);
  }
  state.state = Step::State::kPosted;
  ++in_flight_;
  ++sends_in_flight_;
  transport_->PostSend(Header(slice, step), message, Token(slice, step));
}

// ---- Receiving

void Exchange::PostRecv(Slice& slice, uint32_t step, bool ready) {
  Step& state = slice.steps[step];
  absl::Span<std::byte> message;
  state.direct = (ready || !overlaps_) && plan_[step].kind == NetStep::Kind::kRecv &&
                 OneOutputPiece(slice, step, &message);
  wrote_outputs_ |= state.direct;
  if (!state.direct) {
    state.buffer = Take(MessageBytes(slice, step));
    message = absl::MakeSpan(state.buffer.data, state.buffer.bytes);
  }
  state.state = Step::State::kPosted;
  ++in_flight_;
  transport_->PostRecv(Header(slice, step), message, Token(slice, step));
}

void Exchange::Apply(Slice& slice, uint32_t step) {
  if (plan_[step].kind == NetStep::Kind::kRecvReduce) {
    ApplyReduce(slice, step);
  } else {
    ApplyCopy(slice, step);
  }
  Give(slice.steps[step].buffer);
  End(slice, slice.steps[step], plan_[step]);
}

void Exchange::ApplyCopy(Slice& slice, uint32_t step) {
  Step& state = slice.steps[step];
  const CollectiveSpec& call = setup_.shape.call;
  // Whoever combined an all_reduce's block has divided it, for its own outputs; what is only handed
  // on to whom it belongs is divided there.
  const bool divides = reduces_ && call.redop == Redop::kAvg && call.kind != OpKind::kAllReduce;
  const std::byte* at = state.buffer.data;
  absl::InlinedVector<std::byte*, 8> outs;
  ForEachBlock(setup_.shape.net, setup_.node, plan_[step], [&](uint32_t block) {
    const size_t bytes = BytesOf(block, slice.index);
    if (bytes == 0) return;
    Value& value = slice.values[block];
    bool here = false;
    if (Final(step, block)) {
      ForEachExtent(setup_.shape, setup_.pairs, block, slice.index, [&](const Extent& extent) {
        Outputs(extent, &outs);
        if (outs.empty()) return;
        here = true;
        wrote_outputs_ = true;
        const size_t extent_bytes = extent.count * element_bytes_;
        // Received directly: the first output has it.
        const std::byte* from = state.direct ? outs.front() : at;
        if (divides) {
          ReduceInto({call.dtype, Redop::kAvg, setup_.shape.map->world(), StorePolicy::kTemporal},
                     absl::MakeConstSpan(&from, 1), {}, outs, extent.count);
        } else {
          CopyInto(from, outs, extent_bytes, StorePolicy::kTemporal);
        }
        at += state.direct ? 0 : extent_bytes;
      });
    }
    Give(value.scratch);
    if (here) {
      value.where = Where::kOutputs;
      return;
    }
    value.where = Where::kScratch;
    value.scratch = Take(bytes);
    std::memcpy(value.scratch.data, at, bytes);
    at += bytes;
  });
}

void Exchange::ApplyReduce(Slice& slice, uint32_t step) {
  const CollectiveSpec& call = setup_.shape.call;
  const bool incoming_first = plan_[step].peer_first;
  const Redop inner =
      call.redop == Redop::kAvg || call.redop == Redop::kPremulSum ? Redop::kSum : call.redop;
  const std::byte* at = slice.steps[step].buffer.data;
  absl::InlinedVector<const std::byte*, 8> srcs;
  absl::InlinedVector<std::byte*, 8> outs;
  ForEachBlock(setup_.shape.net, setup_.node, plan_[step], [&](uint32_t block) {
    const size_t bytes = BytesOf(block, slice.index);
    if (bytes == 0) return;
    const auto [it, fresh] = slice.values.try_emplace(block);
    Value& value = it->second;
    if (fresh && !Holds(block)) {
      // An aggregator's first contribution.
      value.where = Where::kScratch;
      value.scratch = Take(bytes);
      std::memcpy(value.scratch.data, at, bytes);
      at += bytes;
      return;
    }
    if (fresh && call.redop == Redop::kPremulSum) Materialise(slice, block, value);
    const bool from_inputs = value.where == Where::kInputs;
    const bool final = Final(step, block);
    const bool divides = final && call.redop == Redop::kAvg;
    Buffer result = value.scratch;
    bool here = false;
    size_t offset = 0;
    ForEachExtent(setup_.shape, setup_.pairs, block, slice.index, [&](const Extent& extent) {
      srcs.clear();
      if (incoming_first) srcs.push_back(at);
      if (from_inputs) {
        for (size_t i = 0; i < setup_.local.size(); ++i) {
          srcs.push_back(Input(static_cast<int>(i), extent));
        }
      } else {
        srcs.push_back(value.scratch.data + offset);
      }
      if (!incoming_first) srcs.push_back(at);
      outs.clear();
      if (final) Outputs(extent, &outs);
      if (outs.empty()) {
        if (result.bytes == 0) result = Take(bytes);
        outs.push_back(result.data + offset);
      } else {
        here = true;
        wrote_outputs_ = true;
      }
      // An aggregator hands an all_reduce's result out as it is.
      const bool average =
          divides && (here || (setup_.local.empty() && call.kind == OpKind::kAllReduce));
      ReduceInto({call.dtype, average ? Redop::kAvg : inner, setup_.shape.map->world(),
                  StorePolicy::kTemporal},
                 srcs, {}, outs, extent.count);
      at += extent.count * element_bytes_;
      offset += extent.count * element_bytes_;
    });
    if (here) {
      Give(result);
      value.scratch = Buffer();
      value.where = Where::kOutputs;
    } else {
      value.scratch = result;
      value.where = Where::kScratch;
    }
  });
}

void Exchange::ApplyCombine(Slice& slice, uint32_t step) {
  const CollectiveSpec& call = setup_.shape.call;
  absl::InlinedVector<const std::byte*, 8> srcs;
  absl::InlinedVector<std::byte*, 8> outs;
  const auto own = static_cast<uint32_t>(setup_.node);
  const bool premul = call.redop == Redop::kPremulSum;
  if (Value& value = slice.values[own]; value.where == Where::kInputs) {
    Materialise(slice, own, value);
  }
  ForEachExtent(setup_.shape, setup_.pairs, own, slice.index, [&](const Extent& extent) {
    srcs.clear();
    ForEachBlock(setup_.shape.net, setup_.node, plan_[step],
                 [&](uint32_t block) { srcs.push_back(slice.values.at(block).scratch.data); });
    Outputs(extent, &outs);
    if (outs.empty()) return;
    wrote_outputs_ = true;
    ReduceInto({call.dtype, premul ? Redop::kSum : call.redop, setup_.shape.map->world(),
                StorePolicy::kTemporal},
               srcs, {}, outs, extent.count);
  });
  End(slice, slice.steps[step], plan_[step]);
}

// ---- Completions

uint64_t Exchange::Token(const Slice& slice, uint32_t step) const {
  const auto slot = static_cast<uint64_t>(&slice - slices_.data());
  return token_base_ | slot << kStepBits | step;
}

transport::Message Exchange::Header(const Slice& slice, uint32_t step) const {
  transport::Message message = setup_.header;
  message.peer = setup_.peers[plan_[step].peer];
  message.tag.step = program_.ordinals[step];
  message.tag.slice = slice.index;
  return message;
}

void Exchange::OnCompletion(const transport::Completion& completion) {
  const auto low = static_cast<uint32_t>(completion.token);
  Slice& slice = slices_[low >> kStepBits];
  const uint32_t index = low & ((1u << kStepBits) - 1);
  --in_flight_;
  if (completion.event == transport::Event::kSent) --sends_in_flight_;
  if (completion.code != absl::StatusCode::kOk) {
    if (status_.ok()) failed_peer_ = plan_[index].peer;
    Fail(absl::Status(completion.code,
                      absl::StrCat("node ", plan_[index].peer, " takes no part in it any more")));
    return;
  }
  if (!status_.ok()) return;
  Step& step = slice.steps[index];
  if (completion.event == transport::Event::kSent) {
    Give(step.buffer);
    End(slice, step, plan_[index]);
  } else {
    step.state = Step::State::kArrived;
  }
  if (TakesTurns()) return AdvanceAll();
  Advance(slice);
}

void Exchange::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  done_ = true;
}

}  // namespace shunt::exchange
