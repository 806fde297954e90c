// One rank of an all-reduce. Start it for each rank: all_reduce RANK WORLD_SIZE
#include <cstdio>
#include <cstdlib>

#include "shunt/client.h"

int main(int argc, char** argv) try {
  const int rank = argc > 1 ? std::atoi(argv[1]) : 0;
  const int world_size = argc > 2 ? std::atoi(argv[2]) : 1;

  shunt::Session session;  // with the daemon at $SHUNT_SOCKET
  shunt::Communicator comm = session.Join("example", rank, world_size);
  shunt::Buffer<float> x = session.Allocate<float>(1 << 20);  // shared memory: no copies
  for (float& value : x) value = static_cast<float>(rank);

  comm.AllReduce(x.data(), x.data(), x.size());  // in place; SHUNT_SUM
  std::printf("rank %d: %g\n", rank, x[0]);
  return 0;
} catch (const shunt::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
