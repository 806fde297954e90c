// UCX's context and worker, without UCX's headers: the one place that knows its API.
//
// Only active messages are asked for, so UCX installs none of the handlers by which a peer could
// name an address of ours: nothing arrives but a message's head, with small payload beside it.
// Large payload stays with its sender until Fetch reads it (RDMA read) to where this side says.
//
// One thread. Functions of Owner are called from within Progress, Send and Fetch never.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/transport/ucx/options.h"

namespace shunt::transport {

class UcxWorker {
 public:
  class Endpoint;
  struct Offer;   // payload that waits at its sender
  struct Memory;  // registered

  // A send or fetch that goes on; the caller keeps it until it is told of the end.
  struct Call {
    UcxWorker* worker = nullptr;
  };

  // The two kinds of messages.
  enum class Kind : uint16_t { kFrame = 1, kWord = 2 };

  class Owner {
   public:
    virtual ~Owner() = default;
    // `head` and `payload` are valid during the call. `offer`: null, or `bytes` that wait for Fetch
    // or Drop; taken over if the result is true.
    virtual bool OnMessage(Kind kind, std::span<const std::byte> head,
                           std::span<const std::byte> payload, Offer* offer, size_t bytes) = 0;
    virtual void OnSent(Call* call, const absl::Status& status) = 0;
    virtual void OnFetched(Call* call, const absl::Status& status) = 0;
    virtual void OnFailed(void* context, const absl::Status& why) = 0;
  };
  // What became of a call.
  enum class Started : uint8_t { kDone, kGoesOn };

  // UNAVAILABLE if none of the carriers exists here, INVALID_ARGUMENT for a setting.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(const UcxOptions& options, Owner* owner);
  // All endpoints must be closed. Waits a few seconds at most for what UCX still has to end.
  ~UcxWorker();

  const std::string& address() const { return address_; }
  int fd() const { return fd_; }  // readable once armed and something happens
  bool Arm();                     // false: there is something to do already
  bool Progress();                // false: nothing was done

  // OnFailed with `context` when the peer can't be reached any more.
  absl::StatusOr<Endpoint*> Connect(const std::string& address, void* context);
  // At once. No OnFailed follows. What is on its way ends with an error, in Progress; within one
  // node (tells_failures() is false) UCX can't do that: it may never end, and the endpoint stays
  // until the worker goes.
  void Close(Endpoint* endpoint);
  bool tells_failures() const { return tells_failures_; }

  // Both must stay until kDone or OnSent. `memory` holds the payload, or is null. As an offer if
  // `fetch`.
  absl::StatusOr<Started> Send(Endpoint* endpoint, Kind kind, std::span<const std::byte> head,
                               std::span<const std::byte> payload, const Memory* memory, bool fetch,
                               Call* call);
  // Ends the offer. `to` is written until kDone or OnFetched; `memory` holds it, or is null.
  absl::StatusOr<Started> Fetch(Offer* offer, std::span<std::byte> to, const Memory* memory,
                                Call* call);
  void Drop(Offer* offer);

  // Null if it can't be registered.
  Memory* Register(std::byte* at, size_t bytes);
  void Unregister(Memory* memory);

 private:
  struct Callbacks;
  explicit UcxWorker(Owner* owner);
  absl::Status Start(const UcxOptions& options);

  Owner* owner_;
  void* context_ = nullptr;
  void* worker_ = nullptr;
  std::string address_;
  int fd_ = -1;
  bool tells_failures_ = true;
  int unfinished_ = 0;                             // requests of UCX's
  std::vector<std::unique_ptr<Endpoint>> closed_;  // that stay
};

// INVALID_ARGUMENT names a carrier that UcxOptions::transports may not hold; NOT_FOUND if they
// need an RDMA device and there is none.
absl::Status CheckTransports(const std::string& transports);
// Whether they are RDMA's, or those within one node.
bool AreRdma(const std::string& transports);

}  // namespace shunt::transport
