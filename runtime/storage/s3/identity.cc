#include "runtime/storage/s3/identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/core/fd.h"
#include "runtime/core/status.h"
#include "runtime/storage/s3/answer.h"
#include "runtime/storage/s3/uri.h"

namespace shunt::storage {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
// Where they lie is not for everybody who sees an error.
constexpr char kCredentialsFile[] = "the credentials file";
constexpr char kTokenFile[] = "the file of the web identity token";

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, const char* what) {
  // Without O_NONBLOCK a FIFO would wait here for its other end.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, what);
  std::string text(kFileBytesMax + 1, '\0');
  size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, what);
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  if (bytes > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is too long, expected at most ", kFileBytesMax, " bytes"));
  }
  text.resize(bytes);
  return text;
}

}  // namespace

void Identity::Take(Credentials credentials) {
  current_ = std::move(credentials);
  taken_ = absl::Now();
  have_ = true;
  refused_ = false;
}

absl::Status Identity::Load() {
  using Kind = S3CredentialSource::Kind;
  Credentials loaded;
  std::string where = "the configuration";
  switch (source_.kind) {
    case Kind::kAnonymous:
      Take({});
      return absl::OkStatus();
    case Kind::kStatic:
      loaded = {.access_key = source_.access_key,
                .secret_key = source_.secret_key,
                .session_token = source_.session_token};
      break;
    case Kind::kEnvironment:
      where = "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)";
      loaded = {.access_key = Environment("AWS_ACCESS_KEY_ID"),
                .secret_key = Environment("AWS_SECRET_ACCESS_KEY"),
                .session_token = Environment("AWS_SESSION_TOKEN")};
      break;
    case Kind::kFile: {
      where = kCredentialsFile;
      SHUNT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(source_.file, kCredentialsFile));
      SHUNT_ASSIGN_OR_RETURN(loaded, ParseCredentialsFile(text, source_.profile));
      break;
    }
    case Kind::kWebIdentity:
      // Read again at each exchange: the token is replaced before it ends.
      return MakeStsRequest("").status();
  }
  SHUNT_RETURN_IF_ERROR(CheckCredentials(where, loaded));
  Take(std::move(loaded));
  return absl::OkStatus();
}

bool Identity::usable() const { return have_ && !refused_ && absl::Now() < current_.expires; }

bool Identity::stale() const {
  if (!usable()) return true;
  if (current_.expires == absl::InfiniteFuture()) return false;
  // Keys that live for less than twice that are changed at half their time.
  const absl::Duration before =
      std::min(absl::FromChrono(source_.refresh_before), (current_.expires - taken_) / 2);
  return absl::Now() >= current_.expires - before;
}

absl::StatusOr<HttpRequest> Identity::MakeStsRequest(const std::string& ca_file) const {
  SHUNT_ASSIGN_OR_RETURN(const UrlParts parts, ParseEndpointUrl(source_.sts_url));
  SHUNT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(source_.file, kTokenFile));
  const std::string token(absl::StripAsciiWhitespace(text));
  if (token.empty()) {
    return absl::UnauthenticatedError(
        absl::StrCat(kTokenFile, " is empty, expected a web identity token"));
  }
  HttpRequest request{.method = "POST",
                      .url = absl::StrCat(parts.scheme, "://", parts.authority, "/"),
                      .headers = {"Content-Type: application/x-www-form-urlencoded"},
                      .ca_file = ca_file};
  // In the body, where no log of addresses has it.
  request.text = absl::StrCat("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=",
                              EncodeUri(source_.role, false),
                              "&RoleSessionName=", EncodeUri(source_.session_name, false),
                              "&WebIdentityToken=", EncodeUri(token, false));
  return request;
}

absl::Status Identity::TakeStsAnswer(const HttpResult& result, bool* retry) {
  const std::string what = absl::StrCat("keys of role '", source_.role, "' from ", source_.sts_url);
  *retry = true;
  if (!result.status.ok()) {
    return absl::UnavailableError(absl::StrCat(what, ": ", result.status.message()));
  }
  if (result.http_status != 200) {
    S3Failure failure = Explain(what, result.http_status, result.text);
    *retry = failure.retry;
    if (!failure.retry) {
      return absl::UnauthenticatedError(failure.status.message());
    }
    return failure.status;
  }
  *retry = false;
  SHUNT_ASSIGN_OR_RETURN(Credentials credentials, ParseAssumedRole(result.text));
  // Or a clock is wrong. Asking again at once would not end.
  if (credentials.expires <= absl::Now()) {
    *retry = true;
    return absl::UnavailableError(
        absl::StrCat(what, " ended at ", absl::FormatTime(credentials.expires, absl::UTCTimeZone()),
                     ", expected keys that can be used yet"));
  }
  Take(std::move(credentials));
  return absl::OkStatus();
}

}  // namespace shunt::storage
