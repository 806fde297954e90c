#include "bench/harness/net_cluster.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/harness/private_daemon.h"
#include "runtime/core/status.h"

namespace shunt::bench {
namespace {

template <typename T>
absl::StatusOr<T> Number(const std::string& word) {
  T value{};
  bool parsed = false;
  if constexpr (std::is_floating_point_v<T>) {
    parsed = absl::SimpleAtod(word, &value);
  } else {
    parsed = absl::SimpleAtoi(word, &value);
  }
  if (!parsed)
    return absl::InternalError(absl::StrCat("shunt-netns: \"", word, "\", not a number"));
  return value;
}

absl::Status WrongCount(const std::string& request, size_t words) {
  return absl::InternalError(
      absl::StrCat("shunt-netns answered \"", request, "\" with ", words, " words"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetCluster>> NetCluster::Start(int nodes,
                                                              const std::string& link_rate,
                                                              int aggregators) {
  SHUNT_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("shunt-netns"));
  std::vector<std::string> arguments = {program, "--nodes", std::to_string(nodes), "--aggregators",
                                        std::to_string(aggregators)};
  if (!link_rate.empty()) arguments.insert(arguments.end(), {"--rate", link_rate});
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);

  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  UniqueFd in_read(in[0]);
  UniqueFd in_write(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  UniqueFd out_read(out[0]);
  UniqueFd out_write(out[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoStatus(errno, "fork");
  if (pid == 0) {
    // Ranks that were forked from us hold the pipe too: its end alone would not tell of ours.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::dup2(in_read.get(), STDIN_FILENO);
    ::dup2(out_write.get(), STDOUT_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::unique_ptr<NetCluster> cluster(new NetCluster);
  cluster->server_ = pid;
  cluster->requests_ = ::fdopen(in_write.Release(), "w");
  cluster->replies_ = ::fdopen(out_read.Release(), "r");
  out_write.Reset();
  const auto started = cluster->ReadReply("start");
  if (!started.ok()) return absl::UnavailableError(started.status().message());
  SHUNT_ASSIGN_OR_RETURN(const auto words, cluster->Ask("nodes"));
  if (words.size() != static_cast<size_t>(nodes + aggregators) * 4) {
    return WrongCount("nodes", words.size());
  }
  for (size_t i = 0; i < words.size(); i += 4) {
    Node node{UniqueFd(::open(words[i].c_str(), O_RDONLY | O_CLOEXEC)), words[i + 1], words[i + 2],
              words[i + 3] == "aggregator"};
    if (!node.network.valid()) return ErrnoStatus(errno, "cannot open namespace " + words[i]);
    cluster->nodes_.push_back(std::move(node));
  }
  cluster->rank_nodes_ = nodes;
  cluster->link_rate_ = link_rate;
  return cluster;
}

NetCluster::~NetCluster() {
  if (requests_ != nullptr) std::fclose(requests_);
  // A rank that still lives would hold the pipe open.
  if (server_ > 0) {
    for (int i = 0; i < 2500 && ::waitpid(server_, nullptr, WNOHANG) == 0; ++i) {
      if (i == 2000) ::kill(server_, SIGTERM);
      ::usleep(2000);
    }
  }
  if (replies_ != nullptr) std::fclose(replies_);
}

absl::StatusOr<std::vector<std::string>> NetCluster::ReadReply(const std::string& request) {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t length = ::getline(&line, &capacity, replies_);
  std::string text(line, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  std::free(line);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (!words.empty() && words.front() == "ok") {
    words.erase(words.begin());
    return words;
  }
  if (words.empty()) text = "error it ended without a word";
  return absl::InternalError(absl::StrCat("nodes: ", request, ": ", text));
}

absl::StatusOr<std::vector<std::string>> NetCluster::Ask(const std::string& request) {
  if (std::fprintf(requests_, "%s\n", request.c_str()) < 0 || std::fflush(requests_) != 0) {
    return ErrnoStatus(errno, "cannot ask shunt-netns");
  }
  return ReadReply(request);
}

absl::Status NetCluster::Shape(const std::string& link_rate) {
  SHUNT_RETURN_IF_ERROR(Ask("shape " + (link_rate.empty() ? "none" : link_rate)).status());
  link_rate_ = link_rate;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NetCluster::Bytes>> NetCluster::Counters() {
  SHUNT_ASSIGN_OR_RETURN(const auto words, Ask("bytes"));
  if (words.size() != nodes_.size() * 2) return WrongCount("bytes", words.size());
  std::vector<Bytes> all;
  for (size_t i = 0; i < words.size(); i += 2) {
    SHUNT_ASSIGN_OR_RETURN(const uint64_t received, Number<uint64_t>(words[i]));
    SHUNT_ASSIGN_OR_RETURN(const uint64_t sent, Number<uint64_t>(words[i + 1]));
    all.push_back({received, sent});
  }
  return all;
}

absl::StatusOr<NetCluster::Link> NetCluster::MeasureLink(int from, int to, int seconds) {
  const std::string request = absl::StrCat("iperf ", from, " ", to, " ", seconds);
  SHUNT_ASSIGN_OR_RETURN(const auto words, Ask(request));
  if (words.size() != 2) return WrongCount(request, words.size());
  SHUNT_ASSIGN_OR_RETURN(const double gbps, Number<double>(words[0]));
  return Link{gbps, words[1]};
}

absl::StatusOr<double> NetCluster::MeasureUcx(const std::string& test, int from, int to,
                                              uint64_t message_bytes, int messages) {
  const std::string request =
      absl::StrCat("ucx ", test, " ", from, " ", to, " ", message_bytes, " ", messages);
  SHUNT_ASSIGN_OR_RETURN(const auto words, Ask(request));
  if (words.size() != 1) return WrongCount(request, words.size());
  return Number<double>(words[0]);
}

absl::StatusOr<double> NetCluster::MeasureTransport(const std::string& program, int from, int to,
                                                    uint64_t message_bytes, int messages) {
  const std::string request =
      absl::StrCat("transport ", program, " ", from, " ", to, " ", message_bytes, " ", messages);
  SHUNT_ASSIGN_OR_RETURN(const auto words, Ask(request));
  if (words.size() != 1) return WrongCount(request, words.size());
  return Number<double>(words[0]);
}

absl::Status NetCluster::WriteDaemonConfig(int node, const std::string& path) {
  return Ask(absl::StrCat("config ", node, " ", path)).status();
}

absl::Status EnterNetwork(int network) {
  if (::setns(network, CLONE_NEWNET) != 0) {
    return ErrnoStatus(errno, "cannot enter a node's network namespace");
  }
  return absl::OkStatus();
}

uint64_t BusiestLink(const std::vector<NetCluster::Bytes>& before,
                     const std::vector<NetCluster::Bytes>& after, int nodes) {
  uint64_t busiest = 0;
  for (size_t n = 0; n < static_cast<size_t>(nodes); ++n) {
    busiest =
        std::max({busiest, after[n].received - before[n].received, after[n].sent - before[n].sent});
  }
  return busiest;
}

}  // namespace shunt::bench
