#include "runtime/storage/plugin/plugin_store.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"
#include "runtime/storage/check.h"
#include "runtime/storage/plugin/trusted.h"

namespace shunt::storage {
namespace {

constexpr size_t kNameBytesMax = 4096;
constexpr size_t kBatch = 32;

absl::Status ToStatus(const char* plugin, uint32_t code, const char* words, size_t words_bytes) {
  if (code == SHUNT_STORE_OK) return absl::OkStatus();
  const std::string text = Printable({words, ::strnlen(words, words_bytes)});
  if (code > SHUNT_STORE_UNAUTHENTICATED) {
    return absl::InternalError(absl::StrCat("store plugin '", plugin, "' ended an operation with ",
                                            code, ", expected a code of at most ",
                                            SHUNT_STORE_UNAUTHENTICATED, ": ", text));
  }
  return {static_cast<absl::StatusCode>(code), text};
}

// That all of the table is there.
absl::Status CheckTable(const shunt_store_plugin* plugin) {
  if (plugin == nullptr) {
    return absl::FailedPreconditionError("store plugin: no table, expected one");
  }
  if (plugin->version != SHUNT_STORE_PLUGIN_VERSION || plugin->size < sizeof(*plugin)) {
    return absl::FailedPreconditionError(
        absl::StrCat("store plugin of version ", plugin->version, " with a table of ", plugin->size,
                     " bytes, expected version ", SHUNT_STORE_PLUGIN_VERSION, " and at least ",
                     sizeof(*plugin), " bytes"));
  }
  const bool whole = plugin->name && plugin->create && plugin->destroy && plugin->post_open &&
                     plugin->post_read && plugin->post_write && plugin->post_sync &&
                     plugin->post_begin && plugin->post_commit && plugin->post_abort &&
                     plugin->close && plugin->cancel && plugin->poll && plugin->fd;
  if (whole) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "store plugin: a name or a function of its table is null, expected all of them");
}

absl::Status At(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<const shunt_store_plugin*> PluginStore::Resolve(const std::string& path) {
  // By another name the loader would search directories that the environment names.
  if (!path.starts_with('/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("store plugin '", path, "', expected an absolute path"));
  }
  SHUNT_RETURN_IF_ERROR(CheckTrusted(path));
  // Never unloaded: threads of the library may outlive the store.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return absl::NotFoundError(absl::StrCat("store plugin: ", ::dlerror()));
  const auto function =
      reinterpret_cast<shunt_store_plugin_function>(::dlsym(library, SHUNT_STORE_PLUGIN_SYMBOL));
  if (function == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("store plugin ", path, ": it exports no ",
                                                      SHUNT_STORE_PLUGIN_SYMBOL,
                                                      ", expected that function"));
  }
  const shunt_store_plugin* const table = function();
  SHUNT_RETURN_IF_ERROR(At(path, CheckTable(table)));
  return table;
}

absl::StatusOr<std::unique_ptr<PluginStore>> PluginStore::Load(const std::string& path,
                                                               const std::string& config) {
  SHUNT_ASSIGN_OR_RETURN(const shunt_store_plugin* const table, Resolve(path));
  auto store = Make(table, config);
  if (store.ok()) return store;
  return At(path, store.status());
}

absl::StatusOr<std::unique_ptr<PluginStore>> PluginStore::Make(const shunt_store_plugin* plugin,
                                                               const std::string& config) {
  SHUNT_RETURN_IF_ERROR(CheckTable(plugin));
  void* store = nullptr;
  char words[512] = {};
  const uint32_t code = plugin->create(config.c_str(), &store, words, sizeof(words));
  SHUNT_RETURN_IF_ERROR(ToStatus(plugin->name, code, words, sizeof(words)));
  if (store == nullptr) {
    return absl::InternalError(absl::StrCat("store plugin '", plugin->name,
                                            "' made a store at address 0, expected another"));
  }
  return std::unique_ptr<PluginStore>(new PluginStore(plugin, store));
}

PluginStore::~PluginStore() { plugin_->destroy(store_); }

Features PluginStore::features() const {
  return {.descriptors = (plugin_->features & SHUNT_STORE_DESCRIPTORS) != 0,
          .in_place = (plugin_->features & SHUNT_STORE_IN_PLACE) != 0};
}

void PluginStore::Fail(uint64_t token, absl::Status status) {
  refused_.push_back({.token = token, .status = std::move(status)});
}

void PluginStore::PostOpen(OpenRequest request, uint64_t token) {
  const bool by_name = !request.descriptor.valid();
  absl::Status status;
  if (!by_name && !features().descriptors) {
    status = absl::UnimplementedError(absl::StrCat("a descriptor was given to store plugin '",
                                                   plugin_->name, "', expected a name"));
  } else if (request.access == Access::kReadWrite && !features().in_place) {
    status = absl::UnimplementedError(absl::StrCat(
        "store plugin '", plugin_->name, "' does not write in place, expected Access::kRead"));
  } else if (by_name) {
    status = CheckName("container", request.container, kNameBytesMax);
    if (status.ok()) status = CheckName("object name", request.name, kNameBytesMax);
  }
  if (!status.ok()) return Fail(token, std::move(status));
  const shunt_store_open open{
      .container = by_name ? request.container.c_str() : nullptr,
      .name = by_name ? request.name.c_str() : nullptr,
      .deadline_ns = request.deadline_ns,
      .descriptor = request.descriptor.Release(),
      .access = request.access == Access::kReadWrite ? SHUNT_STORE_READ_WRITE : SHUNT_STORE_READ};
  tokens_.insert(token);
  plugin_->post_open(store_, &open, token);
}

void PluginStore::PostBegin(BeginRequest request, uint64_t token) {
  absl::Status status = CheckName("container", request.container, kNameBytesMax);
  if (status.ok()) status = CheckName("object name", request.name, kNameBytesMax);
  if (!status.ok()) return Fail(token, std::move(status));
  const shunt_store_begin begin{.container = request.container.c_str(),
                                .name = request.name.c_str(),
                                .bytes = request.bytes,
                                .deadline_ns = request.deadline_ns,
                                .if_absent = request.if_absent ? 1u : 0u,
                                .reserved = 0};
  tokens_.insert(token);
  plugin_->post_begin(store_, &begin, token);
}

void PluginStore::PostRead(TransferRequest request, uint64_t token) {
  Transfer(plugin_->post_read, request, token);
}
void PluginStore::PostWrite(TransferRequest request, uint64_t token) {
  Transfer(plugin_->post_write, request, token);
}

void PluginStore::Transfer(decltype(shunt_store_plugin::post_read) post,
                           const TransferRequest& request, uint64_t token) {
  std::vector<shunt_store_piece> pieces;
  pieces.reserve(request.pieces.size());
  for (const Piece& piece : request.pieces) {
    pieces.push_back({.object = piece.object,
                      .offset = piece.offset,
                      .memory = piece.memory.data(),
                      .bytes = piece.memory.size()});
  }
  const shunt_store_transfer transfer{
      .pieces = pieces.data(), .count = pieces.size(), .deadline_ns = request.deadline_ns};
  tokens_.insert(token);
  post(store_, &transfer, token);
}

void PluginStore::PostSync(ObjectId object, int64_t deadline_ns, uint64_t token) {
  if (!features().in_place) {
    return Fail(token, absl::UnimplementedError(absl::StrCat("store plugin '", plugin_->name,
                                                             "' does not write in place, expected "
                                                             "a draft")));
  }
  tokens_.insert(token);
  plugin_->post_sync(store_, object, deadline_ns, token);
}

void PluginStore::PostCommit(ObjectId draft, int64_t deadline_ns, uint64_t token) {
  tokens_.insert(token);
  plugin_->post_commit(store_, draft, deadline_ns, token);
}

void PluginStore::PostAbort(ObjectId draft, uint64_t token) {
  tokens_.insert(token);
  plugin_->post_abort(store_, draft, token);
}

void PluginStore::Close(ObjectId object) { plugin_->close(store_, object); }

void PluginStore::Cancel(uint64_t token) {
  if (tokens_.contains(token)) plugin_->cancel(store_, token);
}

size_t PluginStore::Poll(absl::Span<Completion> out) {
  size_t count = 0;
  for (; count < out.size() && !refused_.empty(); ++count) {
    out[count] = std::move(refused_.front());
    refused_.pop_front();
  }
  while (count < out.size()) {
    shunt_store_completion batch[kBatch];
    const size_t asked = std::min(kBatch, out.size() - count);
    const size_t got = std::min(asked, plugin_->poll(store_, batch, asked));
    for (size_t i = 0; i < got; ++i) {
      const shunt_store_completion& one = batch[i];
      if (tokens_.erase(one.token) == 0) {
        ++stray_completions_;
        continue;
      }
      out[count++] = {.token = one.token,
                      .status = ToStatus(plugin_->name, one.code, one.words, sizeof(one.words)),
                      .bytes = one.bytes,
                      .object = one.object};
    }
    if (got < asked) break;
  }
  return count;
}

}  // namespace shunt::storage
