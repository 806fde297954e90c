#include "daemon/cluster/rendezvous_words.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shunt::cluster {
namespace {

constexpr int kRangesMax = 12;
constexpr int kReasonsMax = 4;

absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string Words(const RendezvousKey& key) {
  return key.job.empty() ? absl::StrCat("communicator '", key.name, "'")
                         : absl::StrCat("communicator '", key.name, "' of job '", key.job, "'");
}

std::string HashKey(const RendezvousKey& key) {
  // Neither text has control characters: no two keys give one text.
  return absl::StrCat(key.uid, "\n", key.job, "\n", key.name);
}

std::string RankWords(std::string_view node, const RankInfo& rank) {
  std::string words =
      absl::StrCat("rank ", rank.rank, " on node ", AbslView(node), " (pid ", rank.pid);
  if (!rank.session.empty()) absl::StrAppend(&words, ", '", rank.session, "'");
  return words + ")";
}

std::string MissingRanks(int32_t world_size, const std::function<bool(int32_t)>& has,
                         const std::map<int32_t, std::string>& withdrawn) {
  std::string text;
  int ranges = 0;
  int32_t rank = 0, uncounted = 0;
  while (rank < world_size) {
    if (has(rank)) {
      ++rank;
      continue;
    }
    const int32_t first = rank;
    while (rank < world_size && !has(rank)) ++rank;
    if (ranges++ >= kRangesMax) {
      uncounted += rank - first;
      continue;
    }
    absl::StrAppend(&text, ranges == 1 ? "" : ", ", first);
    if (rank - first > 1) absl::StrAppend(&text, "-", rank - 1);
  }
  if (uncounted > 0) absl::StrAppend(&text, " and ", uncounted, " more");
  int reasons = 0;
  for (const auto& [number, words] : withdrawn) {
    if (has(number) || reasons == kReasonsMax) continue;
    absl::StrAppend(&text, reasons++ == 0 ? " (" : "; ", words);
  }
  if (reasons > 0) text += ")";
  return text;
}

absl::Status CheckText(std::string_view what, std::string_view text, size_t min, size_t max) {
  if (text.size() < min || text.size() > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(what), " of ", text.size(), " bytes; expected ", min, " to ", max));
  }
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    return absl::InvalidArgumentError(absl::StrCat(AbslView(what), " has a control character"));
  }
  return absl::OkStatus();
}

}  // namespace shunt::cluster
