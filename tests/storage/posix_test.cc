// What is particular to files: descriptors, roots, durability of whole writes.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "tests/storage/children.h"
#include "tests/storage/worlds.h"
#include "tests/support/fds.h"

namespace shunt::storage::testing {
namespace {

using absl::StatusCode;
using Names = std::vector<std::string>;

Completion OpenFd(World& world, const std::string& path, int flags, Access access) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC));
  REQUIRE(fd.valid());
  return world.Do([&](uint64_t token) {
    world.store().PostOpen({.descriptor = std::move(fd), .access = access}, token);
  });
}

std::string Words(const Completion& completion) { return std::string(completion.status.message()); }

TEST_CASE("a client's descriptor is read and written in place, its flags unchanged") {
  PosixUringWorld world;
  world.Put("a", Pattern(100'000, 1));
  UniqueFd client(::open(world.Path("a").c_str(), O_RDWR | O_CLOEXEC));
  const int flags = ::fcntl(client.get(), F_GETFL);
  auto passed = Duplicate(client.get());
  REQUIRE(passed.ok());
  const Completion opened = world.Do([&](uint64_t token) {
    world.store().PostOpen({.descriptor = *std::move(passed), .access = Access::kReadWrite}, token);
  });
  REQUIRE(opened.status.ok());
  CHECK(opened.bytes == 100'000);
  // After it was unlinked too.
  REQUIRE(::unlink(world.Path("a").c_str()) == 0);
  Buffer data = Pattern(100'000, 2), back(100'000);
  REQUIRE(world.Write(opened.object, data).status.ok());
  REQUIRE(world.Sync(opened.object).status.ok());
  REQUIRE(::pread(client.get(), back.data(), back.size(), 0) == 100'000);
  CHECK((back == data));
  CHECK(::fcntl(client.get(), F_GETFL) == flags);
  CHECK(::lseek(client.get(), 0, SEEK_CUR) == 0);
}

TEST_CASE("a descriptor is held to what it was opened for") {
  PosixUringWorld world;
  world.Put("a", Pattern(100, 1));
  const std::string path = world.Path("a");
  const Completion read_only = OpenFd(world, path, O_RDONLY, Access::kReadWrite);
  CHECK(read_only.status.code() == StatusCode::kPermissionDenied);
  CHECK_THAT(Words(read_only), Catch::Contains("descriptor of 'a'") &&
                                   Catch::Contains("not open for writing") &&
                                   !Catch::Contains(path));
  const Completion write_only = OpenFd(world, path, O_WRONLY, Access::kRead);
  CHECK(write_only.status.code() == StatusCode::kPermissionDenied);
  CHECK(OpenFd(world, path, O_PATH, Access::kRead).status.code() == StatusCode::kPermissionDenied);
  const Completion append = OpenFd(world, path, O_RDWR | O_APPEND, Access::kReadWrite);
  CHECK(append.status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(Words(append), Catch::Contains("O_APPEND"));
  const Completion both = world.Do([&](uint64_t token) {
    world.store().PostOpen(
        {.descriptor = UniqueFd(::open(path.c_str(), O_RDONLY)), .container = "root", .name = "a"},
        token);
  });
  CHECK(both.status.code() == StatusCode::kInvalidArgument);
}

TEST_CASE("what is no regular file is refused by its kind, without waiting for it") {
  PosixUringWorld world;
  REQUIRE(::mkdir(world.Path("dir").c_str(), 0755) == 0);
  REQUIRE(::mkfifo(world.Path("fifo").c_str(), 0644) == 0);
  const Completion directory = world.Open("dir");
  CHECK(directory.status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(Words(directory), Catch::Contains("root/dir is a directory, expected a "
                                               "regular file"));
  const Completion fifo = world.Open("fifo");
  CHECK(fifo.status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(Words(fifo), Catch::Contains("FIFO"));
  CHECK(world.Open("dir", Access::kReadWrite).status.code() == StatusCode::kInvalidArgument);
  CHECK(world.Begin("dir", 1).status.code() == StatusCode::kInvalidArgument);
  CHECK(world.Begin("fifo", 1).status.code() == StatusCode::kInvalidArgument);
  CHECK(OpenFd(world, world.Path("dir"), O_RDONLY, Access::kRead).status.code() ==
        StatusCode::kInvalidArgument);
  CHECK(OpenFd(world, world.Path("fifo"), O_RDWR, Access::kRead).status.code() ==
        StatusCode::kInvalidArgument);
  CHECK(OpenFd(world, "/dev/null", O_RDWR, Access::kRead).status.code() ==
        StatusCode::kInvalidArgument);
  CHECK(world.Names() == Names{"fifo"});
}

TEST_CASE("no name leads out of a root") {
  PosixUringWorld world;
  const shunt::testing::TempDir outside;
  std::ofstream(outside / "secret") << "secret";
  std::filesystem::create_directory(world.Path("dir"));
  std::filesystem::create_symlink(outside / "secret", world.Path("link"));
  std::filesystem::create_symlink(outside.path(), world.Path("dir/out"));
  std::filesystem::create_symlink("a", world.Path("inside"));
  world.Put("a", Pattern(10, 1));
  world.Put("dir/b", Pattern(10, 2));
  for (const char* name : {"link", "dir/out/secret", "inside", "dir/out/new"}) {
    const Completion opened = world.Open(name);
    INFO(name << ": " << opened.status);
    CHECK(opened.status.code() == StatusCode::kPermissionDenied);
    CHECK_THAT(Words(opened), Catch::Contains("symbolic link"));
  }
  CHECK(world.Begin("dir/out/new", 1).status.code() == StatusCode::kPermissionDenied);
  CHECK(world.Begin("link", 1).status.code() == StatusCode::kInvalidArgument);
  for (const char* name : {"..", "../a", "/etc/passwd", "dir/../a", "./a", "dir//b", "dir/"}) {
    INFO(name);
    CHECK(world.Open(name).status.code() == StatusCode::kInvalidArgument);
    CHECK(world.Begin(name, 1).status.code() == StatusCode::kInvalidArgument);
  }
  CHECK(world.Open("a/b").status.code() == StatusCode::kInvalidArgument);
  CHECK(world.Open(".shunt-partial/x").status.code() == StatusCode::kPermissionDenied);
  CHECK(world.Begin(".shunt-partial/x", 1).status.code() == StatusCode::kPermissionDenied);
  CHECK(!std::filesystem::exists(outside / "new"));
}

// Kills a process at a step of its commit and looks at what is left.
void DieAt(DraftStep step, bool replace, bool unnamed) {
  INFO("step " << static_cast<int>(step) << (replace ? " replaces" : "")
               << (unnamed ? " unnamed" : " named"));
  PosixWorld world({.unnamed_drafts = unnamed});
  const Buffer old_data = Pattern(7'000, 1), new_data = Pattern(9'000, 2);
  if (replace) world.Put("a", old_data);
  world.Stop();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    PosixOptions options{.roots = {{.name = "root", .path = world.directory()}},
                         .unnamed_drafts = unnamed,
                         .draft_hook = [step](DraftStep at) {
                           if (at == step) ::kill(::getpid(), SIGKILL);
                         }};
    auto store = PosixStore::Make(options);
    if (!store.ok()) ::_exit(2);
    uint64_t token = 0;
    const auto wait = [&] {
      for (Completion one;;) {
        if ((*store)->Poll(absl::MakeSpan(&one, 1)) == 1) {
          if (!one.status.ok()) ::_exit(3);
          return one;
        }
        pollfd ready{.fd = (*store)->fd(), .events = POLLIN, .revents = 0};
        ::poll(&ready, 1, -1);
      }
    };
    (*store)->PostBegin({.container = "root", .name = "a", .bytes = new_data.size()}, ++token);
    const ObjectId draft = wait().object;
    Buffer data = new_data;
    (*store)->PostWrite({.pieces = {{draft, 0, absl::MakeSpan(data)}}}, ++token);
    wait();
    (*store)->PostCommit(draft, kNeverNs, ++token);
    wait();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  // A step that this way does not take lets the child end well.
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  REQUIRE((killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)));
  CHECK((killed || (step == DraftStep::kNamed && unnamed && !replace)));
  world.Restart();
  const bool published = !killed || step >= DraftStep::kPublished;
  if (published) {
    CHECK((world.Get("a") == new_data));
  } else if (replace) {
    CHECK((world.Get("a") == old_data));
  }
  CHECK(world.Names() == (published || replace ? Names{"a"} : Names{}));
}

TEST_CASE("a process killed at any step leaves the old or the new object, and nothing else") {
  for (const bool unnamed : {true, false}) {
    for (const bool replace : {true, false}) {
      for (int step = 0; step <= static_cast<int>(DraftStep::kDirectorySynced); ++step) {
        DieAt(static_cast<DraftStep>(step), replace, unnamed);
      }
    }
  }
}

TEST_CASE("whole blocks go past the page cache, heads and tails through it") {
  PosixUringWorld world;
  constexpr size_t kBytes = 1 << 20;
  const UniqueFd probe(::open(world.directory().c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600));
  if (!probe.valid()) {
    WARN("not tried: the file system of /tmp has no O_DIRECT");
    return;
  }
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));
  std::fill_n(memory, kBytes, std::byte{7});
  const Completion draft = world.Begin("a", kBytes + 100);
  Buffer tail(100, std::byte{8});
  REQUIRE(world
              .Write({{draft.object, 0, absl::MakeSpan(memory, kBytes)},
                      {draft.object, kBytes, absl::MakeSpan(tail)}})
              .status.ok());
  REQUIRE(world.Commit(draft.object).status.ok());
  const UniqueFd fd(::open(world.Path("a").c_str(), O_RDONLY));
  auto map = Mapping::Map(fd.get(), kBytes + 100, Mapping::Access::kReadOnly);
  REQUIRE(map.ok());
  const auto cached = [&](size_t offset) {
    unsigned char resident = 0;
    REQUIRE(::mincore(map->data() + offset / 4096 * 4096, 1, &resident) == 0);
    return (resident & 1) != 0;
  };
  CHECK(!cached(0));
  CHECK(!cached(kBytes - 1));
  CHECK(cached(kBytes));
  const Completion opened = world.Open("a");
  REQUIRE(world.Read({{opened.object, 0, absl::MakeSpan(memory, kBytes)}}).status.ok());
  CHECK(std::count(memory, memory + kBytes, std::byte{7}) == kBytes);
  CHECK(!cached(0));
  std::free(memory);
}

TEST_CASE("a start removes drafts of the dead only") {
  PosixPlainWorld world;
  const Completion draft = world.Begin("a", 10);  // by a living process: this one
  REQUIRE(draft.status.ok());
  const std::string partial = world.Path(".shunt-partial/");
  const std::string dead = "draft-0123456789abcdef0123456789abcdef";
  std::ofstream(partial + dead) << "left";
  std::ofstream(partial + "precious") << "not ours";
  std::filesystem::create_directory(partial + "draft-0123456789abcdef0123456789abcdee");
  std::filesystem::create_symlink("/etc/passwd",
                                  partial + "draft-0123456789abcdef0123456789abcded");
  auto other = PosixStore::Make({.roots = {{.name = "root", .path = world.directory()}}});
  REQUIRE(other.ok());
  CHECK(!std::filesystem::exists(partial + dead));
  CHECK(std::filesystem::exists(partial + "precious"));
  CHECK(std::filesystem::is_symlink(partial + "draft-0123456789abcdef0123456789abcded"));
  Buffer data = Pattern(10, 1);
  REQUIRE(world.Write(draft.object, data).status.ok());
  REQUIRE(world.Commit(draft.object).status.ok());
  CHECK((world.Get("a") == data));
}

TEST_CASE("a directory of drafts in which others may write is refused, at the start too") {
  PosixPlainWorld world;
  REQUIRE(world.Begin("a", 10).status.ok());
  const std::string partial = world.Path(".shunt-partial");
  const bool mode = GENERATE(true, false);
  if (!mode && ::geteuid() != 0) return;  // it can't be given to another
  REQUIRE((mode ? ::chmod(partial.c_str(), 0722) : ::chown(partial.c_str(), 12345, 0)) == 0);
  const Completion refused = world.Begin("b", 10);
  CHECK(refused.status.code() == StatusCode::kPermissionDenied);
  CHECK_THAT(Words(refused), Catch::Contains("root/.shunt-partial") && !Catch::Contains(partial) &&
                                 Catch::Contains(mode ? "mode 722" : "user 12345"));
  const auto start = PosixStore::Make({.roots = {{.name = "r", .path = world.directory()}}});
  CHECK(start.status().code() == StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(start.status().message()), Catch::Contains(world.directory()));
}

TEST_CASE("a file system that is mounted below a root takes no drafts, and says so at once") {
  const bool bound = GENERATE(true, false);
  const shunt::testing::TempDir root;
  std::filesystem::create_directory(root / "sub");
  CHECK(WithOwnMounts([&] {
    if (::mount(bound ? root.path().c_str() : "none", (root / "sub").c_str(), "tmpfs",
                bound ? MS_BIND : 0, nullptr) != 0) {
      return kMayNotMount;
    }
    auto store = PosixStore::Make({.roots = {{.name = "root", .path = root.path()}}});
    if (!store.ok()) return 2;
    (*store)->PostBegin({.container = "root", .name = "sub/a", .bytes = 10}, 1);
    Completion begun;
    while ((*store)->Poll(absl::MakeSpan(&begun, 1)) == 0) {
      pollfd ready{.fd = (*store)->fd(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, -1);
    }
    const bool said = Words(begun).find("sub/a lies in another") != std::string::npos;
    return begun.status.code() == StatusCode::kPermissionDenied && said ? 0 : 3;
  }));
}

TEST_CASE("names of others go into words without their control characters") {
  PosixUringWorld world;
  world.Put("a\n\x1b[2Jb", Pattern(10, 1));
  std::filesystem::create_symlink("a", world.Path("l\n"));
  for (const Completion& refused :
       {OpenFd(world, world.Path("a\n\x1b[2Jb"), O_WRONLY, Access::kRead), world.Open("l\n"),
        world.Open("x\n"), world.Open("l\n/x"), world.Open("x\n/..")}) {
    INFO(refused.status);
    CHECK(!refused.status.ok());
    CHECK(Words(refused).find_first_of("\n\x1b") == std::string::npos);
    CHECK_THAT(Words(refused), Catch::Contains("\\n"));
  }
}

TEST_CASE("roots that can't be used are named at the start") {
  const auto missing = PosixStore::Make({.roots = {{.name = "r", .path = "/nonexistent/dir"}}});
  CHECK(missing.status().code() == StatusCode::kNotFound);
  CHECK_THAT(std::string(missing.status().message()), Catch::Contains("/nonexistent/dir"));
  CHECK(PosixStore::Make({.roots = {{.name = "r", .path = "/"}, {.name = "r", .path = "/tmp"}}})
            .status()
            .code() == StatusCode::kInvalidArgument);
  CHECK(PosixStore::Make({.queue_depth = 0}).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("the engine can be chosen") {
  PosixWorld threads({.engine = IoEngine::kThreads});
  CHECK(std::string(threads.posix().engine()) == "threads");
  const auto uring = PosixStore::Make({.engine = IoEngine::kUring});
  if (!uring.ok()) {
    CHECK(uring.status().code() == StatusCode::kUnimplemented);
    PosixWorld automatic;
    CHECK(std::string(automatic.posix().engine()) == "threads");
  } else {
    CHECK(std::string((*uring)->engine()) == "io_uring");
  }
}

TEST_CASE("a destroyed store gives back every descriptor and draft") {
  PosixUringWorld world;
  world.Put("a", Pattern(1 << 20, 1));
  world.Stop();
  const int before = shunt::testing::CountOpenFds();
  world.Restart();
  const Completion opened = world.Open("a");
  REQUIRE(world.Begin("b", 1 << 20).status.ok());
  std::vector<Buffer> memory(8, Buffer(1 << 20));
  for (Buffer& buffer : memory) {
    world.store().PostRead({.pieces = {{opened.object, 0, absl::MakeSpan(buffer)}}},
                           world.NextToken());
    world.PollOnce();
  }
  world.store().PostBegin({.container = "root", .name = "c", .bytes = 100}, world.NextToken());
  world.Stop();
  CHECK(shunt::testing::CountOpenFds() == before);
  CHECK(world.Names() == Names{"a"});
}

}  // namespace
}  // namespace shunt::storage::testing
