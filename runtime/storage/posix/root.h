// Directories below which the store opens names itself. No name leads out: it is walked component
// by component, each opened below the one before, symbolic links and ".." refused. (What openat2
// does with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, also where a seccomp filter forbids it.)
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/core/fd.h"
#include "runtime/storage/posix/file.h"

namespace shunt::storage {

// The directory of a root in which complete drafts get their temporary names. Names can't reach it.
inline constexpr char kPartialDirectory[] = ".shunt-partial";

class Root {
 public:
  // Opens the directory and removes what drafts of ended processes left there.
  static absl::StatusOr<Root> Open(std::string name, std::string path);

  const std::string& name() const { return name_; }

  // Its functions may be called from any thread, and block. Their errors name the root, not its
  // path: whoever names files below it need not know where it lies.

  // Opens a regular file. NOT_FOUND, PERMISSION_DENIED (also for links), INVALID_ARGUMENT.
  absl::StatusOr<File> OpenFile(std::string_view name, Access access, bool direct) const;

  struct Place {
    UniqueFd directory;  // that holds it; can be synced
    std::string leaf;
  };
  // Where a file of that name belongs, whether it exists or not.
  absl::StatusOr<Place> Find(std::string_view name) const;
  // Makes it if it is not there. PERMISSION_DENIED if others may change what is in it.
  absl::StatusOr<UniqueFd> OpenPartialDirectory() const;
  // "NAME/name".
  std::string LabelOf(std::string_view name) const;

 private:
  Root(std::string name, std::string path, UniqueFd directory)
      : name_(std::move(name)), path_(std::move(path)), directory_(std::move(directory)) {}
  absl::Status CheckPartialDirectory(int fd) const;

  std::string name_;
  std::string path_;
  UniqueFd directory_;
};

}  // namespace shunt::storage
