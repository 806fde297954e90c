#include "runtime/storage/s3/answer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/storage/s3/xml.h"

namespace shunt::storage {
namespace {

using absl::StatusCode;

struct Meaning {
  const char* word;
  StatusCode code;
  bool retry = false;
  bool new_credentials = false;
};

// From the S3 API reference, "Error responses".
constexpr Meaning kMeanings[] = {
    {"NoSuchKey", StatusCode::kNotFound},
    {"NoSuchBucket", StatusCode::kNotFound},
    {"NoSuchUpload", StatusCode::kAborted},
    {"PreconditionFailed", StatusCode::kAborted},
    {"ConditionalRequestConflict", StatusCode::kAborted, true},
    {"OperationAborted", StatusCode::kAborted, true},
    {"InvalidRange", StatusCode::kOutOfRange},
    {"AccessDenied", StatusCode::kPermissionDenied},
    {"SignatureDoesNotMatch", StatusCode::kUnauthenticated},
    {"InvalidAccessKeyId", StatusCode::kUnauthenticated, false, true},
    {"InvalidToken", StatusCode::kUnauthenticated, false, true},
    {"ExpiredToken", StatusCode::kUnauthenticated, false, true},
    {"TokenRefreshRequired", StatusCode::kUnauthenticated, false, true},
    {"RequestTimeTooSkewed", StatusCode::kUnauthenticated},
    {"BadDigest", StatusCode::kDataLoss, true},
    {"InvalidDigest", StatusCode::kDataLoss},
    {"XAmzContentSHA256Mismatch", StatusCode::kDataLoss, true},
    {"RequestTimeout", StatusCode::kUnavailable, true},
    {"SlowDown", StatusCode::kUnavailable, true},
    {"InternalError", StatusCode::kUnavailable, true},
    {"ServiceUnavailable", StatusCode::kUnavailable, true},
    {"QuotaExceeded", StatusCode::kResourceExhausted},
    {"EntityTooLarge", StatusCode::kInvalidArgument},
    {"PermanentRedirect", StatusCode::kInvalidArgument},
    {"AuthorizationHeaderMalformed", StatusCode::kInvalidArgument},
};

Meaning ByHttpStatus(int status) {
  if (status >= 500) return {"", StatusCode::kUnavailable, true};
  switch (status) {
    case 401:
      return {"", StatusCode::kUnauthenticated};
    case 403:
      return {"", StatusCode::kPermissionDenied};
    case 404:
      return {"", StatusCode::kNotFound};
    case 408:
    case 429:
      return {"", StatusCode::kUnavailable, true};
    case 409:
    case 412:
      return {"", StatusCode::kAborted};
    case 416:
      return {"", StatusCode::kOutOfRange};
    case 501:
      return {"", StatusCode::kUnimplemented};
    default:
      return {"", status >= 400 ? StatusCode::kInvalidArgument : StatusCode::kInternal};
  }
}

}  // namespace

S3Failure Explain(std::string_view what, int http_status, std::string_view body) {
  S3Failure failure;
  Meaning meaning = ByHttpStatus(http_status);
  std::string words;
  if (const auto texts = ParseXml(body); texts.ok()) {
    // STS wraps its errors once more.
    for (const char* path : {"Error/Code", "ErrorResponse/Error/Code"}) {
      if (const std::string* code = FindText(*texts, path)) failure.code = code->substr(0, 64);
    }
    // Messages repeat the access key at times, so only the word is kept.
    const auto known =
        std::find_if(std::begin(kMeanings), std::end(kMeanings),
                     [&](const Meaning& candidate) { return failure.code == candidate.word; });
    if (known != std::end(kMeanings)) meaning = *known;
  }
  failure.retry = meaning.retry;
  failure.new_credentials = meaning.new_credentials;
  if (!failure.code.empty()) words = absl::StrCat(" (", absl::CHexEscape(failure.code), ")");
  failure.status =
      absl::Status(meaning.code, absl::StrCat(absl::string_view(what.data(), what.size()),
                                              ": the server answered ", http_status, words,
                                              ", expected success"));
  return failure;
}

std::optional<ContentRange> ParseContentRange(std::string_view value) {
  if (!value.starts_with("bytes ")) return std::nullopt;
  value.remove_prefix(6);
  const size_t dash = value.find('-'), slash = value.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) {
    return std::nullopt;
  }
  const auto number = [](std::string_view digits, uint64_t* out) {
    return !digits.empty() && digits.size() <= 20 &&
           std::all_of(digits.begin(), digits.end(),
                       [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }) &&
           absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), out);
  };
  ContentRange range;
  if (!number(value.substr(0, dash), &range.first) ||
      !number(value.substr(dash + 1, slash - dash - 1), &range.last) ||
      !number(value.substr(slash + 1), &range.size) || range.first > range.last ||
      range.last >= range.size) {
    return std::nullopt;
  }
  return range;
}

}  // namespace shunt::storage
