#include "bench/harness/record.h"

#include <catch2/catch.hpp>
#include <limits>

namespace shunt::bench {
namespace {

TEST_CASE("records are flat JSON with escaped text") {
  const Record record = Record()
                            .Set("op", "all_reduce")
                            .Set("text", "a \"quote\"\n")
                            .Set("time_us", 1.5)
                            .Set("bytes", uint64_t{1} << 40)
                            .Set("ratio", std::numeric_limits<double>::infinity());
  CHECK(record.ToJson() ==
        "{\"op\": \"all_reduce\", \"text\": \"a \\\"quote\\\"\\u000a\", \"time_us\": 1.5, "
        "\"bytes\": 1099511627776, \"ratio\": null}");
}

TEST_CASE("an unwritable file is an error") {
  CHECK(!WriteJson("/no/such/directory/file", {}).ok());
  CHECK(WriteJson("", {}).ok());
}

TEST_CASE("sizes take units of 1024") {
  uint64_t bytes = 0;
  CHECK((ParseBytes("8", &bytes).ok() && bytes == 8));
  CHECK((ParseBytes("64K", &bytes).ok() && bytes == 65536));
  CHECK((ParseBytes("1.5MiB", &bytes).ok() && bytes == 3u << 19));
  CHECK((ParseBytes("2gb", &bytes).ok() && bytes == uint64_t{2} << 30));
  for (const char* bad : {"", "x", "-1", "1T", "1 K", "nan", "1e30"}) {
    INFO(bad);
    CHECK(!ParseBytes(bad, &bytes).ok());
  }
}

TEST_CASE("the median of an even number of values is the upper middle") {
  CHECK(Median({3, 1, 2}) == 2);
  CHECK(Median({4, 1, 2, 3}) == 3);
}

}  // namespace
}  // namespace shunt::bench
