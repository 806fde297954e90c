// The C interface's files and objects.
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/credential_argument.h"
#include "client/src/error.h"
#include "client/src/options.h"
#include "client/src/transfer_handles.h"
#include "runtime/core/status.h"

using shunt::client::CheckSession;
using shunt::client::CredentialArgument;
using shunt::client::Fail;
using shunt::client::File;
using shunt::client::Guarded;
using shunt::client::ReadOptions;
using shunt::client::Result;
using shunt::client::TextArgument;

namespace {

constexpr int64_t kDefaultTimeoutNs = int64_t{60} * 1'000'000'000;
// The longest path that a system call takes.
constexpr size_t kPathBytesMax = 4096;

absl::StatusOr<int64_t> Timeout(const char* name, int64_t given_ns) {
  if (given_ns < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", given_ns, ", expected 0 or more"));
  }
  return given_ns == 0 ? kDefaultTimeoutNs : given_ns;
}

absl::StatusOr<bool> Writable(shunt_access access) {
  switch (access) {
    case SHUNT_ACCESS_DEFAULT:
    case SHUNT_ACCESS_READ:
      return false;
    case SHUNT_ACCESS_READ_WRITE:
      return true;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "access is ", access, ", expected SHUNT_ACCESS_READ, 1, or SHUNT_ACCESS_READ_WRITE, 3"));
  }
}

absl::StatusOr<shunt::client::ObjectPlace> ReadObject(const shunt_object* given) {
  if (given == nullptr) return absl::InvalidArgumentError("object is null");
  shunt_object o;
  SHUNT_RETURN_IF_ERROR(ReadOptions("shunt_object", sizeof(o), given, &o));
  shunt::client::ObjectPlace place;
  SHUNT_ASSIGN_OR_RETURN(place.endpoint, TextArgument("shunt_object.endpoint", o.endpoint));
  SHUNT_ASSIGN_OR_RETURN(place.bucket, TextArgument("shunt_object.bucket", o.bucket));
  SHUNT_ASSIGN_OR_RETURN(place.key, TextArgument("shunt_object.key", o.key));
  SHUNT_ASSIGN_OR_RETURN(place.access_key_id,
                         CredentialArgument("shunt_object.access_key_id", o.access_key_id));
  SHUNT_ASSIGN_OR_RETURN(place.secret_access_key,
                         CredentialArgument("shunt_object.secret_access_key", o.secret_access_key));
  SHUNT_ASSIGN_OR_RETURN(place.session_token,
                         CredentialArgument("shunt_object.session_token", o.session_token));
  return place;
}

struct Creation {
  int64_t timeout_ns;
  bool if_absent;
};

absl::StatusOr<Creation> ReadCreation(const shunt_create_options* given) {
  shunt_create_options o;
  SHUNT_RETURN_IF_ERROR(ReadOptions("shunt_create_options", sizeof(o), given, &o));
  if ((o.flags & ~uint32_t{SHUNT_CREATE_IF_ABSENT}) != 0 || o.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shunt_create_options.flags is ", o.flags, " and .reserved ", o.reserved,
                     ", expected 0 or ", static_cast<int>(SHUNT_CREATE_IF_ABSENT), ", and 0"));
  }
  SHUNT_ASSIGN_OR_RETURN(const int64_t timeout_ns,
                         Timeout("shunt_create_options.timeout_ns", o.timeout_ns));
  return Creation{timeout_ns, (o.flags & SHUNT_CREATE_IF_ABSENT) != 0};
}

using Opened = absl::StatusOr<std::shared_ptr<File>>;

// The frame of a call that gives a file.
template <typename Make>
int GiveFile(shunt_session* session, shunt_file** file, Make&& make) {
  return Guarded([&]() -> int {
    if (file == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "file is null");
    *file = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    Opened opened = make();
    if (!opened.ok()) return Fail(opened.status());
    *file = new shunt_file{*std::move(opened)};
    return SHUNT_OK;
  });
}

absl::Status CheckFile(const shunt_file* file) {
  if (file == nullptr) return absl::InvalidArgumentError("file is null");
  return file->impl->session().CheckProcess();
}

// And one of a call that takes it and a timeout.
template <typename Body>
int UseFile(shunt_file* file, int64_t timeout_ns, Body&& body) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckFile(file); !s.ok()) return Fail(s);
    const auto timeout = Timeout("timeout_ns", timeout_ns);
    if (!timeout.ok()) return Fail(timeout.status());
    return Result(body(*file->impl, *timeout));
  });
}

}  // namespace

extern "C" {

int shunt_file_open_fd(shunt_session* session, int fd, shunt_access access, int64_t timeout_ns,
                       shunt_file** file) {
  return GiveFile(session, file, [&]() -> Opened {
    SHUNT_ASSIGN_OR_RETURN(const bool writable, Writable(access));
    SHUNT_ASSIGN_OR_RETURN(const int64_t timeout, Timeout("timeout_ns", timeout_ns));
    if (::fcntl(fd, F_GETFD) < 0) {
      return absl::InvalidArgumentError(absl::StrCat("fd is ", fd, ", expected one that is open"));
    }
    return File::Open(session->impl,
                      shunt::client::OpenFile{.root = {}, .path = {}, .writable = writable}, fd,
                      timeout);
  });
}

int shunt_file_open(shunt_session* session, const char* root, const char* path, shunt_access access,
                    int64_t timeout_ns, shunt_file** file) {
  return GiveFile(session, file, [&]() -> Opened {
    shunt::client::OpenFile request;
    SHUNT_ASSIGN_OR_RETURN(request.root, TextArgument("root", root));
    SHUNT_ASSIGN_OR_RETURN(request.path, TextArgument("path", path, kPathBytesMax));
    SHUNT_ASSIGN_OR_RETURN(request.writable, Writable(access));
    SHUNT_ASSIGN_OR_RETURN(const int64_t timeout, Timeout("timeout_ns", timeout_ns));
    return File::Open(session->impl, std::move(request), -1, timeout);
  });
}

int shunt_file_create(shunt_session* session, const char* root, const char* path, uint64_t bytes,
                      const shunt_create_options* options, shunt_file** file) {
  return GiveFile(session, file, [&]() -> Opened {
    SHUNT_ASSIGN_OR_RETURN(const Creation creation, ReadCreation(options));
    shunt::client::CreateFile request;
    SHUNT_ASSIGN_OR_RETURN(request.root, TextArgument("root", root));
    SHUNT_ASSIGN_OR_RETURN(request.path, TextArgument("path", path, kPathBytesMax));
    request.size_bytes = bytes;
    request.if_absent = creation.if_absent;
    return File::Create(session->impl, std::move(request), creation.timeout_ns);
  });
}

int shunt_object_open(shunt_session* session, const shunt_object* object, int64_t timeout_ns,
                      shunt_file** file) {
  return GiveFile(session, file, [&]() -> Opened {
    shunt::client::OpenObject request;
    SHUNT_ASSIGN_OR_RETURN(request.place, ReadObject(object));
    SHUNT_ASSIGN_OR_RETURN(const int64_t timeout, Timeout("timeout_ns", timeout_ns));
    return File::Open(session->impl, std::move(request), timeout);
  });
}

int shunt_object_create(shunt_session* session, const shunt_object* object, uint64_t bytes,
                        const shunt_create_options* options, shunt_file** file) {
  return GiveFile(session, file, [&]() -> Opened {
    SHUNT_ASSIGN_OR_RETURN(const Creation creation, ReadCreation(options));
    shunt::client::CreateObject request;
    SHUNT_ASSIGN_OR_RETURN(request.place, ReadObject(object));
    request.size_bytes = bytes;
    request.if_absent = creation.if_absent;
    return File::Create(session->impl, std::move(request), creation.timeout_ns);
  });
}

int shunt_file_info(const shunt_file* file, shunt_file_facts* facts) {
  return Guarded([&]() -> int {
    if (file == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "file is null");
    if (facts == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "facts is null");
    return Result(shunt::client::FillStruct(
        "shunt_file_facts", shunt_file_facts{0, file->impl->bytes(), file->impl->region_id()},
        facts));
  });
}

int shunt_file_sync(shunt_file* file, int64_t timeout_ns) {
  return UseFile(file, timeout_ns, [](File& f, int64_t timeout) { return f.Sync(timeout); });
}

int shunt_file_commit(shunt_file* file, int64_t timeout_ns) {
  return UseFile(file, timeout_ns, [](File& f, int64_t timeout) { return f.Commit(timeout); });
}

int shunt_file_close(shunt_file* file) {
  return UseFile(file, 0, [](File& f, int64_t) { return f.Close(); });
}

void shunt_file_release(shunt_file* file) {
  Guarded([&] {
    delete file;
    return 0;
  });
}

}  // extern "C"
