#include "runtime/storage/s3/xml.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::storage {
namespace {

constexpr size_t kBytesMax = 4 << 20;
constexpr size_t kDepthMax = 16;
constexpr size_t kTextsMax = 20'000;
constexpr size_t kNameBytesMax = 128;

absl::Status Bad(size_t at, const char* what) {
  return absl::DataLossError(absl::StrCat("XML answer, byte ", at, ": ", what));
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto add = [out](uint32_t byte) { *out += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

// `name` is what stands between "&" and ";".
bool AppendEntity(std::string_view name, std::string* out) {
  if (name == "lt") return *out += '<', true;
  if (name == "gt") return *out += '>', true;
  if (name == "amp") return *out += '&', true;
  if (name == "quot") return *out += '"', true;
  if (name == "apos") return *out += '\'', true;
  if (!name.starts_with('#') || name.size() < 2) return false;
  name.remove_prefix(1);
  const bool hexadecimal = name.starts_with('x');
  if (hexadecimal) name.remove_prefix(1);
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (hexadecimal ? !absl::ascii_isxdigit(byte) : !absl::ascii_isdigit(byte)) return false;
  }
  uint32_t code = 0;
  const absl::string_view digits(name.data(), name.size());
  if (!(hexadecimal ? absl::SimpleHexAtoi(digits, &code) : absl::SimpleAtoi(digits, &code))) {
    return false;
  }
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
  AppendUtf8(code, out);
  return true;
}

bool NameByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return absl::ascii_isalnum(byte) || c == '_' || c == '-' || c == '.' || c == ':' || byte >= 0x80;
}

class Parser {
 public:
  explicit Parser(std::string_view xml) : xml_(xml) {}

  absl::StatusOr<std::vector<XmlText>> Run() {
    if (xml_.size() > kBytesMax) return Bad(kBytesMax, "too long");
    while (at_ < xml_.size()) {
      if (xml_[at_] != '<') {
        SHUNT_RETURN_IF_ERROR(Characters());
      } else if (Take("<?")) {
        SHUNT_RETURN_IF_ERROR(SkipTo("?>"));
      } else if (Take("<!--")) {
        SHUNT_RETURN_IF_ERROR(SkipTo("-->"));
      } else if (Take("</")) {
        SHUNT_RETURN_IF_ERROR(End());
      } else {
        ++at_;
        SHUNT_RETURN_IF_ERROR(Begin());
      }
    }
    if (!open_.empty()) return Bad(at_, "it ends within an element");
    if (!root_seen_) return Bad(at_, "it has no element");
    return std::move(texts_);
  }

 private:
  struct Open {
    std::string name;    // as written
    size_t path_before;  // length of path_ without it
    std::string text;
    bool leaf = true;
  };

  bool Take(std::string_view token) {
    if (!xml_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  absl::Status SkipTo(std::string_view end) {
    const size_t found = xml_.find(end, at_);
    if (found == std::string_view::npos) return Bad(at_, "it ends too early");
    at_ = found + end.size();
    return absl::OkStatus();
  }
  void SkipSpace() {
    while (at_ < xml_.size() && absl::ascii_isspace(static_cast<unsigned char>(xml_[at_]))) ++at_;
  }
  std::string_view Name() {
    const size_t begin = at_;
    while (at_ < xml_.size() && NameByte(xml_[at_])) ++at_;
    return xml_.substr(begin, at_ - begin);
  }

  absl::Status Characters() {
    for (; at_ < xml_.size() && xml_[at_] != '<'; ++at_) {
      const char c = xml_[at_];
      if (open_.empty()) {
        if (!absl::ascii_isspace(static_cast<unsigned char>(c))) {
          return Bad(at_, "text outside of elements");
        }
      } else if (c != '&') {
        open_.back().text += c;
      } else {
        const size_t end = xml_.find(';', at_);
        if (end == std::string_view::npos || end - at_ > 12 ||
            !AppendEntity(xml_.substr(at_ + 1, end - at_ - 1), &open_.back().text)) {
          return Bad(at_, "an entity that is not known");
        }
        at_ = end;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Begin() {
    const size_t begin = at_;
    const std::string_view name = Name();
    if (name.empty()) return Bad(begin, "expected the name of an element");
    // Paths repeat it: short names keep a document's texts in proportion to it.
    if (name.size() > kNameBytesMax) return Bad(begin, "the name of an element is too long");
    const size_t colon = name.rfind(':');
    const std::string_view local = colon == std::string_view::npos ? name : name.substr(colon + 1);
    if (local.empty()) return Bad(begin, "an element without a name of its own");
    if (open_.empty() && root_seen_) return Bad(begin, "a second root element");
    if (open_.size() == kDepthMax) return Bad(begin, "elements nest too deeply");
    root_seen_ = true;
    SHUNT_RETURN_IF_ERROR(SkipAttributes());
    if (!open_.empty()) open_.back().leaf = false;
    open_.push_back({.name = std::string(name), .path_before = path_.size(), .text = {}});
    if (!path_.empty()) path_ += '/';
    path_ += local;
    if (Take("/>")) return Close();
    if (Take(">")) return absl::OkStatus();
    return Bad(at_, "expected the end of a tag");
  }

  // Up to ">" or "/>".
  absl::Status SkipAttributes() {
    for (;;) {
      SkipSpace();
      if (at_ == xml_.size()) return Bad(at_, "it ends within a tag");
      if (xml_[at_] == '>' || xml_[at_] == '/') return absl::OkStatus();
      if (Name().empty()) return Bad(at_, "expected an attribute");
      SkipSpace();
      if (!Take("=")) return Bad(at_, "expected '='");
      SkipSpace();
      if (Take("\"")) {
        SHUNT_RETURN_IF_ERROR(SkipTo("\""));
      } else if (Take("'")) {
        SHUNT_RETURN_IF_ERROR(SkipTo("'"));
      } else {
        return Bad(at_, "expected a quoted value");
      }
    }
  }

  absl::Status End() {
    const size_t begin = at_;
    const std::string_view name = Name();
    SkipSpace();
    if (!Take(">")) return Bad(at_, "expected '>'");
    if (open_.empty() || open_.back().name != name) return Bad(begin, "not what was begun ends");
    return Close();
  }

  absl::Status Close() {
    Open& last = open_.back();
    if (last.leaf) {
      if (texts_.size() == kTextsMax) return Bad(at_, "too many elements");
      texts_.push_back({.path = path_, .text = std::string(absl::StripAsciiWhitespace(last.text))});
    }
    path_.resize(last.path_before);
    open_.pop_back();
    return absl::OkStatus();
  }

  const std::string_view xml_;
  size_t at_ = 0;
  bool root_seen_ = false;
  std::string path_;
  std::vector<Open> open_;
  std::vector<XmlText> texts_;
};

}  // namespace

absl::StatusOr<std::vector<XmlText>> ParseXml(std::string_view xml) { return Parser(xml).Run(); }

const std::string* FindText(const std::vector<XmlText>& texts, std::string_view path) {
  for (const XmlText& text : texts) {
    if (text.path == path) return &text.text;
  }
  return nullptr;
}

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace shunt::storage
