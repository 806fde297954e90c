// A store that a library brings (store_plugin.h). The library is trusted as our own code is: it
// runs in this process. What it hands out is checked all the same, so that its faults have names.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "runtime/storage/plugin/store_plugin.h"
#include "runtime/storage/store.h"

namespace shunt::storage {

class PluginStore : public Store {
 public:
  // Loads the library at an absolute path, for good, and gives its table, as checked. NOT_FOUND it
  // can't be loaded, PERMISSION_DENIED others may change it, FAILED_PRECONDITION it is no plugin of
  // this version.
  static absl::StatusOr<const shunt_store_plugin*> Resolve(const std::string& path);
  // The same, and makes a store with that configuration; or what the plugin says.
  static absl::StatusOr<std::unique_ptr<PluginStore>> Load(const std::string& path,
                                                           const std::string& config);
  // The same for a table that is there already; it outlives the store.
  static absl::StatusOr<std::unique_ptr<PluginStore>> Make(const shunt_store_plugin* plugin,
                                                           const std::string& config);
  ~PluginStore() override;

  Features features() const override;
  void PostOpen(OpenRequest request, uint64_t token) override;
  void PostRead(TransferRequest request, uint64_t token) override;
  void PostWrite(TransferRequest request, uint64_t token) override;
  void PostSync(ObjectId object, int64_t deadline_ns, uint64_t token) override;
  void PostBegin(BeginRequest request, uint64_t token) override;
  void PostCommit(ObjectId draft, int64_t deadline_ns, uint64_t token) override;
  void PostAbort(ObjectId draft, uint64_t token) override;
  void Close(ObjectId object) override;
  void Cancel(uint64_t token) override;
  size_t Poll(absl::Span<Completion> out) override;
  int fd() const override { return plugin_->fd(store_); }

  // Completions that nothing was posted for, and which were dropped.
  uint64_t stray_completions() const { return stray_completions_; }

 private:
  PluginStore(const shunt_store_plugin* plugin, void* store) : plugin_(plugin), store_(store) {}
  void Fail(uint64_t token, absl::Status status);
  void Transfer(decltype(shunt_store_plugin::post_read) post, const TransferRequest& request,
                uint64_t token);

  const shunt_store_plugin* const plugin_;
  void* const store_;
  absl::flat_hash_set<uint64_t> tokens_;  // under way
  std::deque<Completion> refused_;        // by us
  uint64_t stray_completions_ = 0;
};

}  // namespace shunt::storage
