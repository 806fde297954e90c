// What every store must do.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "tests/storage/worlds.h"

namespace shunt::storage::testing {
namespace {

using absl::StatusCode;
using Names = std::vector<std::string>;

constexpr size_t kSizes[] = {0, 1, 511, 512, 4095, 4096, 4097, 70'001, (1 << 20) + 13};

// Without printing megabytes.
template <typename T>
bool Same(const T& a, const T& b) {
  return a == b;
}

Piece At(ObjectId object, uint64_t offset, Buffer& memory) {
  return {.object = object, .offset = offset, .memory = absl::MakeSpan(memory)};
}

TEMPLATE_LIST_TEST_CASE("objects of any size come back as they were written", "", Worlds) {
  TestType world;
  for (const size_t bytes : kSizes) {
    const std::string name = "object-" + std::to_string(bytes);
    const Buffer data = Pattern(bytes, bytes);
    world.Put(name, data);
    REQUIRE(Same(world.Get(name), data));
  }
  CHECK(world.Names().size() == std::size(kSizes));
}

TEMPLATE_LIST_TEST_CASE("one request reads many ranges of many objects", "", Worlds) {
  TestType world;
  constexpr size_t kBytes = 300'000;
  constexpr int kObjects = 5;
  std::vector<Buffer> written;
  std::vector<ObjectId> objects;
  for (int i = 0; i < kObjects; ++i) {
    const std::string name = "many-" + std::to_string(i);
    written.push_back(Pattern(kBytes, i));
    world.Put(name, written.back());
    const Completion opened = world.Open(name);
    REQUIRE(opened.status.ok());
    CHECK(opened.bytes == kBytes);
    objects.push_back(opened.object);
  }
  std::mt19937 random(1);
  struct Range {
    int object;
    size_t offset;
  };
  std::vector<Range> ranges;
  std::vector<Buffer> read;
  for (int i = 0; i < 200; ++i) {
    const size_t offset = random() % kBytes;
    const size_t bytes = random() % std::min<size_t>(kBytes - offset + 1, 20'000);
    ranges.push_back({.object = static_cast<int>(random() % kObjects), .offset = offset});
    read.emplace_back(bytes);
  }
  std::vector<Piece> pieces;
  size_t total = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    pieces.push_back(At(objects[ranges[i].object], ranges[i].offset, read[i]));
    total += read[i].size();
  }
  const Completion done = world.Read(pieces);
  INFO(done.status);
  REQUIRE(done.status.ok());
  CHECK(done.bytes == total);
  bool same = true;
  for (size_t i = 0; i < ranges.size(); ++i) {
    same &= std::memcmp(read[i].data(), written[ranges[i].object].data() + ranges[i].offset,
                        read[i].size()) == 0;
  }
  CHECK(same);
}

TEMPLATE_LIST_TEST_CASE("a draft is written in pieces of any order, and many drafts at once", "",
                        Worlds) {
  TestType world;
  constexpr size_t kPart = 10'007, kParts = 20;
  Buffer a = Pattern(kPart * kParts, 1), b = Pattern(kPart * kParts, 2);
  const Completion draft_a = world.Begin("a", a.size()), draft_b = world.Begin("b", b.size());
  REQUIRE(draft_a.status.ok());
  REQUIRE(draft_b.status.ok());
  std::vector<Piece> pieces;
  for (size_t i = kParts; i-- > 0;) {
    pieces.push_back({draft_a.object, i * kPart, absl::MakeSpan(a).subspan(i * kPart, kPart)});
    pieces.push_back({draft_b.object, i * kPart, absl::MakeSpan(b).subspan(i * kPart, kPart)});
  }
  const std::vector<Piece> late(pieces.end() - 6, pieces.end());
  pieces.resize(pieces.size() - 6);
  const Completion first = world.Write(pieces);
  INFO(first.status);
  REQUIRE(first.status.ok());
  REQUIRE(world.Write(late).status.ok());
  CHECK(world.Commit(draft_b.object).status.ok());
  CHECK(world.Commit(draft_a.object).status.ok());
  CHECK(Same(world.Get("a"), a));
  CHECK(Same(world.Get("b"), b));
}

TEMPLATE_LIST_TEST_CASE("memory of a write is the caller's again at its completion", "", Worlds) {
  TestType world;
  const Buffer data = Pattern(50'000, 1);
  const Completion draft = world.Begin("a", data.size());
  REQUIRE(draft.status.ok());
  for (const size_t part : {0, 1}) {
    Buffer half(data.begin() + part * 25'000, data.begin() + (part + 1) * 25'000);
    REQUIRE(world.Write(draft.object, half, part * 25'000).status.ok());
    std::fill(half.begin(), half.end(), std::byte{0xee});
  }
  REQUIRE(world.Commit(draft.object).status.ok());
  CHECK(Same(world.Get("a"), data));
}

TEMPLATE_LIST_TEST_CASE("a draft is not seen before its commit, and replaces what was there", "",
                        Worlds) {
  TestType world;
  const Buffer old_data = Pattern(5'000, 1);
  Buffer new_data = Pattern(9'000, 2);
  world.Put("a", old_data);
  const Completion draft = world.Begin("a", new_data.size());
  const Completion fresh = world.Begin("fresh", 100);
  REQUIRE(draft.status.ok());
  REQUIRE(fresh.status.ok());
  REQUIRE(world.Write(draft.object, new_data).status.ok());
  CHECK(Same(world.Get("a"), old_data));
  CHECK(world.Open("fresh").status.code() == StatusCode::kNotFound);
  REQUIRE(world.Commit(draft.object).status.ok());
  CHECK(Same(world.Get("a"), new_data));
  REQUIRE(world.Abort(fresh.object).status.ok());
  CHECK(world.Names() == Names{"a"});
}

TEMPLATE_LIST_TEST_CASE("an aborted draft leaves no trace", "", Worlds) {
  TestType world;
  const Buffer old_data = Pattern(100, 1);
  Buffer data = Pattern(60'000, 2);
  world.Put("old", old_data);
  const bool by_close = GENERATE(true, false);
  for (const char* name : {"old", "fresh"}) {
    const Completion draft = world.Begin(name, data.size());
    REQUIRE(draft.status.ok());
    REQUIRE(world.Write(draft.object, data).status.ok());
    if (by_close) {
      world.store().Close(draft.object);
    } else {
      REQUIRE(world.Abort(draft.object).status.ok());
    }
    CHECK(world.Commit(draft.object).status.code() == StatusCode::kNotFound);
  }
  if (!by_close) {
    CHECK(world.Names() == Names{"old"});
  }
  CHECK(Same(world.Get("old"), old_data));
  CHECK(world.Open("fresh").status.code() == StatusCode::kNotFound);
}

TEMPLATE_LIST_TEST_CASE("a draft with bytes missing is not committed", "", Worlds) {
  TestType world;
  Buffer data = Pattern(1000, 1);
  const Completion draft = world.Begin("a", 1001);
  REQUIRE(draft.status.ok());
  REQUIRE(world.Write(draft.object, data).status.ok());
  const Completion committed = world.Commit(draft.object);
  CHECK(committed.status.code() == StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(committed.status.message()),
             Catch::Contains("1000 bytes were written") && Catch::Contains("expected 1001"));
  CHECK(world.Open("a").status.code() == StatusCode::kNotFound);
  // It has ended the draft.
  CHECK(world.Commit(draft.object).status.code() == StatusCode::kNotFound);
}

TEMPLATE_LIST_TEST_CASE("a byte of a draft is written once", "", Worlds) {
  TestType world;
  Buffer data = Pattern(1000, 1), more(10);
  const Completion draft = world.Begin("a", 2000);
  REQUIRE(draft.status.ok());
  REQUIRE(world.Write(draft.object, data, 500).status.ok());
  const Completion twice = world.Write(draft.object, more, 495);
  CHECK(twice.status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(twice.status.message()), Catch::Contains("each byte once"));
  CHECK(world.Commit(draft.object).status.code() == StatusCode::kFailedPrecondition);
}

TEMPLATE_LIST_TEST_CASE("a draft with a write that was refused is not committed", "", Worlds) {
  TestType world;
  Buffer first = Pattern(10, 1), second = Pattern(10, 2);
  const Completion draft = world.Begin("a", 20);
  // The first piece is well, the second is not: none of it has come.
  CHECK(world
            .Write({{draft.object, 0, absl::MakeSpan(first)},
                    {draft.object, 15, absl::MakeSpan(second)}})
            .status.code() == StatusCode::kOutOfRange);
  world.Write(draft.object, second, 10);
  CHECK(world.Commit(draft.object).status.code() == StatusCode::kFailedPrecondition);
  CHECK(world.Names().empty());
}

TEMPLATE_LIST_TEST_CASE("a write only if absent doesn't replace", "", Worlds) {
  TestType world;
  Buffer first = Pattern(100, 1), second = Pattern(200, 2);
  const Completion a = world.Begin("a", first.size(), /*if_absent=*/true);
  const Completion b = world.Begin("a", second.size(), /*if_absent=*/true);
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  REQUIRE(world.Write(a.object, first).status.ok());
  REQUIRE(world.Write(b.object, second).status.ok());
  CHECK(world.Commit(a.object).status.ok());
  CHECK(world.Commit(b.object).status.code() == StatusCode::kAlreadyExists);
  CHECK(Same(world.Get("a"), first));
  CHECK(world.Names() == Names{"a"});
}

TEMPLATE_LIST_TEST_CASE("ranges beyond the end are refused with words and move nothing", "",
                        Worlds) {
  TestType world;
  world.Put("a", Pattern(1000, 1));
  const Completion opened = world.Open("a");
  REQUIRE(opened.status.ok());
  Buffer inside(10), memory(100);
  const uint64_t offset = GENERATE(901u, 1000u, 1001u, ~uint64_t{0}, ~uint64_t{0} - 99);
  const Completion read =
      world.Read({At(opened.object, 0, inside), At(opened.object, offset, memory)});
  CHECK(read.status.code() == StatusCode::kOutOfRange);
  CHECK_THAT(std::string(read.status.message()),
             Catch::Contains("a: 100 bytes at offset " + std::to_string(offset)) &&
                 Catch::Contains("expected at most 1000"));
  CHECK(Same(inside, Buffer(10)));
  const Completion draft = world.Begin("b", 1000);
  REQUIRE(draft.status.ok());
  CHECK(world.Write(draft.object, memory, offset).status.code() == StatusCode::kOutOfRange);
  CHECK(world.Abort(draft.object).status.ok());
}

TEMPLATE_LIST_TEST_CASE("what is not there is NOT_FOUND by name", "", Worlds) {
  TestType world;
  const Completion missing = world.Open("missing-thing");
  CHECK(missing.status.code() == StatusCode::kNotFound);
  CHECK_THAT(std::string(missing.status.message()), Catch::Contains("missing-thing"));
  const Completion nowhere = world.Do([&](uint64_t token) {
    world.store().PostOpen({.container = world.unknown_container(), .name = "a"}, token);
  });
  CHECK(nowhere.status.code() == StatusCode::kNotFound);
  CHECK_THAT(std::string(nowhere.status.message()), Catch::Contains(world.unknown_container()));
  Buffer memory(1);
  CHECK(world.Read({At(12345, 0, memory)}).status.code() == StatusCode::kNotFound);
  CHECK(world.Write(12345, memory).status.code() == StatusCode::kNotFound);
  CHECK(world.Commit(12345).status.code() == StatusCode::kNotFound);
  CHECK(world.Abort(12345).status.code() == StatusCode::kNotFound);
  world.store().Close(12345);
  world.store().Cancel(12345);
  CHECK(world.PollOnce() == 0);
}

TEMPLATE_LIST_TEST_CASE("names that can't be one are refused", "", Worlds) {
  TestType world;
  for (const std::string& name : {std::string(), std::string("a\0b", 3), std::string(9000, 'x')}) {
    CHECK(world.Open(name).status.code() == StatusCode::kInvalidArgument);
    CHECK(world.Begin(name, 1).status.code() == StatusCode::kInvalidArgument);
  }
  CHECK(world.Names().empty());
}

TEMPLATE_LIST_TEST_CASE("an object opened to be read is not written", "", Worlds) {
  TestType world;
  const Buffer data = Pattern(100, 1);
  world.Put("a", data);
  const Completion opened = world.Open("a");
  Buffer memory(10);
  CHECK(world.Write(opened.object, memory).status.code() == StatusCode::kPermissionDenied);
  CHECK(world.Commit(opened.object).status.code() == StatusCode::kInvalidArgument);
  CHECK(Same(world.Get("a"), data));
}

TEMPLATE_LIST_TEST_CASE("ranges are written in place", "", Worlds) {
  TestType world;
  Buffer data = Pattern(200'000, 1);
  world.Put("a", data);
  const Completion opened = world.Open("a", Access::kReadWrite);
  if (!world.store().features().in_place) {
    CHECK(opened.status.code() == StatusCode::kUnimplemented);
    CHECK(world.Sync(1).status.code() == StatusCode::kUnimplemented);
    return;
  }
  REQUIRE(opened.status.ok());
  std::vector<Buffer> memory;
  std::vector<Piece> pieces;
  memory.reserve(50);
  for (size_t i = 0; i < 50; ++i) {
    const size_t offset = i * 4000 + 13 * i % 400;
    memory.push_back(Pattern(1 + i * 67, 100 + i));
    std::copy(memory.back().begin(), memory.back().end(), data.begin() + offset);
    pieces.push_back(At(opened.object, offset, memory.back()));
  }
  const Completion written = world.Write(pieces);
  INFO(written.status);
  REQUIRE(written.status.ok());
  CHECK(world.Sync(opened.object).status.ok());
  CHECK(Same(world.Get("a"), data));
  // Not beyond its end.
  Buffer two(2);
  CHECK(world.Write(opened.object, two, 199'999).status.code() == StatusCode::kOutOfRange);
  CHECK(world.Get("a").size() == 200'000);
}

TEMPLATE_LIST_TEST_CASE("a deadline that has passed ends an operation", "", Worlds) {
  TestType world;
  world.Put("a", Pattern(100'000, 1));
  const Completion opened = world.Open("a");
  Buffer memory(100'000);
  const int64_t past = NowNs() - 1;
  const Completion read = world.Read({At(opened.object, 0, memory)}, past);
  CHECK(read.status.code() == StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(read.status.message()), Catch::Contains("deadline"));
  // The store goes on.
  CHECK(world.Read({At(opened.object, 0, memory)}).status.ok());
  const Completion draft = world.Begin("b", 100'000);
  CHECK(world.Write({At(draft.object, 0, memory)}, past).status.code() ==
        StatusCode::kDeadlineExceeded);
  CHECK(world.Commit(draft.object).status.code() == StatusCode::kFailedPrecondition);
  CHECK(world.Names() == Names{"a"});
}

TEMPLATE_LIST_TEST_CASE("every cancelled operation completes once, then touches no memory", "",
                        Worlds) {
  TestType world;
  const Buffer data = Pattern(1 << 20, 1);
  world.Put("a", data);
  const Completion opened = world.Open("a");
  std::vector<Buffer> memory(20, Buffer(1 << 20));
  std::vector<uint64_t> tokens;
  for (Buffer& buffer : memory) {
    tokens.push_back(world.NextToken());
    world.store().PostRead({.pieces = {At(opened.object, 0, buffer)}}, tokens.back());
    if (tokens.size() == 10) world.PollOnce();  // some are under way
  }
  for (const uint64_t token : tokens) world.store().Cancel(token);
  std::vector<Buffer> seen(memory.size());
  int cancelled = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Completion completion = world.Wait(tokens[i]);
    seen[i] = memory[i];
    if (completion.status.ok()) {
      CHECK(Same(memory[i], data));
    } else {
      CHECK(completion.status.code() == StatusCode::kCancelled);
      ++cancelled;
    }
  }
  CHECK(cancelled > 0);
  CHECK(Same(world.Get("a"), data));
  CHECK(Same(seen, memory));
  for (const uint64_t token : tokens) CHECK(!world.Ended(token));
}

TEMPLATE_LIST_TEST_CASE("aborting ends the writes under way first", "", Worlds) {
  TestType world;
  Buffer data = Pattern(1 << 20, 1);
  const Completion draft = world.Begin("a", data.size());
  REQUIRE(draft.status.ok());
  const uint64_t write = world.NextToken(), abort = world.NextToken();
  world.store().PostWrite({.pieces = {At(draft.object, 0, data)}}, write);
  world.store().PostAbort(draft.object, abort);
  while (!world.Ended(abort)) {
    if (world.PollOnce() > 0) continue;
    pollfd ready{.fd = world.store().fd(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&ready, 1, 20'000) > 0);
  }
  CHECK(world.Ended(write));
  CHECK(world.Wait(abort).status.ok());
  CHECK(world.Names().empty());
}

TEMPLATE_LIST_TEST_CASE("a closed object ends what is posted on it, then is gone", "", Worlds) {
  TestType world;
  const Buffer data = Pattern(100'000, 1);
  world.Put("a", data);
  const Completion opened = world.Open("a");
  Buffer memory(data.size());
  const uint64_t token = world.NextToken();
  world.store().PostRead({.pieces = {At(opened.object, 0, memory)}}, token);
  world.store().Close(opened.object);
  CHECK(world.Wait(token).status.ok());
  CHECK(Same(memory, data));
  CHECK(world.Read({At(opened.object, 0, memory)}).status.code() == StatusCode::kNotFound);
}

TEMPLATE_LIST_TEST_CASE("a request without pieces succeeds", "", Worlds) {
  TestType world;
  CHECK(world.Read({}).status.ok());
  CHECK(world.Write(std::vector<Piece>{}).status.ok());
}

TEMPLATE_LIST_TEST_CASE("memory that was added is used like any other", "", Worlds) {
  TestType world;
  Buffer memory(1 << 20);
  world.store().AddMemory(absl::MakeSpan(memory));
  const Buffer data = Pattern(700'000, 1);
  std::copy(data.begin(), data.end(), memory.begin() + 4096);
  const Completion draft = world.Begin("a", data.size());
  REQUIRE(world.Write({{draft.object, 0, absl::MakeSpan(memory).subspan(4096, data.size())}})
              .status.ok());
  REQUIRE(world.Commit(draft.object).status.ok());
  const Completion opened = world.Open("a");
  const absl::Span<std::byte> part = absl::MakeSpan(memory).subspan(111, data.size());
  REQUIRE(world.Read({{opened.object, 0, part}}).status.ok());
  CHECK(std::equal(part.begin(), part.end(), data.begin()));
  world.store().RemoveMemory(absl::MakeSpan(memory));
  CHECK(Same(world.Get("a"), data));
}

}  // namespace
}  // namespace shunt::storage::testing
