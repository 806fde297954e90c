#include "runtime/storage/s3/calls.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/status.h"
#include "runtime/storage/s3/answer.h"
#include "runtime/storage/s3/backoff.h"

namespace shunt::storage {
namespace {

constexpr uint64_t kKeys = 1;
// One turn in so many is of the least urgent; one connection in so many is the urgent's alone.
constexpr uint64_t kShare = 16;
constexpr uint32_t kConnectionShare = 8;

absl::Status WithAttempts(const absl::Status& status, uint32_t attempts, const char* why) {
  if (attempts <= 1 && *why == '\0') return status;
  return {status.code(), absl::StrCat(status.message(), " (", attempts,
                                      attempts == 1 ? " attempt" : " attempts", why, ")")};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Calls>> Calls::Make(const S3Options& options) {
  SHUNT_ASSIGN_OR_RETURN(UrlParts endpoint, ParseEndpointUrl(options.endpoint.url));
  SHUNT_ASSIGN_OR_RETURN(Timers timers, Timers::Make());
  SHUNT_ASSIGN_OR_RETURN(std::unique_ptr<Http> http,
                         Http::Make({.connect_timeout = options.connect_timeout,
                                     .stall_timeout = options.stall_timeout,
                                     .connections_kept = options.connections_max}));
  std::unique_ptr<Calls> calls(
      new Calls(options, std::move(endpoint), std::move(http), std::move(timers)));
  SHUNT_RETURN_IF_ERROR(calls->identity_.Load());
  calls->epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!calls->epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  for (const int fd : {calls->http_->fd(), calls->timers_.fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(calls->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl");
    }
  }
  return calls;
}

uint64_t Calls::Start(Call call) {
  const uint64_t id = next_id_++;
  auto state = std::make_unique<State>();
  state->call = std::move(call);
  calls_.emplace(id, std::move(state));
  Wait(id);
  return id;
}

void Calls::Wait(uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;  // stopped meanwhile
  waiting_[static_cast<size_t>(found->second->call.urgency)].push_back(id);
}

bool Calls::waiting() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const auto& ids) { return !ids.empty(); });
}

uint64_t Calls::Pick() {
  // After so many of the urgent the others have one of the places that are kept, too.
  const bool keep = urgent_in_a_row_ < kShare - 1;
  const bool lowest_first = !keep || picks_ % kShare == kShare - 1;
  for (size_t i = 0; i < kUrgencies; ++i) {
    const size_t urgency = lowest_first ? kUrgencies - 1 - i : i;
    const bool urgent = urgency == static_cast<size_t>(Urgency::kLatency);
    const uint32_t kept = keep && !urgent ? options_.connections_max / kConnectionShare : 0;
    std::deque<uint64_t>& ids = waiting_[urgency];
    if (ids.empty() || at_http_ >= options_.connections_max - kept) continue;
    const uint64_t id = ids.front();
    ids.pop_front();
    ++picks_;
    urgent_in_a_row_ = urgent ? urgent_in_a_row_ + 1 : 0;
    return id;
  }
  return 0;
}

void Calls::Stop(uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  if (found->second->at_http) {
    http_->Stop(id);
    --at_http_;
  }
  timers_.Clear(id);
  calls_.erase(found);  // what waits for it finds nothing
}

bool Calls::Run() {
  ended_some_ = false;
  // An answer makes room for another request, or brings the keys that it waits for.
  while (RunOnce()) {
  }
  timers_.Arm();
  return ended_some_;
}

// True if an answer came.
bool Calls::RunOnce() {
  for (uint64_t id; timers_.PopDue(NowNs(), &id);) {
    if (id == kKeys) {
      renewing_ = false;
    } else {
      Wait(id);
    }
  }
  if (waiting() && !renewing_ && identity_.stale()) Renew();
  while (identity_.usable()) {
    const uint64_t id = Pick();
    if (id == 0) break;
    const auto found = calls_.find(id);
    if (found != calls_.end()) Send(id, found->second.get());
  }
  http_->Run();
  bool answered = false;
  for (HttpResult result; http_->Next(&result); answered = true) {
    if (result.id == kKeys) {
      TakeKeys(result);
    } else {
      TakeIn(std::move(result));
    }
  }
  return answered;
}

void Calls::Send(uint64_t id, State* state) {
  const Call& call = state->call;
  const Credentials& keys = identity_.current();
  HttpRequest request{
      .method = call.method,
      .url = MakeUrl(endpoint_, options_.endpoint.path_style, call.bucket, call.key, call.query),
      .headers = call.headers,
      .ca_file = options_.endpoint.ca_file,
      .text = call.text,
      .data = call.data,
      .into = call.into,
      .fresh_connection = call.fresh_connection};
  if (!keys.anonymous()) {
    request.signing = {.region = options_.endpoint.region,
                       .service = "s3",
                       .access_key = keys.access_key,
                       .secret_key = keys.secret_key};
    // The payload has its own checksum (Content-MD5), which is signed with the headers.
    request.headers.push_back(call.data.empty()
                                  ? absl::StrCat("x-amz-content-sha256: ", Sha256Hex(call.text))
                                  : "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    if (!keys.session_token.empty()) {
      request.headers.push_back(absl::StrCat("x-amz-security-token: ", keys.session_token));
    }
  }
  ++state->attempts;
  state->at_http = true;
  ++at_http_;
  http_->Start(id, std::move(request));
}

void Calls::TakeIn(HttpResult answer) {
  const uint64_t id = answer.id;
  State* const state = calls_.find(id)->second.get();
  state->at_http = false;
  --at_http_;
  const Call& call = state->call;
  CallResult result{.status = {}, .code = {}, .attempts = state->attempts, .http = {}};
  bool retry = false;
  if (!answer.status.ok()) {
    state->lost |= answer.sent;
    result.status =
        absl::Status(answer.status.code(), absl::StrCat(call.what, ": ", answer.status.message()));
    retry = absl::IsUnavailable(answer.status);
  } else if (answer.http_status < 200 || answer.http_status > 299) {
    // A server or a gateway that failed on the way; 501 and 503 refuse before it.
    const int http = answer.http_status;
    state->lost |= http >= 500 && http != 501 && http != 503;
    S3Failure failure = Explain(call.what, http, answer.text);
    result.status = failure.status;
    result.code = failure.code;
    retry = failure.retry;
    if (failure.new_credentials && !state->renewed) {
      state->renewed = true;
      // Another call may have had them renewed since this one was signed; once more does no harm.
      identity_.Invalidate();
      retry = true;
    }
  } else if (!call.into.empty() && answer.http_status != 206) {
    result.status = absl::DataLossError(absl::StrCat(
        call.what, ": the server answered ", answer.http_status, " to a range, expected 206"));
  }
  result.lost = state->lost;
  result.http = std::move(answer);
  RetryOrEnd(id, state, std::move(result), retry);
}

void Calls::RetryOrEnd(uint64_t id, State* state, CallResult result, bool retry) {
  if (result.status.ok()) return End(id, std::move(result));
  if (!retry || state->attempts >= options_.attempts_max) {
    result.status = WithAttempts(result.status, state->attempts, "");
    return End(id, std::move(result));
  }
  int64_t at_ns = 0;
  if (__builtin_add_overflow(NowNs(), Delay(state->attempts).count(), &at_ns) ||
      at_ns >= state->call.deadline_ns) {
    result.status =
        WithAttempts(result.status, state->attempts, ", no time for another before the deadline");
    return End(id, std::move(result));
  }
  if (options_.tally != nullptr) options_.tally->retries.Add();
  timers_.Set(id, at_ns);
}

void Calls::End(uint64_t id, CallResult result) {
  const auto found = calls_.find(id);
  const std::unique_ptr<State> state = std::move(found->second);
  calls_.erase(found);
  ended_some_ = true;
  state->call.done(std::move(result));
}

std::chrono::nanoseconds Calls::Delay(uint32_t failures) {
  return Backoff(failures, options_.backoff_first, options_.backoff_max,
                 std::uniform_real_distribution<double>(0, 1)(random_));
}

void Calls::Renew() {
  if (!identity_.from_sts()) {
    const absl::Status loaded = identity_.Load();
    if (!loaded.ok()) TakeKeys({.id = kKeys, .status = loaded});
    return;
  }
  auto request = identity_.MakeStsRequest(options_.endpoint.ca_file);
  if (!request.ok()) return TakeKeys({.id = kKeys, .status = request.status()});
  renewing_ = true;
  http_->Start(kKeys, *std::move(request));
}

// New keys, or why there are none: then what can't go on without them ends.
void Calls::TakeKeys(const HttpResult& result) {
  bool retry = false;
  const absl::Status status =
      identity_.from_sts() ? identity_.TakeStsAnswer(result, &retry) : result.status;
  renewing_ = false;
  if (status.ok()) {
    renew_failures_ = 0;
    return;
  }
  ++renew_failures_;
  renewing_ = true;  // not again before the timer
  timers_.Set(kKeys, NowNs() + Delay(renew_failures_).count());
  if (identity_.usable() || (retry && renew_failures_ < options_.attempts_max)) return;
  renew_failures_ = 0;
  for (const std::deque<uint64_t>& ids : std::exchange(waiting_, {})) {
    for (const uint64_t id : ids) {
      if (!calls_.contains(id)) continue;
      const std::string what = calls_.find(id)->second->call.what;
      End(id, {.status = absl::Status(status.code(), absl::StrCat(what, ": ", status.message()))});
    }
  }
}

}  // namespace shunt::storage
