// The C interface of block stores.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/shunt_kv.h"
#include "client/src/credential_argument.h"
#include "client/src/deadline.h"
#include "client/src/error.h"
#include "client/src/kv/store.h"
#include "client/src/options.h"
#include "client/src/transfer_handles.h"
#include "runtime/core/status.h"

using shunt::client::CredentialArgument;
using shunt::client::Fail;
using shunt::client::FillStruct;
using shunt::client::Guarded;
using shunt::client::ReadOptions;
using shunt::client::Result;
using shunt::client::TextArgument;
using shunt::client::kv::Call;
using shunt::client::kv::CallBlock;
using shunt::client::kv::Store;

struct shunt_kv {
  std::unique_ptr<Store> impl;
};

struct shunt_kv_call {
  std::shared_ptr<Call> impl;
  std::shared_ptr<shunt::client::Session> session;  // tells a forked child
};

namespace {

constexpr int64_t kDefaultTimeoutNs = int64_t{60} * 1'000'000'000;
constexpr uint64_t kBlocksMax = 1 << 24;
constexpr size_t kPathBytesMax = 4096;

absl::StatusOr<int64_t> DeadlineOf(const char* name, int64_t timeout_ns) {
  if (timeout_ns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", timeout_ns, ", expected 0 or more"));
  }
  return shunt::client::DeadlineNs(timeout_ns == 0 ? kDefaultTimeoutNs : timeout_ns);
}

absl::StatusOr<std::string> OptionalText(const char* name, const char* text, size_t most) {
  if (text == nullptr) return std::string();
  if (::strnlen(text, most + 1) > most) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is longer than ", most, " bytes"));
  }
  return std::string(text);
}

absl::StatusOr<shunt::client::kv::StoreOptions> ReadStoreOptions(const shunt_kv_options* given) {
  if (given == nullptr) return absl::InvalidArgumentError("options is null");
  shunt_kv_options o;
  SHUNT_RETURN_IF_ERROR(ReadOptions("shunt_kv_options", sizeof(o), given, &o));
  shunt::client::kv::StoreOptions options;
  options.block_bytes = o.block_bytes;
  options.memory_bytes = o.memory_bytes;
  options.file_bytes = o.file_bytes;
  options.object_bytes = o.object_bytes;
  SHUNT_ASSIGN_OR_RETURN(options.directory,
                         OptionalText("shunt_kv_options.directory", o.directory, kPathBytesMax));
  if (o.object_endpoint == nullptr) return options;
  const auto text = [](const char* name, const char* value, std::string* out) -> absl::Status {
    SHUNT_ASSIGN_OR_RETURN(*out, TextArgument(name, value == nullptr ? "" : value));
    return absl::OkStatus();
  };
  shunt::client::ObjectPlace& place = options.objects;
  SHUNT_RETURN_IF_ERROR(
      text("shunt_kv_options.object_endpoint", o.object_endpoint, &place.endpoint));
  SHUNT_RETURN_IF_ERROR(text("shunt_kv_options.object_bucket", o.object_bucket, &place.bucket));
  SHUNT_RETURN_IF_ERROR(text("shunt_kv_options.object_prefix", o.object_prefix, &place.key));
  const auto secret = [](const char* name, const char* value, std::string* out) -> absl::Status {
    SHUNT_ASSIGN_OR_RETURN(*out, CredentialArgument(name, value));
    return absl::OkStatus();
  };
  SHUNT_RETURN_IF_ERROR(secret("shunt_kv_options.object_access_key_id", o.object_access_key_id,
                               &place.access_key_id));
  SHUNT_RETURN_IF_ERROR(secret("shunt_kv_options.object_secret_access_key",
                               o.object_secret_access_key, &place.secret_access_key));
  SHUNT_RETURN_IF_ERROR(secret("shunt_kv_options.object_session_token", o.object_session_token,
                               &place.session_token));
  if (place.endpoint.empty()) {
    return absl::InvalidArgumentError(
        "shunt_kv_options.object_endpoint is \"\", expected a name, or NULL");
  }
  return options;
}

absl::Status CheckStore(const shunt_kv* store) {
  if (store == nullptr) return absl::InvalidArgumentError("store is null");
  return store->impl->session()->CheckProcess();
}

absl::StatusOr<std::string> ReadKey(const char* array, uint64_t i, const shunt_kv_key& key) {
  if (key.data == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(array, "[", i, "]: the key is null"));
  std::string text;
  if (key.bytes <= shunt::tiers::kKeyBytesMax)
    text.assign(static_cast<const char*>(key.data), key.bytes);
  if (text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(array, "[", i, "]: the key has ", key.bytes,
                                                   " bytes, expected 1 to ",
                                                   shunt::tiers::kKeyBytesMax));
  }
  return text;
}

absl::Status CheckCount(const char* array, const void* data, uint64_t count) {
  if (data == nullptr) return absl::InvalidArgumentError(absl::StrCat(array, " is null"));
  if (count < 1 || count > kBlocksMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("count is ", count, ", expected 1 to ", kBlocksMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CallBlock>> ReadBlocks(const shunt_kv_block* blocks, uint64_t count) {
  SHUNT_RETURN_IF_ERROR(CheckCount("blocks", blocks, count));
  std::vector<CallBlock> read(count);
  for (uint64_t i = 0; i < count; ++i) {
    SHUNT_ASSIGN_OR_RETURN(read[i].key, ReadKey("blocks", i, blocks[i].key));
    read[i].data = static_cast<std::byte*>(blocks[i].pointer);
    read[i].bytes = blocks[i].bytes;
  }
  return read;
}

absl::StatusOr<int64_t> ReadDeadline(const shunt_kv_call_options* given) {
  shunt_kv_call_options o;
  SHUNT_RETURN_IF_ERROR(ReadOptions("shunt_kv_call_options", sizeof(o), given, &o));
  return DeadlineOf("shunt_kv_call_options.timeout_ns", o.timeout_ns);
}

void GiveResults(Call& call, shunt_kv_result* results) {
  const auto all = call.Results();
  for (size_t i = 0; i < all.size(); ++i) {
    results[i] = {static_cast<int32_t>(all[i].code),
                  all[i].tier ? static_cast<shunt_kv_tier>(*all[i].tier) : SHUNT_KV_NONE,
                  all[i].bytes};
  }
}

// The frame of a call that may be waited for at once.
template <typename Start>
int RunCall(shunt_kv* store, const shunt_kv_call_options* options, shunt_kv_result* results,
            shunt_kv_call** call, Start&& start) {
  return Guarded([&]() -> int {
    if (call != nullptr) *call = nullptr;
    if (absl::Status s = CheckStore(store); !s.ok()) return Fail(s);
    const auto deadline_ns = ReadDeadline(options);
    if (!deadline_ns.ok()) return Fail(deadline_ns.status());
    auto handle = std::make_unique<shunt_kv_call>();
    absl::StatusOr<std::shared_ptr<Call>> started = start(*deadline_ns);
    if (!started.ok()) return Fail(started.status());
    handle->impl = *std::move(started);
    handle->session = store->impl->session();
    if (call != nullptr) {
      *call = handle.release();
      return SHUNT_OK;
    }
    handle->impl->Wait(shunt::kNeverNs);  // its own deadline ends it
    if (results != nullptr) GiveResults(*handle->impl, results);
    return Result(handle->impl->Outcome());
  });
}

absl::Status CheckCall(const shunt_kv_call* call) {
  if (call == nullptr) return absl::InvalidArgumentError("call is null");
  return call->session->CheckProcess();
}

}  // namespace

extern "C" {

int shunt_kv_open(shunt_session* session, const shunt_kv_options* options, shunt_kv** store) {
  return Guarded([&]() -> int {
    if (store == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "store is null");
    *store = nullptr;
    if (absl::Status s = shunt::client::CheckSession(session); !s.ok()) return Fail(s);
    const auto read = ReadStoreOptions(options);
    if (!read.ok()) return Fail(read.status());
    auto opened = Store::Open(session->impl, *read);
    if (!opened.ok()) return Fail(opened.status());
    *store = new shunt_kv{*std::move(opened)};
    return SHUNT_OK;
  });
}

void shunt_kv_close(shunt_kv* store) {
  Guarded([&] {
    if (store == nullptr) return 0;
    // Threads of the parent may wait in it: the end of what they wait for would wait for them.
    if (store->impl->session()->InForkedChild()) (void)store->impl.release();
    delete store;
    return 0;
  });
}

const char* shunt_kv_notes(const shunt_kv* store) {
  return store == nullptr ? "" : store->impl->notes().c_str();
}

int shunt_kv_put(shunt_kv* store, const shunt_kv_block* blocks, uint64_t count,
                 const shunt_kv_call_options* options, shunt_kv_result* results,
                 shunt_kv_call** call) {
  return RunCall(store, options, results, call,
                 [&](int64_t deadline_ns) -> absl::StatusOr<std::shared_ptr<Call>> {
                   SHUNT_ASSIGN_OR_RETURN(auto read, ReadBlocks(blocks, count));
                   return store->impl->Put(std::move(read), deadline_ns);
                 });
}

int shunt_kv_get(shunt_kv* store, const shunt_kv_block* blocks, uint64_t count,
                 const shunt_kv_call_options* options, shunt_kv_result* results,
                 shunt_kv_call** call) {
  return RunCall(store, options, results, call,
                 [&](int64_t deadline_ns) -> absl::StatusOr<std::shared_ptr<Call>> {
                   SHUNT_ASSIGN_OR_RETURN(auto read, ReadBlocks(blocks, count));
                   return store->impl->Get(std::move(read), deadline_ns);
                 });
}

int shunt_kv_flush(shunt_kv* store, const shunt_kv_call_options* options, shunt_kv_call** call) {
  return RunCall(store, options, nullptr, call,
                 [&](int64_t deadline_ns) { return store->impl->Flush(deadline_ns); });
}

int shunt_kv_lookup(shunt_kv* store, const shunt_kv_key* keys, uint64_t count, shunt_kv_tier* tiers,
                    uint64_t* prefix) {
  return Guarded([&]() -> int {
    if (prefix != nullptr) *prefix = 0;
    absl::Status status = CheckStore(store);
    if (status.ok()) status = CheckCount("keys", keys, count);
    if (!status.ok()) return Fail(status);
    bool unbroken = true;
    for (uint64_t i = 0; i < count; ++i) {
      const auto key = ReadKey("keys", i, keys[i]);
      if (!key.ok()) return Fail(key.status());
      if (!unbroken && tiers == nullptr) continue;
      const auto tier = store->impl->Lookup(*key);
      if (tiers != nullptr) tiers[i] = tier ? static_cast<shunt_kv_tier>(*tier) : SHUNT_KV_NONE;
      unbroken = unbroken && tier.has_value();
      if (unbroken && prefix != nullptr) ++*prefix;
    }
    return SHUNT_OK;
  });
}

int shunt_kv_erase(shunt_kv* store, const shunt_kv_key* keys, uint64_t count, uint64_t* erased) {
  return Guarded([&]() -> int {
    if (erased != nullptr) *erased = 0;
    absl::Status status = CheckStore(store);
    if (status.ok()) status = CheckCount("keys", keys, count);
    if (!status.ok()) return Fail(status);
    for (uint64_t i = 0; i < count; ++i) {
      const auto key = ReadKey("keys", i, keys[i]);
      if (!key.ok()) return Fail(key.status());
      if (store->impl->Erase(*key) && erased != nullptr) ++*erased;
    }
    return SHUNT_OK;
  });
}

int shunt_kv_stats(shunt_kv* store, shunt_kv_facts* facts) {
  return Guarded([&]() -> int {
    if (facts == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "facts is null");
    if (absl::Status s = CheckStore(store); !s.ok()) return Fail(s);
    const shunt::client::kv::StoreFacts f = store->impl->Facts();
    shunt_kv_facts out{};
    for (size_t i = 0; i < f.tiers.size(); ++i) {
      const auto& t = f.tiers[i];
      out.tiers[i] = {t.slots, t.blocks, t.bytes, t.hits, t.hit_bytes, t.written, t.evictions};
    }
    out.puts = f.puts;
    out.puts_present = f.puts_present;
    out.put_bytes = f.put_bytes;
    out.misses = f.misses;
    out.promotions = f.promotions;
    out.dropped = f.dropped;
    out.corrupt = f.corrupt;
    out.errors = f.errors;
    out.dirty = f.dirty;
    out.rewrites = f.rewrites;
    return Result(FillStruct("shunt_kv_facts", out, facts));
  });
}

int shunt_kv_call_poll(shunt_kv_call* call, int* done) {
  return Guarded([&]() -> int {
    if (done == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "done is null");
    *done = 0;
    if (absl::Status s = CheckCall(call); !s.ok()) return Fail(s);
    if (!call->impl->Poll()) return SHUNT_OK;
    *done = 1;
    return Result(call->impl->Outcome());
  });
}

int shunt_kv_call_wait(shunt_kv_call* call, int64_t timeout_ns) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckCall(call); !s.ok()) return Fail(s);
    const auto deadline_ns = DeadlineOf("timeout_ns", timeout_ns);
    if (!deadline_ns.ok()) return Fail(deadline_ns.status());
    if (!call->impl->Wait(*deadline_ns)) {
      return Fail(absl::StatusCode::kDeadlineExceeded,
                  "the call has not ended within the timeout; it is still running");
    }
    return Result(call->impl->Outcome());
  });
}

int shunt_kv_call_fd(shunt_kv_call* call, int* fd) {
  return Guarded([&]() -> int {
    if (fd == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "fd is null");
    *fd = -1;
    if (absl::Status s = CheckCall(call); !s.ok()) return Fail(s);
    const auto event = call->impl->EventFd();
    if (!event.ok()) return Fail(event.status());
    *fd = *event;
    return SHUNT_OK;
  });
}

int shunt_kv_call_results(shunt_kv_call* call, shunt_kv_result* results, uint64_t count) {
  return Guarded([&]() -> int {
    if (results == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "results is null");
    if (absl::Status s = CheckCall(call); !s.ok()) return Fail(s);
    if (!call->impl->Poll()) {
      return Fail(absl::StatusCode::kFailedPrecondition,
                  "the call has not ended, expected an end before its results are asked for");
    }
    if (const size_t blocks = call->impl->Results().size(); count != blocks) {
      return Fail(absl::StatusCode::kInvalidArgument,
                  absl::StrCat("count is ", count, ", expected the call's ", blocks, " blocks"));
    }
    GiveResults(*call->impl, results);
    return SHUNT_OK;
  });
}

void shunt_kv_call_release(shunt_kv_call* call) {
  Guarded([&] {
    if (call == nullptr) return 0;
    if (call->session->InForkedChild()) return 0;  // as above
    call->impl->Wait(shunt::kNeverNs);
    delete call;
    return 0;
  });
}

}  // extern "C"
