// The only file here that sees toml++.

// Its parser asserts that a key begins where one is expected, which a wrong file makes false;
// without the assertion it reports the error.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "tools/output.h"
#include "tools/sim/description.h"

namespace shunt::tools {
namespace {

std::optional<Value> ToValue(const toml::node& node) {
  if (const auto* text = node.as_string()) return Value(text->get());
  if (const auto* whole = node.as_integer()) return Value(whole->get());
  if (const auto* number = node.as_floating_point()) return Value(number->get());
  if (const auto* flag = node.as_boolean()) return Value(flag->get());
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view path, Description* description)
      : path_(path), description_(*description) {}

  absl::Status Read(const toml::table& table) {
    for (const auto& [key_node, node] : table) {
      const std::string key(key_node.str());
      if (key == "link" || key == "failure") {
        if (absl::Status s = ReadTables(key, node); !s.ok()) return s;
      } else if (key == "kinds" || key == "algorithms" || key == "sizes") {
        if (absl::Status s = ReadList(key, node); !s.ok()) return s;
      } else if (const Key* known = FindKey(key)) {
        const std::optional<Value> value = ToValue(node);
        if (!value) return At(node, key, "is a list, a table or a date; expected one value");
        if (absl::Status s = known->set(&description_, *value); !s.ok()) {
          return At(node, key, s.message());
        }
      } else {
        std::string all = "link, failure, kinds, algorithms, sizes";
        for (const Key& k : Keys()) absl::StrAppend(&all, ", ", std::string(k.name));
        return At(key_node.source(),
                  absl::StrCat("unknown key \"", Printable(key), "\", expected one of ", all));
      }
      description_.set_at[key] = Place(node.source());
    }
    return absl::OkStatus();
  }

 private:
  std::string Place(const toml::source_region& source) const {
    return absl::StrCat(std::string(path_), ":", source.begin.line);
  }
  absl::Status At(const toml::source_region& source, absl::string_view words) const {
    return absl::InvalidArgumentError(absl::StrCat(Place(source), ": ", words));
  }
  absl::Status At(const toml::node& node, std::string_view key, absl::string_view words) const {
    return At(node.source(), absl::StrCat(std::string(key), " ", words));
  }

  absl::Status ReadList(const std::string& key, const toml::node& node) {
    std::vector<Value> values;
    std::vector<std::string> names;
    if (const auto* array = node.as_array()) {
      for (const toml::node& element : *array) {
        const std::optional<Value> value = ToValue(element);
        if (!value) return At(element, key, "has a list, a table or a date; expected values");
        values.push_back(*value);
      }
    } else if (const std::optional<Value> value = ToValue(node)) {
      values.push_back(*value);
    }
    if (values.empty()) return At(node, key, "is not a list of values; expected one or more");
    for (const Value& value : values) {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr && key != "sizes") {
        return At(node, key, absl::StrCat("has ", Show(value), "; expected names"));
      }
      if (text != nullptr) names.push_back(*text);
    }
    absl::Status s = key == "kinds"        ? SetKinds(names, &description_)
                     : key == "algorithms" ? SetAlgorithms(names, &description_)
                                           : SetSizes(values, &description_);
    return s.ok() ? s : At(node, key, s.message());
  }

  absl::Status ReadTables(const std::string& name, const toml::node& node) {
    const auto* array = node.as_array();
    if (array == nullptr) return At(node, name, absl::StrCat("must be written [[", name, "]]"));
    for (const toml::node& element : *array) {
      const auto* table = element.as_table();
      if (table == nullptr) {
        return At(element, name, absl::StrCat("must be written [[", name, "]]"));
      }
      if (!table->contains("node")) return At(element, name, "has no node; expected which one");
      sim::LinkChange link;
      sim::Failure failure;
      for (const auto& [key_node, value_node] : *table) {
        const std::string key(key_node.str());
        const std::string whole = absl::StrCat(name, ".", Printable(key));
        const std::optional<Value> value = ToValue(value_node);
        if (!value) {
          return At(value_node, whole, "is a list, a table or a date; expected one value");
        }
        const absl::Status s =
            name == "link" ? SetLinkKey(key, *value, &link) : SetFailureKey(key, *value, &failure);
        if (s.code() == absl::StatusCode::kNotFound) {
          return At(value_node, whole, absl::StrCat("is no key, expected one of ", s.message()));
        }
        if (!s.ok()) return At(value_node, whole, s.message());
      }
      if (name == "link") {
        description_.cluster.links.push_back(link);
      } else {
        description_.cluster.failures.push_back(failure);
      }
    }
    return absl::OkStatus();
  }

  const std::string_view path_;
  Description& description_;
};

}  // namespace

absl::Status ApplyClusterToml(std::string_view text, std::string_view path,
                              Description* description) {
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(path), ":", error.source().begin.line,
                     ": not TOML: ", std::string(error.description())));
  }
  return Reader(path, description).Read(table);
}

}  // namespace shunt::tools
