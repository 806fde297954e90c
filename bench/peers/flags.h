// What a peer's program is started with: --control PATH [--rank R --address A].
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace shunt::bench {

struct PeerFlags {
  std::string control;
  std::string directory;              // for libraries that meet through files
  std::string socket;                 // Shunt's daemon
  std::string address = "127.0.0.1";  // of the node that the rank is on
  int rank = -1;                      // -1: the launcher tells the library
};

// Unknown words are ignored: only shunt-compare starts these programs.
inline PeerFlags ParsePeerFlags(int argc, char** argv) {
  PeerFlags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--control") flags.control = argv[i + 1];
    if (name == "--directory") flags.directory = argv[i + 1];
    if (name == "--socket") flags.socket = argv[i + 1];
    if (name == "--address") flags.address = argv[i + 1];
    if (name == "--rank") flags.rank = std::atoi(argv[i + 1]);
  }
  return flags;
}

}  // namespace shunt::bench
