#include "runtime/storage/s3/digest.h"

#include <openssl/evp.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "runtime/core/check.h"

namespace shunt::storage {
namespace {

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : context_(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) {
    SHUNT_CHECK(context_ != nullptr && ::EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1);
  }
  void Add(const void* data, size_t bytes) {
    SHUNT_CHECK(::EVP_DigestUpdate(context_.get(), data, bytes) == 1);
  }
  std::string Finish() {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    SHUNT_CHECK(::EVP_DigestFinal_ex(context_.get(), out, &bytes) == 1);
    return {reinterpret_cast<const char*>(out), bytes};
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string Md5(const Spans& data) {
  Digest digest(::EVP_md5());
  for (const absl::Span<std::byte> span : data) digest.Add(span.data(), span.size());
  return digest.Finish();
}

std::string Md5(std::string_view data) {
  Digest digest(::EVP_md5());
  digest.Add(data.data(), data.size());
  return digest.Finish();
}

std::string Sha256Hex(std::string_view data) {
  Digest digest(::EVP_sha256());
  digest.Add(data.data(), data.size());
  return absl::BytesToHexString(digest.Finish());
}

}  // namespace shunt::storage
