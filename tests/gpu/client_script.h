// Stands where shuntd stands on the lease socket, for tests of libshunt's own bookkeeping: it
// answers sessions, regions and registrations as it should, and remembers what it was asked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/src/session.h"
#include "runtime/core/fd.h"
#include "runtime/core/unix_socket.h"
#include "shunt/v1/session.pb.h"
#include "tests/support/temp_dir.h"

namespace shunt::client::testing {

class ScriptedDaemon {
 public:
  ScriptedDaemon();
  ~ScriptedDaemon();

  std::shared_ptr<Session> Open();

  struct Registration {
    v1::RegisterDeviceRequest request;
    uint64_t region_id = 0;
    bool descriptor = false;
  };
  std::vector<Registration> registrations();
  std::vector<uint64_t> freed();
  std::vector<v1::ReleaseCaptureRequest> released();
  uint64_t requests() const { return requests_.load(); }
  // The next registration is answered with this code and words.
  void RefuseNext(int code, const std::string& words);
  // Closes the lease, as a daemon that is killed does.
  void Die();

 private:
  void Serve();
  v1::LeaseReply Answer(const v1::LeaseRequest& request, bool descriptor,
                        std::vector<UniqueFd>* fds);

  shunt::testing::TempDir dir_;
  UnixListener listener_;
  UniqueFd socket_;
  std::thread thread_;
  std::atomic<uint64_t> requests_{0};

  std::mutex mutex_;  // the rest
  std::vector<Registration> registrations_;
  std::vector<uint64_t> freed_;
  std::vector<v1::ReleaseCaptureRequest> released_;
  int refuse_code_ = 0;
  std::string refuse_words_;
  uint64_t next_region_ = 1;
};

}  // namespace shunt::client::testing
