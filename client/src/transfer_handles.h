// The C interface's handles of lists and transfers, and what several of its files need to read
// arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/shunt.h"
#include "client/src/file.h"
#include "client/src/handles.h"
#include "client/src/list.h"
#include "client/src/transfers.h"

struct shunt_list {
  std::shared_ptr<const shunt::client::List> impl;
};

struct shunt_transfer {
  std::shared_ptr<shunt::client::Transfer> impl;
};

struct shunt_file {
  std::shared_ptr<shunt::client::File> impl;
};

namespace shunt::client {

// The session may be used here.
inline absl::Status CheckSession(const shunt_session* session) {
  if (session == nullptr) return absl::InvalidArgumentError("session is null");
  return session->impl->CheckProcess();
}

// Text of at most `bytes_max`: names are short, and the daemon says what is wrong with one.
absl::StatusOr<std::string> TextArgument(const char* name, const char* text,
                                         size_t bytes_max = 1024);

}  // namespace shunt::client
