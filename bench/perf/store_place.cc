#include "bench/perf/store_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/perf/side.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Written, and not a hole, which a disk is not asked for.
absl::Status Fill(int fd, uint64_t bytes) {
  std::vector<char> chunk(1 << 20);
  for (uint64_t at = 0; at < bytes; at += chunk.size()) {
    for (size_t i = 0; i < chunk.size(); ++i) chunk[i] = static_cast<char>(ByteAt(at + i));
    const size_t length = std::min<uint64_t>(chunk.size(), bytes - at);
    if (::pwrite(fd, chunk.data(), length, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(length)) {
      return ErrnoStatus(errno, "write");
    }
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "fsync");
}

}  // namespace

StorePlace::StorePlace(const PerfOptions& options, Session* session)
    : session_(session),
      object_{
          .endpoint = options.endpoint.find("://") == std::string::npos ? options.endpoint : "perf",
          .bucket = options.bucket,
          .key = options.key,
          .credentials = {.access_key_id = FromEnvironment("AWS_ACCESS_KEY_ID"),
                          .secret_access_key = FromEnvironment("AWS_SECRET_ACCESS_KEY"),
                          .session_token = FromEnvironment("AWS_SESSION_TOKEN")}} {}

StorePlace::~StorePlace() {
  if (!made_.empty()) ::unlink(made_.c_str());
}

absl::StatusOr<std::unique_ptr<StorePlace>> StorePlace::Make(const PerfOptions& options,
                                                             Session* session, uint64_t bytes) {
  std::unique_ptr<StorePlace> place(new StorePlace(options, session));
  if (!options.file.empty()) {
    SHUNT_RETURN_IF_ERROR(place->OpenFile(options.file, bytes, options.op == "write"));
  }
  return place;
}

absl::Status StorePlace::OpenFile(const std::string& path, uint64_t bytes, bool writable) {
  writable_ = writable;
  const int mode = writable ? O_RDWR : O_RDONLY;
  fd_.Reset(::open(path.c_str(), mode | O_CLOEXEC));
  if (!fd_.valid() && errno == ENOENT) {
    fd_.Reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd_.valid()) return ErrnoStatus(errno, absl::StrCat("--file: ", path));
    made_ = path;
    if (absl::Status filled = Fill(fd_.get(), bytes); !filled.ok()) {
      return absl::Status(filled.code(), absl::StrCat("--file: ", path, ": ", filled.message()));
    }
  }
  if (!fd_.valid()) return ErrnoStatus(errno, absl::StrCat("--file: ", path));
  struct stat facts;
  if (::fstat(fd_.get(), &facts) != 0) return ErrnoStatus(errno, absl::StrCat("--file: ", path));
  if (static_cast<uint64_t>(facts.st_size) < bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--file: ", path, " has ", facts.st_size, " bytes, expected ", bytes, ", or no such file"));
  }
  return absl::OkStatus();
}

File StorePlace::Open() const {
  if (!is_file()) return session_->OpenObject(object_);
  return session_->OpenFile(fd_.get(), writable_ ? SHUNT_ACCESS_READ_WRITE : SHUNT_ACCESS_READ);
}

File StorePlace::Create(uint64_t bytes) const { return session_->CreateObject(object_, bytes); }

bool StorePlace::ReadBack(uint64_t offset, void* data, uint64_t bytes) const {
  return ::pread(fd_.get(), data, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

}  // namespace shunt::bench
