#include "runtime/storage/s3/credentials.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/core/status.h"
#include "runtime/storage/s3/xml.h"

namespace shunt::storage {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool Printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::Status CheckCredentials(std::string_view where, const Credentials& credentials) {
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return absl::UnauthenticatedError(absl::StrCat(
        View(where), " has no ",
        credentials.access_key.empty() ? "access key id" : "secret access key", ", expected one"));
  }
  // A line break would let the rest be read as another header.
  if (!Printable(credentials.access_key) || !Printable(credentials.secret_key) ||
      !Printable(credentials.session_token)) {
    return absl::UnauthenticatedError(
        absl::StrCat(View(where), " has a key with spaces or control characters, expected none"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Credentials> ParseCredentialsFile(std::string_view text, std::string_view profile) {
  const std::string where =
      absl::StrCat("profile '", absl::CHexEscape(View(profile)), "' of the credentials file");
  Credentials credentials;
  bool within = false, found = false;
  for (absl::string_view line : absl::StrSplit(View(text), '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      within = line.back() == ']' &&
               absl::StripAsciiWhitespace(line.substr(1, line.size() - 2)) == View(profile);
      found |= within;
      continue;
    }
    if (!within) continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const std::string key = absl::AsciiStrToLower(absl::StripAsciiWhitespace(pair.first));
    const std::string value(absl::StripAsciiWhitespace(pair.second));
    if (key == "aws_access_key_id") credentials.access_key = value;
    if (key == "aws_secret_access_key") credentials.secret_key = value;
    if (key == "aws_session_token") credentials.session_token = value;
  }
  if (!found) return absl::NotFoundError(absl::StrCat(where, " is missing, expected it"));
  SHUNT_RETURN_IF_ERROR(CheckCredentials(where, credentials));
  return credentials;
}

absl::StatusOr<Credentials> ParseAssumedRole(std::string_view xml) {
  const std::string where = "the answer of STS";
  SHUNT_ASSIGN_OR_RETURN(const std::vector<XmlText> texts, ParseXml(xml));
  const std::string base =
      "AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/";
  const auto text = [&](const char* name) {
    const std::string* found = FindText(texts, base + name);
    return found == nullptr ? std::string() : *found;
  };
  Credentials credentials{.access_key = text("AccessKeyId"),
                          .secret_key = text("SecretAccessKey"),
                          .session_token = text("SessionToken")};
  SHUNT_RETURN_IF_ERROR(CheckCredentials(where, credentials));
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text("Expiration"), &credentials.expires, &error)) {
    return absl::DataLossError(absl::StrCat(where, " has the expiration '",
                                            absl::CHexEscape(text("Expiration").substr(0, 40)),
                                            "', expected a time as in RFC 3339"));
  }
  return credentials;
}

}  // namespace shunt::storage
