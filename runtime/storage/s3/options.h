// What the owner of an S3 store decides.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/storage/store_tally.h"

namespace shunt::storage {

struct S3Endpoint {
  std::string url;  // scheme://host[:port], nothing more; "https" or "http"
  std::string region = "us-east-1";
  bool path_style = false;   // host/bucket/key; otherwise bucket.host/key
  std::string ca_file = {};  // PEM, instead of the system's
};

// Where the keys of a store come from. None of it shows in errors.
struct S3CredentialSource {
  enum class Kind : uint8_t {
    kAnonymous,
    kStatic,       // the two or three below
    kEnvironment,  // AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
    kFile,         // a shared credentials file, in INI format
    kWebIdentity,  // a token in a file, exchanged for keys at an STS endpoint
  };
  Kind kind = Kind::kEnvironment;
  std::string access_key = {}, secret_key = {}, session_token = {};  // kStatic
  std::string file = {};                                             // kFile, kWebIdentity
  std::string profile = "default";                                   // kFile
  std::string role = {};                                             // kWebIdentity: its ARN
  std::string session_name = "shunt";                                // kWebIdentity
  std::string sts_url = {};                                          // kWebIdentity
  std::chrono::seconds refresh_before = std::chrono::minutes(5);     // their end
};

struct S3Options {
  S3Endpoint endpoint;
  S3CredentialSource credentials = {};
  uint32_t connections_max = 16;
  uint64_t range_bytes = 8 << 20;  // a read of more is cut into several, in parallel
  // Objects of more are uploaded in parts of so much, or more if there would be over 10,000.
  uint64_t part_bytes = 8 << 20;
  uint64_t staging_bytes_max = 256 << 20;  // parts of which some bytes are still missing
  bool content_md5 = true;                 // the server checks what it got
  uint32_t attempts_max = 8;
  std::chrono::milliseconds backoff_first{50};
  std::chrono::milliseconds backoff_max{5'000};
  std::chrono::milliseconds connect_timeout{5'000};
  std::shared_ptr<StoreTally> tally = {};           // where retries are counted; null: nowhere
  std::chrono::seconds stall_timeout{30};           // less than a byte a second for so long
  std::chrono::milliseconds abort_timeout{30'000};  // for the removal of a draft
  std::chrono::milliseconds end_timeout{5'000};     // for all removals when the store is destroyed
};

}  // namespace shunt::storage
