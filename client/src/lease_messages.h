// What libshunt says on the lease socket: LeaseRequest and LeaseReply of
// proto/shunt/v1/session.proto as plain structs. That file defines them; a test holds these against
// protobuf's own encoding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/cuda/device_messages.h"
#include "client/src/file_messages.h"
#include "client/src/transfer_messages.h"

namespace shunt::client {

struct OpenSession {
  std::string name;
  std::string client_version;
  uint32_t ring_entries = 0;
};

struct AllocateRegion {
  uint64_t size_bytes = 0;
};

struct FreeRegion {
  uint64_t region_id = 0;
};

struct MapRegion {
  uint64_t region_id = 0;
};

struct Join {
  std::string name;
  std::string job;
  int32_t rank = 0;
  int32_t world_size = 0;
  uint32_t timeout_ms = 0;
  std::string algorithm;
  bool deterministic = false;
  bool device = false;
};

struct Leave {
  uint64_t communicator_id = 0;
};

struct WatchOperation {
  uint64_t communicator_id = 0;
  uint32_t channel = 0;
  uint64_t sequence = 0;
};

struct CloseSession {};

using LeaseRequest =
    std::variant<OpenSession, AllocateRegion, FreeRegion, MapRegion, Join, Leave, WatchOperation,
                 CloseSession, RegisterAgent, PublishSection, WithdrawSection, FetchSection,
                 PrepareList, ReleaseList, WaitTransfer, CancelTransfer, WatchTransfer, Notify,
                 TakeNotifications, WatchNotifications, ExplainTransfer, OpenFile, CreateFile,
                 OpenObject, CreateObject, CommitDraft, AbortDraft, SyncFile, RegisterDevice,
                 CaptureCall, ReleaseCapture>;

// One packet.
std::string Encode(uint64_t id, const LeaseRequest& request);

struct SessionOpened {
  uint64_t session_id = 0;
  uint64_t incarnation = 0;
  uint32_t ring_entries = 0;
  uint64_t memory_quota_bytes = 0;
};

struct RegionAllocated {
  uint64_t region_id = 0;
  uint64_t size_bytes = 0;
};

struct RegionMapped {
  uint64_t size_bytes = 0;
};

struct JoinedMember {
  int32_t rank = 0;
  int32_t pid = 0;
  uint64_t session_id = 0;
};

struct Joined {
  uint64_t communicator_id = 0;
  uint64_t epoch = 0;
  std::vector<JoinedMember> members;
  bool warm = false;
};

struct LeaseReply {
  uint64_t id = 0;
  int32_t code = 0;  // google.rpc.Code
  std::string message;
  // Monostate: success without a value, or a failure.
  std::variant<std::monostate, SessionOpened, RegionAllocated, RegionMapped, Joined,
               AgentRegistered, SectionPublished, SectionFetched, ListPrepared, TransferReport,
               NotificationsTaken, TransferExplained, FileOpened, FileCreated, DeviceRegistered>
      response;
};

// INTERNAL if the packet is not a LeaseReply.
absl::StatusOr<LeaseReply> DecodeLeaseReply(std::string_view packet);

}  // namespace shunt::client
