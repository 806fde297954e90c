// Reads the small XML answers of S3 and STS. Hostile bytes give an error or a flat list of texts;
// sizes and depth are bounded. No attributes, no document types, no entities but the five that XML
// has itself and numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace shunt::storage {

struct XmlText {
  std::string path;  // "Error/Code"; names without their prefixes
  std::string text;  // without white space around it
};

// Elements without elements in them, in the order of their ends.
absl::StatusOr<std::vector<XmlText>> ParseXml(std::string_view xml);

// The first text of that path, or null.
const std::string* FindText(const std::vector<XmlText>& texts, std::string_view path);

// For what is sent.
std::string EscapeXml(std::string_view text);

}  // namespace shunt::storage
