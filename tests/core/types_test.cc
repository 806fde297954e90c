#include "runtime/core/types.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace shunt {
namespace {

template <typename T>
void CheckNames(int count) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    const T value = static_cast<T>(i);
    CHECK(IsValid(value));
    CHECK(Name(value) != "unknown");
    CHECK_FALSE(Name(value).empty());
    names.insert(Name(value));
  }
  CHECK(names.size() == static_cast<size_t>(count));
  CHECK_FALSE(IsValid(static_cast<T>(count)));
  CHECK(Name(static_cast<T>(count)) == "unknown");
  CHECK(Name(static_cast<T>(255)) == "unknown");
}

TEST_CASE("every valid value has its own name and no other value has one") {
  CheckNames<DataType>(kDataTypeCount);
  CheckNames<Redop>(kRedopCount);
  CheckNames<OpKind>(kOpKindCount);
}

TEST_CASE("an element's bytes are those its name says") {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    const std::string name(Name(type));
    const size_t digits = name.find_first_of("0123456789");
    CHECK(SizeOf(type) * 8 == std::stoul(name.substr(digits)));
    CHECK(IsInteger(type) == (name.find("int") != std::string::npos));
  }
}

}  // namespace
}  // namespace shunt
