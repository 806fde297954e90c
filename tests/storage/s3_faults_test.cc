// Servers that fail, lie, hang and vanish.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <mutex>

#include "runtime/storage/s3/s3_store.h"
#include "tests/storage/hostile_server.h"
#include "tests/storage/world.h"
#include "tests/support/temp_dir.h"

namespace shunt::storage::testing {
namespace {

using absl::StatusCode;

std::string Words(const Completion& completion) { return std::string(completion.status.message()); }

S3Options OptionsFor(const HostileServer& server) {
  return {.endpoint = {.url = server.url(), .path_style = true},
          .credentials = {.kind = S3CredentialSource::Kind::kStatic,
                          .access_key = "SHUNTTESTKEY",
                          .secret_key = "shunt-test-secret"},
          .part_bytes = 5 << 20,
          .backoff_first = std::chrono::milliseconds(1),
          .backoff_max = std::chrono::milliseconds(5),
          .end_timeout = std::chrono::seconds(1)};
}

class HostileWorld : public World {
 public:
  explicit HostileWorld(const S3Options& options) : store_(*S3Store::Make(options)) {}
  explicit HostileWorld(const HostileServer& server) : HostileWorld(OptionsFor(server)) {}
  Store& store() override { return *store_; }
  std::string container() const override { return "bucket"; }
  std::vector<std::string> Names() override { return {}; }
  void Stop() { store_.reset(); }

 private:
  std::unique_ptr<S3Store> store_;
};

constexpr char kContent[] = "0123456789";

bool Is(const std::string& head, const char* method) { return head.starts_with(method); }

Reply Head() { return {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"e\"\r\n\r\n"}; }
Reply Range(const std::string& body, const std::string& range = "bytes 0-9/10") {
  return {"HTTP/1.1 206 Partial Content\r\nContent-Range: " + range +
          "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body};
}

// Opens the object, with a good answer, and reads it, with the server's.
Completion ReadFrom(HostileWorld& world, Buffer* memory, int64_t deadline_ns = kNeverNs) {
  const Completion opened = world.Open("a");
  INFO(opened.status);
  REQUIRE(opened.status.ok());
  memory->assign(10, std::byte{0});
  return world.Read({{opened.object, 0, absl::MakeSpan(*memory)}}, deadline_ns);
}

std::string Text(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

TEST_CASE("answers that pass are tried again until they are good") {
  const std::vector<Reply> bad = {
      HttpError(503, "SlowDown"),
      HttpError(500),
      HttpError(429),
      {"", Then::kClose},
      {"", Then::kReset},
      {"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\nContent-Length: "
       "10\r\n\r\n0123",
       Then::kClose},
      {"HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\n01234", Then::kReset},
  };
  int reads = 0;
  HostileServer server([&](const std::string& head, const std::string&, int) {
    if (Is(head, "HEAD")) return Head();
    const size_t read = reads++;
    return read < bad.size() ? bad[read] : Range(kContent);
  });
  HostileWorld world(server);
  Buffer memory;
  const Completion read = ReadFrom(world, &memory);
  INFO(read.status);
  REQUIRE(read.status.ok());
  CHECK(Text(memory) == kContent);
}

TEST_CASE("what does not pass ends after so many attempts, with the number and without keys") {
  HostileServer server([](const std::string& head, const std::string&, int) {
    return Is(head, "HEAD") ? Head() : HttpError(503, "SlowDown");
  });
  S3Options options = OptionsFor(server);
  options.attempts_max = 3;
  HostileWorld world(options);
  Buffer memory;
  const Completion read = ReadFrom(world, &memory);
  CHECK(read.status.code() == StatusCode::kUnavailable);
  CHECK_THAT(Words(read), Catch::Contains("bucket/a") && Catch::Contains("503 (SlowDown)") &&
                              Catch::Contains("3 attempts") && !Catch::Contains("SHUNTTESTKEY"));
  CHECK(server.requests() == 4);
}

TEST_CASE("errors that will not pass are not tried again") {
  HostileServer server(
      [](const std::string&, const std::string&, int) { return HttpError(403, "AccessDenied"); });
  HostileWorld world(server);
  CHECK(world.Open("a").status.code() == StatusCode::kPermissionDenied);
  CHECK(server.requests() == 2);  // HEAD, and GET for its words
}

TEST_CASE("no attempt begins after the deadline, and a silent server is left at it") {
  const bool silent = GENERATE(true, false);
  HostileServer server([silent](const std::string& head, const std::string&, int) {
    if (Is(head, "HEAD")) return Head();
    return silent ? Reply{"", Then::kStall} : HttpError(503);
  });
  S3Options options = OptionsFor(server);
  options.attempts_max = 1000;
  HostileWorld world(options);
  Buffer memory;
  const int64_t deadline_ns = NowNs() + 200'000'000;
  const Completion read = ReadFrom(world, &memory, deadline_ns);
  CHECK((read.status.code() == StatusCode::kDeadlineExceeded ||
         (!silent && read.status.code() == StatusCode::kUnavailable)));
  CHECK(NowNs() < deadline_ns + 5'000'000'000);
}

TEST_CASE(
    "what could be tried again only after the deadline ends before it, with the server's words") {
  HostileServer server([](const std::string& head, const std::string&, int) {
    return Is(head, "HEAD") ? Head() : HttpError(503, "SlowDown");
  });
  S3Options options = OptionsFor(server);
  options.backoff_first = options.backoff_max = std::chrono::hours(1);
  HostileWorld world(options);
  Buffer memory;
  const int64_t deadline_ns = NowNs() + 10'000'000'000;
  const Completion read = ReadFrom(world, &memory, deadline_ns);
  CHECK(read.status.code() == StatusCode::kUnavailable);
  CHECK_THAT(Words(read), Catch::Contains("SlowDown") && Catch::Contains("no time for another"));
  CHECK(NowNs() < deadline_ns);
}

TEST_CASE("a read that is urgent goes before a queue of others") {
  // One request at a time, so that the server sees their order.
  std::mutex mutex;
  std::vector<std::string> order;
  HostileServer server([&](const std::string& head, const std::string&, int) {
    if (Is(head, "HEAD")) return Head();
    const std::lock_guard lock(mutex);
    order.push_back(head.substr(0, head.find(" HTTP")));
    return Range("x", "bytes 0-0/10");
  });
  S3Options options = OptionsFor(server);
  options.connections_max = 1;
  HostileWorld world(options);
  const ObjectId bulk = world.Open("bulk").object, urgent = world.Open("urgent").object;
  const ObjectId idle = world.Open("idle").object;
  Buffer memory(64);
  std::vector<uint64_t> tokens;
  const auto read = [&](ObjectId object, Urgency urgency) {
    tokens.push_back(world.NextToken());
    const auto into = absl::MakeSpan(memory).subspan(tokens.size(), 1);
    world.store().PostRead({.pieces = {{object, 0, into}}, .urgency = urgency}, tokens.back());
  };
  for (int i = 0; i < 20; ++i) read(bulk, Urgency::kBulk);
  read(idle, Urgency::kBackground);
  read(urgent, Urgency::kLatency);
  for (const uint64_t token : tokens) CHECK(world.Wait(token).status.ok());
  REQUIRE(order.size() == tokens.size());
  CHECK(order[0] == "GET /bucket/urgent");
  const auto idle_at = std::find(order.begin(), order.end(), "GET /bucket/idle") - order.begin();
  CHECK(idle_at < 17);  // one in sixteen, and not the last
}

TEST_CASE("parts that wait for their last bytes are paid for as long as they wait") {
  HostileServer server(
      [](const std::string&, const std::string&, int) { return Http200("", "ETag: \"e\"\r\n"); });
  HostileWorld world(server);
  uint64_t held = 0;
  const auto begin = [&](const char* name) {
    return world.Do([&](uint64_t token) {
      BeginRequest begin{.container = "bucket", .name = name, .bytes = 1000};
      begin.budget = [&held](uint64_t bytes,
                             std::string_view what) -> absl::StatusOr<std::shared_ptr<void>> {
        if (held + bytes > 1500) {
          return absl::ResourceExhaustedError("no memory for " + std::string(what));
        }
        held += bytes;
        return std::shared_ptr<void>(nullptr, [&held, bytes](void*) { held -= bytes; });
      };
      world.store().PostBegin(std::move(begin), token);
    });
  };
  Buffer data(1000);
  const Completion first = begin("first"), second = begin("second"), third = begin("third");
  CHECK(held == 0);
  CHECK(world.Write(first.object, data).status.ok());
  CHECK(held == 1000);
  const Completion refused = world.Write(second.object, data);
  CHECK(refused.status.code() == StatusCode::kResourceExhausted);
  CHECK_THAT(Words(refused), Catch::Contains("a part of an object"));
  CHECK(world.Commit(first.object).status.ok());
  CHECK(held == 0);
  CHECK(world.Write(third.object, data).status.ok());
  CHECK(world.Abort(third.object).status.ok());
  CHECK(held == 0);
}

TEST_CASE("a connection that stalls is given up and tried again") {
  int reads = 0;
  HostileServer server([&](const std::string& head, const std::string&, int) {
    if (Is(head, "HEAD")) return Head();
    Reply reply = Range(kContent);
    if (reads++ == 0) {
      reply.bytes.resize(reply.bytes.size() - 5);
      reply.then = Then::kStall;
    }
    return reply;
  });
  S3Options options = OptionsFor(server);
  options.stall_timeout = std::chrono::seconds(1);
  HostileWorld world(options);
  Buffer memory;
  const Completion read = ReadFrom(world, &memory);
  INFO(read.status);
  CHECK(read.status.ok());
  CHECK(Text(memory) == kContent);
}

TEST_CASE("a cancelled read of a silent server ends at once and touches nothing") {
  HostileServer server([](const std::string& head, const std::string&, int) {
    if (Is(head, "HEAD")) return Head();
    return Reply{
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\n"
        "Content-Length: 10\r\n\r\n01234",
        Then::kStall};
  });
  HostileWorld world(server);
  const Completion opened = world.Open("a");
  Buffer memory(10);
  const uint64_t token = world.NextToken();
  world.store().PostRead({.pieces = {{opened.object, 0, absl::MakeSpan(memory)}}}, token);
  for (world.PollOnce(); memory[0] == std::byte{0}; world.PollOnce()) {  // the half that comes
    pollfd ready{.fd = world.store().fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 10'000);
  }
  world.store().Cancel(token);
  REQUIRE(world.PollOnce() == 1);
  CHECK(world.Wait(token).status.code() == StatusCode::kCancelled);
}

TEST_CASE("lies about ranges are found") {
  const std::vector<std::pair<Reply, StatusCode>> lies = {
      {Range(kContent, "bytes 1-10/11"), StatusCode::kDataLoss},
      {Range(kContent, "bytes 1-9/10"), StatusCode::kDataLoss},
      {Range(kContent, "bytes 0-8/10"), StatusCode::kDataLoss},
      {Range(kContent, "bytes 0-9"), StatusCode::kDataLoss},
      {Range(std::string(10'000, 'x')), StatusCode::kDataLoss},
      {Range(kContent, "bytes 0-9/11"), StatusCode::kAborted},
      {Range(kContent, "bytes 0-9/10\r\nETag: \"other\""), StatusCode::kAborted},
      {Http200(kContent), StatusCode::kDataLoss},
      {Http200(std::string(5 << 20, 'x')), StatusCode::kDataLoss},
      {Range("012"), StatusCode::kUnavailable},
      {{"garbage\r\n\r\n", Then::kClose}, StatusCode::kUnavailable},
      {{"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"},
       StatusCode::kInternal},
  };
  for (const auto& [reply, code] : lies) {
    INFO(reply.bytes.substr(0, 100));
    HostileServer server([&reply = reply](const std::string& head, const std::string&, int) {
      return Is(head, "HEAD") ? Head() : reply;
    });
    S3Options options = OptionsFor(server);
    options.attempts_max = 2;
    HostileWorld world(options);
    Buffer memory;
    const Completion read = ReadFrom(world, &memory);
    INFO(read.status);
    CHECK(read.status.code() == code);
  }
}

constexpr size_t kTwoParts = (5 << 20) + 10;

// As much of S3's uploads as is needed, with a fault at the completion.
struct Uploads {
  std::function<Reply(int attempt)> complete;
  std::string stored_etag = "";  // of HEAD, if there is an object
  int lists_full = 0;            // so many answers say that parts are left
  int completes = 0, aborts = 0, parts = 0, lists = 0;

  Reply operator()(const std::string& head, const std::string&) {
    const bool upload = head.find("uploadId=u%26%3C") != std::string::npos;
    if (head.find("?uploads=") != std::string::npos) {
      return Http200(
          "<InitiateMultipartUploadResult><UploadId>u&amp;&lt;</UploadId>"
          "</InitiateMultipartUploadResult>");
    }
    if (upload && Is(head, "PUT")) {
      ++parts;
      return Http200("", "ETag: \"0123456789abcdef0123456789abcdef\"\r\n");
    }
    if (upload && Is(head, "POST")) return complete(completes++);
    if (upload && Is(head, "DELETE")) {
      ++aborts;
      return {"HTTP/1.1 204 No Content\r\n\r\n"};
    }
    if (upload && Is(head, "GET")) {
      return lists++ < lists_full ? Http200("<ListPartsResult/>") : HttpError(404, "NoSuchUpload");
    }
    if (Is(head, "HEAD") && !stored_etag.empty()) {
      return {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kTwoParts) +
              "\r\nETag: " + stored_etag + "\r\n\r\n"};
    }
    return HttpError(404, "NoSuchKey");
  }
};

Completion CommitParts(HostileWorld& world) {
  Buffer data = Pattern(kTwoParts, 1);
  const Completion draft = world.Begin("a", data.size());
  INFO(draft.status);
  REQUIRE(draft.status.ok());
  const Completion written = world.Write(draft.object, data);
  INFO(written.status);
  REQUIRE(written.status.ok());
  return world.Commit(draft.object);
}

const char kComplete[] =
    "<CompleteMultipartUploadResult><Key>a</Key></CompleteMultipartUploadResult>";

TEST_CASE("a completion whose answer is lost is looked for before it is called a failure") {
  // md5("0123456789abcdef0123456789abcdef" twice, as bytes) in hexadecimal, and the parts' number.
  const bool stored = GENERATE(true, false);
  Uploads uploads;
  uploads.complete = [](int attempt) {
    return attempt == 0 ? Reply{"", Then::kReset} : HttpError(404, "NoSuchUpload");
  };
  const std::string sums("\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef", 16);
  const std::string digest = Md5(sums + sums);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : digest) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[c & 15];
  }
  uploads.stored_etag = stored ? "\"" + hex + "-2\"" : "\"another\"";
  HostileServer server(
      [&](const std::string& head, const std::string& body, int) { return uploads(head, body); });
  HostileWorld world(server);
  const Completion committed = CommitParts(world);
  INFO(committed.status);
  CHECK(committed.status.code() == (stored ? StatusCode::kOk : StatusCode::kUnknown));
  CHECK(uploads.completes == 2);
}

TEST_CASE("a PUT whose answer is lost is looked for before it is called a failure") {
  // Ours; one as long whose ETag is no checksum, maybe ours; a shorter one.
  const auto [etag, bytes, code] = GENERATE(
      table<std::string, int, StatusCode>({{"594f803b380a41396ed63dca39503542", 5, StatusCode::kOk},
                                           {"another", 5, StatusCode::kUnknown},
                                           {"another", 4, StatusCode::kAlreadyExists}}));
  HostileServer server(
      [&, etag = etag, bytes = bytes](const std::string& head, const std::string&, int number) {
        if (Is(head, "PUT")) {
          return number == 0 ? Reply{"", Then::kReset} : HttpError(412, "PreconditionFailed");
        }
        return Reply{"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(bytes) +
                     "\r\nETag: \"" + etag + "\"\r\n\r\n"};
      });
  HostileWorld world(server);
  Buffer data(5, static_cast<std::byte>('a'));
  const Completion draft = world.Begin("a", 5, /*if_absent=*/true);
  REQUIRE(world.Write(draft.object, data).status.ok());
  const Completion committed = world.Commit(draft.object);
  INFO(committed.status);
  CHECK(committed.status.code() == code);
  CHECK(committed.bytes == (code == StatusCode::kOk ? 5 : 0));
}

TEST_CASE("a PUT that may have had its effect is UNKNOWN, one that had none is not") {
  const auto [reply, code, heads] = GENERATE(table<Reply, StatusCode, int>(
      {{{"", Then::kReset}, StatusCode::kUnknown, 1},
       {HttpError(500), StatusCode::kUnknown, 1},
       {HttpError(504), StatusCode::kUnknown, 1},
       {HttpError(503, "SlowDown"), StatusCode::kUnavailable, 0},
       {HttpError(403, "AccessDenied"), StatusCode::kPermissionDenied, 0}}));
  int heads_seen = 0;
  HostileServer server([&, reply = reply](const std::string& head, const std::string&, int) {
    if (!Is(head, "HEAD")) return reply;
    ++heads_seen;
    return HttpError(404);
  });
  S3Options options = OptionsFor(server);
  options.attempts_max = 2;
  HostileWorld world(options);
  Buffer data(5);
  const Completion draft = world.Begin("a", 5);
  REQUIRE(world.Write(draft.object, data).status.ok());
  const Completion committed = world.Commit(draft.object);
  INFO(committed.status);
  CHECK(committed.status.code() == code);
  CHECK(heads_seen == heads);
}

TEST_CASE("a PUT to nobody is not sent, and plainly a failure") {
  S3Options options;
  {
    HostileServer gone([](const std::string&, const std::string&, int) { return Reply{}; });
    options = OptionsFor(gone);
  }
  options.attempts_max = 2;
  HostileWorld world(options);
  Buffer data(5);
  const Completion draft = world.Begin("a", 5);
  REQUIRE(world.Write(draft.object, data).status.ok());
  CHECK(world.Commit(draft.object).status.code() == StatusCode::kUnavailable);
}

TEST_CASE("parts that come after the removal of their upload are removed too, a few times") {
  const int full = GENERATE(0, 2, 1000);
  Uploads uploads;
  uploads.lists_full = full;
  HostileServer server(
      [&](const std::string& head, const std::string& body, int) { return uploads(head, body); });
  HostileWorld world(server);
  const Completion draft = world.Begin("a", kTwoParts);
  REQUIRE(draft.status.ok());
  const Completion aborted = world.Abort(draft.object);
  INFO(aborted.status);
  CHECK(aborted.status.code() == (full == 1000 ? StatusCode::kUnavailable : StatusCode::kOk));
  CHECK(uploads.aborts == (full == 1000 ? 4 : full + 1));
}

TEST_CASE("the removal of an upload has a time of its own, and says when it was too short") {
  Uploads uploads;
  HostileServer server([&](const std::string& head, const std::string& body, int) {
    return Is(head, "DELETE") ? Reply{"", Then::kStall} : uploads(head, body);
  });
  S3Options options = OptionsFor(server);
  options.abort_timeout = std::chrono::milliseconds(100);
  HostileWorld world(options);
  const Completion draft = world.Begin("a", kTwoParts);
  REQUIRE(draft.status.ok());
  const Completion aborted = world.Abort(draft.object);
  CHECK(aborted.status.code() == StatusCode::kDeadlineExceeded);
  CHECK_THAT(Words(aborted), Catch::Contains("bucket/a") && Catch::Contains("may keep parts"));
}

TEST_CASE("bodies do not wait for a server that gives no leave to send them") {
  HostileServer server(
      [](const std::string&, const std::string&, int) { return Http200("", "ETag: \"x\"\r\n"); });
  server.GiveNoLeave();
  HostileWorld world(server);
  const int64_t start_ns = NowNs();
  constexpr int kPuts = 20;  // each of which would wait for a second, libcurl's default
  for (int i = 0; i < kPuts; ++i) world.Put("a", Pattern(2 << 20, 1));
  CHECK(NowNs() - start_ns < kPuts * int64_t{600'000'000});
}

TEST_CASE("a completion that fails aborts the upload") {
  const Reply reply =
      GENERATE(Http200("<Error><Code>InternalError</Code></Error>"), HttpError(400, "InvalidPart"),
               HttpError(412, "PreconditionFailed"), Http200("not xml"), Http200(""));
  Uploads uploads;
  uploads.complete = [&](int) { return reply; };
  HostileServer server(
      [&](const std::string& head, const std::string& body, int) { return uploads(head, body); });
  HostileWorld world(server);
  const Completion committed = CommitParts(world);
  INFO(committed.status);
  CHECK(!committed.status.ok());
  CHECK(uploads.aborts == 1);
}

TEST_CASE("a completion is well even if it took several attempts") {
  Uploads uploads;
  uploads.complete = [](int attempt) { return attempt < 2 ? HttpError(503) : Http200(kComplete); };
  HostileServer server(
      [&](const std::string& head, const std::string& body, int) { return uploads(head, body); });
  HostileWorld world(server);
  CHECK(CommitParts(world).status.ok());
  CHECK(uploads.parts == 2);
  CHECK(uploads.aborts == 0);
}

TEST_CASE("a begin that is cancelled forgets the upload that the server has begun") {
  Uploads uploads;
  bool begun = false;
  HostileServer server([&](const std::string& head, const std::string& body, int) {
    begun |= head.find("?uploads=") != std::string::npos;
    return uploads(head, body);
  });
  HostileWorld world(server);
  const uint64_t token = world.NextToken();
  world.store().PostBegin({.container = "bucket", .name = "a", .bytes = 20 << 20}, token);
  world.PollOnce();
  world.store().Cancel(token);
  CHECK(world.Wait(token).status.code() == StatusCode::kCancelled);
  world.Stop();
  CHECK(uploads.aborts == (begun ? 1 : 0));
}

TEST_CASE("uploads are checked by their MD5, and signed") {
  std::string head_seen;
  HostileServer server([&](const std::string& head, const std::string&, int) {
    head_seen = head;
    return Http200("", "ETag: \"x\"\r\n");
  });
  HostileWorld world(server);
  Buffer data(5, static_cast<std::byte>('a'));
  const Completion draft = world.Begin("a", 5, /*if_absent=*/true);
  REQUIRE(world.Write(draft.object, data).status.ok());
  REQUIRE(world.Commit(draft.object).status.ok());
  CHECK_THAT(head_seen, Catch::Contains("Content-MD5: WU+AOzgKQTlu1j3KOVA1Qg==") &&
                            Catch::Contains("If-None-Match: *") &&
                            Catch::Contains("AWS4-HMAC-SHA256 Credential=SHUNTTESTKEY/") &&
                            Catch::Contains("content-md5;") &&
                            !Catch::Contains("shunt-test-secret"));
}

// STS and S3 in one.
struct Sts {
  std::map<std::string, int> keys_seen;
  int exchanges = 0;
  std::string lifetime_end = "2099-01-01T00:00:00Z";
  std::function<Reply(int)> fault = {};

  Reply operator()(const std::string& head, const std::string& body) {
    if (Is(head, "POST / ")) {
      const int number = exchanges++;
      if (fault) {
        if (Reply reply = fault(number); !reply.bytes.empty()) return reply;
      }
      CHECK(body.find("WebIdentityToken=the.web%2Btoken") != std::string::npos);
      CHECK(body.find("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr") != std::string::npos);
      return Http200(
          "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
          "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>KEY" +
          std::to_string(number) +
          "</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>session" +
          std::to_string(number) + "</SessionToken><Expiration>" + lifetime_end +
          "</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
          "</AssumeRoleWithWebIdentityResponse>");
    }
    const size_t key = head.find("Credential=");
    if (key == std::string::npos) return HttpError(403, "AccessDenied");
    const std::string name = head.substr(key + 11, head.find('/', key) - key - 11);
    CHECK(head.find("x-amz-security-token: session" + name.substr(3)) != std::string::npos);
    ++keys_seen[name];
    return Head();
  }
};

S3Options WebIdentity(const HostileServer& server, const shunt::testing::TempDir& directory) {
  std::ofstream(directory / "token") << "the.web+token\n";
  S3Options options = OptionsFor(server);
  options.credentials = {.kind = S3CredentialSource::Kind::kWebIdentity,
                         .file = directory / "token",
                         .role = "arn:aws:iam::1:role/r",
                         .sts_url = server.url()};
  return options;
}

TEST_CASE("a web identity is exchanged for keys once, and for new ones when they end") {
  const bool ends_soon = GENERATE(false, true);
  Sts sts;
  // Within refresh_before of its end, which was long ago in the second case.
  if (ends_soon) sts.fault = [](int number) { return number == 0 ? HttpError(503) : Reply{}; };
  HostileServer server(
      [&](const std::string& head, const std::string& body, int) { return sts(head, body); });
  const shunt::testing::TempDir directory;
  HostileWorld world(WebIdentity(server, directory));
  CHECK(world.Open("a").status.ok());
  CHECK(world.Open("b").status.ok());
  CHECK(sts.exchanges == (ends_soon ? 2 : 1));
}

TEST_CASE("keys that S3 calls expired are exchanged for new ones, and the request goes again") {
  Sts sts;
  HostileServer server([&](const std::string& head, const std::string& body, int) {
    if (head.find("Credential=KEY0/") != std::string::npos && Is(head, "GET")) {
      return HttpError(400, "ExpiredToken");
    }
    if (Is(head, "GET")) return Range(kContent);
    return sts(head, body);
  });
  const shunt::testing::TempDir directory;
  HostileWorld world(WebIdentity(server, directory));
  Buffer memory;
  const Completion read = ReadFrom(world, &memory);
  INFO(read.status);
  CHECK(read.status.ok());
  CHECK(sts.exchanges == 2);
}

TEST_CASE("a web identity that is refused ends what waits for keys, and shows no token") {
  Sts sts;
  sts.fault = [](int) { return HttpError(400, "InvalidIdentityToken"); };
  HostileServer server(
      [&](const std::string& head, const std::string& body, int) { return sts(head, body); });
  const shunt::testing::TempDir directory;
  HostileWorld world(WebIdentity(server, directory));
  const Completion opened = world.Open("a");
  CHECK(opened.status.code() == StatusCode::kUnauthenticated);
  CHECK_THAT(Words(opened), Catch::Contains("arn:aws:iam::1:role/r") &&
                                Catch::Contains("InvalidIdentityToken") &&
                                !Catch::Contains("web+token"));
}

TEST_CASE("keys that have ended when they come are asked for again with patience") {
  Sts sts;
  sts.lifetime_end = "2001-01-01T00:00:00Z";
  HostileServer server(
      [&](const std::string& head, const std::string& body, int) { return sts(head, body); });
  const shunt::testing::TempDir directory;
  S3Options options = WebIdentity(server, directory);
  options.attempts_max = 3;
  HostileWorld world(options);
  const Completion opened = world.Do([&](uint64_t token) {
    world.store().PostOpen(
        {.container = "bucket", .name = "a", .deadline_ns = NowNs() + 5'000'000'000}, token);
  });
  CHECK(opened.status.code() == StatusCode::kUnavailable);
  CHECK_THAT(Words(opened), Catch::Contains("2001-01-01") && !Catch::Contains("secret"));
  CHECK(sts.exchanges == 3);
}

TEST_CASE("a web identity without its file is an error at the start") {
  HostileServer server([](const std::string&, const std::string&, int) { return Reply{}; });
  const shunt::testing::TempDir directory;
  S3Options options = WebIdentity(server, directory);
  options.credentials.file = directory / "absent";
  const auto store = S3Store::Make(options);
  CHECK(store.status().code() == StatusCode::kNotFound);
  CHECK_THAT(std::string(store.status().message()), Catch::Contains("web identity token"));
}

TEST_CASE("an endpoint that is no address is refused at the start") {
  for (const char* url : {"", "ftp://a", "http://", "http://a/b", "http://u@a", "http://a:0",
                          "http://a:99999", "http://a b", "http://a:1:2"}) {
    CHECK(!S3Store::Make({.endpoint = {.url = url},
                          .credentials = {.kind = S3CredentialSource::Kind::kAnonymous}})
               .ok());
  }
}

}  // namespace
}  // namespace shunt::storage::testing
