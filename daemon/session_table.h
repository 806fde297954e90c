// All open sessions, by id and by token.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/session.h"

namespace shunt::daemon {

// Thread-safe.
class SessionTable {
 public:
  struct Limits {
    int64_t sessions = 4096;
    int64_t sessions_per_tenant = 4096;
  };
  explicit SessionTable(Limits limits);

  // A new session with an id that was never used and a fresh token. RESOURCE_EXHAUSTED names the
  // limit. It is not found before Publish; Remove undoes either.
  absl::StatusOr<std::shared_ptr<Session>> Open(const Peer& peer, std::string_view name);
  void Publish(const std::shared_ptr<Session>& session);

  // PERMISSION_DENIED if no session has this token, or another user's has: the answer is the same.
  absl::StatusOr<std::shared_ptr<Session>> FindByToken(std::string_view token, uint32_t uid) const;
  // Null if there is none.
  std::shared_ptr<Session> Find(uint64_t id) const;
  // Once for each session that Open gave.
  void Remove(const Session& session);

  std::vector<std::shared_ptr<Session>> List() const;
  size_t size() const;

 private:
  uint64_t TokenHash(std::string_view token) const;

  const Limits limits_;
  const Token hash_key_;
  mutable std::mutex mutex_;
  uint64_t next_id_ = 1;
  size_t open_ = 0;
  std::unordered_map<uint32_t, int64_t> open_by_tenant_;
  std::unordered_map<uint64_t, std::shared_ptr<Session>> by_id_;
  // By a keyed hash: how long a look-up takes says nothing about other tokens.
  std::unordered_multimap<uint64_t, std::shared_ptr<Session>> by_token_;
};

// Random bytes from the kernel.
Token RandomToken();
uint64_t RandomNumber();

}  // namespace shunt::daemon
