// For the driver's test cases: a GPU with its context current in this thread.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/gpu/driver.h"

namespace shunt::gpu::testing {

template <typename T>
T Value(absl::StatusOr<T> result) {
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *std::move(result);
}

inline void Ok(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

struct World {
  World() : driver(*Value(Driver::Load())), context(Value(driver.RetainPrimary(0))) {
    Ok(driver.SetCurrent(context));
    stream = Value(driver.CreateStream());
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    driver.DestroyStream(stream);
    (void)driver.SetCurrent(nullptr);
    driver.ReleasePrimary(0);
  }

  Driver& driver;
  const Context context;
  Stream stream = nullptr;
};

// A memory file of one page, mapped and known to the driver.
struct Words {
  explicit Words(Driver& of)
      : driver(of),
        file(Value(MakeSealedMemfd("words", 4096))),
        mapping(Value(Mapping::Map(file.get(), 4096))),
        address(Value(driver.RegisterHost(mapping.data(), 4096))) {}
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() { (void)driver.UnregisterHost(mapping.data()); }

  std::atomic_ref<uint32_t> At(size_t index) {
    return std::atomic_ref<uint32_t>(reinterpret_cast<uint32_t*>(mapping.data())[index]);
  }
  DevicePtr AddressOf(size_t index) const { return address + 4 * index; }

  Driver& driver;
  const UniqueFd file;
  const Mapping mapping;
  const DevicePtr address;
};

}  // namespace shunt::gpu::testing
