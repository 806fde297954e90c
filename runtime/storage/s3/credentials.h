// Keys, and the files and answers that they come in: pure. Errors say what is missing, never what
// was found.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace shunt::storage {

struct Credentials {
  std::string access_key = {}, secret_key = {};
  std::string session_token = {};  // empty if there is none
  absl::Time expires = absl::InfiniteFuture();
  bool anonymous() const { return access_key.empty(); }
};

// A profile of a shared credentials file ("[default]", "aws_access_key_id = ...").
absl::StatusOr<Credentials> ParseCredentialsFile(std::string_view text, std::string_view profile);

// The answer of STS to AssumeRoleWithWebIdentity.
absl::StatusOr<Credentials> ParseAssumedRole(std::string_view xml);

// That they can go into a header: printable, without spaces.
absl::Status CheckCredentials(std::string_view where, const Credentials& credentials);

}  // namespace shunt::storage
