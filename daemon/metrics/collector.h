// Makes a page of the daemon's counters, each time that somebody asks. Nothing is kept up to date
// between two scrapes, so nothing costs anything between them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/metrics/loops.h"
#include "daemon/metrics/names.h"
#include "daemon/metrics/page.h"
#include "daemon/metrics/rates.h"
#include "daemon/metrics/sources.h"

namespace shunt::daemon::metrics {

// Thread-safe. Blocks for a turn of the daemon's loops, but for a tenth of a second at most.
class Collector {
 public:
  // Communicators with a name of their own in a label.
  static constexpr size_t kCommunicatorsMax = 256;

  explicit Collector(Sources sources);

  // Another loop whose lag is shown.
  void Watch(std::string name, Loops::Post post);

  // Whoever asks while a page is being made gets one that was begun after they asked; all who wait
  // get the same.
  std::shared_ptr<const Page> Collect();

 private:
  struct Peers;

  // collect_operations.cc
  void Operations(Page* page);
  void Communicators(Page* page);
  // collect_transfers.cc
  void Transfers(Page* page) const;
  void Stores(Page* page) const;
  // collect_links.cc
  void Links(Page* page, int64_t now_ns);
  void Nodes(Page* page);
  // collect_daemon.cc
  void Daemon(Page* page) const;
  void Memory(Page* page) const;
  void Process(Page* page) const;

  const Sources sources_;
  std::mutex begun_mutex_;
  uint64_t begun_ = 0;  // pages

  std::mutex mutex_;  // all below; held while a page is made
  std::shared_ptr<const Page> last_;
  uint64_t last_number_ = 0;
  Loops loops_;
  std::shared_ptr<Peers> peers_;
  CappedNames communicator_names_{kCommunicatorsMax};
  CappedNames peer_names_{transport::LinkTallies::kNamesMax};
  Rates rates_;
  board::Totals shown_ = {};  // never less than before
  // Of communicators that are there, by id: what their name's counters have of them already.
  struct Counted {
    uint64_t calls = 0;
    int64_t exchanging_ns = 0;
  };
  std::map<uint64_t, Counted> counted_;
  std::map<std::string, Counted> by_name_;
};

}  // namespace shunt::daemon::metrics
