// Files as ends of transfers, through the C++ interface, in memory of a real shuntd's client.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/core/fd.h"
#include "tests/support/temp_dir.h"
#include "tests/transfer/world.h"

namespace shunt::testing {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBlocks = 64;
constexpr uint64_t kBytes = 4096;

TempDir& Root() {
  static TempDir root;
  return root;
}

TestDaemon& Daemon() {
  static TestDaemon daemon({"--storage-roots", "data=" + Root().path()});
  return daemon;
}

std::string Noise(uint64_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string noise(bytes, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return noise;
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t Entries(const std::string& directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

std::vector<uint32_t> Shuffled(uint64_t count) {
  std::vector<uint32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
  return ids;
}

// A session with memory of kBlocks blocks of noise, and a list of them.
struct Client {
  explicit Client(uint64_t blocks = kBlocks)
      : session(Open(Daemon())),
        agent(session.Agent(FreshAgent("files"))),
        memory(session.Allocate<char>(blocks * kBytes)),
        list(agent.Prepare({Blocks(memory.data(), kBytes, blocks)})) {
    const std::string noise = Noise(memory.size(), 1);
    std::copy(noise.begin(), noise.end(), memory.begin());
  }
  std::string Block(uint64_t i) const { return {memory.data() + i * kBytes, kBytes}; }

  Session session;
  Agent agent;
  Buffer<char> memory;
  List list;
};

// Of its name below the root; `flags` of open().
UniqueFd OpenFd(const std::string& name, int flags) {
  return UniqueFd(::open((Root() / name).c_str(), flags | O_CLOEXEC));
}

TEST_CASE("blocks of a file that the client has opened are read and written in any order") {
  REQUIRE_NOTHROW([] {
    const std::string data = Noise(kBlocks * kBytes, 2);
    Write(Root() / "in-place", data);
    Client c;
    File file;
    {
      const UniqueFd fd = OpenFd("in-place", O_RDWR);
      file = c.session.OpenFile(fd.get(), SHUNT_ACCESS_READ_WRITE);
      Expect(::fcntl(fd.get(), F_GETFD) >= 0, "the descriptor stays the caller's");
    }
    Expect(file.bytes() == data.size(), "the file's length");
    const List blocks = c.agent.Prepare({file.Blocks(0, kBytes, kBlocks)});
    const std::vector<uint32_t> ids = Shuffled(kBlocks);
    Transfer pull = c.agent.Pull(c.list.All(), blocks.Ids(ids));
    pull.Wait(30s);
    Expect(pull.Report().route == std::string("read"), "the route of a read");
    for (uint64_t i = 0; i < kBlocks; ++i) {
      Expect(c.Block(i) == data.substr(ids[i] * kBytes, kBytes), "block " + std::to_string(i));
    }

    const std::vector<uint32_t> from{1, 2, 3}, to{40, 0, 63};
    std::fill(c.memory.begin(), c.memory.end(), 'x');
    Transfer push = c.agent.Push(c.list.Ids(from), blocks.Ids(to));
    push.Wait(30s);
    Expect(push.Report().route == std::string("write"), "the route of a write");
    file.Sync();
    std::string expected = data;
    for (const uint32_t i : to) expected.replace(i * kBytes, kBytes, kBytes, 'x');
    Expect(Contents(Root() / "in-place") == expected, "the file's bytes");
  }());
}

TEST_CASE("either side of a transfer may be the file, and raw pieces name it by its region") {
  REQUIRE_NOTHROW([] {
    const std::string data = Noise(kBlocks * kBytes, 3);
    Write(Root() / "sides", data);
    Client c;
    const UniqueFd fd = OpenFd("sides", O_RDWR);
    File file = c.session.OpenFile(fd.get(), SHUNT_ACCESS_READ_WRITE);
    const List whole = c.agent.Prepare({file.Piece(0, file.bytes())});
    const std::vector<shunt_piece> odd{{file.region_id(), 77, 1001}, {file.region_id(), 9000, 99}};
    const std::vector<shunt_span> spans{{c.memory.data() + 5, 1100}};
    c.agent.Push(whole.Pieces(odd), c.list.Pointers(spans)).Wait(30s);
    Expect(std::string(c.memory.data() + 5, 1100) == data.substr(77, 1001) + data.substr(9000, 99),
           "what was read");
    c.agent.Pull(whole.Pieces(odd), c.list.Pointers({{c.memory.data(), 1100}})).Wait(30s);
    std::string expected = data;
    expected.replace(77, 1001, c.memory.data(), 1001);
    expected.replace(9000, 99, c.memory.data() + 1001, 99);
    Expect(Contents(Root() / "sides") == expected, "what was written");
    const shunt_explanation e = c.agent.Explain(SHUNT_PULL, c.list.All(), whole.All());
    Expect(e.route == std::string("read") && e.bytes == data.size(), "the explanation");
  }());
}

TEST_CASE("strided sets of several files are one list") {
  REQUIRE_NOTHROW([] {
    Client c;
    const std::string first = Noise(100'000, 4), second = Noise(50'000, 5);
    Write(Root() / "first", first);
    Write(Root() / "second", second);
    const File a = c.session.OpenFile("data", "first");
    const File b = c.session.OpenFile("data", "second");
    const List list = c.agent.Prepare(
        {a.Strided(10, 100, {{3, 30'000}, {2, 1'000}}), b.Blocks(7, 100, 4, 9'999)});
    Expect(list.pieces() == 10 && list.bytes() == 1000, "ten pieces");
    c.agent.Pull(c.list.Pointers({{c.memory.data(), 1000}}), list.All()).Wait(30s);
    std::string expected;
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 2; ++j) expected += first.substr(10 + i * 30'000 + j * 1'000, 100);
    }
    for (int i = 0; i < 4; ++i) expected += second.substr(7 + i * 9'999, 100);
    Expect(std::string(c.memory.data(), 1000) == expected, "the pieces in their order");
  }());
}

TEST_CASE("others fetch a section of a file and read it") {
  REQUIRE_NOTHROW([] {
    const std::string data = Noise(kBlocks * kBytes, 6);
    Write(Root() / "shared", data);
    Client owner, reader;
    const File file = owner.session.OpenFile("data", "shared");
    const List own =
        owner.agent.Publish("file", {file.Blocks(0, kBytes, kBlocks)}, SHUNT_ACCESS_READ);
    const List theirs = reader.agent.Fetch(owner.agent.name(), "file");
    reader.agent.Pull(reader.list.All(), theirs.All(), {.notification = "read"}).Wait(30s);
    Expect(std::string(reader.memory.data(), data.size()) == data, "the bytes");
    Expect(owner.agent.Notifications(10s).size() == 1, "the notification");
  }());
}

TEST_CASE("a draft appears whole with its commit, and not before") {
  REQUIRE_NOTHROW([] {
    std::filesystem::create_directory(Root() / "drafts");
    Client c;
    File draft = c.session.CreateFile("data", "drafts/x", kBlocks * kBytes, {.if_absent = true});
    Expect(draft.bytes() == kBlocks * kBytes, "its length");
    const List blocks = c.agent.Prepare({draft.Blocks(0, kBytes, kBlocks)});
    std::vector<uint32_t> ids = Shuffled(kBlocks), half(ids.begin() + 32, ids.end());
    ids.resize(32);
    c.agent.Push(c.list.Ids(ids), blocks.Ids(ids)).Wait(30s);
    c.agent.Push(c.list.Ids(half), blocks.Ids(half)).Wait(30s);
    Expect(!std::filesystem::exists(Root() / "drafts/x"), "nothing yet");
    draft.Commit();
    Expect(Contents(Root() / "drafts/x") == std::string(c.memory.data(), c.memory.size()),
           "the file");
    ExpectError(SHUNT_NOT_FOUND, {"drafts/x", "committed"}, [&] { draft.Commit(); });
    ExpectError(SHUNT_NOT_FOUND, {"committed"}, [&] { c.agent.Prepare({draft.Piece(0, 1)}); });
    draft.Close();
    ExpectError(SHUNT_ALREADY_EXISTS, {"drafts/x"},
                [&] { c.session.CreateFile("data", "drafts/x", 1, {.if_absent = true}); });
    // Without that it is replaced.
    File other = c.session.CreateFile("data", "drafts/x", 0);
    other.Commit();
    Expect(Contents(Root() / "drafts/x").empty(), "another one");
  }());
}

TEST_CASE("a draft that is closed or dropped leaves nothing") {
  REQUIRE_NOTHROW([] {
    std::filesystem::create_directory(Root() / "left");
    Client c;
    for (const bool close : {true, false}) {
      {
        File draft = c.session.CreateFile("data", "left/x", kBlocks * kBytes);
        const List blocks = c.agent.Prepare({draft.Blocks(0, kBytes, kBlocks)});
        const std::vector<uint32_t> one{3};
        c.agent.Push(c.list.Ids(one), blocks.Ids(one)).Wait(30s);
        if (close) {
          draft.Close();
          ExpectError(SHUNT_NOT_FOUND, {"region", "left/x"}, [&] { draft.Commit(); });
          ExpectError(SHUNT_NOT_FOUND, {"region"},
                      [&] { c.agent.Push(c.list.Ids(one), blocks.Ids(one)).Wait(30s); });
        }
      }
      Expect(Entries(Root() / "left") == 0, "an empty directory");
      // And it is not counted as open any more: a commit with bytes missing ends it too.
      File draft = c.session.CreateFile("data", "left/x", 100);
      ExpectError(SHUNT_FAILED_PRECONDITION, {"left/x", "0 bytes", "100"}, [&] { draft.Commit(); });
      draft.Close();
      Expect(Entries(Root() / "left") == 0, "an empty directory after a commit that failed");
    }
  }());
}

TEST_CASE("a file that a list names stays open when its handle goes, and a closed one is gone") {
  REQUIRE_NOTHROW([] {
    const std::string data = Noise(kBytes, 8);
    Write(Root() / "kept", data);
    Client c;
    const std::vector<uint32_t> one{0};
    List kept = [&] {
      const File file = c.session.OpenFile("data", "kept");
      return c.agent.Prepare({file.Piece(0, kBytes)});
    }();
    c.agent.Pull(c.list.Ids(one), kept.All()).Wait(30s);
    Expect(c.Block(0) == data, "the bytes");

    File file = c.session.OpenFile("data", "kept");
    const List list = c.agent.Prepare({file.Piece(0, kBytes)});
    file.Close();
    file.Close();
    ExpectError(SHUNT_NOT_FOUND, {"region"},
                [&] { c.agent.Pull(c.list.Ids(one), list.All()).Wait(30s); });
    ExpectError(SHUNT_NOT_FOUND, {"kept", "closed"}, [&] { file.Sync(); });
  }());
}

TEST_CASE("what is dropped is closed, whatever becomes of it first") {
  const TestDaemon few(
      {"--storage-roots", "data=" + Root().path(), "--max-regions-per-session", "2"});
  REQUIRE_NOTHROW([&] {
    Write(Root() / "few", Noise(kBytes, 11));
    Session session = Open(few);
    Agent agent = session.Agent(FreshAgent("few"));
    for (int i = 0; i < 10; ++i) {
      const File file = session.OpenFile("data", "few");
      const List list = agent.Prepare({file.Piece(0, kBytes)});
      const File draft = session.CreateFile("data", "few-draft", kBytes);
      const List other = agent.Prepare({draft.Piece(0, kBytes)});
    }
    for (int i = 0; i < 10; ++i) {
      File draft = session.CreateFile("data", "few-draft", 0);
      i % 2 == 0 ? draft.Commit() : draft.Close();
      File file = session.OpenFile("data", "few");
      if (i % 2 == 0) file.Close();
    }
    const File one = session.OpenFile("data", "few"), two = session.OpenFile("data", "few");
    ExpectError(SHUNT_RESOURCE_EXHAUSTED, {"max_regions_per_session", "2"},
                [&] { session.OpenFile("data", "few"); });
  }());
}

TEST_CASE("a file that a transfer uses is not closed, and a draft not committed") {
  REQUIRE_NOTHROW([] {
    // Pieces far apart, each of its own read: long enough to be met in flight.
    constexpr uint64_t kMany = 16384;
    std::filesystem::create_directory(Root() / "busy");
    Client c(kMany);
    File draft = c.session.CreateFile("data", "busy/x", kMany * kBytes);
    const List blocks = c.agent.Prepare({draft.Blocks(0, kBytes, kMany)});
    const std::vector<uint32_t> ids = Shuffled(kMany);
    Transfer push = c.agent.Push(c.list.All(), blocks.Ids(ids));
    ExpectError(SHUNT_FAILED_PRECONDITION, {"busy/x", "in use by push"}, [&] { draft.Commit(); });
    push.Wait(60s);
    draft.Commit();

    File file = c.session.OpenFile("data", "busy/x");
    const List again = c.agent.Prepare({file.Blocks(0, kBytes, kMany)});
    Transfer pull = c.agent.Pull(c.list.All(), again.Ids(ids));
    ExpectError(SHUNT_FAILED_PRECONDITION, {"busy/x", "in use by pull"}, [&] { file.Close(); });
    pull.Wait(60s);
    file.Close();
  }());
}

TEST_CASE("what cannot be opened is refused with the code that the documentation says") {
  REQUIRE_NOTHROW([] {
    Client c;
    Session& s = c.session;
    std::filesystem::create_directory(Root() / "directory");
    ::mkfifo((Root() / "fifo").c_str(), 0600);
    Write(Root() / "inside", "0123456789");
    std::filesystem::create_symlink("inside", Root() / "link");
    const auto refused = [](int code, const std::vector<std::string>& parts, const auto& call) {
      ExpectError(code, parts, call);
    };
    refused(SHUNT_NOT_FOUND, {"nowhere"}, [&] { s.OpenFile("nowhere", "x"); });
    refused(SHUNT_NOT_FOUND, {"missing"}, [&] { s.OpenFile("data", "missing"); });
    refused(SHUNT_INVALID_ARGUMENT, {"directory"}, [&] { s.OpenFile("data", "directory"); });
    refused(SHUNT_INVALID_ARGUMENT, {"fifo"}, [&] { s.OpenFile("data", "fifo"); });
    refused(SHUNT_INVALID_ARGUMENT, {"../x"}, [&] { s.OpenFile("data", "../x"); });
    refused(SHUNT_PERMISSION_DENIED, {"link"}, [&] { s.OpenFile("data", "link"); });
    refused(SHUNT_NOT_FOUND, {"endpoint 'minio'"},
            [&] { s.OpenObject({.endpoint = "minio", .bucket = "b", .key = "k"}); });
    refused(SHUNT_INVALID_ARGUMENT, {"fd is -1"}, [&] { s.OpenFile(-1); });
    refused(SHUNT_INVALID_ARGUMENT, {"fd is 999999"}, [&] { s.OpenFile(999999); });
    refused(SHUNT_INVALID_ARGUMENT, {"access is 2"},
            [&] { s.OpenFile("data", "inside", SHUNT_ACCESS_WRITE); });
    refused(SHUNT_INVALID_ARGUMENT, {"timeout_ns is -1"},
            [&] { s.OpenFile("data", "inside", SHUNT_ACCESS_READ, std::chrono::nanoseconds(-1)); });
    const UniqueFd reading = OpenFd("inside", O_RDONLY);
    refused(SHUNT_PERMISSION_DENIED, {},
            [&] { s.OpenFile(reading.get(), SHUNT_ACCESS_READ_WRITE); });

    File file = s.OpenFile(reading.get());
    refused(SHUNT_OUT_OF_RANGE, {"6 bytes from 5", "has 10"},
            [&] { c.agent.Prepare({file.Piece(5, 6)}); });
    const List ten = c.agent.Prepare({file.Piece(0, 10)});
    const std::vector<shunt_span> span{{c.memory.data(), 10}};
    refused(SHUNT_PERMISSION_DENIED, {"reading"},
            [&] { c.agent.Push(c.list.Pointers(span), ten.All()).Wait(30s); });
    Write(Root() / "outside", "0123456789");
    const File another = s.OpenFile("data", "outside", SHUNT_ACCESS_READ_WRITE);
    const List other_ten = c.agent.Prepare({another.Piece(0, 10)});
    refused(SHUNT_UNIMPLEMENTED, {"file"},
            [&] { c.agent.Pull(other_ten.All(), ten.All()).Wait(30s); });
    refused(SHUNT_INVALID_ARGUMENT, {"set 1", "sets of one kind"}, [&] {
      c.agent.Prepare({file.Piece(0, 1), Piece(c.memory.data(), 1)});
    });
    shunt_set both = file.Piece(0, 1);
    both.pointer = c.memory.data();
    refused(SHUNT_INVALID_ARGUMENT, {"sets[0]", "both"}, [&] { c.agent.Prepare({both}); });
    shunt_set none = Piece(c.memory.data(), 1);
    none.offset = 1;
    refused(SHUNT_INVALID_ARGUMENT, {"sets[0].offset is 1"}, [&] { c.agent.Prepare({none}); });
    Client other;
    refused(SHUNT_INVALID_ARGUMENT, {"sets[0].file", "session"},
            [&] { other.agent.Prepare({file.Piece(0, 1)}); });
    refused(SHUNT_INVALID_ARGUMENT, {"none"}, [&] { c.agent.Prepare({File().Piece(0, 1)}); });
    refused(SHUNT_FAILED_PRECONDITION, {"commit"}, [&] { s.CreateFile("data", "y", 1).Sync(); });
    refused(SHUNT_FAILED_PRECONDITION, {"opened"}, [&] { file.Commit(); });

    File draft = s.CreateFile("data", "twice", 20);
    const List half = c.agent.Prepare({draft.Blocks(0, 10, 2)});
    const std::vector<uint32_t> one{0};
    c.agent.Push(c.list.Pointers(span), half.Ids(one)).Wait(30s);
    refused(SHUNT_INVALID_ARGUMENT, {"twice"},
            [&] { c.agent.Push(c.list.Pointers(span), half.Ids(one)).Wait(30s); });
    refused(SHUNT_FAILED_PRECONDITION, {},
            [&] { c.agent.Pull(c.list.Pointers(span), half.Ids(one)).Wait(30s); });

    Write(Root() / "shrinks", Noise(kBytes, 9));
    const File shrinking = s.OpenFile("data", "shrinks");
    const List gone = c.agent.Prepare({shrinking.Piece(0, kBytes)});
    std::filesystem::resize_file(Root() / "shrinks", 10);
    refused(SHUNT_OUT_OF_RANGE, {}, [&] { c.agent.Pull(c.list.Ids(one), gone.All()).Wait(30s); });
  }());
}

TEST_CASE("a forked child may not use its parent's files, and ends none of them") {
  REQUIRE_NOTHROW([] {
    Write(Root() / "forked", Noise(kBytes, 10));
    Client c;
    auto file = std::make_unique<File>(c.session.OpenFile("data", "forked"));
    auto draft = std::make_unique<File>(c.session.CreateFile("data", "forked-draft", 0));
    Process::Fork([&] {
      ExpectError(SHUNT_FAILED_PRECONDITION, {"forked"}, [&] { file->Sync(); });
      ExpectError(SHUNT_FAILED_PRECONDITION, {"forked"}, [&] { draft->Commit(); });
      ExpectError(SHUNT_FAILED_PRECONDITION, {"forked"}, [&] { file->Close(); });
      ExpectError(SHUNT_FAILED_PRECONDITION, {"forked"},
                  [&] { c.session.OpenFile("data", "forked"); });
      file.reset();
      draft.reset();
    }).Join();
    const List list = c.agent.Prepare({file->Piece(0, kBytes)});
    const std::vector<uint32_t> one{0};
    c.agent.Pull(c.list.Ids(one), list.All()).Wait(30s);
    draft->Commit();
    Expect(std::filesystem::exists(Root() / "forked-draft"), "the draft");
  }());
}

}  // namespace
}  // namespace shunt::testing
