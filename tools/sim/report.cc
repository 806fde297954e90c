#include "tools/sim/report.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace shunt::tools {
namespace {

std::string Number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

const char* Word(sim::Method method) {
  return method == sim::Method::kExecuted ? "executed" : "computed";
}

}  // namespace

int Report::Best() const {
  int best = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const sim::Prediction& p = rows[i].prediction;
    if (!p.failure.empty()) continue;
    if (best < 0 || p.seconds < rows[best].prediction.seconds) best = static_cast<int>(i);
  }
  return best;
}

std::string Text(const Report& report) {
  std::string text = absl::StrCat(std::string(Name(report.kind)), ", ", SizeText(report.bytes),
                                  ", ", report.ranks, " ranks on ", report.nodes, " nodes\n");
  Table table({" ", "algorithm", "time us", "algbw GB/s", "busbw GB/s", "most loaded link", "alike",
               "carries", "busy %", "method"});
  std::string failures;
  const int best = report.Best();
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const sim::Prediction& p = report.rows[i].prediction;
    const bool failed = !p.failure.empty();
    table.Add({static_cast<int>(i) == best ? "*"
               : failed                    ? "!"
                                           : " ",
               report.rows[i].algorithm, Number(p.seconds * 1e6, 1),
               failed ? "-" : Number(p.algbw * 1e-9, 3), failed ? "-" : Number(p.busbw * 1e-9, 3),
               p.link, absl::StrCat(p.links_alike), SizeText(static_cast<uint64_t>(p.link_bytes)),
               Number(p.link_busy * 100, 1), Word(p.method)});
    if (failed) {
      absl::StrAppend(&failures, "! ", report.rows[i].algorithm, " fails: ", p.failure, "\n");
    }
  }
  return text + table.Text() + failures;
}

void AddTo(const Report& report, Json* list) {
  const int best = report.Best();
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const sim::Prediction& p = report.rows[i].prediction;
    Json row = Json::Object();
    row.Add("op", Name(report.kind)).Add("bytes", report.bytes).Add("ranks", report.ranks);
    row.Add("nodes", report.nodes).Add("algorithm", report.rows[i].algorithm);
    row.Add("time_us", p.seconds * 1e6).Add("algbw_gbps", p.algbw * 1e-9);
    row.Add("busbw_gbps", p.busbw * 1e-9).Add("best", static_cast<int>(i) == best);
    row.Add("link", p.link).Add("links_alike", p.links_alike).Add("link_bytes", p.link_bytes);
    row.Add("link_busy", p.link_busy).Add("method", std::string(Word(p.method)));
    row.Add("failure", p.failure);
    list->Append(row);
  }
}

}  // namespace shunt::tools
