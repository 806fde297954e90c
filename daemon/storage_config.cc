#include "daemon/storage_config.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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

// A word behind an endpoint's URL. False if there is none such.
bool TakeWord(const std::string& word, StorageEndpoint* endpoint) {
  if (word == "path-style") {
    endpoint->path_style = true;
    return true;
  }
  const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
  const auto& [key, value] = parts;
  if (value.empty()) return false;
  if ((key == "ca" || key == "credentials_file") && value.front() != '/') return false;
  if (key == "user") {
    uint32_t user = 0;
    if (!absl::SimpleAtoi(value, &user)) return false;
    endpoint->users.push_back(user);
    return true;
  }
  const struct {
    const char* key;
    std::string* place;
  } texts[] = {{"region", &endpoint->region},
               {"ca", &endpoint->ca_file},
               {"credentials", &endpoint->credentials},
               {"credentials_file", &endpoint->credentials_file},
               {"profile", &endpoint->profile},
               {"role", &endpoint->role},
               {"sts", &endpoint->sts}};
  for (const auto& text : texts) {
    if (key != text.key) continue;
    *text.place = value;
    return true;
  }
  return false;
}

// That the daemon's own keys have what their source needs.
absl::Status CheckCredentials(const std::string& text, const StorageEndpoint& endpoint) {
  const bool file = endpoint.credentials == "file", web = endpoint.credentials == "web_identity";
  if (!file && !web && !endpoint.credentials.empty() && endpoint.credentials != "environment") {
    return Is(text, absl::StrCat("with credentials=", endpoint.credentials,
                                 ", which is not environment, file or web_identity"));
  }
  if ((file || web) && endpoint.credentials_file.empty()) {
    return Is(text, absl::StrCat("with credentials=", endpoint.credentials,
                                 " but without credentials_file"));
  }
  if (web && (endpoint.role.empty() || endpoint.sts.empty())) {
    return Is(text, "with credentials=web_identity but without role and sts");
  }
  if (endpoint.credentials.empty() && !endpoint.users.empty()) {
    return Is(text, "with users but without credentials that they might use");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ValueOf(const StorageTable& table, const char* key) {
  for (const auto& [name, values] : table) {
    if (name == key && values.size() == 1 && !values[0].empty()) return values[0];
  }
  return absl::InvalidArgumentError(absl::StrCat("has a table without ", key));
}

absl::Status CheckNoSpace(absl::string_view key, const std::string& value) {
  // The parts are put together with spaces, and taken apart at them.
  if (value.find(' ') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has a table with ", key, " \"", value, "\", which holds a space"));
}

// As ValueOf, without spaces.
absl::StatusOr<std::string> WordOf(const StorageTable& table, const char* key) {
  SHUNT_ASSIGN_OR_RETURN(std::string value, ValueOf(table, key));
  SHUNT_RETURN_IF_ERROR(CheckNoSpace(key, value));
  return value;
}

}  // namespace

absl::StatusOr<std::string> EndpointText(const StorageTable& table) {
  SHUNT_ASSIGN_OR_RETURN(const std::string name, WordOf(table, "name"));
  SHUNT_ASSIGN_OR_RETURN(const std::string url, WordOf(table, "url"));
  std::string text = absl::StrCat(name, "=", url);
  for (const auto& [key, values] : table) {
    if (key == "name" || key == "url") continue;
    for (const std::string& value : values) {
      SHUNT_RETURN_IF_ERROR(CheckNoSpace(key, value));
      if (key == "path_style") {
        if (value == "true") text += " path-style";
        if (value != "true" && value != "false") absl::StrAppend(&text, " path_style=", value);
      } else {
        absl::StrAppend(&text, " ", key == "users" ? "user" : key, "=", value);
      }
    }
  }
  return text;
}

absl::StatusOr<std::string> PluginText(const StorageTable& table) {
  SHUNT_ASSIGN_OR_RETURN(const std::string name, WordOf(table, "name"));
  SHUNT_ASSIGN_OR_RETURN(const std::string library, WordOf(table, "library"));
  std::string text = absl::StrCat(name, "=", library);
  for (const auto& [key, values] : table) {
    if (key == "name" || key == "library") continue;
    if (key != "options" || values.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("has a table with the unknown key ", key));
    }
    absl::StrAppend(&text, " ", values[0]);
  }
  return text;
}

absl::StatusOr<std::vector<StoragePlugin>> ParsePlugins(const std::vector<std::string>& texts) {
  std::vector<StoragePlugin> plugins;
  for (const std::string& text : texts) {
    SHUNT_ASSIGN_OR_RETURN(auto parts, Split(text, plugins));
    if (parts.second.front() != '/') return Is(text, "whose path is not absolute");
    const std::pair<std::string, std::string> words =
        absl::StrSplit(parts.second, absl::MaxSplits(' ', 1));
    plugins.push_back({std::move(parts.first), words.first, words.second});
  }
  return plugins;
}

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
    StorageEndpoint endpoint;
    endpoint.name = std::move(parts.first);
    endpoint.url = words[0];
    for (size_t i = 1; i < words.size(); ++i) {
      if (!TakeWord(words[i], &endpoint)) {
        return Is(text, absl::StrCat("with the unknown word \"", words[i], "\""));
      }
    }
    SHUNT_RETURN_IF_ERROR(CheckCredentials(text, endpoint));
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

}  // namespace shunt::daemon
