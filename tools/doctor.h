// `shuntctl doctor`: looks at what Shunt needs of this machine and its daemon.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/admin_client.h"

namespace shunt::tools {

struct Check {
  enum class Result { kOk, kWarning, kFailed };
  std::string name;
  Result result = Result::kOk;
  std::string seen;
  std::string cost;    // what is lost; empty if it is fine
  std::string advice;  // what to do about it; empty if it is fine
};

// Changes nothing, opens no session. Of another node's daemon only what that says is looked at.
std::vector<Check> Diagnose(AdminClient* client);

// doctor_machine.cc: kernel, limits, devices. `pid`: the daemon's, whose limits are looked at where
// this user may; 0: none answers, -1: one is there that this user may not ask. `machine`: what the
// daemon found; empty if none answers.
void AddMachine(int32_t pid, const v1::GetTopologyResponse& machine, std::vector<Check>* checks);
// By the marks that Kubernetes, Docker and podman leave.
bool InContainer();

}  // namespace shunt::tools
