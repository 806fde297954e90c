#include "runtime/exchange/link_probe.h"

#include <algorithm>

#include "runtime/transport/wire/bytes.h"

namespace shunt::exchange {
namespace {

constexpr size_t kShortBytes = 8;
constexpr size_t kNumberBytes = 24;

void PutNumbers(const LinkNumbers& numbers, std::byte* out) {
  transport::wire::Put(out, numbers.latency_ns);
  transport::wire::Put(out + 8, numbers.message_ns);
  transport::wire::Put(out + 16, numbers.bytes_per_s);
}

LinkNumbers GetNumbers(const std::byte* in) {
  using transport::wire::Get;
  return {Get<uint64_t>(in), Get<uint64_t>(in + 8), Get<uint64_t>(in + 16)};
}

}  // namespace

LinkProbe::LinkProbe(bool asks, transport::PeerId peer, uint64_t communicator,
                     transport::Transport* transport, uint64_t token_base)
    : asks_(asks),
      peer_(peer),
      communicator_(communicator),
      transport_(transport),
      token_base_(token_base),
      out_(kBulkBytes),
      in_(kBulkBytes) {}

LinkProbe::Part LinkProbe::PartAt(int part) {
  if (part < kRounds) return {1, kShortBytes, true};
  if (part < kRounds + kBursts) return {kBurst, kShortBytes, true};
  if (part < kParts - 1) return {1, kBulkBytes, true};
  return {1, kNumberBytes, false};
}

void LinkProbe::Start(Moment now) { Begin(now); }

void LinkProbe::Begin(Moment now) {
  const Part part = PartAt(part_);
  began_ = now;
  answering_ = false;
  open_ = part.messages;
  for (int i = 0; i < part.messages; ++i) {
    const auto step = static_cast<uint32_t>(i);
    asks_ ? Send(part.bytes, step) : Receive(part.bytes, step);
  }
  if (!asks_ || !part.answered) return;
  ++open_;
  Receive(kShortBytes, static_cast<uint32_t>(part.messages));
}

void LinkProbe::OnCompletion(const transport::Completion& completion, Moment now) {
  if (done_) return;
  if (completion.code != absl::StatusCode::kOk) {
    numbers_ = {};
    done_ = true;
    return;
  }
  if (--open_ > 0) return;
  const Part part = PartAt(part_);
  if (!asks_ && part.answered && !answering_) {
    answering_ = true;
    open_ = 1;
    Send(kShortBytes, static_cast<uint32_t>(part.messages));
    return;
  }
  EndPart(now);
}

void LinkProbe::EndPart(Moment now) {
  const int64_t took_ns = std::max<int64_t>(1, now.now_ns - began_.now_ns);
  if (!asks_) {
    if (part_ == kParts - 1) numbers_ = GetNumbers(in_.data());
  } else if (part_ < kRounds) {
    // A round costs each side one message out and one in: what a message costs it where each goes
    // to another node. The rest is the way.
    const int64_t work_ns = now.busy_ns - began_.busy_ns;
    round_trip_ns_ = part_ == 0 ? took_ns : std::min(round_trip_ns_, took_ns);
    work_ns_ = part_ == 0 ? work_ns : std::min(work_ns_, work_ns);
    numbers_.latency_ns =
        static_cast<uint64_t>(std::max(round_trip_ns_ / 8, round_trip_ns_ / 2 - work_ns_));
  } else if (part_ < kRounds + kBursts) {
    const auto each_ns =
        static_cast<uint64_t>(std::max<int64_t>(kBurst, took_ns - round_trip_ns_) / kBurst);
    numbers_.message_ns =
        part_ == kRounds ? each_ns : std::min<uint64_t>(numbers_.message_ns, each_ns);
    if (part_ == kRounds + kBursts - 1) {
      numbers_.message_ns = std::max(numbers_.message_ns, static_cast<uint64_t>(work_ns_));
    }
  } else if (part_ < kParts - 1) {
    // A large message waits for its grant first.
    const double seconds = 1e-9 * static_cast<double>(std::max<int64_t>(
                                      took_ns / 16, took_ns - round_trip_ns_ - round_trip_ns_ / 2));
    numbers_.bytes_per_s =
        std::max(numbers_.bytes_per_s, static_cast<uint64_t>(kBulkBytes / seconds));
    if (part_ == kParts - 2) PutNumbers(numbers_, out_.data());
  }
  if (++part_ == kParts) {
    done_ = true;
  } else {
    Begin(now);
  }
}

transport::Message LinkProbe::Header(uint32_t step) const {
  transport::Message header;
  header.peer = peer_;
  header.tag.communicator = communicator_;
  header.tag.sequence = static_cast<uint64_t>(part_) + 1;
  header.tag.step = step;
  return header;
}

void LinkProbe::Send(size_t bytes, uint32_t step) {
  transport_->PostSend(Header(step), absl::MakeConstSpan(out_.data(), bytes), token_base_);
}

void LinkProbe::Receive(size_t bytes, uint32_t step) {
  transport_->PostRecv(Header(step), absl::MakeSpan(in_.data(), bytes), token_base_);
}

}  // namespace shunt::exchange
