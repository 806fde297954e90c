// The only file that sees toml++.
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/config.h"

namespace shunt::daemon {
namespace {

std::string PlaceOf(std::string_view path, const toml::source_region& source) {
  return absl::StrCat(absl::string_view(path.data(), path.size()), ":", source.begin.line);
}

absl::Status At(std::string_view path, const toml::source_region& source, std::string_view words) {
  return absl::InvalidArgumentError(
      absl::StrCat(PlaceOf(path, source), ": ", absl::string_view(words.data(), words.size())));
}

std::optional<ConfigValue> ToValue(const toml::node& node) {
  if (const auto* text = node.as_string()) return ConfigValue(text->get());
  if (const auto* number = node.as_integer()) return ConfigValue(number->get());
  if (const auto* array = node.as_array()) {
    std::vector<int64_t> list;
    for (const toml::node& element : *array) {
      const auto* number = element.as_integer();
      if (number == nullptr) return std::nullopt;
      list.push_back(number->get());
    }
    return ConfigValue(std::move(list));
  }
  return std::nullopt;
}

// The section's values may be lists of texts too.
std::optional<cluster::ClusterValue> ToClusterValue(const toml::node& node) {
  if (const auto* array = node.as_array();
      array != nullptr && !array->empty() && array->front().is_string()) {
    std::vector<std::string> list;
    for (const toml::node& element : *array) {
      const auto* text = element.as_string();
      if (text == nullptr) return std::nullopt;
      list.push_back(text->get());
    }
    return cluster::ClusterValue(std::move(list));
  }
  std::optional<ConfigValue> value = ToValue(node);
  if (!value) return std::nullopt;
  return std::visit([](auto&& v) { return cluster::ClusterValue(std::move(v)); },
                    std::move(*value));
}

std::string TypeWords(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "is a table";
    case toml::node_type::array:
      return "is a list of other things than integers";
    case toml::node_type::floating_point:
      return "is a floating-point number";
    case toml::node_type::boolean:
      return "is a boolean";
    default:
      return "is a date or a time";
  }
}

}  // namespace

namespace {

absl::Status ApplyCluster(const toml::table& table, std::string_view path, Config* config) {
  for (const auto& [key_node, node] : table) {
    const std::string name = absl::StrCat("cluster.", std::string(key_node.str()));
    const auto* const key =
        std::find_if(std::begin(cluster::kClusterKeys), std::end(cluster::kClusterKeys),
                     [&](const cluster::ClusterKey& k) { return name == k.name; });
    if (key == std::end(cluster::kClusterKeys)) {
      return At(path, key_node.source(), absl::StrCat("unknown key \"", name, "\""));
    }
    const std::optional<cluster::ClusterValue> value = ToClusterValue(node);
    const absl::Status status =
        value ? key->set(&config->cluster, *value) : absl::InvalidArgumentError(TypeWords(node));
    if (!status.ok()) {
      return At(
          path, node.source(),
          absl::StrCat(name, " ", std::string(status.message()), "; expected ", key->expected));
    }
    config->set_at[name] = PlaceOf(path, node.source());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyToml(std::string_view text, std::string_view path, Config* config) {
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return At(path, error.source(), absl::StrCat("not TOML: ", std::string(error.description())));
  }
  for (const auto& [key_node, node] : table) {
    const std::string name(key_node.str());
    if (const toml::table* section = node.as_table(); section != nullptr && name == "cluster") {
      if (absl::Status s = ApplyCluster(*section, path, config); !s.ok()) return s;
      continue;
    }
    const ConfigKey* key = FindConfigKey(name);
    if (key == nullptr) {
      std::string words = absl::StrCat("unknown key \"", name, "\"");
      if (const std::string_view similar = SimilarConfigKey(name); !similar.empty()) {
        absl::StrAppend(&words, "; did you mean \"", std::string(similar), "\"?");
      }
      return At(path, key_node.source(), words);
    }
    const std::optional<ConfigValue> value = ToValue(node);
    const absl::Status status =
        value ? key->set(config, *value) : absl::InvalidArgumentError(TypeWords(node));
    if (!status.ok()) {
      return At(
          path, node.source(),
          absl::StrCat(name, " ", std::string(status.message()), "; expected ", key->expected));
    }
    config->set_at[name] = PlaceOf(path, node.source());
  }
  return absl::OkStatus();
}

}  // namespace shunt::daemon
