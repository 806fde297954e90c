// shunt-sim: predicts collectives on a cluster that need not be there. The only file here that sees
// CLI11.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/version.h"
#include "tools/sim/description.h"
#include "tools/sim/report.h"

namespace shunt::tools {
namespace {

int Fail(const std::string& words) {
  std::fprintf(stderr, "shunt-sim: %s\n", words.c_str());
  return 1;
}

absl::Status ReadFile(const std::string& path, Description* description) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read, expected a file"));
  return ApplyClusterToml(text, path, description);
}

std::vector<Algorithm> AlgorithmsOf(const Description& d, OpKind kind) {
  if (!d.algorithms.empty()) return d.algorithms;
  std::vector<Algorithm> all;
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (algorithm == Algorithm::kAggregated && d.cluster.aggregators == 0) continue;
    if (Supports(algorithm, kind)) all.push_back(algorithm);
  }
  return all;
}

absl::StatusOr<Report> Run(const Description& d, OpKind kind, uint64_t bytes) {
  Report report{kind, bytes, d.cluster.nodes, d.cluster.world(), {}};
  for (const Algorithm algorithm : AlgorithmsOf(d, kind)) {
    const bool local = d.cluster.units() == 1;
    const absl::StatusOr<sim::Prediction> p =
        sim::Predict(d.cluster, {kind, bytes, algorithm, d.root, d.method});
    if (!p.ok()) return p.status();
    report.rows.push_back({local ? "nvlink" : std::string(Name(algorithm)), *p});
    if (local) break;  // nothing to choose from
  }
  return report;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "shunt-sim: predicts time, bandwidth and the most loaded links of collectives on a cluster,\n"
      "for each algorithm. docs/simulator.md describes the file and the model.");
  std::string path;
  std::vector<std::string> kinds, sizes, algorithms;
  bool json = false;
  app.add_option("CLUSTER", path, "the cluster's description (TOML); flags override its keys");
  // Without extra arguments: the description may follow.
  const auto add_list = [&](const char* flag, std::vector<std::string>* list, const char* help) {
    app.add_option(flag, *list, help)->delimiter(',')->allow_extra_args(false);
  };
  add_list("--kind", &kinds, "all_reduce, all_gather, … (all_reduce)");
  add_list("--bytes", &sizes, "sizes as nccl-tests count them (64K,1M,16M)");
  add_list("--algorithm", &algorithms, "ring, double_tree, … (all of the kind)");
  app.add_flag("--json", json, "print JSON");
  app.set_version_flag("--version", std::string("shunt-sim ") + daemon::kVersion);
  std::map<std::string, std::string> values;
  std::vector<std::pair<const Key*, CLI::Option*>> options;
  for (const Key& key : Keys()) {
    std::string flag = "--" + std::string(key.name);
    for (char& c : flag) c = c == '_' ? '-' : c;
    options.emplace_back(
        &key, app.add_option(flag, values[std::string(key.name)], std::string(key.help)));
  }
  CLI11_PARSE(app, argc, argv);

  Description d;
  if (!path.empty()) {
    if (absl::Status s = ReadFile(path, &d); !s.ok()) return Fail(std::string(s.message()));
  }
  for (const auto& [key, option] : options) {
    if (option->count() == 0) continue;
    const std::string flag = option->get_name();
    d.set_at[std::string(key->name)] = flag;
    if (absl::Status s = key->set(&d, values[std::string(key->name)]); !s.ok()) {
      return Fail(absl::StrCat(flag, " ", s.message()));
    }
  }
  if (!kinds.empty()) {
    if (absl::Status s = SetKinds(kinds, &d); !s.ok()) {
      return Fail(absl::StrCat("--kind ", s.message()));
    }
  }
  if (!sizes.empty()) {
    const std::vector<Value> list(sizes.begin(), sizes.end());
    if (absl::Status s = SetSizes(list, &d); !s.ok()) {
      return Fail(absl::StrCat("--bytes ", s.message()));
    }
  }
  if (!algorithms.empty()) {
    if (absl::Status s = SetAlgorithms(algorithms, &d); !s.ok()) {
      return Fail(absl::StrCat("--algorithm ", s.message()));
    }
  }
  if (absl::Status s = CheckDescription(d); !s.ok()) return Fail(std::string(s.message()));

  Json list = Json::List();
  if (!json && !d.name.empty()) std::printf("%s\n", d.name.c_str());
  for (const OpKind kind : d.kinds) {
    for (const uint64_t bytes : d.sizes) {
      const absl::StatusOr<Report> report = Run(d, kind, bytes);
      if (!report.ok()) return Fail(std::string(report.status().message()));
      if (json) {
        AddTo(*report, &list);
      } else {
        std::printf("\n%s", Text(*report).c_str());
      }
    }
  }
  if (json) std::printf("%s\n", list.Text().c_str());
  return 0;
}

}  // namespace
}  // namespace shunt::tools

int main(int argc, char** argv) { return shunt::tools::Main(argc, argv); }
