// The only file that sees toml++.
#include <toml++/toml.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "daemon/config.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

std::string PlaceOf(std::string_view path, const toml::source_region& source) {
  return absl::StrCat(absl::string_view(path.data(), path.size()), ":", source.begin.line);
}

absl::Status At(std::string_view path, const toml::source_region& source, std::string_view words) {
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(path.data(), path.size()), ":",
                                                 source.begin.line, ": ",
                                                 absl::string_view(words.data(), words.size())));
}

// A value in a table of [[storage.s3]] and the like, as text.
std::optional<std::string> ToText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return absl::StrCat(number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

std::optional<StorageTable> ToTable(const toml::table& table) {
  StorageTable out;
  for (const auto& [key, node] : table) {
    auto& values = out.emplace_back(std::string(key.str()), std::vector<std::string>()).second;
    const auto* list = node.as_array();
    for (size_t i = 0; i < (list == nullptr ? 1 : list->size()); ++i) {
      const std::optional<std::string> text = ToText(list == nullptr ? node : *list->get(i));
      if (!text) return std::nullopt;
      values.push_back(*text);
    }
  }
  return out;
}

// The tables of one of these sections, as its list of texts.
absl::StatusOr<ConfigValue> TextsOf(const toml::array& tables, bool plugins) {
  std::vector<std::string> texts;
  for (const toml::node& node : tables) {
    const std::optional<StorageTable> table = ToTable(*node.as_table());
    if (!table) return absl::InvalidArgumentError("has a table whose values are not all plain");
    SHUNT_ASSIGN_OR_RETURN(std::string text, plugins ? PluginText(*table) : EndpointText(*table));
    texts.push_back(std::move(text));
  }
  return ConfigValue(std::move(texts));
}

std::optional<ConfigValue> ToValue(const toml::node& node) {
  if (const auto* text = node.as_string()) return ConfigValue(text->get());
  if (const auto* number = node.as_integer()) return ConfigValue(number->get());
  if (const auto* array = node.as_array()) {
    std::vector<std::string> texts;
    for (const toml::node& element : *array) {
      if (const auto* text = element.as_string()) texts.push_back(text->get());
    }
    if (!texts.empty() && texts.size() == array->size()) return ConfigValue(std::move(texts));
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

std::string TypeWords(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "is a table";
    case toml::node_type::array:
      return "is a list of other things than integers or strings";
    case toml::node_type::floating_point:
      return "is a floating-point number";
    case toml::node_type::boolean:
      return "is a boolean";
    default:
      return "is a date or a time";
  }
}

// The keys of one table; `prefix` is "cluster." for those of the section [cluster], and so on.
absl::Status ApplyTable(const toml::table& table, const std::string& prefix, std::string_view path,
                        Config* config) {
  for (const auto& [key_node, node] : table) {
    const std::string name = absl::StrCat(prefix, std::string(key_node.str()));
    if (const auto* section = node.as_table();
        section != nullptr &&
        (name == "cluster" || name == "gpu" || name == "metrics" || name == "storage")) {
      SHUNT_RETURN_IF_ERROR(ApplyTable(*section, absl::StrCat(name, "."), path, config));
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
    const toml::array* const list = node.as_array();
    const bool tables = list != nullptr && !list->empty() && list->is_array_of_tables() &&
                        (name == "storage.s3" || name == "storage.plugins");
    absl::Status status;
    if (tables) {
      const absl::StatusOr<ConfigValue> value = TextsOf(*list, name == "storage.plugins");
      status = value.ok() ? SetKey(*key, *value, config) : value.status();
    } else {
      const std::optional<ConfigValue> value = ToValue(node);
      status = value ? SetKey(*key, *value, config) : absl::InvalidArgumentError(TypeWords(node));
    }
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
  return ApplyTable(table, "", path, config);
}

}  // namespace shunt::daemon
