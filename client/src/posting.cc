#include "client/src/posting.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"

namespace shunt::client {
namespace {

using ring::PostedForm;
using ring::PostedPiece;
using ring::PostedRun;

constexpr size_t kAlign = 8;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) & ~(kAlign - 1); }

size_t ArrayBytes(const Selection& s) {
  return s.form == PostedForm::kAll ? 0 : Aligned(ring::ElementBytes(s.form) * s.count);
}

absl::Status CheckSide(const Selection& s, const char* name) {
  if (s.form == PostedForm::kAll) return absl::OkStatus();
  if (s.data == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, ".data is null"));
  }
  if (s.count < 1 || s.count > ring::kPostedPiecesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".count is ", s.count, ", expected 1 to ", ring::kPostedPiecesMax));
  }
  return absl::OkStatus();
}

void WriteRuns(const Selection& s, PostedRun* out) {
  const auto* runs = static_cast<const PostedRun*>(s.data);
  for (uint64_t i = 0; i < s.count; ++i) {
    out[i] = runs[i];
    if (out[i].step == 0) out[i].step = 1;
  }
}

// Neighbours mostly lie in one region, so that it is looked up once.
absl::Status WriteSpans(const Selection& s, const char* name, const RegionTable& table,
                        PostedPiece* out, std::vector<uint64_t>* regions) {
  const auto* spans = static_cast<const Span*>(s.data);
  RegionTable::Holder holder;
  for (uint64_t i = 0; i < s.count; ++i) {
    if (!holder.Holds(spans[i].pointer, spans[i].bytes)) {
      holder = table.HolderOf(spans[i].pointer);
      if (holder.id == 0 || !holder.Holds(spans[i].pointer, spans[i].bytes)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ".data[", i, "]: ", spans[i].bytes, " bytes at 0x",
                         absl::Hex(reinterpret_cast<uintptr_t>(spans[i].pointer)),
                         " lie in no region of this session, expected memory from shunt_alloc or "
                         "shunt_register"));
      }
      if (regions != nullptr) regions->push_back(holder.id);
    }
    out[i] = {holder.id, holder.Offset(spans[i].pointer), spans[i].bytes};
  }
  return absl::OkStatus();
}

// Returns the side as the record has it; its array is written to `array`, which lies at `offset`.
absl::StatusOr<ring::PostedSide> WriteSide(const Selection& s, const char* name,
                                           const RegionTable& table, std::byte* array,
                                           uint64_t offset, std::vector<uint64_t>* regions) {
  switch (s.form) {
    case PostedForm::kAll:
      break;
    case PostedForm::kRuns:
      WriteRuns(s, reinterpret_cast<PostedRun*>(array));
      break;
    case PostedForm::kIds32:
    case PostedForm::kIds64:
      std::memcpy(array, s.data, ring::ElementBytes(s.form) * s.count);
      break;
    case PostedForm::kRaw:
      if (s.spans) {
        SHUNT_RETURN_IF_ERROR(
            WriteSpans(s, name, table, reinterpret_cast<PostedPiece*>(array), regions));
      } else {
        std::memcpy(array, s.data, sizeof(PostedPiece) * s.count);
      }
      break;
  }
  const bool all = s.form == PostedForm::kAll;
  return ring::PostedSide{.list = s.list->info().list_id,
                          .form = static_cast<uint32_t>(s.form),
                          .pad = 0,
                          .offset = all ? 0 : offset,
                          .count = all ? 0 : s.count,
                          .unit = std::max<uint64_t>(s.unit, 1),
                          .repeats = std::max<uint64_t>(s.repeats, 1),
                          .repeat_step = s.repeat_step};
}

}  // namespace

absl::Status Check(const Posting& posting) {
  SHUNT_RETURN_IF_ERROR(CheckSide(posting.local, "local"));
  SHUNT_RETURN_IF_ERROR(CheckSide(posting.remote, "remote"));
  if (posting.notification && posting.notification->size() > ring::kNotificationBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the notification has ", posting.notification->size(),
                     " bytes, expected at most ", ring::kNotificationBytesMax));
  }
  return absl::OkStatus();
}

size_t PostedBytes(const Posting& posting) {
  return Aligned(sizeof(ring::TransferPost)) + ArrayBytes(posting.local) +
         ArrayBytes(posting.remote) +
         (posting.notification ? Aligned(posting.notification->size()) : 0);
}

absl::Status WritePosting(const Posting& posting, const RegionTable& table, std::byte* memory,
                          uint64_t offset, std::vector<uint64_t>* regions) {
  size_t at = Aligned(sizeof(ring::TransferPost));
  ring::TransferPost post{};
  post.magic = ring::kTransferPostMagic;
  post.direction = posting.direction;
  post.transfer_class = posting.transfer_class;
  SHUNT_ASSIGN_OR_RETURN(
      post.local, WriteSide(posting.local, "local", table, memory + at, offset + at, regions));
  at += ArrayBytes(posting.local);
  SHUNT_ASSIGN_OR_RETURN(
      post.remote, WriteSide(posting.remote, "remote", table, memory + at, offset + at, regions));
  at += ArrayBytes(posting.remote);
  if (posting.notification) {
    post.notify = 1;
    post.notification_offset = offset + at;
    post.notification_bytes = posting.notification->size();
    if (!posting.notification->empty()) {
      std::memcpy(memory + at, posting.notification->data(), posting.notification->size());
    }
  }
  std::memcpy(memory, &post, sizeof(post));
  return absl::OkStatus();
}

absl::StatusOr<SelectedPieces> ToMessage(const Selection& selection, const char* name,
                                         const RegionTable& table) {
  SelectedPieces m;
  m.list_id = selection.list->info().list_id;
  m.form = selection.form;
  m.unit = std::max<uint64_t>(selection.unit, 1);
  m.repeats = std::max<uint64_t>(selection.repeats, 1);
  m.repeat_step = selection.repeat_step;
  const uint64_t count = selection.count;
  switch (selection.form) {
    case PostedForm::kAll:
      break;
    case PostedForm::kRuns:
      m.runs.resize(count);
      WriteRuns(selection, m.runs.data());
      break;
    case PostedForm::kIds32: {
      const auto* ids = static_cast<const uint32_t*>(selection.data);
      m.ids.assign(ids, ids + count);
      break;
    }
    case PostedForm::kIds64: {
      const auto* ids = static_cast<const uint64_t*>(selection.data);
      m.ids.assign(ids, ids + count);
      break;
    }
    case PostedForm::kRaw:
      if (selection.spans) {
        m.raw.resize(count);
        SHUNT_RETURN_IF_ERROR(WriteSpans(selection, name, table, m.raw.data(), nullptr));
      } else {
        const auto* pieces = static_cast<const PostedPiece*>(selection.data);
        m.raw.assign(pieces, pieces + count);
      }
      break;
  }
  return m;
}

}  // namespace shunt::client
