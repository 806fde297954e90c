// What is particular to S3, over the real server.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "tests/storage/s3_world.h"
#include "tests/support/temp_dir.h"

namespace shunt::storage::testing {
namespace {

using absl::StatusCode;
using Names = std::vector<std::string>;

constexpr size_t kPart = 5 << 20;

// Without printing megabytes.
bool Same(const Buffer& a, const Buffer& b) { return a == b; }

std::string Words(const Completion& completion) { return std::string(completion.status.message()); }

// A store beside the world's, and one operation on it.
Completion OpenWith(const S3Options& options, const std::string& bucket, const std::string& name) {
  auto store = S3Store::Make(options);
  REQUIRE(store.ok());
  (*store)->PostOpen({.container = bucket, .name = name}, 1);
  for (Completion one;;) {
    if ((*store)->Poll(absl::MakeSpan(&one, 1)) == 1) return one;
    pollfd ready{.fd = (*store)->fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 10'000);
  }
}

TEST_CASE("large objects go in parts, and come back in parallel ranges") {
  S3World world;
  const Buffer data = Pattern(2 * kPart + 12'345, 1);
  world.Put("large", data);
  CHECK(Same(world.Get("large"), data));
  CHECK(world.Names() == Names{"large"});
}

TEST_CASE("parts that are written in pieces of any order are put together") {
  S3World world;
  Buffer data = Pattern(2 * kPart + 100, 2);
  const Completion draft = world.Begin("pieces", data.size());
  REQUIRE(draft.status.ok());
  const auto piece = [&](size_t begin, size_t end) {
    return Piece{draft.object, begin, absl::MakeSpan(data).subspan(begin, end - begin)};
  };
  // The middle of both, then the last byte, then a whole part in two spans, then the rest.
  REQUIRE(world.Write({piece(kPart - 7, kPart)}).status.ok());
  REQUIRE(world.Write({piece(2 * kPart, 2 * kPart + 100)}).status.ok());
  REQUIRE(world.Write({piece(kPart + 1000, 2 * kPart), piece(kPart, kPart + 1000)}).status.ok());
  CHECK(world.Open("pieces").status.code() == StatusCode::kNotFound);
  REQUIRE(world.Write({piece(0, kPart - 7)}).status.ok());
  const Completion committed = world.Commit(draft.object);
  INFO(committed.status);
  REQUIRE(committed.status.ok());
  CHECK(committed.bytes == data.size());
  CHECK(Same(world.Get("pieces"), data));
}

TEST_CASE("an upload that is aborted, closed or left leaves nothing on the server") {
  S3World world;
  Buffer data = Pattern(2 * kPart, 3);
  const Completion aborted = world.Begin("aborted", data.size());
  const Completion closed = world.Begin("closed", data.size());
  const Completion left = world.Begin("left", data.size());
  REQUIRE(left.status.ok());
  CHECK(world.Names() == Names{"upload of aborted", "upload of closed", "upload of left"});
  REQUIRE(world.Write({{aborted.object, 0, absl::MakeSpan(data).subspan(0, kPart)}}).status.ok());
  REQUIRE(world.Abort(aborted.object).status.ok());
  // Under way when the store goes.
  world.store().PostWrite({.pieces = {{left.object, 0, absl::MakeSpan(data)}}}, world.NextToken());
  world.store().Close(closed.object);
  world.PollOnce();
  world.Stop();
  CHECK(world.Names().empty());
}

TEST_CASE("a commit in parts that is refused leaves what was there, and no upload") {
  S3World world;
  Buffer data = Pattern(2 * kPart, 4);
  world.Put("a", Pattern(10, 1));
  const bool missing = GENERATE(true, false);
  const Completion draft = world.Begin("a", data.size(), /*if_absent=*/true);
  REQUIRE(draft.status.ok());
  const size_t bytes = missing ? data.size() - 1 : data.size();
  REQUIRE(world.Write({{draft.object, 0, absl::MakeSpan(data).subspan(0, bytes)}}).status.ok());
  CHECK(world.Commit(draft.object).status.code() ==
        (missing ? StatusCode::kFailedPrecondition : StatusCode::kAlreadyExists));
  CHECK(world.Names() == Names{"a"});
  CHECK(Same(world.Get("a"), Pattern(10, 1)));
}

TEST_CASE("pieces beyond what may wait are refused with words") {
  S3Options options = TestOptions();
  options.staging_bytes_max = kPart;
  S3World world(options);
  Buffer data = Pattern(100, 5);
  const Completion draft = world.Begin("a", 3 * kPart);
  REQUIRE(draft.status.ok());
  REQUIRE(world.Write(draft.object, data, 0).status.ok());
  const Completion second = world.Write(draft.object, data, kPart);
  CHECK(second.status.code() == StatusCode::kResourceExhausted);
  CHECK_THAT(Words(second), Catch::Contains("expected at most 5242880"));
  REQUIRE(world.Abort(draft.object).status.ok());
  // What it held is free again.
  const Completion next = world.Begin("b", 3 * kPart);
  CHECK(world.Write(next.object, data, 0).status.ok());
}

TEST_CASE("keys of any bytes that S3 takes are signed as they are sent") {
  S3World world;
  const Names names = {"a b",   "a+b",         "a/../b", "a//b", "dir/",
                       "ü/%41", "q?x=1&y=2#z", "*'()!",  "~-_.", "<&\">"};
  for (const std::string& name : names) {
    INFO(name);
    const Buffer data = Pattern(100, name.size());
    world.Put(name, data);
    CHECK(Same(world.Get(name), data));
  }
  Names sorted = names;
  std::sort(sorted.begin(), sorted.end());
  CHECK(world.Names() == sorted);
}

TEST_CASE("an object that is replaced or removed after it was opened ends reads") {
  S3World world;
  world.Put("a", Pattern(1000, 1));
  const Completion opened = world.Open("a");
  REQUIRE(opened.status.ok());
  Buffer memory(1000);
  world.Put("a", Pattern(1000, 2));
  const Completion replaced = world.Read({{opened.object, 0, absl::MakeSpan(memory)}});
  CHECK(replaced.status.code() == StatusCode::kAborted);
  CHECK_THAT(Words(replaced), Catch::Contains("/a was replaced"));
  const Completion again = world.Open("a");
  world.admin().Do({.method = "DELETE", .bucket = world.container(), .key = "a"});
  const Completion removed = world.Read({{again.object, 0, absl::MakeSpan(memory)}});
  CHECK(removed.status.code() == StatusCode::kNotFound);
  CHECK_THAT(Words(removed), Catch::Contains("/a") && Catch::Contains("NoSuchKey"));
}

TEST_CASE("a missing bucket and a missing key are told apart") {
  S3World world;
  CHECK_THAT(Words(world.Open("nothing")), Catch::Contains("NoSuchKey"));
  const S3Options options = TestOptions();
  const Completion bucket = OpenWith(options, "no-such-bucket", "a");
  CHECK(bucket.status.code() == StatusCode::kNotFound);
  CHECK_THAT(Words(bucket), Catch::Contains("no-such-bucket") && Catch::Contains("NoSuchBucket"));
  CHECK(OpenWith(options, "No_Such", "a").status.code() == StatusCode::kInvalidArgument);
}

TEST_CASE("wrong keys are UNAUTHENTICATED, and none of them shows") {
  S3World world;
  world.Put("a", Pattern(10, 1));
  S3Options options = TestOptions();
  options.credentials.secret_key = "wrong-secret-word";
  const Completion secret = OpenWith(options, world.container(), "a");
  CHECK(secret.status.code() == StatusCode::kUnauthenticated);
  CHECK_THAT(Words(secret), Catch::Contains("SignatureDoesNotMatch") &&
                                !Catch::Contains("wrong-secret-word") &&
                                !Catch::Contains("SHUNTTESTKEY"));
  options.credentials.access_key = "NOSUCHKEYID";
  const Completion key = OpenWith(options, world.container(), "a");
  CHECK(key.status.code() == StatusCode::kUnauthenticated);
  CHECK_THAT(Words(key), !Catch::Contains("NOSUCHKEYID"));
  options.credentials = {.kind = S3CredentialSource::Kind::kAnonymous};
  CHECK(OpenWith(options, world.container(), "a").status.code() == StatusCode::kPermissionDenied);
}

TEST_CASE("keys come from the environment and from a file") {
  S3World world;
  world.Put("a", Pattern(10, 1));
  S3Options options = TestOptions();
  options.credentials = {.kind = S3CredentialSource::Kind::kEnvironment};
  ::unsetenv("AWS_ACCESS_KEY_ID");
  const auto without = S3Store::Make(options);
  CHECK(without.status().code() == StatusCode::kUnauthenticated);
  CHECK_THAT(std::string(without.status().message()), Catch::Contains("AWS_ACCESS_KEY_ID"));
  ::setenv("AWS_ACCESS_KEY_ID", "SHUNTTESTKEY", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "shunt-test-secret", 1);
  CHECK(OpenWith(options, world.container(), "a").status.ok());

  const shunt::testing::TempDir directory;
  std::ofstream(directory / "credentials") << "[default]\naws_access_key_id = OTHER\n"
                                              "aws_secret_access_key = other\n\n"
                                              "[test]\naws_access_key_id=SHUNTTESTKEY\n"
                                              "aws_secret_access_key = shunt-test-secret\n";
  options.credentials = {.kind = S3CredentialSource::Kind::kFile,
                         .file = directory / "credentials",
                         .profile = "test"};
  CHECK(OpenWith(options, world.container(), "a").status.ok());
  options.credentials.profile = "absent";
  CHECK(S3Store::Make(options).status().code() == StatusCode::kNotFound);
}

TEST_CASE("keys that are replaced in their file are taken up when the old ones are refused") {
  S3World world;
  world.Put("a", Pattern(10, 1));
  const shunt::testing::TempDir directory;
  const auto write = [&](const char* key) {
    std::ofstream(directory / "credentials") << "[default]\naws_access_key_id = " << key
                                             << "\naws_secret_access_key = shunt-test-secret\n";
  };
  write("OLDKEY");
  S3Options options = TestOptions();
  options.credentials = {.kind = S3CredentialSource::Kind::kFile,
                         .file = directory / "credentials"};
  auto store = S3Store::Make(options);
  REQUIRE(store.ok());
  write("SHUNTTESTKEY");
  (*store)->PostOpen({.container = world.container(), .name = "a"}, 1);
  Completion one;
  while ((*store)->Poll(absl::MakeSpan(&one, 1)) == 0) {
    pollfd ready{.fd = (*store)->fd(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&ready, 1, 10'000) > 0);
  }
  INFO(one.status);
  CHECK(one.status.ok());
}

TEST_CASE("buckets can be part of the host name") {
  S3World world;
  world.Put("a/b c", Pattern(100, 1));
  S3Options options = TestOptions();
  options.endpoint.path_style = false;
  const std::string port = options.endpoint.url.substr(options.endpoint.url.rfind(':'));
  options.endpoint.url = "http://s3.localhost" + port;
  const Completion opened = OpenWith(options, world.container(), "a/b c");
  INFO(opened.status);
  CHECK(opened.status.ok());
  CHECK(opened.bytes == 100);
}

TEST_CASE("over TLS a server is believed if the configured authority has signed for it") {
  S3World world;
  world.Put("a", Pattern(100, 1));
  S3Options options = TestOptions();
  options.endpoint.url = std::getenv("SHUNT_TEST_S3_TLS");
  options.endpoint.ca_file = std::getenv("SHUNT_TEST_S3_CA");
  const Completion trusted = OpenWith(options, world.container(), "a");
  INFO(trusted.status);
  CHECK(trusted.status.ok());
  S3World over_tls(options);
  const Buffer data = Pattern(2 * kPart + 1, 3);
  over_tls.Put("b", data);
  CHECK(Same(over_tls.Get("b"), data));
  options.endpoint.ca_file.clear();
  const Completion unknown = OpenWith(options, world.container(), "a");
  CHECK(unknown.status.code() == StatusCode::kUnauthenticated);
  CHECK_THAT(Words(unknown), Catch::Contains("certificate"));
  options.endpoint.ca_file = "/nonexistent/ca.pem";
  CHECK(OpenWith(options, world.container(), "a").status.code() == StatusCode::kUnauthenticated);
}

TEST_CASE("a server that is gone is UNAVAILABLE, with the number of attempts") {
  S3Options options = TestOptions();
  options.attempts_max = 2;
  options.endpoint.url = "http://127.0.0.1:1";
  const Completion gone = OpenWith(options, "bucket", "a");
  CHECK(gone.status.code() == StatusCode::kUnavailable);
  CHECK_THAT(Words(gone), Catch::Contains("bucket/a") && Catch::Contains("2 attempts"));
}

}  // namespace
}  // namespace shunt::storage::testing
