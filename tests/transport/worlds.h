// The carriers that the conformance suite runs over.
#pragma once

#include <tuple>

#include "tests/transport/tcp_world.h"
#include "tests/transport/world.h"
#ifdef SHUNT_TEST_UCX
#include "tests/transport/ucx_world.h"
#endif

namespace shunt::transport::testing {

#ifdef SHUNT_TEST_UCX
using Worlds = std::tuple<UcxWorld, UcxStreamsWorld>;
#else
using Worlds = std::tuple<FakeWorld, FakeStreamsWorld, FakePortsWorld, TcpWorld, TcpStreamsWorld,
                          TcpMoversWorld, TcpSpinningMoversWorld>;
#endif

}  // namespace shunt::transport::testing
