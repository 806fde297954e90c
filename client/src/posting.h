// What a transfer is asked to do, and how that lies in shared memory for the daemon to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/list.h"
#include "client/src/region_table.h"
#include "client/src/transfer_messages.h"
#include "runtime/ring/transfer_post.h"

namespace shunt::client {

// A place in this process.
struct Span {
  const void* pointer;
  uint64_t bytes;
};

// Pieces of a list; the array is the caller's.
struct Selection {
  std::shared_ptr<const List> list;
  ring::PostedForm form = ring::PostedForm::kAll;
  // kRaw: the array holds Spans, which are turned into pieces of regions.
  bool spans = false;
  const void* data = nullptr;  // PostedRun, uint32_t, uint64_t, PostedPiece or Span
  uint64_t count = 0;
  // Ids only; see shunt.v1.PieceIds.
  uint64_t unit = 1;
  uint64_t repeats = 1;
  uint64_t repeat_step = 0;
};

struct Posting {
  uint8_t direction = 0;       // shunt.v1.TransferDirection
  uint8_t transfer_class = 0;  // shunt.v1.TransferClass
  Selection local;
  Selection remote;
  std::optional<std::string_view> notification;
  int64_t deadline_ns = 0;  // CLOCK_MONOTONIC
};

// INVALID_ARGUMENT for what no daemon need be asked about: arrays that are null, empty or too long.
absl::Status Check(const Posting& posting);

// Of the record and its arrays.
size_t PostedBytes(const Posting& posting);
// Writes them to `memory`, at `offset` in its region. Appends to `regions` what spans lie in.
// INVALID_ARGUMENT names the first span that is in none.
absl::Status WritePosting(const Posting& posting, const RegionTable& table, std::byte* memory,
                          uint64_t offset, std::vector<uint64_t>* regions);

// The same as a message.
absl::StatusOr<SelectedPieces> ToMessage(const Selection& selection, const char* name,
                                         const RegionTable& table);

}  // namespace shunt::client
