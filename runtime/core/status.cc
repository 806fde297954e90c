#include "runtime/core/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace shunt {
namespace {

absl::StatusCode CodeOf(int err) {
  switch (err) {
    case ENOENT:
    case ESRCH:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EEXIST:
    case EADDRINUSE:
      return absl::StatusCode::kAlreadyExists;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case ENOTSOCK:
    case EBADF:
      return absl::StatusCode::kInvalidArgument;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ETOOMANYREFS:
      return absl::StatusCode::kResourceExhausted;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EAGAIN:
      return absl::StatusCode::kUnavailable;
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOPROTOOPT:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status ErrnoStatus(int err, std::string_view what) {
  char buffer[128];
  const char* words = ::strerror_r(err, buffer, sizeof(buffer));  // the GNU form
  const char* name = ::strerrorname_np(err);
  return {CodeOf(err), absl::StrCat(absl::string_view(what.data(), what.size()), ": ", words, " (",
                                    name != nullptr ? name : "unknown", ")")};
}

}  // namespace shunt
