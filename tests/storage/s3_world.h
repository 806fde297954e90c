// A real S3 server, which s3_server.py has started: SHUNT_TEST_S3 is its address.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/storage/s3/calls.h"
#include "runtime/storage/s3/s3_store.h"
#include "runtime/storage/s3/xml.h"
#include "tests/storage/world.h"

namespace shunt::storage::testing {

inline S3Options TestOptions() {
  const char* const url = std::getenv("SHUNT_TEST_S3");
  SHUNT_CHECK(url != nullptr);
  return {.endpoint = {.url = url, .path_style = true},
          .credentials = {.kind = S3CredentialSource::Kind::kStatic,
                          .access_key = "SHUNTTESTKEY",
                          .secret_key = "shunt-test-secret"},
          .part_bytes = 5 << 20};
}

// Makes buckets and lists them, with requests of its own.
class S3Admin {
 public:
  explicit S3Admin(const S3Options& options) : calls_(*Calls::Make(options)) {}

  CallResult Do(Call call) {
    CallResult result;
    bool done = false;
    call.done = [&](CallResult ended) {
      result = std::move(ended);
      done = true;
    };
    calls_->Start(std::move(call));
    while (!done) {
      if (calls_->Run()) continue;
      pollfd ready{.fd = calls_->fd(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, 10'000);
    }
    return result;
  }
  void MakeBucket(const std::string& bucket) {
    const CallResult made = Do({.what = bucket, .method = "PUT", .bucket = bucket});
    INFO(made.status);
    REQUIRE(made.status.ok());
  }
  // Keys of objects, and of uploads as "upload of KEY".
  std::vector<std::string> List(const std::string& bucket) {
    std::vector<std::string> names;
    for (const char* query : {"list-type", "uploads"}) {
      const CallResult listed =
          Do({.what = bucket, .bucket = bucket, .query = {{query, *query == 'l' ? "2" : ""}}});
      INFO(listed.status);
      REQUIRE(listed.status.ok());
      const auto texts = ParseXml(listed.http.text);
      REQUIRE(texts.ok());
      for (const XmlText& text : *texts) {
        if (text.path == "ListBucketResult/Contents/Key") names.push_back(text.text);
        if (text.path == "ListMultipartUploadsResult/Upload/Key") {
          names.push_back("upload of " + text.text);
        }
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::unique_ptr<Calls> calls_;
};

class S3World : public World {
 public:
  explicit S3World(const S3Options& options = TestOptions()) : admin_(options) {
    static int buckets = 0;
    bucket_ = absl::StrCat("bucket-", ::getpid(), "-", ++buckets);
    admin_.MakeBucket(bucket_);
    auto store = S3Store::Make(options);
    INFO(store.status());
    REQUIRE(store.ok());
    store_ = *std::move(store);
  }
  Store& store() override { return *store_; }
  std::string container() const override { return bucket_; }
  std::vector<std::string> Names() override { return admin_.List(bucket_); }
  S3Admin& admin() { return admin_; }
  void Stop() { store_.reset(); }

 private:
  S3Admin admin_;
  std::string bucket_;
  std::unique_ptr<S3Store> store_;
};

}  // namespace shunt::storage::testing
