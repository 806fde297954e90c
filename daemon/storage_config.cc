#include "daemon/storage_config.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

absl::Status Is(const std::string& text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("has \"", text, "\", ", why));
}

// NAME=VALUE, with a name that no earlier one has.
template <typename T>
absl::StatusOr<std::pair<std::string, std::string>> Split(const std::string& text,
                                                          const std::vector<T>& earlier) {
  std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const bool named = !parts.first.empty() && parts.first.size() <= 64 &&
                     std::all_of(parts.first.begin(), parts.first.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                     });
  if (!named || parts.second.empty()) return Is(text, "which is not NAME=VALUE");
  if (std::any_of(earlier.begin(), earlier.end(),
                  [&](const T& other) { return other.name == parts.first; })) {
    return Is(text, "whose name is there twice");
  }
  return parts;
}

}  // namespace

absl::StatusOr<std::vector<StorageRoot>> ParseRoots(const std::vector<std::string>& texts) {
  std::vector<StorageRoot> roots;
  for (const std::string& text : texts) {
    SHUNT_ASSIGN_OR_RETURN(auto parts, Split(text, roots));
    if (parts.second.front() != '/') return Is(text, "whose path is not absolute");
    roots.push_back({std::move(parts.first), std::move(parts.second)});
  }
  return roots;
}

absl::StatusOr<std::vector<StorageEndpoint>> ParseEndpoints(const std::vector<std::string>& texts) {
  std::vector<StorageEndpoint> endpoints;
  for (const std::string& text : texts) {
    SHUNT_ASSIGN_OR_RETURN(auto parts, Split(text, endpoints));
    const std::vector<std::string> words =
        absl::StrSplit(parts.second, ' ', absl::SkipWhitespace());
    if (words.empty() ||
        !(absl::StartsWith(words[0], "http://") || absl::StartsWith(words[0], "https://"))) {
      return Is(text, "whose URL does not begin with http:// or https://");
    }
    StorageEndpoint endpoint{.name = std::move(parts.first), .url = words[0]};
    for (size_t i = 1; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (word == "path-style") {
        endpoint.path_style = true;
      } else if (absl::StartsWith(word, "region=") && word.size() > 7) {
        endpoint.region = word.substr(7);
      } else if (absl::StartsWith(word, "ca=/")) {
        endpoint.ca_file = word.substr(3);
      } else {
        return Is(text, absl::StrCat("with the unknown word \"", word, "\""));
      }
    }
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

}  // namespace shunt::daemon
