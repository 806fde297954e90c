#include "runtime/pull/ask.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::pull {
namespace {

constexpr uint32_t kMagic = 0x53484153;  // "SHAS"
constexpr size_t kNameBytesMax = 255;
constexpr size_t kNotificationBytesMax = 1024;
constexpr uint64_t kPayloadMax = uint64_t{1} << 62;
constexpr uint64_t kSlicesMax = uint64_t{1} << 31;

class Writer {
 public:
  explicit Writer(absl::Span<std::byte> out) : out_(out) {}
  template <typename T>
  void Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) out_[at_++] = static_cast<std::byte>(value >> (8 * i));
  }
  void PutText(std::string_view text) {
    SHUNT_CHECK(text.size() + 2 <= out_.size() - at_);
    Put(static_cast<uint16_t>(text.size()));
    if (!text.empty()) std::memcpy(out_.data() + at_, text.data(), text.size());
    at_ += text.size();
  }
  size_t at() const { return at_; }

 private:
  absl::Span<std::byte> out_;
  size_t at_ = 0;
};

// Gives zeros after the end, and ok() is false from then on.
class Reader {
 public:
  explicit Reader(absl::Span<const std::byte> bytes) : left_(bytes) {}
  template <typename T>
  T Get() {
    if (left_.size() < sizeof(T)) return Fail(), T{0};
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(left_[i]) << (8 * i)));
    }
    left_.remove_prefix(sizeof(T));
    return value;
  }
  std::string GetText(size_t most) {
    const auto bytes = Get<uint16_t>();
    if (bytes > most || bytes > left_.size()) return Fail(), std::string();
    std::string text(reinterpret_cast<const char*>(left_.data()), bytes);
    left_.remove_prefix(bytes);
    return text;
  }
  bool ok() const { return ok_; }
  absl::Span<const std::byte> left() const { return left_; }

 private:
  void Fail() {
    ok_ = false;
    left_ = {};
  }
  absl::Span<const std::byte> left_;
  bool ok_ = true;
};

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("ask: ", absl::string_view(what.data(), what.size())));
}

}  // namespace

size_t ElementBytes(Form form) {
  switch (form) {
    case Form::kAll:
      return 0;
    case Form::kIds32:
      return 4;
    case Form::kIds64:
      return 8;
    case Form::kRuns:
    case Form::kRaw:
      return 24;
  }
  return 0;
}

void Encode(const Ask& ask, absl::Span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  Writer writer(out);
  writer.Put(kMagic);
  writer.Put(static_cast<uint8_t>(ask.push));
  writer.Put(static_cast<uint8_t>(ask.service_class));
  writer.Put(static_cast<uint8_t>(ask.notify));
  writer.Put(static_cast<uint8_t>(ask.form));
  writer.Put(ask.tenant);
  writer.Put(ask.slice_bytes);
  for (const uint64_t value : {ask.bytes, ask.incarnation, ask.version, ask.count, ask.unit,
                               ask.repeats, ask.repeat_step}) {
    writer.Put(value);
  }
  for (const std::string* text : {&ask.agent, &ask.section, &ask.from, &ask.notification}) {
    writer.PutText(*text);
  }
}

absl::Status CheckTexts(const Ask& ask) {
  for (const std::string* text : {&ask.agent, &ask.section, &ask.from}) {
    if (text->size() <= kNameBytesMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a name of ", text->size(), " bytes, expected at most ", kNameBytesMax));
  }
  if (ask.notification.size() <= kNotificationBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("notification of ", ask.notification.size(),
                                                 " bytes, expected at most ",
                                                 kNotificationBytesMax));
}

absl::StatusOr<Ask> DecodeAsk(absl::Span<const std::byte> bytes) {
  if (bytes.size() != kAskBytes) return Bad(absl::StrCat(bytes.size(), " bytes, expected 2048"));
  Reader reader(bytes);
  if (reader.Get<uint32_t>() != kMagic) return Bad("it does not begin as one");
  Ask ask;
  const auto push = reader.Get<uint8_t>();
  const auto service_class = reader.Get<uint8_t>();
  const auto notify = reader.Get<uint8_t>();
  const auto form = reader.Get<uint8_t>();
  if (push > 1 || service_class > 2 || notify > 1 || form > static_cast<uint8_t>(Form::kRaw)) {
    return Bad(absl::StrCat("push ", push, ", class ", service_class, ", notify ", notify,
                            ", form ", form, ": expected at most 1, 2, 1 and 4"));
  }
  ask.push = push != 0;
  ask.service_class = static_cast<transport::Class>(service_class);
  ask.notify = notify != 0;
  ask.form = static_cast<Form>(form);
  ask.tenant = reader.Get<uint32_t>();
  ask.slice_bytes = reader.Get<uint32_t>();
  for (uint64_t* value : {&ask.bytes, &ask.incarnation, &ask.version, &ask.count, &ask.unit,
                          &ask.repeats, &ask.repeat_step}) {
    *value = reader.Get<uint64_t>();
  }
  for (std::string* text : {&ask.agent, &ask.section, &ask.from}) {
    *text = reader.GetText(kNameBytesMax);
  }
  ask.notification = reader.GetText(kNotificationBytesMax);
  if (!reader.ok()) return Bad("a text is too long");
  const auto rest = reader.left();
  if (std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return Bad("bytes behind its end");
  }
  if (ask.slice_bytes < kSliceBytesMin || ask.slice_bytes > kSliceBytesMax || ask.bytes == 0 ||
      ask.bytes > kPayloadMax || ask.slices() > kSlicesMax) {
    return Bad(absl::StrCat(ask.bytes, " bytes in slices of ", ask.slice_bytes, ", expected 1 to ",
                            kPayloadMax, " in at most ", kSlicesMax, " of ", kSliceBytesMin, " to ",
                            kSliceBytesMax));
  }
  const uint64_t element = ElementBytes(ask.form);
  if ((element == 0) != (ask.count == 0) ||
      (element != 0 && ask.count > kArrayBytesMax / element)) {
    return Bad(absl::StrCat(ask.count, " runs, ids or pieces of ", element,
                            " bytes each, expected at most ", kArrayBytesMax, " bytes"));
  }
  if (ask.agent.empty() || ask.section.empty()) return Bad("agent or section without a name");
  if (!ask.notify && !ask.notification.empty()) return Bad("a notification that is not to be sent");
  return ask;
}

std::string Encode(const Note& note, size_t bytes_max) {
  std::string out(bytes_max, '\0');
  Writer writer(absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size()));
  writer.Put(static_cast<uint8_t>(note.kind));
  writer.Put(note.number);
  writer.Put(static_cast<uint8_t>(note.by_receiver));
  if (note.kind == Note::Kind::kStop) {
    writer.Put(static_cast<uint8_t>(note.answer));
    writer.Put(note.frontier);
    writer.Put(static_cast<uint8_t>(note.code));
    writer.PutText(std::string_view(note.words).substr(0, bytes_max - writer.at() - 2));
  }
  out.resize(writer.at());
  return out;
}

absl::StatusOr<Note> DecodeNote(std::string_view bytes) {
  Reader reader(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  Note note;
  const auto kind = reader.Get<uint8_t>();
  note.number = reader.Get<uint64_t>();
  const auto by_receiver = reader.Get<uint8_t>();
  if (!reader.ok() || (kind != 1 && kind != 2) || by_receiver > 1) {
    return absl::InvalidArgumentError("a note of a transfer that is none");
  }
  note.kind = static_cast<Note::Kind>(kind);
  note.by_receiver = by_receiver != 0;
  if (note.kind == Note::Kind::kStop) {
    const auto answer = reader.Get<uint8_t>();
    note.frontier = reader.Get<uint32_t>();
    const auto code = reader.Get<uint8_t>();
    note.words = Printable(reader.GetText(UINT16_MAX));
    if (answer > 1 || code == 0 || code > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated))
      return absl::InvalidArgumentError("a stop of a transfer with an unknown code");
    note.answer = answer != 0;
    note.code = static_cast<absl::StatusCode>(code);
  }
  if (!reader.ok() || !reader.left().empty()) {
    return absl::InvalidArgumentError("a note of a transfer that is too short or too long");
  }
  return note;
}

}  // namespace shunt::pull
