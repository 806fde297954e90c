#include "tests/gpu/client_script.h"

#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <utility>

#include "runtime/ring/ring.h"

namespace shunt::client::testing {
namespace {

template <typename T>
T Value(absl::StatusOr<T> result) {
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return *std::move(result);
}

}  // namespace

ScriptedDaemon::ScriptedDaemon()
    : listener_(Value(UnixListener::Listen(dir_ / "d.lease", {.type = SocketType::kSeqPacket}))) {}

ScriptedDaemon::~ScriptedDaemon() {
  Die();
  if (thread_.joinable()) thread_.join();
}

void ScriptedDaemon::Die() {
  if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
}

std::shared_ptr<Session> ScriptedDaemon::Open() {
  thread_ = std::thread([this] { Serve(); });
  return Value(Session::Open({.socket = dir_ / "d", .name = "test"}));
}

std::vector<ScriptedDaemon::Registration> ScriptedDaemon::registrations() {
  std::lock_guard lock(mutex_);
  return registrations_;
}

std::vector<uint64_t> ScriptedDaemon::freed() {
  std::lock_guard lock(mutex_);
  return freed_;
}

std::vector<v1::ReleaseCaptureRequest> ScriptedDaemon::released() {
  std::lock_guard lock(mutex_);
  return released_;
}

void ScriptedDaemon::RefuseNext(int code, const std::string& words) {
  std::lock_guard lock(mutex_);
  refuse_code_ = code;
  refuse_words_ = words;
}

void ScriptedDaemon::Serve() {
  pollfd waiting{listener_.fd(), POLLIN, 0};
  (void)::poll(&waiting, 1, -1);
  auto accepted = listener_.Accept();
  if (!accepted.ok()) return;
  socket_ = *std::move(accepted);
  std::vector<std::byte> buffer(64 << 10);
  while (true) {
    auto received = RecvWithFds(socket_.get(), buffer, 1);
    if (!received.ok() || received->closed) return;
    v1::LeaseRequest request;
    if (!request.ParseFromArray(buffer.data(), static_cast<int>(received->bytes))) return;
    ++requests_;
    std::vector<UniqueFd> fds;
    v1::LeaseReply reply = Answer(request, !received->fds.empty(), &fds);
    reply.set_id(request.id());
    std::vector<int> numbers;
    for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
    const std::string packet = reply.SerializeAsString();
    (void)SendWithFds(socket_.get(), std::as_bytes(std::span(packet)), numbers);
  }
}

v1::LeaseReply ScriptedDaemon::Answer(const v1::LeaseRequest& request, bool descriptor,
                                      std::vector<UniqueFd>* fds) {
  std::lock_guard lock(mutex_);
  v1::LeaseReply reply;
  if (request.has_open_session()) {
    const uint32_t entries = request.open_session().ring_entries();
    UniqueFd ring = *MakeSealedMemfd("ring", ring::BytesFor(entries));
    Mapping mapping = *Mapping::Map(ring.get(), ring::BytesFor(entries));
    ring::Initialize(mapping.data(), entries);
    fds->push_back(std::move(ring));
    fds->push_back(*MakeEventFd());
    reply.mutable_open_session()->set_session_id(1);
    reply.mutable_open_session()->set_ring_entries(entries);
  } else if (request.has_allocate_region()) {
    const uint64_t bytes = (request.allocate_region().size_bytes() + 4095) & ~uint64_t{4095};
    fds->push_back(*MakeSealedMemfd("region", bytes));
    reply.mutable_allocate_region()->set_region_id(next_region_++);
    reply.mutable_allocate_region()->set_size_bytes(bytes);
  } else if (request.has_register_device()) {
    if (refuse_code_ != 0) {
      reply.set_code(std::exchange(refuse_code_, 0));
      reply.set_message(refuse_words_);
      return reply;
    }
    registrations_.push_back({request.register_device(), next_region_, descriptor});
    reply.mutable_register_device()->set_region_id(next_region_++);
  } else if (request.has_free_region()) {
    freed_.push_back(request.free_region().region_id());
  } else if (request.has_release_capture()) {
    released_.push_back(request.release_capture());
  }
  return reply;
}

}  // namespace shunt::client::testing
