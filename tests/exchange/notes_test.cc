#include "runtime/exchange/notes.h"

#include <catch2/catch.hpp>

using namespace shunt::exchange;

TEST_CASE("a note comes back as it was written", "[notes]") {
  const Note notes[] = {FailedNote{3, "rank 1 died"},
                        CalledNote{1u << 31, 1ull << 60, "rank 2 called barrier #1"},
                        LeftNote{7, 12, "rank 7 (pid 1) on node b"},
                        FailedNote{0, ""},
                        ProposeNote{3, 1ull << 40, {30000, 5000, 1'000'000}},
                        AgreeNote{3, true},
                        DecideNote{4, false},
                        PresenceNote{true},
                        AddNote{1ull << 50, 77, 3, 4, 1ull << 40, 64, 63, 4096},
                        LossNote{7, 8, true, false, "aggregator x is lost", "rank 0 called it"}};
  for (const Note& note : notes) {
    const auto again = Decode(Encode(note, 4096));
    REQUIRE(again.has_value());
    CHECK(*again == note);
  }
}

TEST_CASE("long words are cut, numbers are not", "[notes]") {
  const std::string bytes = Encode(LeftNote{7, 12, std::string(5000, 'x')}, 64);
  CHECK(bytes.size() == 64);
  const auto note = Decode(bytes);
  REQUIRE(note.has_value());
  CHECK(std::get<LeftNote>(*note).collectives == 12);
  CHECK(std::get<LeftNote>(*note).words == std::string(64 - 13, 'x'));
}

TEST_CASE("of two texts that are too long each keeps a part", "[notes]") {
  const auto note =
      Decode(Encode(LossNote{7, 8, true, true, std::string(500, 'x'), std::string(500, 'y')}, 128));
  REQUIRE(note.has_value());
  const auto& loss = std::get<LossNote>(*note);
  CHECK(loss.why.size() > 40);
  CHECK(loss.call.size() > 40);
  CHECK(loss.why.find('y') == std::string::npos);
}

TEST_CASE("bytes that are no note give none", "[notes]") {
  CHECK_FALSE(Decode("").has_value());
  CHECK_FALSE(Decode(std::string_view("\0", 1)).has_value());
  CHECK_FALSE(Decode("\x7fwords").has_value());
  const std::string whole = Encode(CalledNote{1, 2, ""}, 64);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    INFO(bytes << " of " << whole.size() << " bytes");
    CHECK_FALSE(Decode(whole.substr(0, bytes)).has_value());
  }
  const std::string loss = Encode(LossNote{1, 2, true, false, "why", ""}, 64);
  for (size_t bytes = 0; bytes < loss.size(); ++bytes) {
    INFO(bytes << " of " << loss.size() << " bytes");
    CHECK_FALSE(Decode(loss.substr(0, bytes)).has_value());
  }
}

TEST_CASE("words come out printable", "[notes]") {
  const auto note = Decode(std::string("\x01\x02 a\xff\n\x1b[31m", 11));
  REQUIRE(note.has_value());
  CHECK(std::get<FailedNote>(*note).words == " a???[31m");
}
