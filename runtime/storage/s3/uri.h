// Addresses of S3 requests: pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/storage/s3/options.h"

namespace shunt::storage {

// Percent-encodes all but letters, digits and "-._~", as Signature Version 4 wants it in paths
// and queries (AWS documentation, "Create a signed AWS API request"). Slashes stay if `slashes`.
std::string EncodeUri(std::string_view text, bool slashes);

struct UrlParts {
  std::string scheme;
  std::string authority;  // host[:port]
};
// scheme://host[:port], where the scheme is "http" or "https". INVALID_ARGUMENT for anything else.
absl::StatusOr<UrlParts> ParseEndpointUrl(std::string_view url);

inline constexpr size_t kKeyBytesMax = 1024;  // of an object

// 3 to 63 lower-case letters, digits, dots and dashes, as AWS and Ceph name them: safe in a host
// name.
absl::Status CheckBucket(std::string_view bucket);

// Pairs in the order that they are signed in: sorted by name.
using Query = std::vector<std::pair<std::string, std::string>>;
// Of a bucket (empty key) or an object.
std::string MakeUrl(const UrlParts& endpoint, bool path_style, std::string_view bucket,
                    std::string_view key, const Query& query);

}  // namespace shunt::storage
