#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/storage/check.h"
#include "runtime/storage/s3/s3_store.h"
#include "runtime/storage/s3/xml.h"

namespace shunt::storage {
namespace {

constexpr size_t kUploadIdBytesMax = 1024;
constexpr uint64_t kPartsMax = 10'000;                   // of one upload
constexpr uint64_t kObjectBytesMax = uint64_t{5} << 40;  // 5 TiB
constexpr uint64_t kMiB = 1 << 20;

uint64_t PartBytes(const S3Object& draft, size_t part) {
  return std::min(draft.part_bytes, draft.bytes - part * draft.part_bytes);
}

}  // namespace

// What a write brings of one part.
struct S3Store::PartWrite {
  std::shared_ptr<S3Object> draft;
  size_t part = 0;
  std::map<uint64_t, absl::Span<std::byte>> spans = {};  // by offset in the part
  uint64_t bytes = 0;
};

void S3Store::PostBegin(BeginRequest request, uint64_t token) {
  absl::Status status = CheckBucket(request.container);
  if (status.ok()) status = CheckName("object key", request.name, kKeyBytesMax);
  if (!status.ok()) return Fail(token, std::move(status));
  const auto draft = std::make_shared<S3Object>();
  draft->draft = true;
  draft->bucket = std::move(request.container);
  draft->key = std::move(request.name);
  draft->label = absl::StrCat(draft->bucket, "/", absl::CHexEscape(draft->key));
  draft->bytes = request.bytes;
  draft->charge = Charge(std::move(request.budget));
  draft->if_absent = request.if_absent;
  if (draft->bytes > kObjectBytesMax) {
    return Fail(token, absl::InvalidArgumentError(absl::StrCat(draft->label, ": ", draft->bytes,
                                                               " bytes, expected at most ",
                                                               kObjectBytesMax)));
  }
  const uint64_t least = (draft->bytes + kPartsMax - 1) / kPartsMax;
  draft->part_bytes = std::max(options_.part_bytes, (least + kMiB - 1) / kMiB * kMiB);
  draft->parts.resize(
      std::max<uint64_t>(1, (draft->bytes + draft->part_bytes - 1) / draft->part_bytes));
  draft->id = next_id_++;
  Operation* const operation = StartOperation(Kind::kBegin, token, request.deadline_ns,
                                              absl::StrCat("begin of ", draft->label));
  operation->object = draft->id;
  if (draft->parts.size() == 1) {
    objects_.emplace(draft->id, draft);
    return EndOperation(operation);
  }
  StartCall(operation, *draft, {.method = "POST", .query = {{"uploads", ""}}},
            [this, draft](Operation* operation, CallResult result) {
              operation->status = std::move(result.status);
              if (operation->status.ok()) {
                const auto texts = ParseXml(result.http.text);
                const std::string* const upload =
                    texts.ok() ? FindText(*texts, "InitiateMultipartUploadResult/UploadId")
                               : nullptr;
                if (upload == nullptr || upload->empty() || upload->size() > kUploadIdBytesMax) {
                  operation->status = absl::DataLossError(
                      absl::StrCat(draft->label, ": the server's answer has an UploadId of ",
                                   upload == nullptr ? 0 : upload->size(), " bytes, expected 1 to ",
                                   kUploadIdBytesMax));
                } else {
                  draft->upload = *upload;
                }
              }
              if (!operation->status.ok()) {
                operation->object = 0;
              } else if (operation->heard) {
                objects_.emplace(draft->id, draft);
              } else {
                RemoveUnheard(draft);
              }
              EndOperation(operation);
            });
}

// Checks all pieces before any has an effect, and sorts them by part.
absl::Status S3Store::CheckWrite(const TransferRequest& request, std::vector<PartWrite>* writes) {
  std::map<std::pair<ObjectId, size_t>, PartWrite> by_part;
  std::vector<std::shared_ptr<S3Object>> noted;
  const auto check = [&](const Piece& piece) -> absl::Status {
    const auto found = objects_.find(piece.object);
    if (found == objects_.end()) {
      return absl::NotFoundError(
          absl::StrCat("object ", piece.object, " is not open, expected a draft"));
    }
    const std::shared_ptr<S3Object>& draft = found->second;
    if (!draft->draft) {
      return absl::PermissionDeniedError(
          absl::StrCat(draft->label, " was opened to be read, expected a draft"));
    }
    SHUNT_RETURN_IF_ERROR(
        CheckRange(draft->label, piece.offset, piece.memory.size(), draft->bytes));
    noted.push_back(draft);
    if (!draft->written.Add(piece.offset, piece.memory.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(draft->label, ": some of ", piece.memory.size(), " bytes at offset ",
                       piece.offset, " were written before, expected each byte once"));
    }
    if (const absl::Status status =
            draft->charge.Cover(draft->written.memory_bytes(), "the notes of a draft");
        !status.ok()) {
      return Scattered(draft->label, draft->written, status);
    }
    for (uint64_t at = 0; at < piece.memory.size();) {
      const size_t part = (piece.offset + at) / draft->part_bytes;
      const uint64_t offset = (piece.offset + at) % draft->part_bytes;
      PartWrite& write = by_part[{draft->id, part}];
      write.draft = draft;
      write.part = part;
      const absl::Span<std::byte> span = piece.memory.subspan(at, draft->part_bytes - offset);
      write.spans.emplace(offset, span);
      write.bytes += span.size();
      at += span.size();
    }
    return absl::OkStatus();
  };
  absl::Status status;
  for (const Piece& piece : request.pieces) {
    status = check(piece);
    if (!status.ok()) break;
  }
  if (status.ok() && request.deadline_ns <= NowNs()) {
    status = absl::DeadlineExceededError("write: its deadline passed before it began");
  }
  uint64_t staging = 0;
  for (auto& [key, write] : by_part) {
    const S3Object::Part& part = write.draft->parts[write.part];
    const uint64_t bytes = PartBytes(*write.draft, write.part);
    const bool direct = !write.draft->upload.empty() && write.bytes == bytes;
    if (!direct && part.staging.empty()) staging += bytes;
  }
  if (status.ok() && staging > options_.staging_bytes_max - staged_bytes_) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("write: ", staged_bytes_ + staging,
                     " bytes of parts would wait for others, expected at "
                     "most ",
                     options_.staging_bytes_max, "; write whole parts or in order"));
  }
  for (auto& [key, write] : by_part) {
    if (!status.ok()) break;
    S3Object::Part& part = write.draft->parts[write.part];
    const uint64_t bytes = PartBytes(*write.draft, write.part);
    const bool direct = !write.draft->upload.empty() && write.bytes == bytes;
    if (direct || !part.staging.empty() || part.paid != nullptr) continue;
    auto paid = write.draft->charge.Take(bytes, "a part of an object");
    status = paid.status();
    if (paid.ok()) part.paid = *std::move(paid);
  }
  if (!status.ok()) {
    for (const std::shared_ptr<S3Object>& draft : noted) draft->broken = true;
    return status;
  }
  for (auto& [key, write] : by_part) writes->push_back(std::move(write));
  return absl::OkStatus();
}

void S3Store::PostWrite(TransferRequest request, uint64_t token) {
  std::vector<PartWrite> writes;
  absl::Status status = CheckWrite(request, &writes);
  if (!status.ok()) return Fail(token, std::move(status));
  Operation* const operation = StartOperation(Kind::kWrite, token, request.deadline_ns, "write");
  operation->urgency = request.urgency;
  for (PartWrite& write : writes) WritePart(operation, &write);
  if (operation->calls.empty()) EndOperation(operation);
}

void S3Store::WritePart(Operation* operation, PartWrite* write) {
  const std::shared_ptr<S3Object>& draft = write->draft;
  operation->objects.push_back(draft);
  ++draft->writes;
  operation->bytes += write->bytes;
  S3Object::Part& part = draft->parts[write->part];
  const uint64_t bytes = PartBytes(*draft, write->part);
  Spans data;
  if (!draft->upload.empty() && write->bytes == bytes) {
    for (const auto& [offset, span] : write->spans) data.push_back(span);
    return SendPart(operation, draft, write->part, std::move(data));
  }
  if (part.staging.empty()) {
    part.staging.resize(bytes);
    staged_bytes_ += bytes;
  }
  for (const auto& [offset, span] : write->spans) {
    std::memcpy(part.staging.data() + offset, span.data(), span.size());
  }
  part.covered += write->bytes;
  if (draft->upload.empty() || part.covered < bytes) return;
  SendPart(operation, draft, write->part, {absl::MakeSpan(part.staging)});
}

std::vector<std::string> S3Store::BodyHeaders(const Spans& data) const {
  std::vector<std::string> headers = {"Content-Type: application/octet-stream"};
  if (options_.content_md5) {
    headers.push_back(absl::StrCat("Content-MD5: ", absl::Base64Escape(Md5(data))));
  }
  return headers;
}

void S3Store::SendPart(Operation* operation, const std::shared_ptr<S3Object>& draft, size_t part,
                       Spans data) {
  std::vector<std::string> headers = BodyHeaders(data);
  StartCall(operation, *draft,
            {.method = "PUT",
             .query = {{"partNumber", absl::StrCat(part + 1)}, {"uploadId", draft->upload}},
             .headers = std::move(headers),
             .data = std::move(data)},
            [this, draft, part](Operation* operation, CallResult result) {
              operation->status = std::move(result.status);
              if (operation->status.ok() && result.http.etag.empty()) {
                operation->status =
                    absl::DataLossError(absl::StrCat(draft->label, ": the server's answer to part ",
                                                     part + 1, " has no ETag, expected one"));
              }
              if (!operation->status.ok()) {
                operation->bytes = 0;
                return EndOperation(operation);
              }
              S3Object::Part& sent = draft->parts[part];
              sent.etag = result.http.etag;
              staged_bytes_ -= sent.staging.size();
              sent.staging = std::vector<std::byte>();  // "= {}" would keep the memory
              sent.paid.reset();
              if (operation->calls.empty()) EndOperation(operation);
            });
}

}  // namespace shunt::storage
