// Requests of the S3 protocol: signed, at most so many at a time, tried again after failures that
// pass, with backoff and jitter, never beyond their deadline.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"
#include "runtime/storage/s3/http.h"
#include "runtime/storage/s3/identity.h"
#include "runtime/storage/s3/options.h"
#include "runtime/storage/s3/uri.h"
#include "runtime/storage/store.h"
#include "runtime/storage/timers.h"

namespace shunt::storage {

struct CallResult {
  absl::Status status = {};
  std::string code = {};  // S3's word for the error, if it gave one
  uint32_t attempts = 1;
  bool lost = false;  // one of the attempts may have had its effect, and its answer does not say
  HttpResult http = {};
};

struct Call {
  std::string what = {};  // of errors: what it is done to
  std::string method = "GET";
  std::string bucket = {}, key = {};
  Query query = {};
  std::vector<std::string> headers = {};
  std::string text = {};  // sent, or
  Spans data = {};        // sent; unchanged until `done`, or Stop
  Spans into = {};
  bool fresh_connection = false;  // as in HttpRequest
  int64_t deadline_ns = kNeverNs;
  Urgency urgency = Urgency::kLatency;
  std::function<void(CallResult)> done = {};
};

class Calls {
 public:
  static absl::StatusOr<std::unique_ptr<Calls>> Make(const S3Options& options);

  uint64_t Start(Call call);
  // No memory of it is touched after this has returned, and `done` will not be called.
  void Stop(uint64_t id);
  // Calls `done` of what has ended. True if something has.
  bool Run();
  int fd() const { return epoll_.get(); }

 private:
  struct State {
    Call call;
    uint32_t attempts = 0;
    bool renewed = false;  // tried with new keys
    bool at_http = false;
    bool lost = false;
  };

  Calls(const S3Options& options, UrlParts endpoint, std::unique_ptr<Http> http, Timers timers)
      : options_(options),
        endpoint_(std::move(endpoint)),
        http_(std::move(http)),
        timers_(std::move(timers)),
        identity_(options.credentials),
        random_(std::random_device()()) {}
  bool RunOnce();
  void Wait(uint64_t id);
  // What is to be sent next, taken out; 0: nothing now.
  uint64_t Pick();
  bool waiting() const;
  void Send(uint64_t id, State* state);
  void TakeIn(HttpResult result);
  void RetryOrEnd(uint64_t id, State* state, CallResult result, bool retry);
  void End(uint64_t id, CallResult result);
  void Renew();
  void TakeKeys(const HttpResult& result);
  std::chrono::nanoseconds Delay(uint32_t failures);

  const S3Options options_;
  const UrlParts endpoint_;
  std::unique_ptr<Http> http_;
  Timers timers_;
  Identity identity_;
  UniqueFd epoll_;
  std::mt19937 random_;

  uint64_t next_id_ = 2;  // 1 is the request for keys
  absl::flat_hash_map<uint64_t, std::unique_ptr<State>> calls_;
  // By urgency: the most urgent go first, one in so many is of the least, and some places are kept.
  std::array<std::deque<uint64_t>, kUrgencies> waiting_;
  uint64_t picks_ = 0;
  uint64_t urgent_in_a_row_ = 0;
  uint32_t at_http_ = 0;
  bool renewing_ = false;  // at STS, or waiting to be tried again
  uint32_t renew_failures_ = 0;
  bool ended_some_ = false;
};

}  // namespace shunt::storage
