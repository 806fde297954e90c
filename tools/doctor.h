// `shuntctl doctor`: looks at what Shunt needs of this machine and its daemon.
#pragma once

#include <string>
#include <vector>

#include "tools/admin_client.h"

namespace shunt::tools {

struct Check {
  enum class Result { kOk, kWarning, kFailed };
  std::string name;
  Result result = Result::kOk;
  std::string seen;
  std::string advice;  // empty if it is fine
};

// Changes nothing, opens no session.
std::vector<Check> Diagnose(AdminClient* client, const std::string& socket);

}  // namespace shunt::tools
