// The same all_reduce on two communicators, of a daemon that records and of one that does not, in
// turn, a millisecond each: what the recorder adds to a rank's call.
//
//   shunt-recorder-cost SOCKET_OFF SOCKET_ON RANKS BYTES ROUNDS
//
// Prints a line a round: seconds a call without, and with. Rounds alternate which comes first.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/clock.h"
#include "shunt/client.h"

namespace {

constexpr double kBlockSeconds = 1e-3;

struct Side {
  Side(const std::string& socket, int rank, int ranks, size_t count)
      : session({socket, "recorder-cost"}),
        communicator(session.Join("recorder-cost", rank, ranks)),
        x(session.Allocate<float>(count)) {
    for (float& value : x) value = 0;
  }
  double Seconds(int calls) {
    communicator.Barrier();
    const int64_t began = shunt::NowNs();
    for (int i = 0; i < calls; ++i) communicator.AllReduce(x.data(), x.data(), x.size());
    return 1e-9 * static_cast<double>(shunt::NowNs() - began) / calls;
  }
  shunt::Session session;
  shunt::Communicator communicator;
  shunt::Buffer<float> x;
};

void RunRank(const std::vector<std::string>& sockets, int rank, int ranks, size_t bytes,
             int rounds) {
  const size_t count = bytes / sizeof(float);
  Side off(sockets[0], rank, ranks, count), on(sockets[1], rank, ranks, count);
  off.Seconds(100);
  on.Seconds(100);
  // All ranks must agree.
  float calls = static_cast<float>(kBlockSeconds / off.Seconds(100)) + 1;
  off.communicator.AllReduce(&calls, &calls, 1, SHUNT_MIN);
  for (int round = 0; round < rounds; ++round) {
    double seconds[2];
    for (int i = 0; i < 2; ++i) {
      const int side = (i + round) % 2;
      seconds[side] = (side == 0 ? off : on).Seconds(static_cast<int>(calls));
    }
    if (rank == 0) std::printf("%.12g %.12g\n", seconds[0], seconds[1]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s SOCKET_OFF SOCKET_ON RANKS BYTES ROUNDS\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> sockets = {argv[1], argv[2]};
  const int ranks = std::atoi(argv[3]);
  const auto bytes = static_cast<size_t>(std::atoll(argv[4]));
  const int rounds = std::atoi(argv[5]);
  int rank = 0;
  for (int other = 1; other < ranks; ++other) {
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child == 0) {
      rank = other;
      break;
    }
  }
  int status = 0;
  try {
    RunRank(sockets, rank, ranks, bytes, rounds);
  } catch (const shunt::Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    status = 1;
  }
  if (rank == 0) {
    for (int child = 1, ended = 0; child < ranks; ++child) {
      if (::wait(&ended) > 0 && ended != 0) status = 1;
    }
  }
  return status;
}
