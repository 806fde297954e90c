// Files and objects as regions of a session: what lists name beside memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/file_messages.h"
#include "client/src/session.h"

namespace shunt::client {

// Open as long as this object lives, or until it is closed or committed. Keeps its session; lists
// keep the files that they name. Thread-safe.
class File {
 public:
  // `fd` is passed to the daemon and stays the caller's; -1: by its name. `timeout_ns` > 0, here
  // and below: what the daemon is given for it.
  static absl::StatusOr<std::shared_ptr<File>> Open(const std::shared_ptr<Session>& session,
                                                    OpenFile request, int fd, int64_t timeout_ns);
  static absl::StatusOr<std::shared_ptr<File>> Create(const std::shared_ptr<Session>& session,
                                                      CreateFile request, int64_t timeout_ns);
  static absl::StatusOr<std::shared_ptr<File>> Open(const std::shared_ptr<Session>& session,
                                                    OpenObject request, int64_t timeout_ns);
  static absl::StatusOr<std::shared_ptr<File>> Create(const std::shared_ptr<Session>& session,
                                                      CreateObject request, int64_t timeout_ns);
  // A draft is aborted.
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  Session& session() const { return *session_; }
  uint64_t region_id() const { return region_id_; }
  uint64_t bytes() const { return bytes_; }
  // NOT_FOUND once it is closed or committed.
  absl::Status CheckOpen() const;

  absl::Status Sync(int64_t timeout_ns);
  // FAILED_PRECONDITION, and it stays a draft, while a transfer uses it.
  absl::Status Commit(int64_t timeout_ns);
  // A draft is aborted, with what writes into it. Otherwise FAILED_PRECONDITION, and it stays open,
  // while a transfer uses it. OK if it is closed already.
  absl::Status Close();

 private:
  enum class State { kOpen, kCommitted, kClosed };

  File(std::shared_ptr<Session> session, std::string name, uint64_t region_id, uint64_t bytes,
       bool draft)
      : session_(std::move(session)),
        name_(std::move(name)),
        region_id_(region_id),
        bytes_(bytes),
        draft_(draft) {}

  absl::Status CheckUnused() const;
  absl::Status Release();

  const std::shared_ptr<Session> session_;
  const std::string name_;  // for words
  const uint64_t region_id_;
  const uint64_t bytes_;
  const bool draft_;
  std::atomic<State> state_{State::kOpen};
};

}  // namespace shunt::client
