// The index's bytes, its file, and its directory.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "runtime/kv/index_log.h"
#include "runtime/kv/posix_files.h"
#include "runtime/kv/write_down.h"
#include "tests/kv/sim_disk.h"
#include "tests/support/temp_dir.h"

namespace shunt::tiers::testing {
namespace {

using Catch::Contains;
using shunt::testing::TempDir;

std::string Words(const absl::Status& status) { return std::string(status.message()); }

IndexRecord Names(uint64_t slot, const std::string& key, Tier tier = Tier::kFile) {
  return {true, tier, slot, {key, 5, 99}};
}
IndexRecord Unnames(uint64_t slot, const std::string& key) {
  return {false, Tier::kFile, slot, {key, 5, 99}};
}

std::vector<std::byte> Log(const std::vector<IndexRecord>& records, uint64_t id = 7) {
  const auto header = EncodeHeader(4096, id);
  std::vector<std::byte> bytes(header.begin(), header.end());
  uint64_t number = 0;
  for (const IndexRecord& r : records) AppendRecord(*DecodeHeader(header), number++, r, &bytes);
  return bytes;
}

std::vector<std::string> Keys(const IndexContents& contents) {
  std::vector<std::string> keys;
  for (const IndexRecord& r : contents.All()) keys.push_back(r.block.key);
  return keys;
}

TEST_CASE("records are read as they were written, in the order in which they name") {
  const std::string odd("\0/\xff", 3);
  const std::string longest(64, 'k');
  const auto replayed = Replay(Log({Names(3, odd), Names(0, "b"), Names(0, longest, Tier::kObjects),
                                    Unnames(0, "b"), Names(0, "c")}));
  REQUIRE(replayed.ok());
  CHECK(replayed->why_stopped.empty());
  CHECK(replayed->records == 5);
  CHECK(Keys(replayed->contents) == std::vector<std::string>{odd, longest, "c"});
  const IndexRecord first = replayed->contents.All()[0];
  CHECK(first.slot == 3);
  CHECK(first.block == Block{odd, 5, 99});
}

TEST_CASE("any changed byte of a record ends the index before it") {
  const auto good = Log({Names(1, "a"), Names(2, "b"), Names(3, "c")});
  const size_t second = kIndexHeaderBytes + kIndexRecordBytes;
  for (size_t at = second; at < second + kIndexRecordBytes; ++at) {
    auto bytes = good;
    bytes[at] ^= std::byte{0x10};
    const auto replayed = Replay(bytes);
    REQUIRE(replayed.ok());
    REQUIRE(Keys(replayed->contents) == std::vector<std::string>{"a"});
    REQUIRE_THAT(replayed->why_stopped, Contains("at byte 168 of 376: record 1"));
  }
}

TEST_CASE("records that cannot follow are refused before anything is written") {
  SimDisk disk(4096);
  auto log = IndexLog::Open(&disk.directory(), 4096, 8);
  REQUIRE(log.ok());
  const std::vector<IndexRecord> good{Names(1, "a"), Unnames(1, "a"), Names(2, "a"), Names(1, "b")};
  REQUIRE((*log)->Append(good).ok());
  const auto before = disk.File(IndexLog::kName);
  const std::vector<std::vector<IndexRecord>> wrong{{Names(3, "c"), Names(4, "a")},
                                                    {Names(3, "c"), Names(3, "d")},
                                                    {Names(1, "c")},
                                                    {Names(3, "c"), Names(4, "c")},
                                                    {Unnames(2, "b")},
                                                    {Unnames(3, "a")},
                                                    {Unnames(1, "b"), Unnames(1, "b")}};
  for (const auto& records : wrong) {
    const absl::Status status = (*log)->Append(records);
    CHECK(absl::IsInternal(status));
    CHECK_THAT(Words(status), Contains("index.log: a record that cannot follow: slot "));
    CHECK(disk.File(IndexLog::kName) == before);
    CHECK(Keys((*log)->contents()) == std::vector<std::string>{"a", "b"});
  }
  CHECK((*log)->Append(std::vector{Names(3, "c")}).ok());
  CHECK(Replay(disk.File(IndexLog::kName))->records == 5);
}

TEST_CASE("a torn tail of any length is left out") {
  const auto good = Log({Names(1, "a"), Names(2, "b")});
  for (size_t cut = 1; cut < kIndexRecordBytes; ++cut) {
    const auto replayed = Replay(std::span(good).first(good.size() - cut));
    REQUIRE(replayed.ok());
    REQUIRE(replayed->records == 1);
    REQUIRE_FALSE(replayed->why_stopped.empty());
  }
}

TEST_CASE("a record is right only in its place and its file") {
  const auto one = Log({Names(1, "a")}), other = Log({Names(1, "a")}, 8);
  auto moved = Log({Names(1, "a"), Names(2, "b")});
  std::copy_n(one.end() - kIndexRecordBytes, kIndexRecordBytes, moved.end() - kIndexRecordBytes);
  CHECK(Replay(moved)->records == 1);
  auto foreign = one;
  std::copy_n(other.end() - kIndexRecordBytes, kIndexRecordBytes,
              foreign.end() - kIndexRecordBytes);
  CHECK(Replay(foreign)->records == 0);
}

TEST_CASE("records that contradict each other end the index") {
  CHECK_THAT(Replay(Log({Names(1, "a"), Names(1, "b")}))->why_stopped, Contains("named already"));
  CHECK_THAT(Replay(Log({Names(1, "a"), Names(2, "a")}))->why_stopped,
             Contains("names a slot already"));
  CHECK_THAT(Replay(Log({Unnames(1, "a")}))->why_stopped, Contains("was not named"));
  CHECK_THAT(Replay(Log({Names(1, "a"), Unnames(1, "b")}))->why_stopped, Contains("another block"));
}

// ---- Files

std::string FileOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

absl::StatusOr<std::unique_ptr<IndexLog>> Open(LogDirectory& directory, uint64_t slot_bytes = 4096,
                                               uint64_t slots = 100) {
  return IndexLog::Open(&directory, slot_bytes, slots);
}

TEST_CASE("an index is found again, also after its tail was torn") {
  const TempDir dir;
  const auto directory = OpenLogDirectory(dir.path());
  REQUIRE(directory.ok());
  {
    const auto log = Open(**directory);
    REQUIRE(log.ok());
    CHECK((*log)->notes().empty());
    REQUIRE((*log)->Append(std::vector{Names(1, "a"), Names(2, "b"), Names(3, "c")}).ok());
    REQUIRE((*log)->Sync().ok());
  }
  const std::string path = dir / "index.log";
  REQUIRE(::truncate(path.c_str(), static_cast<off_t>(FileOf(path).size() - 10)) == 0);
  {
    const auto log = Open(**directory);
    REQUIRE(log.ok());
    CHECK(Keys((*log)->contents()) == std::vector<std::string>{"a", "b"});
    CHECK_THAT((*log)->notes(), Contains(path) && Contains("record 2 has 94 bytes"));
    REQUIRE((*log)->Append(std::vector{Names(9, "d")}).ok());
  }
  const auto log = Open(**directory);
  REQUIRE(log.ok());
  CHECK((*log)->notes().empty());
  CHECK(Keys((*log)->contents()) == std::vector<std::string>{"a", "b", "d"});
}

TEST_CASE("what is no index of this version and these slots is refused and left alone") {
  const TempDir dir;
  const auto directory = OpenLogDirectory(dir.path());
  const std::string path = dir / "index.log";
  const auto refused = [&](std::string bytes, const std::string& words) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto log = Open(**directory);
    CHECK(absl::IsFailedPrecondition(log.status()));
    CHECK_THAT(Words(log.status()), Contains(path) && Contains(words) && Contains("left as it is"));
    CHECK(FileOf(path) == bytes);
  };
  refused("", "it has 0 bytes");
  refused(std::string(200, 'x'), "does not begin with");
  const auto good = Log({Names(1, "a")});
  std::string text(reinterpret_cast<const char*>(good.data()), good.size());
  std::string version = text;
  version[8] = 2;
  refused(version, "version 2, this library reads version 1");
  std::string sum = text;
  sum[30] = 'x';
  refused(sum, "checksum");
  std::ofstream(path, std::ios::binary) << text;
  const auto log = Open(**directory, 8192);
  CHECK_THAT(Words(log.status()), Contains("up to 4096 bytes, expected 8192"));
  CHECK(FileOf(path) == text);
}

TEST_CASE("an index of which most is past is written anew, and holds the same") {
  SimDisk disk(4096);
  const auto log = Open(disk.directory());
  REQUIRE(log.ok());
  for (int i = 0; i < 2000; ++i) {
    const std::string key = absl::StrCat("k", i);
    REQUIRE((*log)->Append(std::vector{Names(1, key)}).ok());
    if (i + 1 < 2000) REQUIRE((*log)->Append(std::vector{Unnames(1, key)}).ok());
  }
  CHECK((*log)->rewrites() >= 2);
  CHECK(disk.File("index.log").size() < 1100 * kIndexRecordBytes);
  CHECK_FALSE(disk.Has("index.new"));
  disk.Restart(false);
  CHECK(Keys((*Open(disk.directory()))->contents()) == std::vector<std::string>{"k1999"});
}

TEST_CASE("blocks behind the end of a smaller file tier are forgotten for good") {
  SimDisk disk(4096);
  REQUIRE((*Open(disk.directory()))
              ->Append(std::vector{Names(1, "a"), Names(50, "b"), Names(50, "o", Tier::kObjects)})
              .ok());
  {
    const auto log = Open(disk.directory(), 4096, 50);
    CHECK(Keys((*log)->contents()) == std::vector<std::string>{"a", "o"});
    CHECK_THAT((*log)->notes(), Contains("forgot 1 blocks"));
  }
  disk.Restart(true);
  CHECK(Keys((*Open(disk.directory()))->contents()) == std::vector<std::string>{"a", "o"});
}

TEST_CASE("a second store on a directory is refused until the first is gone") {
  const TempDir dir;
  {
    const auto first = LockDirectory(dir.path());
    REQUIRE(first.ok());
    const auto second = LockDirectory(dir.path());
    CHECK(absl::IsFailedPrecondition(second.status()));
    CHECK_THAT(Words(second.status()), Contains(dir.path()) && Contains("in use by another"));
  }
  CHECK(LockDirectory(dir.path()).ok());
}

TEST_CASE("the file of slots has room for all of them, and keeps what it held") {
  const TempDir dir;
  uint64_t was = 1;
  {
    const auto fd = OpenSlots(dir / "blocks.data", 10'000, &was);
    REQUIRE(fd.ok());
    CHECK(was == 0);
    REQUIRE(::pwrite(fd->get(), "abc", 3, 5000) == 3);
  }
  const auto fd = OpenSlots(dir / "blocks.data", 20'000, &was);
  REQUIRE(fd.ok());
  CHECK(was == 10'000);
  struct stat info;
  REQUIRE(::fstat(fd->get(), &info) == 0);
  CHECK(info.st_size == 20'000);
  CHECK(info.st_blocks * 512 >= 20'000);
  char read[3];
  CHECK(::pread(fd->get(), read, 3, 5000) == 3);
  CHECK(std::string(read, 3) == "abc");
}

TEST_CASE("directories that cannot be used are named") {
  const TempDir dir;
  CHECK(absl::IsNotFound(OpenLogDirectory(dir / "none").status()));
  std::ofstream(dir / "file") << "x";
  const auto file = OpenLogDirectory(dir / "file");
  CHECK(absl::IsInvalidArgument(file.status()));
  CHECK_THAT(Words(file.status()), Contains(dir / "file"));
}

TEST_CASE("keys are named in hexadecimal, and checked") {
  CHECK(Hex(std::string("\0\xab/", 3)) == "00ab2f");
  CHECK_FALSE(CheckKey("").ok());
  CHECK(CheckKey(std::string(64, 'x')).ok());
  CHECK_THAT(Words(CheckKey(std::string(65, 'x'))), Contains("65 bytes, expected 1 to 64"));
}

}  // namespace
}  // namespace shunt::tiers::testing
