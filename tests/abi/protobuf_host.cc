// A program with its own protobuf, whose registry already holds files and messages of our names. It
// loads libshunt.so with global symbols, the least friendly way, and both must go on working.
//   usage: protobuf_host LIBSHUNT.SO
#include <dlfcn.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "shunt.h"
#include "shunt/v1/session.pb.h"

namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  std::exit(1);
}

template <typename F>
F* Symbol(void* library, const char* name) {
  void* symbol = ::dlsym(library, name);
  Require(symbol != nullptr, name);
  return reinterpret_cast<F*>(symbol);
}

// Through the registry, by name: what breaks when a second protobuf gets in.
void UseProtobuf() {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  const auto* descriptor = pool->FindMessageTypeByName("shunt.v1.OpenSessionRequest");
  Require(descriptor != nullptr, "our own registry knows shunt.v1.OpenSessionRequest");
  const auto* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor);
  std::unique_ptr<google::protobuf::Message> message(prototype->New());
  const auto* name = descriptor->FindFieldByName("name");
  message->GetReflection()->SetString(message.get(), name, "host");
  shunt::v1::OpenSessionRequest copy;
  Require(copy.ParseFromString(message->SerializeAsString()), "a message parses");
  Require(copy.name() == "host", "a field survives");
}

int CountThreads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  Require(argc == 2, "one argument: the path of libshunt.so");
  UseProtobuf();

  void* library = ::dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  Require(library != nullptr, "the library loads");
  auto* version = Symbol<decltype(shunt_version)>(library, "shunt_version");
  auto* open = Symbol<decltype(shunt_open)>(library, "shunt_open");
  auto* last_error = Symbol<decltype(shunt_last_error)>(library, "shunt_last_error");

  Require(std::string(version()).find('.') != std::string::npos, "the version has a dot");
  Require(CountThreads() == 1, "loading starts no thread");

  shunt_open_options options{};
  options.struct_size = sizeof(options);
  options.socket = "/nonexistent/shuntd.sock";
  shunt_session* session = nullptr;
  Require(open(&options, &session) == SHUNT_UNAVAILABLE, "no daemon: UNAVAILABLE");
  Require(session == nullptr, "no session is given");
  Require(std::string(last_error()).find(options.socket) != std::string::npos,
          "the error names the socket");
  Require(CountThreads() == 1, "a session that did not open starts no thread");

  UseProtobuf();
  std::printf("libshunt %s, protobuf unharmed; \"%s\"\n", version(), last_error());
  return 0;
}
