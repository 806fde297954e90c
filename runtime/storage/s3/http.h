// HTTP requests, many at once, without threads of ours: the seam behind which libcurl stands.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/storage/s3/digest.h"

namespace shunt::storage {

// Signature Version 4, for one region and service.
struct Signing {
  std::string region, service;
  std::string access_key, secret_key;  // no signature if they are empty
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  Signing signing = {};
  std::string ca_file = {};
  // What is sent: either. Stays unchanged until the result, or Stop.
  std::string text = {};
  Spans data = {};
  // Where the body of an answer 206 goes, which must fill it. Other answers are kept as text.
  Spans into = {};
  // libcurl sends a request again by itself when a connection that it had kept dies without an
  // answer. Where that must not go unseen, a new one is made.
  bool fresh_connection = false;
};

struct HttpResult {
  uint64_t id = 0;
  // Not OK if there is no whole answer: DATA_LOSS it is longer than fits or expected, otherwise
  // UNAVAILABLE, or INVALID_ARGUMENT or UNAUTHENTICATED for what another try won't change.
  absl::Status status = {};
  int http_status = 0;
  bool sent = false;      // some of the request
  uint64_t bytes = 0;     // of `into`
  std::string text = {};  // at most text_bytes_max
  std::string etag = {}, content_range = {};
  int64_t content_length = -1;
};

class Http {
 public:
  struct Options {
    std::chrono::milliseconds connect_timeout{5'000};
    std::chrono::seconds stall_timeout{30};
    uint32_t connections_kept = 16;
    size_t text_bytes_max = 4 << 20;
  };
  static absl::StatusOr<std::unique_ptr<Http>> Make(const Options& options);
  virtual ~Http() = default;

  virtual void Start(uint64_t id, HttpRequest request) = 0;
  // No memory of it is touched after this has returned, and no result will come.
  virtual void Stop(uint64_t id) = 0;
  // Moves what can be moved. Never blocks.
  virtual void Run() = 0;
  virtual bool Next(HttpResult* result) = 0;
  // Readable when Run may have something to do.
  virtual int fd() const = 0;
};

}  // namespace shunt::storage
