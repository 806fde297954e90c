// What servers answer, and files with keys: any bytes give something checked or an error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/check.h"
#include "runtime/storage/s3/answer.h"
#include "runtime/storage/s3/credentials.h"
#include "runtime/storage/s3/uri.h"
#include "runtime/storage/s3/xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shunt::storage;
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  const auto texts = ParseXml(text);
  if (texts.ok()) {
    size_t bytes = 0;
    for (const XmlText& one : *texts) {
      SHUNT_CHECK(!one.path.empty() && FindText(*texts, one.path) != nullptr);
      bytes += one.text.size();
    }
    SHUNT_CHECK(bytes <= text.size());  // no entity is shorter than what it stands for
  }
  // What we write, we read.
  const std::string wrapped = "<a>" + EscapeXml(text) + "</a>";
  if (const auto again = ParseXml(wrapped); again.ok()) {
    SHUNT_CHECK(again->size() == 1 && text.find((*again)[0].text) != std::string_view::npos);
  }

  for (const int status : {200, 301, 400, 403, 404, 412, 503}) {
    const S3Failure failure = Explain("bucket/key", status, text);
    SHUNT_CHECK(!failure.status.ok() && failure.code.size() <= 64);
    for (const char c :
         std::string_view(failure.status.message().data(), failure.status.message().size())) {
      SHUNT_CHECK(c >= ' ' && c <= '~');  // fit for a log
    }
  }
  if (const auto range = ParseContentRange(text); range.has_value()) {
    SHUNT_CHECK(range->first <= range->last && range->last < range->size);
  }
  const auto keys = ParseCredentialsFile(text, "default");
  if (keys.ok()) SHUNT_CHECK(CheckCredentials("", *keys).ok());
  const auto role = ParseAssumedRole(text);
  if (role.ok()) SHUNT_CHECK(CheckCredentials("", *role).ok());

  if (const auto parts = ParseEndpointUrl(text); parts.ok()) {
    SHUNT_CHECK(text == parts->scheme + "://" + parts->authority);
  }
  const UrlParts endpoint{.scheme = "https", .authority = "host"};
  const std::string url =
      MakeUrl(endpoint, /*path_style=*/true, "bucket", text, {{"name", std::string(text)}});
  SHUNT_CHECK(url.find_first_of(" #\r\n") == std::string::npos);
  SHUNT_CHECK(url.find('?') == url.rfind('?'));
  if (CheckBucket(text).ok()) {
    SHUNT_CHECK(ParseEndpointUrl("https://" + std::string(text) + ".host").ok());
  }
  return 0;
}
