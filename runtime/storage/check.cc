#include "runtime/storage/check.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace shunt::storage {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status CheckRange(std::string_view what, uint64_t offset, uint64_t bytes, uint64_t size) {
  if (offset <= size && bytes <= size - offset) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(View(what), ": ", bytes, " bytes at offset ", offset,
                                            " reach beyond its end, expected at most ", size,
                                            " bytes"));
}

absl::Status Scattered(std::string_view what, const Coverage& written,
                       const absl::Status& refused) {
  return absl::Status(
      refused.code(),
      absl::StrCat(View(what), ": ", written.ranges(),
                   " separate ranges were written: ", refused.message(),
                   "; write neighbouring pieces one after the other, or fewer at a time"));
}

absl::Status CheckName(std::string_view kind, std::string_view name, size_t bytes_max) {
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat(View(kind), " is empty"));
  if (name.size() > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(View(kind), " has ", name.size(), " bytes, expected at most ", bytes_max));
  }
  if (name.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(View(kind), " '", absl::CHexEscape(View(name)),
                                                   "' holds a zero byte, expected none"));
  }
  return absl::OkStatus();
}

}  // namespace shunt::storage
