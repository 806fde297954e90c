#include "runtime/storage/s3/uri.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace shunt::storage {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool Plain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' ||
         c == '~';
}

absl::Status BadUrl(std::string_view url) {
  return absl::InvalidArgumentError(
      absl::StrCat("endpoint '", absl::CHexEscape(View(url)),
                   "', expected http:// or https://, a host name or address, and maybe a port"));
}

bool GoodHost(std::string_view host) {
  if (host.starts_with('[')) {
    return host.size() > 2 && host.ends_with(']') &&
           std::all_of(host.begin() + 1, host.end() - 1, [](char c) {
             return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
           });
  }
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
  });
}

}  // namespace

std::string EncodeUri(std::string_view text, bool slashes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (Plain(c) || (slashes && c == '/')) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

absl::StatusOr<UrlParts> ParseEndpointUrl(std::string_view url) {
  UrlParts parts;
  const size_t colon = url.find("://");
  if (colon == std::string_view::npos) return BadUrl(url);
  parts.scheme = url.substr(0, colon);
  if (parts.scheme != "http" && parts.scheme != "https") return BadUrl(url);
  const std::string_view authority = url.substr(colon + 3);
  std::string_view host = authority;
  const size_t port_at = host.rfind(':');
  if (port_at != std::string_view::npos && !host.ends_with(']')) {
    const std::string_view port = host.substr(port_at + 1);
    uint32_t number = 0;
    const bool digits = std::all_of(port.begin(), port.end(), [](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c));
    });
    if (!digits || !absl::SimpleAtoi(View(port), &number) || number == 0 || number > 65535) {
      return BadUrl(url);
    }
    host = host.substr(0, port_at);
  }
  if (!GoodHost(host)) return BadUrl(url);
  parts.authority = authority;
  return parts;
}

absl::Status CheckBucket(std::string_view bucket) {
  const bool right = bucket.size() >= 3 && bucket.size() <= 63 &&
                     std::all_of(bucket.begin(), bucket.end(),
                                 [](char c) {
                                   return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                                          absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
                                          c == '-' || c == '.';
                                 }) &&
                     bucket.front() != '.' && bucket.front() != '-' && bucket.back() != '.' &&
                     bucket.back() != '-' && bucket.find("..") == std::string_view::npos;
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("bucket '", absl::CHexEscape(View(bucket.substr(0, 100))),
                   "', expected 3 to 63 lower-case letters, digits, dots and dashes"));
}

std::string MakeUrl(const UrlParts& endpoint, bool path_style, std::string_view bucket,
                    std::string_view key, const Query& query) {
  std::string url = absl::StrCat(endpoint.scheme, "://");
  if (path_style) {
    absl::StrAppend(&url, endpoint.authority, "/", View(bucket));
    if (!key.empty()) url += '/';
  } else {
    absl::StrAppend(&url, View(bucket), ".", endpoint.authority, "/");
  }
  url += EncodeUri(key, /*slashes=*/true);
  char separator = '?';
  for (const auto& [name, value] : query) {
    url += separator;
    absl::StrAppend(&url, EncodeUri(name, false), "=", EncodeUri(value, false));
    separator = '&';
  }
  return url;
}

}  // namespace shunt::storage
