#include "daemon/session_table.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "daemon/text.h"
#include "runtime/core/check.h"

namespace shunt::daemon {
namespace {

constexpr size_t kNameBytesMax = 64;

void FillRandom(void* data, size_t bytes) {
  // At most 256 bytes: never short, never interrupted once the pool is ready.
  ssize_t got;
  do {
    got = ::getrandom(data, bytes, 0);
  } while (got < 0 && errno == EINTR);
  SHUNT_CHECK(got == static_cast<ssize_t>(bytes));
}

bool EqualInConstantTime(std::string_view a, const Token& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < b.size(); ++i) difference |= static_cast<uint8_t>(a[i]) ^ b[i];
  return difference == 0;
}

std::string_view AsView(const Token& token) {
  return {reinterpret_cast<const char*>(token.data()), token.size()};
}

}  // namespace

Token RandomToken() {
  Token token;
  FillRandom(token.data(), token.size());
  return token;
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  while (number == 0) FillRandom(&number, sizeof(number));
  return number;
}

SessionTable::SessionTable(Limits limits) : limits_(limits), hash_key_(RandomToken()) {}

uint64_t SessionTable::TokenHash(std::string_view token) const {
  return absl::HashOf(hash_key_, absl::string_view(token.data(), token.size()));
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Open(const Peer& peer,
                                                            std::string_view name) {
  std::string kept = Utf8Prefix(name, kNameBytesMax);
  std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(open_) >= limits_.sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_sessions: ", limits_.sessions, " sessions are open already"));
  }
  int64_t& of_tenant = open_by_tenant_[peer.uid];
  if (of_tenant >= limits_.sessions_per_tenant) {
    return absl::ResourceExhaustedError(absl::StrCat("max_sessions_per_tenant: user ", peer.uid,
                                                     " has ", limits_.sessions_per_tenant,
                                                     " sessions open already"));
  }
  ++of_tenant;
  ++open_;
  return std::make_shared<Session>(next_id_++, peer, std::move(kept), RandomToken());
}

void SessionTable::Publish(const std::shared_ptr<Session>& session) {
  const uint64_t hash = TokenHash(AsView(session->token));
  std::lock_guard lock(mutex_);
  by_id_.emplace(session->id, session);
  by_token_.emplace(hash, session);
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::FindByToken(std::string_view token,
                                                                   uint32_t uid) const {
  const uint64_t hash = TokenHash(token);
  std::lock_guard lock(mutex_);
  const auto [first, last] = by_token_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (EqualInConstantTime(token, it->second->token) && it->second->peer.uid == uid)
      return it->second;
  }
  return absl::PermissionDeniedError(
      "token: no open session of this user has it; open a session first (it ends with the process "
      "that "
      "opened it)");
}

std::shared_ptr<Session> SessionTable::Find(uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

void SessionTable::Remove(const Session& session) {
  const uint64_t hash = TokenHash(AsView(session.token));
  std::shared_ptr<Session> kept;  // not destroyed under the lock
  std::lock_guard lock(mutex_);
  const auto it = by_id_.find(session.id);
  if (it != by_id_.end()) {
    kept = std::move(it->second);
    by_id_.erase(it);
    const auto [first, last] = by_token_.equal_range(hash);
    for (auto token = first; token != last; ++token) {
      if (token->second.get() == &session) {
        by_token_.erase(token);
        break;
      }
    }
  }
  --open_;
  const auto tenant = open_by_tenant_.find(session.peer.uid);
  if (--tenant->second == 0) open_by_tenant_.erase(tenant);
}

std::vector<std::shared_ptr<Session>> SessionTable::List() const {
  std::vector<std::shared_ptr<Session>> list;
  std::lock_guard lock(mutex_);
  for (const auto& [id, session] : by_id_) list.push_back(session);
  return list;
}

size_t SessionTable::size() const {
  std::lock_guard lock(mutex_);
  return by_id_.size();
}

}  // namespace shunt::daemon
