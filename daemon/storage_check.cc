#include "daemon/storage_check.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/storage/plugin/plugin_store.h"
#include "runtime/storage/plugin/trusted.h"
#include "runtime/storage/s3/uri.h"
#ifdef SHUNT_HAVE_S3
#include "runtime/storage/s3/identity.h"
#endif

namespace shunt::daemon {
namespace {

// "FILE:LINE: storage.s3: endpoint minio: what is wrong".
absl::Status At(const Config& config, const char* key, const std::string& what,
                const absl::Status& why) {
  const auto at = config.set_at.find(key);
  return absl::InvalidArgumentError(
      absl::StrCat(at == config.set_at.end() ? "" : absl::StrCat(at->second, ": "), key, ": ", what,
                   ": ", why.message()));
}

absl::Status CheckCaFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && text.empty()) {
    return absl::NotFoundError(
        absl::StrCat("ca file ", path, " can't be read, expected certificates in PEM"));
  }
  if (text.find("-----BEGIN CERTIFICATE-----") != std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ca file ", path, " has no certificate, expected some in PEM"));
}

absl::Status CheckEndpoint(const StorageEndpoint& endpoint) {
  SHUNT_RETURN_IF_ERROR(storage::ParseEndpointUrl(endpoint.url).status());
  SHUNT_RETURN_IF_ERROR(CheckCaFile(endpoint.ca_file));
  if (endpoint.credentials.empty()) return absl::OkStatus();
#ifdef SHUNT_HAVE_S3
  const absl::Status loaded = storage::Identity(SourceOf(endpoint)).Load();
  if (loaded.ok()) return loaded;
  return absl::Status(loaded.code(),
                      absl::StrCat("credentials=", endpoint.credentials,
                                   endpoint.credentials_file.empty() ? "" : " of ",
                                   endpoint.credentials_file, ": ", loaded.message()));
#else
  return absl::UnimplementedError("this shuntd was built without S3");
#endif
}

absl::Status CheckPlugin(const Config& config, const StoragePlugin& plugin, PluginCheck check) {
  for (const StorageRoot& root : config.storage_roots) {
    if (root.name != plugin.name) continue;
    return absl::InvalidArgumentError("storage.roots has that name too, expected another one");
  }
  switch (check) {
    case PluginCheck::kFile:
      return storage::CheckTrusted(plugin.library);
    case PluginCheck::kTable:
      return storage::PluginStore::Resolve(plugin.library).status();
    case PluginCheck::kStore:
      break;
  }
  return storage::PluginStore::Load(plugin.library, plugin.options).status();
}

}  // namespace

storage::S3Endpoint EndpointOf(const StorageEndpoint& config) {
  return {config.url, config.region, config.path_style, config.ca_file};
}

storage::S3CredentialSource SourceOf(const StorageEndpoint& config) {
  using Kind = storage::S3CredentialSource::Kind;
  storage::S3CredentialSource source;
  source.kind = config.credentials == "environment"    ? Kind::kEnvironment
                : config.credentials == "file"         ? Kind::kFile
                : config.credentials == "web_identity" ? Kind::kWebIdentity
                                                       : Kind::kAnonymous;
  source.file = config.credentials_file;
  source.profile = config.profile;
  source.role = config.role;
  source.sts_url = config.sts;
  return source;
}

absl::Status CheckStorage(const Config& config, PluginCheck plugins) {
  for (const StorageEndpoint& endpoint : config.storage_s3) {
    if (const absl::Status status = CheckEndpoint(endpoint); !status.ok()) {
      return At(config, "storage.s3", absl::StrCat("endpoint ", endpoint.name), status);
    }
  }
  for (const StoragePlugin& plugin : config.storage_plugins) {
    if (const absl::Status status = CheckPlugin(config, plugin, plugins); !status.ok()) {
      return At(config, "storage.plugins", absl::StrCat("plugin ", plugin.name), status);
    }
  }
  return absl::OkStatus();
}

}  // namespace shunt::daemon
