#include "runtime/exchange/notes.h"

#include <algorithm>

#include "runtime/core/utf8.h"

namespace shunt::exchange {
namespace {

// The first byte. Then the numbers, little-endian, and the words up to the end.
enum class Kind : uint8_t {
  kFailed = 1,
  kCalled = 2,
  kLeft = 3,
  kPropose = 4,
  kAgree = 5,
  kDecide = 6,
  kPresence = 7,
  kAdd = 8,
  kLoss = 9,
};

struct Writer {
  std::string bytes;
  const size_t bytes_max;

  template <typename T>
  void Number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void Words(std::string_view words) { bytes.append(words, 0, bytes_max - bytes.size()); }

  void operator()(const FailedNote& note) {
    Number(static_cast<uint8_t>(Kind::kFailed));
    Number(note.reason);
    Words(note.words);
  }
  void operator()(const CalledNote& note) {
    Number(static_cast<uint8_t>(Kind::kCalled));
    Number(note.channel);
    Number(note.sequence);
    Words(note.words);
  }
  void operator()(const LeftNote& note) {
    Number(static_cast<uint8_t>(Kind::kLeft));
    Number(note.rank);
    Number(note.collectives);
    Words(note.words);
  }
  void operator()(const ProposeNote& note) {
    Number(static_cast<uint8_t>(Kind::kPropose));
    Number(note.version);
    Number(note.from);
    Number(note.numbers.latency_ns);
    Number(note.numbers.message_ns);
    Number(note.numbers.bytes_per_s);
  }
  void operator()(const AgreeNote& note) {
    Number(static_cast<uint8_t>(Kind::kAgree));
    Number(note.version);
    Number(static_cast<uint8_t>(note.agrees));
  }
  void operator()(const DecideNote& note) {
    Number(static_cast<uint8_t>(Kind::kDecide));
    Number(note.version);
    Number(static_cast<uint8_t>(note.yes));
  }
  void operator()(const PresenceNote& note) {
    Number(static_cast<uint8_t>(Kind::kPresence));
    Number(static_cast<uint8_t>(note.open));
  }
  void operator()(const AddNote& note) {
    Number(static_cast<uint8_t>(Kind::kAdd));
    Number(note.sequence);
    Number(note.signature);
    Number(note.dtype);
    Number(note.redop);
    Number(note.count);
    Number(note.aggregators);
    Number(note.index);
    Number(note.slices);
  }
  void operator()(const LossNote& note) {
    Number(static_cast<uint8_t>(Kind::kLoss));
    Number(note.completed);
    Number(note.pending);
    Number(static_cast<uint8_t>(note.intact));
    Number(static_cast<uint8_t>(note.has_result));
    // If not both fit, each has half at least.
    const size_t room = bytes_max - bytes.size() - sizeof(uint16_t);
    const size_t most = std::max(room / 2, room - std::min(room, note.call.size()));
    const std::string_view why = std::string_view(note.why).substr(0, most);
    Number(static_cast<uint16_t>(why.size()));
    Words(why);
    Words(note.call);
  }
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    if (bytes_.size() < sizeof(T)) {
      short_ = true;
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[i])) << (8 * i);
    }
    bytes_.remove_prefix(sizeof(T));
    return static_cast<T>(value);
  }
  std::string Words() const { return Printable(bytes_); }
  std::string Words(size_t bytes) {
    short_ |= bytes > bytes_.size();
    const std::string_view words = bytes_.substr(0, bytes);
    bytes_.remove_prefix(words.size());
    return Printable(words);
  }
  bool was_short() const { return short_; }

 private:
  std::string_view bytes_;
  bool short_ = false;
};

}  // namespace

std::string Encode(const Note& note, size_t bytes_max) {
  Writer writer{{}, bytes_max};
  std::visit(writer, note);
  return std::move(writer.bytes);
}

std::optional<Note> Decode(std::string_view bytes) {
  Reader reader(bytes);
  Note note;
  switch (static_cast<Kind>(reader.Number<uint8_t>())) {
    case Kind::kFailed: {
      FailedNote failed;
      failed.reason = reader.Number<uint8_t>();
      failed.words = reader.Words();
      note = std::move(failed);
      break;
    }
    case Kind::kCalled: {
      CalledNote called;
      called.channel = reader.Number<uint32_t>();
      called.sequence = reader.Number<uint64_t>();
      called.words = reader.Words();
      note = std::move(called);
      break;
    }
    case Kind::kLeft: {
      LeftNote left;
      left.rank = reader.Number<int32_t>();
      left.collectives = reader.Number<uint64_t>();
      left.words = reader.Words();
      note = std::move(left);
      break;
    }
    case Kind::kPropose: {
      ProposeNote propose;
      propose.version = reader.Number<uint32_t>();
      propose.from = reader.Number<uint64_t>();
      propose.numbers.latency_ns = reader.Number<uint64_t>();
      propose.numbers.message_ns = reader.Number<uint64_t>();
      propose.numbers.bytes_per_s = reader.Number<uint64_t>();
      note = propose;
      break;
    }
    case Kind::kAgree: {
      AgreeNote agree;
      agree.version = reader.Number<uint32_t>();
      agree.agrees = reader.Number<uint8_t>() != 0;
      note = agree;
      break;
    }
    case Kind::kDecide: {
      DecideNote decide;
      decide.version = reader.Number<uint32_t>();
      decide.yes = reader.Number<uint8_t>() != 0;
      note = decide;
      break;
    }
    case Kind::kPresence:
      note = PresenceNote{reader.Number<uint8_t>() != 0};
      break;
    case Kind::kAdd: {
      AddNote add;
      add.sequence = reader.Number<uint64_t>();
      add.signature = reader.Number<uint64_t>();
      add.dtype = reader.Number<uint8_t>();
      add.redop = reader.Number<uint8_t>();
      add.count = reader.Number<uint64_t>();
      add.aggregators = reader.Number<uint16_t>();
      add.index = reader.Number<uint16_t>();
      add.slices = reader.Number<uint32_t>();
      note = add;
      break;
    }
    case Kind::kLoss: {
      LossNote loss;
      loss.completed = reader.Number<uint64_t>();
      loss.pending = reader.Number<uint64_t>();
      loss.intact = reader.Number<uint8_t>() != 0;
      loss.has_result = reader.Number<uint8_t>() != 0;
      loss.why = reader.Words(reader.Number<uint16_t>());
      loss.call = reader.Words();
      note = std::move(loss);
      break;
    }
    default:
      return std::nullopt;
  }
  if (reader.was_short()) return std::nullopt;
  return note;
}

}  // namespace shunt::exchange
