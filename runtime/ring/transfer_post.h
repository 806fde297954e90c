// A transfer as a client posts it on the ring: a record in one of its regions, and the arrays that
// it names, in the same region. The daemon copies all of it once, when it takes the submission, and
// believes none of it; the client leaves it alone until the transfer's completion.
//
//   region  ... [TransferPost] ... [ids of the local side] ... [notification] ...
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::ring {

inline constexpr uint32_t kTransferPostMagic = 0x53485450;  // "SHTP"
inline constexpr uint32_t kNotificationBytesMax = 1024;
// Runs, ids or raw pieces of one side.
inline constexpr uint64_t kPostedPiecesMax = uint64_t{16} << 20;

// As the oneof in shunt.v1.Selection.
enum class PostedForm : uint32_t { kAll = 0, kRuns = 1, kIds32 = 2, kIds64 = 3, kRaw = 4 };

struct PostedRun {
  uint64_t first;
  uint64_t count;
  uint64_t step;  // 1 or more
};
static_assert(sizeof(PostedRun) == 24);

struct PostedPiece {
  uint64_t region;
  uint64_t offset;
  uint64_t length;
};
static_assert(sizeof(PostedPiece) == 24);

struct PostedSide {
  uint64_t list;
  uint32_t form;  // PostedForm
  uint32_t pad;
  // Of the array: uint32_t or uint64_t ids, PostedRun or PostedPiece. 8-byte aligned.
  uint64_t offset;
  uint64_t count;
  // Ids only; see shunt.v1.PieceIds.
  uint64_t unit;
  uint64_t repeats;
  uint64_t repeat_step;
};
static_assert(sizeof(PostedSide) == 56);

struct TransferPost {
  uint32_t magic;
  uint8_t direction;       // shunt.v1.TransferDirection
  uint8_t transfer_class;  // shunt.v1.TransferClass
  uint8_t notify;          // 1: a notification goes with it
  uint8_t pad;
  uint64_t notification_offset;
  uint64_t notification_bytes;
  PostedSide local;
  PostedSide remote;
};
static_assert(sizeof(TransferPost) == 136);

constexpr size_t ElementBytes(PostedForm form) {
  switch (form) {
    case PostedForm::kAll:
      return 0;
    case PostedForm::kIds32:
      return 4;
    case PostedForm::kIds64:
      return 8;
    case PostedForm::kRuns:
    case PostedForm::kRaw:
      return 24;
  }
  return 0;
}

}  // namespace shunt::ring
