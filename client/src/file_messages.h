// What libshunt says about files and objects on the lease socket: messages of
// proto/shunt/v1/storage.proto as plain structs. See lease_messages.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "client/src/wire.h"

namespace shunt::client {

// With a descriptor beside the packet `root` and `path` are empty.
struct OpenFile {
  std::string root;
  std::string path;
  bool writable = false;
  uint32_t timeout_ms = 0;  // 0: none
};

struct CreateFile {
  std::string root;
  std::string path;
  uint64_t size_bytes = 0;
  bool if_absent = false;
  uint32_t timeout_ms = 0;
};

struct ObjectPlace {
  std::string endpoint;
  std::string bucket;
  std::string key;
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;
};

struct OpenObject {
  ObjectPlace place;
  uint32_t timeout_ms = 0;
};

struct CreateObject {
  ObjectPlace place;
  uint64_t size_bytes = 0;
  bool if_absent = false;
  uint32_t timeout_ms = 0;
};

struct CommitDraft {
  uint64_t region_id = 0;
  uint32_t timeout_ms = 0;
};

struct AbortDraft {
  uint64_t region_id = 0;
};

struct SyncFile {
  uint64_t region_id = 0;
  uint32_t timeout_ms = 0;
};

// Each writes the message's fields, without the tag of the message itself.
void EncodeFields(const OpenFile& m, WireWriter* w);
void EncodeFields(const CreateFile& m, WireWriter* w);
void EncodeFields(const OpenObject& m, WireWriter* w);
void EncodeFields(const CreateObject& m, WireWriter* w);
void EncodeFields(const CommitDraft& m, WireWriter* w);
void EncodeFields(const AbortDraft& m, WireWriter* w);
void EncodeFields(const SyncFile& m, WireWriter* w);

// Of objects too.
struct FileOpened {
  uint64_t region_id = 0;
  uint64_t size_bytes = 0;
};

struct FileCreated {
  uint64_t region_id = 0;
};

// False if the bytes are no such message.
bool DecodeFields(std::string_view data, FileOpened* m);
bool DecodeFields(std::string_view data, FileCreated* m);

}  // namespace shunt::client
