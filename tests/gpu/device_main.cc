// The main function of tests that need a GPU: skipped, in words, where there is none.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "runtime/gpu/driver.h"

int main(int argc, char** argv) {
  const auto driver = shunt::gpu::Driver::Load();
  if (!driver.ok()) {
    std::printf("skipped: %s\n", std::string(driver.status().message()).c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
