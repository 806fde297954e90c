// What is sent to S3 and read from it, without a server.
#include <catch2/catch.hpp>
#include <string>

#include "runtime/storage/s3/answer.h"
#include "runtime/storage/s3/backoff.h"
#include "runtime/storage/s3/credentials.h"
#include "runtime/storage/s3/uri.h"
#include "runtime/storage/s3/xml.h"

namespace shunt::storage {
namespace {

TEST_CASE("addresses are encoded as they are signed") {
  const UrlParts path = *ParseEndpointUrl("http://127.0.0.1:7480");
  const UrlParts host = *ParseEndpointUrl("https://s3.example:444");
  CHECK(MakeUrl(path, true, "bkt", "a b/\xc3\xbc+*~", {}) ==
        "http://127.0.0.1:7480/bkt/a%20b/%C3%BC%2B%2A~");
  CHECK(MakeUrl(host, false, "bkt", "k?", {{"partNumber", "1"}, {"uploadId", "2~/="}}) ==
        "https://bkt.s3.example:444/k%3F?partNumber=1&uploadId=2~%2F%3D");
  CHECK(MakeUrl(path, true, "bkt", "", {{"uploads", ""}}) == "http://127.0.0.1:7480/bkt?uploads=");
}

TEST_CASE("endpoints are a scheme, a host and maybe a port") {
  CHECK(ParseEndpointUrl("https://[2001:db8::1]:9000")->authority == "[2001:db8::1]:9000");
  CHECK(ParseEndpointUrl("http://localhost")->authority == "localhost");
  for (const char* url :
       {"s3.example", "https://", "https://a/", "https://a?b", "https://u:p@a", "https://a\r\nX: y",
        "file://a", "https://a:", "https://a:70000", "https://[::1", "HTTPS://a"}) {
    INFO(url);
    CHECK(!ParseEndpointUrl(url).ok());
  }
}

TEST_CASE("buckets can't reach into the host name") {
  for (const char* bucket : {"abc", "a.b-c", "0123456789"}) CHECK(CheckBucket(bucket).ok());
  for (const char* bucket : {"", "ab", "A-b", "a/b", "a..b", ".abc", "abc-", "a b", "evil.com/x"}) {
    INFO(bucket);
    CHECK(!CheckBucket(bucket).ok());
  }
  CHECK(!CheckBucket(std::string(64, 'a')).ok());
}

TEST_CASE("XML gives the texts of its leaves") {
  const auto texts = ParseXml(
      "<?xml version=\"1.0\"?>\n<r xmlns=\"x\"><!-- <no/> --><a> one </a><p:b><c>2 &lt;&#x20AC;"
      "&#65;</c><c/></p:b></r>\n");
  REQUIRE(texts.ok());
  REQUIRE(texts->size() == 3);
  CHECK(*FindText(*texts, "r/a") == "one");
  CHECK(*FindText(*texts, "r/b/c") ==
        "2 <\xe2\x82\xac"
        "A");
  CHECK(FindText(*texts, "r/b") == nullptr);
  CHECK((*texts)[2].text.empty());
}

TEST_CASE("XML that is none, or asks for too much, is an error") {
  std::string deep;
  for (int i = 0; i < 17; ++i) deep += "<a>";
  for (int i = 0; i < 17; ++i) deep += "</a>";
  for (const std::string& xml :
       {std::string(), std::string("text"), std::string("<a>"), std::string("<a></b>"),
        std::string("<a></a><b></b>"), std::string("<a>&unknown;</a>"), std::string("<a>&#0;</a>"),
        std::string("<a>&#xD800;</a>"), std::string("<a b></a>"), std::string("<a b=c></a>"),
        std::string("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>"), std::string("<a/>x"),
        std::string("</a>"), std::string("<a><!-- </a>"), deep}) {
    INFO(xml);
    CHECK(ParseXml(xml).status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("answers of S3 become codes that can be acted on") {
  const auto code = [](int status, const std::string& word) {
    return Explain(
        "b/k", status,
        word.empty() ? "" : "<Error><Code>" + word + "</Code><Message>secret</Message></Error>");
  };
  CHECK(code(404, "NoSuchKey").status.code() == absl::StatusCode::kNotFound);
  CHECK(code(403, "AccessDenied").status.code() == absl::StatusCode::kPermissionDenied);
  CHECK(code(403, "SignatureDoesNotMatch").status.code() == absl::StatusCode::kUnauthenticated);
  CHECK(code(400, "ExpiredToken").new_credentials);
  CHECK(code(503, "SlowDown").retry);
  CHECK(code(500, "").retry);
  CHECK(code(502, "NeverHeardOfIt").retry);
  CHECK(!code(400, "NeverHeardOfIt").retry);
  CHECK(code(412, "").status.code() == absl::StatusCode::kAborted);
  CHECK(code(404, "NoSuchKey").status.message() ==
        "b/k: the server answered 404 (NoSuchKey), expected success");
  CHECK(Explain("b/k", 503, "<html>busy").status.message() ==
        "b/k: the server answered 503, expected success");
}

TEST_CASE("content ranges are read strictly") {
  const auto range = ParseContentRange("bytes 3-9/70");
  REQUIRE(range.has_value());
  CHECK(range->first == 3);
  CHECK(range->last == 9);
  CHECK(range->size == 70);
  for (const char* value :
       {"", "bytes 3-9", "bytes 3-9/*", "bytes */70", "bytes 9-3/70", "bytes 3-70/70",
        "bytes -3-9/70", "bytes 3-9/70x", "bytes 3-99999999999999999999999/70"}) {
    INFO(value);
    CHECK(!ParseContentRange(value).has_value());
  }
}

TEST_CASE("waits grow to their limit and are spread from nothing on") {
  using std::chrono::milliseconds;
  CHECK(Backoff(1, milliseconds(50), milliseconds(5000), 0.5) == milliseconds(25));
  CHECK(Backoff(3, milliseconds(50), milliseconds(5000), 0.5) == milliseconds(100));
  CHECK(Backoff(40, milliseconds(50), milliseconds(5000), 0.5) == milliseconds(2500));
  CHECK(Backoff(1, milliseconds(50), milliseconds(10), 0.0) == milliseconds(0));
}

TEST_CASE("keys with line breaks never get into a header") {
  CHECK(CheckCredentials("x", {.access_key = "a", .secret_key = "b"}).ok());
  const absl::Status bad =
      CheckCredentials("x", {.access_key = "a\r\nHost: evil", .secret_key = "b"});
  CHECK(bad.code() == absl::StatusCode::kUnauthenticated);
  CHECK_THAT(std::string(bad.message()), !Catch::Contains("evil"));
  CHECK(ParseCredentialsFile("[default]\naws_access_key_id = a b\naws_secret_access_key=c\n",
                             "default")
            .status()
            .code() == absl::StatusCode::kUnauthenticated);
  const auto upper = ParseCredentialsFile(
      "; x\r\n[ prod ]\r\nAWS_Access_Key_Id=k\r\naws_secret_access_key = s=t\r\n", "prod");
  REQUIRE(upper.ok());
  CHECK(upper->secret_key == "s=t");
}

}  // namespace
}  // namespace shunt::storage
