// Files and objects in C++: what transfers name beside memory, over shunt.h, which says what each
// call does. Included by shunt/client.h.
//
//   shunt::File file = session.OpenFile(fd, SHUNT_ACCESS_READ_WRITE);  // fd stays yours
//   shunt::List blocks = agent.Prepare({file.Blocks(0, block_bytes, count)});
//   agent.Pull(memory.Ids(slots), blocks.Ids(ids)).Wait();  // reads
//   agent.Push(memory.Ids(slots), blocks.Ids(ids)).Wait();  // writes
//   file.Sync();
//
//   shunt::File draft = session.CreateFile("models", "x.bin", bytes, {.if_absent = true});
//   agent.Push(memory.All(), agent.Prepare({draft.Blocks(0, block_bytes, count)}).All()).Wait();
//   draft.Commit();
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "shunt/client.h"
#include "shunt/transfers.h"

namespace shunt {

// What signs requests for an object. Without a key id they are not signed.
struct ObjectCredentials {
  std::string access_key_id = {};
  std::string secret_access_key = {};
  std::string session_token = {};  // of keys that expire
};

struct Object {
  std::string endpoint = {};  // a name of the daemon's configuration
  std::string bucket = {};
  std::string key = {};
  ObjectCredentials credentials = {};
};

struct CreateOptions {
  // ALREADY_EXISTS, at once or of Commit, if there is one by that name; otherwise it is replaced.
  bool if_absent = false;
  std::chrono::nanoseconds timeout{0};  // 0: 60 s
};

// A file or an object that is open, or a draft of one. Lists that were prepared or published from
// it keep it open. Dropping a draft, with its lists, aborts it.
class File {
 public:
  File() = default;
  File(File&& other) noexcept
      : session_(std::move(other.session_)), file_(std::exchange(other.file_, nullptr)) {}
  File& operator=(File&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(file_, other.file_);
    return *this;
  }
  ~File() { shunt_file_release(file_); }

  // When it was opened; of a draft, what it will have.
  uint64_t bytes() const { return facts().bytes; }
  // For shunt_piece.
  uint64_t region_id() const { return facts().region_id; }
  shunt_file_facts facts() const {
    shunt_file_facts facts{};
    facts.struct_size = sizeof(facts);
    ThrowIfError(shunt_file_info(file_, &facts));
    return facts;
  }
  shunt_file* get() const { return file_; }

  // Makes durable what was written in place. A timeout of 0 is 60 s.
  void Sync(std::chrono::nanoseconds timeout = {}) {
    ThrowIfError(shunt_file_sync(file_, timeout.count()));
  }
  // Makes a draft appear, whole and durable.
  void Commit(std::chrono::nanoseconds timeout = {}) {
    ThrowIfError(shunt_file_commit(file_, timeout.count()));
  }
  // Now, while lists still name it. Aborts a draft.
  void Close() { ThrowIfError(shunt_file_close(file_)); }

  // Sets for lists and sections, as those of memory in shunt/transfers.h.
  shunt_set Piece(uint64_t offset, uint64_t bytes) const {
    return At(offset, shunt::Piece(nullptr, bytes));
  }
  // `count` pieces of `bytes` each, `stride_bytes` apart (0: one after the other).
  shunt_set Blocks(uint64_t offset, uint64_t bytes, uint64_t count,
                   int64_t stride_bytes = 0) const {
    return At(offset, shunt::Blocks(nullptr, bytes, count, stride_bytes));
  }
  shunt_set Strided(uint64_t offset, uint64_t bytes,
                    std::initializer_list<shunt_dimension> dimensions) const {
    return At(offset, shunt::Strided(nullptr, bytes, dimensions));
  }

 private:
  friend class Session;
  explicit File(internal::SessionHandle session) : session_(std::move(session)) {}

  shunt_set At(uint64_t offset, shunt_set set) const {
    if (file_ == nullptr) throw Error(SHUNT_INVALID_ARGUMENT, "a shunt::File that is none");
    set.file = file_;
    set.offset = offset;
    return set;
  }

  internal::SessionHandle session_;
  shunt_file* file_ = nullptr;
};

namespace internal {

inline shunt_create_options Convert(const CreateOptions& options) {
  shunt_create_options o{};
  o.struct_size = sizeof(o);
  o.timeout_ns = options.timeout.count();
  o.flags = options.if_absent ? SHUNT_CREATE_IF_ABSENT : 0;
  return o;
}

// Refers to the strings of `object`.
inline shunt_object Convert(const Object& object) {
  shunt_object o{};
  o.struct_size = sizeof(o);
  o.endpoint = object.endpoint.c_str();
  o.bucket = object.bucket.c_str();
  o.key = object.key.c_str();
  o.access_key_id = object.credentials.access_key_id.c_str();
  o.secret_access_key = object.credentials.secret_access_key.c_str();
  o.session_token = object.credentials.session_token.c_str();
  return o;
}

}  // namespace internal

inline File Session::OpenFile(int fd, shunt_access access, std::chrono::nanoseconds timeout) {
  File file(session_);
  ThrowIfError(shunt_file_open_fd(get(), fd, access, timeout.count(), &file.file_));
  return file;
}

inline File Session::OpenFile(const std::string& root, const std::string& path, shunt_access access,
                              std::chrono::nanoseconds timeout) {
  File file(session_);
  ThrowIfError(
      shunt_file_open(get(), root.c_str(), path.c_str(), access, timeout.count(), &file.file_));
  return file;
}

inline File Session::CreateFile(const std::string& root, const std::string& path, uint64_t bytes) {
  return CreateFile(root, path, bytes, CreateOptions{});
}
inline File Session::CreateFile(const std::string& root, const std::string& path, uint64_t bytes,
                                const CreateOptions& options) {
  const shunt_create_options o = internal::Convert(options);
  File file(session_);
  ThrowIfError(shunt_file_create(get(), root.c_str(), path.c_str(), bytes, &o, &file.file_));
  return file;
}

inline File Session::OpenObject(const Object& object, std::chrono::nanoseconds timeout) {
  const shunt_object o = internal::Convert(object);
  File file(session_);
  ThrowIfError(shunt_object_open(get(), &o, timeout.count(), &file.file_));
  return file;
}

inline File Session::CreateObject(const Object& object, uint64_t bytes) {
  return CreateObject(object, bytes, CreateOptions{});
}
inline File Session::CreateObject(const Object& object, uint64_t bytes,
                                  const CreateOptions& options) {
  const shunt_object o = internal::Convert(object);
  const shunt_create_options c = internal::Convert(options);
  File file(session_);
  ThrowIfError(shunt_object_create(get(), &o, bytes, &c, &file.file_));
  return file;
}

}  // namespace shunt
