// A page of a busy node: how large it is; and, when it is asked for, how long it takes.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/metrics/collector.h"
#include "daemon/metrics/exporter.h"
#include "runtime/core/clock.h"
#include "runtime/core/fd.h"

namespace shunt::daemon {
namespace {

constexpr int kCommunicators = 200;
constexpr int kRanks = 8;
constexpr int kLinks = 64;

// The parts that metrics ask, without sockets and clients.
class BusyNode {
 public:
  BusyNode() : loop_(*EventLoop::Make()), thread_([this] { loop_->Run(); }) {
    host_.regions = &regions_;
    host_.loop = loop_.get();
    host_.probe = &probe_;
    communicators_ = std::make_unique<CommunicatorTable>(CommunicatorTable::Limits{}, &host_);
    transfers_ = std::make_unique<TransferTable>(TransferTable::Options{.probe = &probe_},
                                                 &regions_, &stores_, loop_.get());
    for (int i = 0; i < kLinks; ++i) links_.Of(absl::StrCat("node-", 100 + i));
    for (auto& kind : probe_.operations.durations) {
      for (Durations& durations : kind) durations.Add(1000);
    }
    for (int i = 0; i < 16; ++i) store_tallies_.Of(absl::StrCat("objects of endpoint-", i));
  }
  ~BusyNode() {
    exporter.reset();
    for (const auto& session : members_) communicators_->SessionGone(*session, /*died=*/false);
    loop_->Stop();
    thread_.join();
  }

  void Join() {
    for (int i = 0; i < kRanks; ++i) {
      members_.push_back(*sessions_.Open(Peer{1, 0, nullptr}, absl::StrCat("rank-", i)));
    }
    for (int c = 0; c < kCommunicators; ++c) {
      std::vector<std::future<bool>> joined;
      for (int rank = 0; rank < kRanks; ++rank) {
        JoinRequestArgs args;
        args.name = absl::StrCat("training-run-with-a-name/tensor-parallel-", c);
        args.rank = rank;
        args.terms.world_size = kRanks;
        args.deadline_ns = kNeverNs;
        auto done = std::make_shared<std::promise<bool>>();
        joined.push_back(done->get_future());
        communicators_->Join(members_[rank], args, [done](const absl::StatusOr<Joined>& result) {
          done->set_value(result.ok());
        });
      }
      for (auto& one : joined) REQUIRE(one.get());
    }
  }

  void Serve() {
    metrics::Sources sources;
    sources.version = "0";
    sources.probe = &probe_;
    sources.sessions = &sessions_;
    sources.regions = &regions_;
    sources.communicators = communicators_.get();
    sources.stores = &stores_;
    sources.transfers = transfers_.get();
    sources.store_tallies = &store_tallies_;
    sources.links = &links_;
    sources.link_capacity = 25'000'000'000;
    auto collector = std::make_shared<metrics::Collector>(std::move(sources));
    collector->Watch("control", [this](auto question) { loop_->Post(std::move(question)); });
    auto started = metrics::Exporter::Start("127.0.0.1:0", "metrics.address", collector);
    REQUIRE(started.ok());
    exporter = *std::move(started);
  }

  // What a scrape gets, headers too.
  std::string Scrape() const {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(exporter->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    REQUIRE(::send(fd.get(), request.data(), request.size(), 0) ==
            static_cast<ssize_t>(request.size()));
    std::string page;
    char piece[1 << 16];
    for (ssize_t got; (got = ::recv(fd.get(), piece, sizeof(piece), 0)) > 0;) {
      page.append(piece, static_cast<size_t>(got));
    }
    return page;
  }

  std::unique_ptr<metrics::Exporter> exporter;

 private:
  const std::unique_ptr<EventLoop> loop_;
  std::thread thread_;
  Probe probe_;
  transport::LinkTallies links_;
  storage::StoreTallies store_tallies_;
  memory::RegionTable regions_{memory::Quotas{}};
  SessionTable sessions_{SessionTable::Limits{}};
  StoreRegions stores_{StoreRegions::Options{}, &regions_};
  OperationHost host_;
  std::unique_ptr<CommunicatorTable> communicators_;
  std::unique_ptr<TransferTable> transfers_;
  std::vector<std::shared_ptr<Session>> members_;
};

size_t CountOf(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST_CASE("the page of 200 communicators and 64 links has at most 2 MB") {
  BusyNode node;
  node.Join();
  node.Serve();
  const std::string page = node.Scrape();
  CHECK(page.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(CountOf(page, "\nshunt_communicator_operations_total{") == kCommunicators);
  CHECK(CountOf(page, "\nshunt_link_bytes_total{") == kLinks * 8);
  CHECK(page.size() > 50'000);
  CHECK(page.size() <= 2'000'000);
}

// Not a test: bench/metrics-cost runs it by its tag.
TEST_CASE("time of a page", "[.scrape-time]") {
  BusyNode node;
  node.Join();
  node.Serve();
  std::vector<int64_t> times;
  size_t bytes = 0;
  for (int i = 0; i < 101; ++i) {
    const int64_t began = NowNs();
    bytes = node.Scrape().size();
    times.push_back(NowNs() - began);
  }
  std::sort(times.begin(), times.end());
  std::printf("scrape_ms %.3f bytes %zu\n", 1e-6 * static_cast<double>(times[times.size() / 2]),
              bytes);
}

}  // namespace
}  // namespace shunt::daemon
