// The file or object that shunt-perf's read and write are of.
#pragma once

#include <shunt/client.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/harness/options.h"
#include "runtime/core/fd.h"

namespace shunt::bench {

class StorePlace {
 public:
  // A file that is not there is made, with `bytes` bytes, and removed in the end.
  // FAILED_PRECONDITION: there is one that is shorter.
  static absl::StatusOr<std::unique_ptr<StorePlace>> Make(const PerfOptions& options,
                                                          Session* session, uint64_t bytes);
  ~StorePlace();
  StorePlace(const StorePlace&) = delete;
  StorePlace& operator=(const StorePlace&) = delete;

  bool is_file() const { return fd_.valid(); }
  // For reading, and a file for writing in place. Throws Error.
  File Open() const;
  // A draft of the object. Throws Error.
  File Create(uint64_t bytes) const;
  // Of a file, past Shunt: false if there are fewer bytes.
  bool ReadBack(uint64_t offset, void* data, uint64_t bytes) const;

 private:
  StorePlace(const PerfOptions& options, Session* session);

  absl::Status OpenFile(const std::string& path, uint64_t bytes, bool writable);

  Session* const session_;
  Object object_;
  bool writable_ = false;
  std::string made_;  // to be removed
  UniqueFd fd_;
};

}  // namespace shunt::bench
