#include "runtime/transport/wire/hello.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/transport/wire/bytes.h"

namespace shunt::transport::wire {
namespace {

constexpr uint32_t kHelloMagic = 0x544e4853;
constexpr size_t kNameField = kNameBytesMax + 1;

void PutName(std::byte* at, const std::string& name) {
  SHUNT_CHECK(CheckName("name", name).ok());
  std::memcpy(at, name.data(), name.size());
}

absl::Status GetName(const char* what, const std::byte* at, std::string* out) {
  const auto* begin = reinterpret_cast<const char*>(at);
  const char* end = std::find(begin, begin + kNameField, '\0');
  if (std::any_of(end, begin + kNameField, [](char c) { return c != '\0'; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello: ", what, " has bytes after its end, expected zeros"));
  }
  *out = std::string(begin, end);
  return CheckName(what, *out);
}

}  // namespace

absl::Status CheckName(const std::string& what, const std::string& name) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", name.size(), " bytes long, expected 1 to ", kNameBytesMax));
  }
  // Names end up in logs.
  if (std::any_of(name.begin(), name.end(), [](char c) { return c < 0x21 || c > 0x7e; })) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": holds a byte outside 0x21 to 0x7e, expected printable ASCII"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint8_t> Negotiate(Versions ours, Versions theirs) {
  const uint8_t newest = std::min(ours.newest, theirs.newest);
  if (newest < std::max(ours.oldest, theirs.oldest)) {
    return absl::FailedPreconditionError(
        absl::StrCat("wire version: the peer speaks ", theirs.oldest, " to ", theirs.newest,
                     ", expected one of ", ours.oldest, " to ", ours.newest));
  }
  return newest;
}

void Encode(const Hello& hello, std::span<std::byte, kHelloBytes> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  std::byte* p = out.data();
  Put(p, kHelloMagic);
  Put(p + 4, hello.versions.oldest);
  Put(p + 5, hello.versions.newest);
  Put(p + 6, hello.stream);
  Put(p + 7, hello.streams);
  Put(p + 8, hello.incarnation);
  Put(p + 16, hello.expected_incarnation);
  std::copy(hello.token.begin(), hello.token.end(), p + 24);
  PutName(p + 56, hello.cluster);
  PutName(p + 120, hello.from);
  PutName(p + 184, hello.to);
}

absl::StatusOr<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes) {
  const std::byte* p = bytes.data();
  Hello hello;
  if (Get<uint32_t>(p) != kHelloMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello: magic is ", Get<uint32_t>(p), ", expected ", kHelloMagic));
  }
  hello.versions = {Get<uint8_t>(p + 4), Get<uint8_t>(p + 5)};
  if (hello.versions.oldest == 0 || hello.versions.oldest > hello.versions.newest) {
    return absl::InvalidArgumentError(absl::StrCat("hello: wire versions are ",
                                                   hello.versions.oldest, " to ",
                                                   hello.versions.newest, ", expected a range"));
  }
  hello.stream = Get<uint8_t>(p + 6);
  hello.streams = Get<uint8_t>(p + 7);
  if (hello.streams < 1 || hello.streams > kStreamsMax || hello.stream >= hello.streams) {
    return absl::InvalidArgumentError(absl::StrCat("hello: stream is ", hello.stream, " of ",
                                                   hello.streams, ", expected one of at most ",
                                                   kStreamsMax));
  }
  hello.incarnation = Get<uint64_t>(p + 8);
  hello.expected_incarnation = Get<uint64_t>(p + 16);
  std::copy(p + 24, p + 56, hello.token.begin());
  if (absl::Status status = GetName("cluster name", p + 56, &hello.cluster); !status.ok()) {
    return status;
  }
  if (absl::Status status = GetName("sender's name", p + 120, &hello.from); !status.ok()) {
    return status;
  }
  if (absl::Status status = GetName("receiver's name", p + 184, &hello.to); !status.ok()) {
    return status;
  }
  if (Get<uint64_t>(p + 248) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hello: the last 8 bytes are ", Get<uint64_t>(p + 248), ", expected 0"));
  }
  return hello;
}

bool Equal(const Token& a, const Token& b) {
  // Volatile: the compiler must not leave at the first difference.
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<uint8_t>(difference | static_cast<uint8_t>(a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace shunt::transport::wire
