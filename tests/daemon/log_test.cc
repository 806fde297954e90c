#include "daemon/log.h"

#include <catch2/catch.hpp>

namespace shunt::daemon {
namespace {

TEST_CASE("text lines quote what is not plain") {
  CHECK(FormatLogLine(false, "session opened", {{"session", 3}, {"name", "rank-0"}}) ==
        "session opened session=3 name=rank-0");
  CHECK(FormatLogLine(false, "e", {{"a", "two words"}, {"b", ""}}) == "e a=\"two words\" b=\"\"");
  CHECK(FormatLogLine(false, "e", {{"a", "x=1"}}) == "e a=\"x=1\"");
}

TEST_CASE("a name from a client cannot forge a line or reach the terminal") {
  CHECK(FormatLogLine(false, "e", {{"a", "x\n2026 info fake"}}) == "e a=\"x\\n2026 info fake\"");
  CHECK(FormatLogLine(false, "e", {{"a", "\x1b[31m\""}}) == "e a=\"\\u001b[31m\\\"\"");
}

TEST_CASE("JSON lines keep numbers as numbers") {
  CHECK(FormatLogLine(true, "joined", {{"world", 4}, {"name", "a \"b\""}}) ==
        "\"event\":\"joined\",\"world\":4,\"name\":\"a \\\"b\\\"\"");
}

}  // namespace
}  // namespace shunt::daemon
