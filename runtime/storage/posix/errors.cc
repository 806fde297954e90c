#include "runtime/storage/posix/errors.h"

#include <cerrno>

#include "runtime/core/status.h"

namespace shunt::storage {

absl::Status FileError(int err, std::string_view what) {
  absl::Status status = ErrnoStatus(err, what);
  switch (err) {
    case EFBIG:
      return {absl::StatusCode::kResourceExhausted, status.message()};
    case EISDIR:
      return {absl::StatusCode::kInvalidArgument, status.message()};
    case EROFS:
    case ELOOP:
    case EXDEV:
    case ETXTBSY:
      return {absl::StatusCode::kPermissionDenied, status.message()};
    case EIO:
      return {absl::StatusCode::kDataLoss, status.message()};
    default:
      return status;
  }
}

}  // namespace shunt::storage
