// What libshunt says about transfers on the lease socket: messages of proto/shunt/v1/transfer.proto
// as plain structs, as far as they do not go through the ring. See lease_messages.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/src/wire.h"
#include "runtime/ring/transfer_post.h"

namespace shunt::client {

struct RegisterAgent {
  std::string name;
};

struct Dimension {
  uint64_t count = 1;
  int64_t stride_bytes = 0;
};

struct StridedSet {
  uint64_t region_id = 0;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  std::vector<Dimension> dimensions;  // at most 3
};

struct PublishSection {
  std::string name;
  std::vector<StridedSet> sets;
  int32_t access = 0;  // SectionAccess
  std::vector<uint32_t> tenants;
};

struct WithdrawSection {
  std::string name;
};

struct FetchSection {
  std::string agent;
  std::string section;
  int32_t access = 0;
};

struct PrepareList {
  std::vector<StridedSet> sets;
};

struct ReleaseList {
  uint64_t list_id = 0;
};

struct WaitTransfer {
  uint64_t transfer_id = 0;
};

struct CancelTransfer {
  uint64_t transfer_id = 0;
};

struct WatchTransfer {
  uint64_t transfer_id = 0;
};

struct Notify {
  std::string agent;
  std::string payload;
};

struct TakeNotifications {
  uint32_t max = 0;
  uint32_t wait_ms = 0;
};

struct WatchNotifications {};

// One side of a transfer. Of the vectors, the one that belongs to the form is used.
struct SelectedPieces {
  uint64_t list_id = 0;
  ring::PostedForm form = ring::PostedForm::kAll;
  std::vector<ring::PostedRun> runs;
  std::vector<uint64_t> ids;
  uint64_t unit = 1;
  uint64_t repeats = 1;
  uint64_t repeat_step = 0;
  std::vector<ring::PostedPiece> raw;
};

struct ExplainTransfer {
  uint8_t direction = 0;
  uint8_t transfer_class = 0;
  SelectedPieces local;
  SelectedPieces remote;
};

// Each writes the message's fields, without the tag of the message itself.
void EncodeFields(const RegisterAgent& m, WireWriter* w);
void EncodeFields(const PublishSection& m, WireWriter* w);
void EncodeFields(const WithdrawSection& m, WireWriter* w);
void EncodeFields(const FetchSection& m, WireWriter* w);
void EncodeFields(const PrepareList& m, WireWriter* w);
void EncodeFields(const ReleaseList& m, WireWriter* w);
void EncodeFields(const WaitTransfer& m, WireWriter* w);
void EncodeFields(const CancelTransfer& m, WireWriter* w);
void EncodeFields(const WatchTransfer& m, WireWriter* w);
void EncodeFields(const Notify& m, WireWriter* w);
void EncodeFields(const TakeNotifications& m, WireWriter* w);
void EncodeFields(const WatchNotifications& m, WireWriter* w);
void EncodeFields(const ExplainTransfer& m, WireWriter* w);

struct AgentRegistered {
  uint64_t incarnation = 0;
};

struct ListInfo {
  uint64_t list_id = 0;
  uint64_t pieces = 0;
  uint64_t piece_bytes = 0;
  uint64_t bytes = 0;
};

struct SectionPublished {
  ListInfo list;
  uint64_t version = 0;
};

struct SectionFetched {
  ListInfo list;
  uint64_t incarnation = 0;
  uint64_t version = 0;
  std::string node;
};

struct ListPrepared {
  ListInfo list;
};

struct TransferReport {
  uint64_t bytes = 0;
  std::string route;
  uint64_t waited_ns = 0;
  uint64_t moved_ns = 0;
};

struct Notification {
  std::string from;
  std::string payload;
};

struct NotificationsTaken {
  std::vector<Notification> notifications;
  bool more = false;
};

struct TransferExplained {
  uint64_t bytes = 0;
  std::string route;
  uint64_t copy_runs = 0;
  uint64_t predicted_ns = 0;
  uint64_t bytes_ahead = 0;
};

// False if the bytes are no such message.
bool DecodeFields(std::string_view data, AgentRegistered* m);
bool DecodeFields(std::string_view data, SectionPublished* m);
bool DecodeFields(std::string_view data, SectionFetched* m);
bool DecodeFields(std::string_view data, ListPrepared* m);
bool DecodeFields(std::string_view data, TransferReport* m);
bool DecodeFields(std::string_view data, NotificationsTaken* m);
bool DecodeFields(std::string_view data, TransferExplained* m);

}  // namespace shunt::client
