// The carriers that the conformance suite runs over.
#pragma once

#include <tuple>

#include "tests/transport/tcp_world.h"
#include "tests/transport/world.h"

namespace shunt::transport::testing {

using Worlds = std::tuple<FakeWorld, FakeStreamsWorld, FakePortsWorld, TcpWorld, TcpStreamsWorld>;

}  // namespace shunt::transport::testing
