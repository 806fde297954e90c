// The only file that knows libcurl.
#include <curl/curl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/storage/s3/http.h"
#include "runtime/storage/timers.h"

namespace shunt::storage {
namespace {

constexpr uint64_t kTimer = 1;

uint64_t SizeOf(const Spans& spans) {
  uint64_t bytes = 0;
  for (const auto span : spans) bytes += span.size();
  return bytes;
}

// A place in spans that moves on.
class Cursor {
 public:
  explicit Cursor(const Spans* spans) : spans_(spans) {}

  void Seek(uint64_t to) {
    index_ = 0;
    offset_ = to;
    while (index_ < spans_->size() && offset_ >= (*spans_)[index_].size()) {
      offset_ -= (*spans_)[index_++].size();
    }
  }
  // The next piece, of at most `most` bytes; empty at the end.
  absl::Span<std::byte> Take(size_t most) {
    while (index_ < spans_->size() && offset_ == (*spans_)[index_].size()) {
      ++index_;
      offset_ = 0;
    }
    if (index_ == spans_->size()) return {};
    const absl::Span<std::byte> part = (*spans_)[index_].subspan(offset_, most);
    offset_ += part.size();
    return part;
  }

 private:
  const Spans* spans_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

struct Exchange {
  HttpRequest request;
  HttpResult result;
  size_t text_bytes_max = 0;
  Spans out;  // `text` or `data` of the request
  Cursor sending{&out};
  Cursor receiving{&request.into};
  uint64_t into_bytes = 0;
  bool too_long = false;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  char words[CURL_ERROR_SIZE] = {};
};

size_t OnRead(char* to, size_t size, size_t count, void* data) {
  auto* const exchange = static_cast<Exchange*>(data);
  const absl::Span<std::byte> part = exchange->sending.Take(size * count);
  if (!part.empty()) std::memcpy(to, part.data(), part.size());
  return part.size();
}

// Before a request is sent again on another connection.
int OnSeek(void* data, curl_off_t offset, int origin) {
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Exchange*>(data)->sending.Seek(static_cast<uint64_t>(offset));
  return CURL_SEEKFUNC_OK;
}

size_t OnWrite(char* from, size_t size, size_t count, void* data) {
  auto* const exchange = static_cast<Exchange*>(data);
  const size_t bytes = size * count;
  HttpResult& result = exchange->result;
  long status = 0;
  ::curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
  if (status != 206 || exchange->into_bytes == 0) {
    if (result.text.size() + bytes > exchange->text_bytes_max) {
      exchange->too_long = true;
      return 0;
    }
    result.text.append(from, bytes);
    return bytes;
  }
  for (size_t left = bytes; left > 0;) {
    const absl::Span<std::byte> part = exchange->receiving.Take(left);
    if (part.empty()) {
      exchange->too_long = true;
      return 0;
    }
    std::memcpy(part.data(), from, part.size());
    from += part.size();
    left -= part.size();
    result.bytes += part.size();
  }
  return bytes;
}

// Longer ones count as missing: one is kept for each part of an upload.
constexpr size_t kHeaderValueBytesMax = 256;

size_t OnHeader(char* from, size_t size, size_t count, void* data) {
  auto* const exchange = static_cast<Exchange*>(data);
  const absl::string_view line(from, size * count);
  const auto value_of = [&](absl::string_view name, std::string* value) {
    if (!absl::StartsWithIgnoreCase(line, name)) return;
    const absl::string_view text = absl::StripAsciiWhitespace(line.substr(name.size()));
    if (text.size() <= kHeaderValueBytesMax) *value = std::string(text);
  };
  std::string length;
  value_of("ETag:", &exchange->result.etag);
  value_of("Content-Range:", &exchange->result.content_range);
  value_of("Content-Length:", &length);
  if (!length.empty() && !absl::SimpleAtoi(length, &exchange->result.content_length)) {
    exchange->result.content_length = -1;
  }
  return size * count;
}

class CurlHttp : public Http {
 public:
  CurlHttp(const Options& options, Timers timers) : options_(options), timers_(std::move(timers)) {}
  ~CurlHttp() override {
    while (!exchanges_.empty()) Stop(exchanges_.begin()->first);
    if (multi_ != nullptr) ::curl_multi_cleanup(multi_);
  }

  absl::Status Open() {
    static const CURLcode global = ::curl_global_init(CURL_GLOBAL_DEFAULT);
    if (global != CURLE_OK) {
      return absl::InternalError(absl::StrCat("libcurl: ", ::curl_easy_strerror(global)));
    }
    epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = timers_.fd();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timers_.fd(), &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl");
    }
    multi_ = ::curl_multi_init();
    if (multi_ == nullptr) return absl::ResourceExhaustedError("libcurl: no memory");
    ::curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &CurlHttp::OnSocket);
    ::curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    ::curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &CurlHttp::OnTimer);
    ::curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    ::curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(options_.connections_kept));
    return absl::OkStatus();
  }

  void Start(uint64_t id, HttpRequest request) override;
  void Stop(uint64_t id) override {
    const auto found = exchanges_.find(id);
    if (found == exchanges_.end()) {
      std::erase_if(results_, [id](const HttpResult& result) { return result.id == id; });
      return;
    }
    ::curl_multi_remove_handle(multi_, found->second->easy);
    Free(found->second.get());
    exchanges_.erase(found);
  }
  void Run() override;
  bool Next(HttpResult* result) override {
    if (results_.empty()) return false;
    *result = std::move(results_.front());
    results_.pop_front();
    return true;
  }
  int fd() const override { return epoll_.get(); }

 private:
  static int OnSocket(CURL*, curl_socket_t socket, int what, void* self, void*) {
    static_cast<CurlHttp*>(self)->Watch(socket, what);
    return 0;
  }
  static int OnTimer(CURLM*, long timeout_ms, void* self) {
    const int64_t at_ns = timeout_ms < 0 ? kNeverNs : NowNs() + timeout_ms * 1'000'000;
    static_cast<CurlHttp*>(self)->timers_.Set(kTimer, at_ns);
    return 0;
  }
  void Watch(curl_socket_t socket, int what) {
    epoll_event event{};
    event.data.fd = socket;
    if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
    if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
    if (what == CURL_POLL_REMOVE) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);  // it may be closed already
      return;
    }
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event) == 0) return;
    SHUNT_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0);
  }
  void Free(Exchange* exchange) {
    ::curl_easy_cleanup(exchange->easy);
    ::curl_slist_free_all(exchange->headers);
  }
  void Finish(CURL* easy, CURLcode code);

  const Options options_;
  Timers timers_;
  UniqueFd epoll_;
  CURLM* multi_ = nullptr;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Exchange>> exchanges_;
  std::deque<HttpResult> results_;
};

void CurlHttp::Start(uint64_t id, HttpRequest request) {
  auto owned = std::make_unique<Exchange>();
  Exchange* const exchange = owned.get();
  exchange->request = std::move(request);
  HttpRequest& asked = exchange->request;
  exchange->result.id = id;
  exchange->text_bytes_max = options_.text_bytes_max;
  exchange->into_bytes = SizeOf(asked.into);
  exchange->out = asked.data;
  if (!asked.text.empty()) {
    exchange->out = {
        absl::MakeSpan(reinterpret_cast<std::byte*>(asked.text.data()), asked.text.size())};
  }
  CURL* const easy = exchange->easy = ::curl_easy_init();
  SHUNT_CHECK(easy != nullptr);
  const auto set = [easy](CURLoption option, auto value) {
    SHUNT_CHECK(::curl_easy_setopt(easy, option, value) == CURLE_OK);
  };
  for (const std::string& header : asked.headers) {
    exchange->headers = ::curl_slist_append(exchange->headers, header.c_str());
    SHUNT_CHECK(exchange->headers != nullptr);
  }
  set(CURLOPT_PRIVATE, static_cast<void*>(exchange));
  set(CURLOPT_URL, asked.url.c_str());
  set(CURLOPT_HTTPHEADER, exchange->headers);
  set(CURLOPT_ERRORBUFFER, exchange->words);
  // Whom to talk to is the configuration's to say, not the environment's or the server's.
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_PATH_AS_IS, 1L);  // what is signed is what is sent
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TCP_NODELAY, 1L);
  set(CURLOPT_FRESH_CONNECT, asked.fresh_connection ? 1L : 0L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // one stream a connection
  // Bodies of a megabyte and more ask for the server's leave, and don't wait for it. (Not to ask
  // takes an empty header, which libcurl 7.88 signs and does not send.)
  set(CURLOPT_EXPECT_100_TIMEOUT_MS, 0L);
  set(CURLOPT_BUFFERSIZE, 512L << 10);
  set(CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_timeout.count()));
  if (!asked.ca_file.empty()) set(CURLOPT_CAINFO, asked.ca_file.c_str());
  set(CURLOPT_WRITEFUNCTION, &OnWrite);
  set(CURLOPT_WRITEDATA, static_cast<void*>(exchange));
  set(CURLOPT_HEADERFUNCTION, &OnHeader);
  set(CURLOPT_HEADERDATA, static_cast<void*>(exchange));
  if (asked.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (asked.method == "PUT" || asked.method == "POST") {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(SizeOf(exchange->out)));
    set(CURLOPT_READFUNCTION, &OnRead);
    set(CURLOPT_READDATA, static_cast<void*>(exchange));
    set(CURLOPT_SEEKFUNCTION, &OnSeek);
    set(CURLOPT_SEEKDATA, static_cast<void*>(exchange));
    set(CURLOPT_CUSTOMREQUEST, asked.method.c_str());
  } else {
    set(CURLOPT_CUSTOMREQUEST, asked.method.c_str());
  }
  const Signing& signing = asked.signing;
  if (!signing.access_key.empty()) {
    set(CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", signing.region, ":", signing.service).c_str());
    set(CURLOPT_USERNAME, signing.access_key.c_str());
    set(CURLOPT_PASSWORD, signing.secret_key.c_str());
  }
  SHUNT_CHECK(::curl_multi_add_handle(multi_, easy) == CURLM_OK);
  SHUNT_CHECK(exchanges_.emplace(id, std::move(owned)).second);
}

void CurlHttp::Run() {
  int running = 0;
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, std::size(events), 0);
  for (int i = 0; i < count; ++i) {
    const int socket = events[i].data.fd;
    if (socket == timers_.fd()) continue;
    int what = 0;
    if ((events[i].events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
    if ((events[i].events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
    if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_ERR;
    ::curl_multi_socket_action(multi_, socket, what, &running);
  }
  // Once each: what is due again at once comes with the next call.
  uint64_t timer = 0;
  if (timers_.PopDue(NowNs(), &timer)) {
    ::curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
  }
  int left = 0;
  while (const CURLMsg* message = ::curl_multi_info_read(multi_, &left)) {
    if (message->msg == CURLMSG_DONE) Finish(message->easy_handle, message->data.result);
  }
  timers_.Arm();
}

// Errors of the transport in our words. What a password or a key is appears in none of libcurl's.
void CurlHttp::Finish(CURL* easy, CURLcode code) {
  void* pointer = nullptr;
  ::curl_easy_getinfo(easy, CURLINFO_PRIVATE, &pointer);
  auto* const exchange = static_cast<Exchange*>(pointer);
  long status = 0;
  ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  HttpResult result = std::move(exchange->result);
  result.http_status = static_cast<int>(status);
  long sent_bytes = 0;
  ::curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent_bytes);
  result.sent = sent_bytes > 0;
  // Some hold what the server said: names of its certificate, and the like.
  const std::string words =
      Printable(exchange->words[0] != '\0' ? exchange->words : ::curl_easy_strerror(code));
  if (exchange->too_long) {
    result.status = absl::DataLossError("the answer is longer than was asked for");
  } else if (code == CURLE_OK) {
    if (status == 206 && exchange->into_bytes != 0 && result.bytes != exchange->into_bytes) {
      result.status = absl::UnavailableError(
          absl::StrCat("the answer has ", result.bytes, " bytes, expected ", exchange->into_bytes));
    }
  } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    result.status = absl::UnauthenticatedError(words);
  } else if (code == CURLE_URL_MALFORMAT) {
    result.status = absl::InvalidArgumentError(words);
  } else {
    result.status = absl::UnavailableError(words);
  }
  ::curl_multi_remove_handle(multi_, easy);
  Free(exchange);
  exchanges_.erase(result.id);
  results_.push_back(std::move(result));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Http>> Http::Make(const Options& options) {
  SHUNT_ASSIGN_OR_RETURN(Timers timers, Timers::Make());
  auto http = std::make_unique<CurlHttp>(options, std::move(timers));
  SHUNT_RETURN_IF_ERROR(http->Open());
  return http;
}

}  // namespace shunt::storage
