#include "daemon/recorder/recorder.h"

#include <malloc.h>

#include <catch2/catch.hpp>

namespace shunt::daemon {
namespace {

std::unique_ptr<ExchangeNote> Exchange(uint64_t communicator, uint64_t sequence) {
  auto note = std::make_unique<ExchangeNote>();
  note->communicator = communicator;
  note->sequence = sequence;
  return note;
}

TEST_CASE("each communicator's last exchanges are kept") {
  Recorder recorder({.calls = 4, .transfers = 4, .memory_bytes = 1 << 20});
  for (uint64_t i = 1; i <= 10; ++i) {
    recorder.Add(Exchange(1, i));
    if (i <= 2) recorder.Add(Exchange(2, i));
  }
  const auto one = recorder.ExchangesOf(1), two = recorder.ExchangesOf(2);
  REQUIRE(one.size() == 4);
  CHECK((one.front()->sequence == 7 && one.back()->sequence == 10));
  REQUIRE(two.size() == 2);
  CHECK(recorder.ExchangesOf(3).empty());
}

TEST_CASE("a communicator that ends keeps its exchanges") {
  Recorder recorder({.calls = 4, .transfers = 4, .memory_bytes = 1 << 20});
  recorder.Add(Exchange(1, 1));
  recorder.Add(Exchange(2, 1));
  PastCommunicator past;
  past.id = 1;
  past.name = "gone";
  recorder.Close(past);
  CHECK(recorder.ExchangesOf(1).empty());
  CHECK(recorder.ExchangesOf(2).size() == 1);
  REQUIRE(recorder.Past().size() == 1);
  CHECK(recorder.Past()[0]->name == "gone");
  CHECK(recorder.Past()[0]->exchanges.size() == 1);
}

TEST_CASE("the recorder that is off keeps nothing") {
  Recorder recorder({.calls = 0, .transfers = 0, .memory_bytes = 1 << 20});
  CHECK(recorder.Add(Exchange(1, 1)) == nullptr);
  recorder.Add(TransferNote{});
  recorder.Close(PastCommunicator{});
  CHECK(recorder.Past().empty());
  CHECK(recorder.Transfers().empty());
  CHECK(recorder.bytes() == 0);
}

TEST_CASE("a million of everything takes no more than a few thousand") {
  constexpr size_t kBytes = 1 << 20;
  Recorder recorder({.calls = 64, .transfers = 100'000, .memory_bytes = kBytes});
  const auto fill = [&](uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) {
      TransferNote note;
      note.id = i;
      note.with = "agent \"a name that is longer than a small string\"";
      note.outcome = absl::InternalError(std::string(1000, 'x'));
      recorder.Add(std::move(note));
      recorder.Add(Exchange(i % 1000, i));
      if (i % 100 != 0) continue;
      PastCommunicator past;
      past.id = i % 1000;
      past.ranks.resize(8);
      for (auto& rank : past.ranks) rank.calls.resize(16);
      recorder.Close(std::move(past));
    }
  };
  fill(1, 50'000);
  CHECK(recorder.bytes() <= kBytes);
  ::malloc_trim(0);
  const size_t used = ::mallinfo2().uordblks;
  fill(50'000, 1'050'000);
  CHECK(recorder.bytes() <= kBytes);
  CHECK(::mallinfo2().uordblks <= used + kBytes / 2);
  // The newest is there.
  CHECK(recorder.Transfers().back().id == 1'049'999);
  CHECK(recorder.Transfers().back().outcome.message().size() == 256);
}

}  // namespace
}  // namespace shunt::daemon
