// The keys that requests are signed with, and when they must be got anew.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/storage/s3/credentials.h"
#include "runtime/storage/s3/http.h"
#include "runtime/storage/s3/options.h"

namespace shunt::storage {

class Identity {
 public:
  explicit Identity(S3CredentialSource source) : source_(std::move(source)) {}

  // Takes the keys that the source has, but for those of STS. Reads a small local file at most.
  absl::Status Load();

  bool from_sts() const { return source_.kind == S3CredentialSource::Kind::kWebIdentity; }
  // Requests can be signed.
  bool usable() const;
  // They are to be got anew, also if they can be used yet.
  bool stale() const;
  // What is there was refused: not usable until it has come anew.
  void Invalidate() { refused_ = true; }
  const Credentials& current() const { return current_; }

  // STS: the request for new keys, with the token that the file holds now; and its answer.
  absl::StatusOr<HttpRequest> MakeStsRequest(const std::string& ca_file) const;
  absl::Status TakeStsAnswer(const HttpResult& result, bool* retry);

 private:
  void Take(Credentials credentials);

  const S3CredentialSource source_;
  Credentials current_;
  absl::Time taken_ = absl::InfinitePast();
  bool have_ = false;
  bool refused_ = false;
};

}  // namespace shunt::storage
