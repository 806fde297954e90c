// The worker threads: they poll the sessions' rings and serve operations.
//
// All workers are alike. One at a time is the poller: it watches the rings, spinning a bounded time
// on those that were busy just now and sleeping on the doorbells of the others. What it finds it
// serves itself, so that a small operation costs no hand-off; when there is more to do, or when an
// operation moves much, it wakes another worker, which becomes the poller meanwhile. With nothing
// to do all of them sleep.
//
// With a source (what comes from other nodes) a thread of its own is the poller for good:
// it drives the source too, so that an operation between nodes costs no hand-off either, and leaves
// whatever moves much to the workers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "daemon/communicator.h"
#include "daemon/session.h"
#include "runtime/core/fd.h"
#include "runtime/topology/topology.h"

namespace shunt::daemon {

// Methods may be called from any thread.
class Scheduler {
 public:
  // Something else that the poller looks after. Lives until Stop.
  struct Source {
    int fd = -1;  // readable when there may be something to do; -1: there is no source
    // Does what can be done now. True if anything was. By the poller.
    std::function<bool()> drive;
    // When `drive` wants to be called again in any case; kNeverNs: not. By the poller.
    std::function<int64_t()> next_ns;
  };
  struct Options {
    int threads = 1;
    std::vector<topology::CpuList> cpus;  // of each worker; empty: not bound
    int64_t spin_ns = 20'000;
    // False: never spin when so many sessions are open. May be empty: always.
    std::function<bool()> may_spin;
    Source source;
  };
  // A submission of a session, checked by nobody yet. Called by the poller, one at a time.
  using OnSubmission =
      std::function<void(const std::shared_ptr<Session>&, const ring::Submission&)>;
  // The session's ring is corrupt. Called by the poller; must not call back.
  using OnBroken = std::function<void(const std::shared_ptr<Session>&, const absl::Status&)>;

  Scheduler() = default;
  ~Scheduler() { Stop(); }
  Scheduler(const Scheduler&) = delete;

  absl::Status Start(Options options, OnSubmission on_submission, OnBroken on_broken);
  // Has the source driven soon. Any thread.
  void Nudge();
  // Joins the workers. Operations that wait for one are dropped. Idempotent.
  void Stop();

  // Watches a session's ring, until Remove. After Remove returns nobody reads the ring.
  absl::Status Add(std::shared_ptr<Session> session);
  void Remove(const Session& session);
  // Takes what is in a session's ring now.
  void Drain(const std::shared_ptr<Session>& session);

  // A worker will call communicator->RunChannel(channel) once.
  void Ready(std::shared_ptr<Communicator> communicator, uint32_t channel);
  // True if whoever serves should look at what else there is between two operations.
  bool OthersWait();

 private:
  struct Ring {
    std::shared_ptr<Session> session;
    bool hot = false;
    bool broken = false;
    int64_t last_work_ns = 0;
  };
  struct Task {
    std::shared_ptr<Communicator> communicator;
    uint32_t channel;
  };

  absl::Status Watch(int fd, uint64_t as);
  bool has_source() const { return options_.source.fd >= 0; }
  void Work(int index);
  void Front();
  void Poll();
  void Drive();
  // rings_mutex_ held. True if there was an entry.
  bool Take(Ring& ring);

  Options options_;
  OnSubmission on_submission_;
  OnBroken on_broken_;
  std::vector<std::thread> threads_;

  UniqueFd epoll_;
  UniqueFd wake_;

  // Taken before a communicator's mutex and before mutex_.
  std::mutex rings_mutex_;
  std::unordered_map<uint64_t, Ring> rings_;  // by session id
  std::vector<uint64_t> hot_;

  int64_t source_moved_ns_ = 0;  // of Front

  std::mutex mutex_;
  std::condition_variable idle_cv_;
  std::deque<Task> tasks_;
  std::deque<Task> long_;  // what Front leaves to the workers
  bool nudged_ = false;
  int idle_ = 0;
  bool polling_ = false;
  bool poller_sleeps_ = false;
  bool stop_ = false;
};

}  // namespace shunt::daemon
