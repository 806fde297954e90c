#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/storage/check.h"
#include "runtime/storage/s3/s3_store.h"
#include "runtime/storage/s3/xml.h"

namespace shunt::storage {
namespace {

constexpr size_t kKeyBytesMax = 1024;
constexpr uint64_t kPartsMax = 10'000;                   // of one upload
constexpr uint64_t kObjectBytesMax = uint64_t{5} << 40;  // 5 TiB
constexpr uint64_t kMiB = 1 << 20;

uint64_t PartBytes(const S3Object& draft, size_t part) {
  return std::min(draft.part_bytes, draft.bytes - part * draft.part_bytes);
}

// What S3 calls the object that the draft becomes: by its MD5 sum, or by that of its parts' sums.
// Empty if the parts' ETags are none.
std::string EtagOf(const S3Object& draft) {
  if (draft.upload.empty()) {
    const std::vector<std::byte>& data = draft.parts[0].staging;
    const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
    return absl::StrCat("\"", absl::BytesToHexString(Md5(text)), "\"");
  }
  std::string sums;
  for (const S3Object::Part& part : draft.parts) {
    std::string hex = part.etag;
    hex.erase(std::remove(hex.begin(), hex.end(), '"'), hex.end());
    const bool right = hex.size() == 32 && std::all_of(hex.begin(), hex.end(), [](char c) {
                         return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                       });
    if (!right) return "";
    sums += absl::HexStringToBytes(hex);
  }
  return absl::StrCat("\"", absl::BytesToHexString(Md5(sums)), "-", draft.parts.size(), "\"");
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
                if (upload == nullptr || upload->empty()) {
                  operation->status = absl::DataLossError(absl::StrCat(
                      draft->label, ": the server's answer has no UploadId, expected one"));
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
              sent.staging = {};
              if (operation->calls.empty()) EndOperation(operation);
            });
}

void S3Store::PostCommit(ObjectId id, int64_t deadline_ns, uint64_t token) {
  auto found = Find(id, /*draft=*/true);
  if (!found.ok()) return Fail(token, found.status());
  const std::shared_ptr<S3Object> draft = *std::move(found);
  objects_.erase(id);
  Operation* const operation =
      StartOperation(Kind::kCommit, token, deadline_ns, absl::StrCat("commit of ", draft->label));
  operation->objects = {draft};
  if (draft->broken) {
    operation->status = absl::FailedPreconditionError(
        absl::StrCat(draft->label, ": a write into the draft failed, expected none"));
  } else if (draft->writes > 0) {
    operation->status = absl::FailedPreconditionError(absl::StrCat(
        draft->label, ": ", draft->writes, " parts of the draft are being written, expected none"));
    StopWrites(*draft);
  } else if (draft->written.bytes() != draft->bytes) {
    operation->status = absl::FailedPreconditionError(absl::StrCat(
        draft->label, ": ", draft->written.bytes(), " bytes were written, expected ", draft->bytes,
        "; the first missing is at offset ", draft->written.first_missing()));
  }
  if (!operation->status.ok()) return RemoveUpload(operation, draft);
  if (draft->upload.empty()) return CommitWhole(operation, draft);
  if (draft->if_absent) return CheckAbsent(operation, draft);
  CommitParts(operation, draft);
}

void S3Store::CommitWhole(Operation* operation, const std::shared_ptr<S3Object>& draft) {
  Spans data;
  if (draft->bytes > 0) data = {absl::MakeSpan(draft->parts[0].staging)};
  std::vector<std::string> headers = BodyHeaders(data);
  if (draft->if_absent) headers.push_back("If-None-Match: *");
  StartCall(operation, *draft,
            {.method = "PUT",
             .headers = std::move(headers),
             .data = std::move(data),
             .fresh_connection = draft->if_absent},
            [this, draft](Operation* operation, CallResult result) {
              operation->status = std::move(result.status);
              operation->bytes = operation->status.ok() ? draft->bytes : 0;
              if (result.http.http_status == 412) {
                operation->status = absl::AlreadyExistsError(
                    absl::StrCat(draft->label, " exists, expected no object by that name"));
              }
              if (!operation->status.ok() && result.lost) {
                return CheckWhetherCommitted(operation, draft);
              }
              RemoveUpload(operation, draft);
            });
}

// Not every server heeds If-None-Match at the end of an upload: so it is looked at before, too.
void S3Store::CheckAbsent(Operation* operation, const std::shared_ptr<S3Object>& draft) {
  StartCall(operation, *draft, {.method = "HEAD"},
            [this, draft](Operation* operation, CallResult result) {
              if (result.http.http_status == 404) return CommitParts(operation, draft);
              operation->status =
                  result.status.ok()
                      ? absl::AlreadyExistsError(
                            absl::StrCat(draft->label, " exists, expected no object by that name"))
                      : std::move(result.status);
              RemoveUpload(operation, draft);
            });
}

void S3Store::CommitParts(Operation* operation, const std::shared_ptr<S3Object>& draft) {
  std::string text = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < draft->parts.size(); ++i) {
    absl::StrAppend(&text, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>",
                    EscapeXml(draft->parts[i].etag), "</ETag></Part>");
  }
  text += "</CompleteMultipartUpload>";
  Call call{.method = "POST",
            .query = {{"uploadId", draft->upload}},
            .headers = {"Content-Type: application/xml"},
            .text = std::move(text),
            .fresh_connection = draft->if_absent};
  if (draft->if_absent) call.headers.push_back("If-None-Match: *");
  StartCall(
      operation, *draft, std::move(call), [this, draft](Operation* operation, CallResult result) {
        operation->status = std::move(result.status);
        if (operation->status.ok()) {
          // A success may turn into an error after its head was sent; then the body says so.
          const auto texts = ParseXml(result.http.text);
          if (!texts.ok() || FindText(*texts, "CompleteMultipartUploadResult/Key") == nullptr) {
            return CheckWhetherCommitted(operation, draft);
          }
          operation->bytes = draft->bytes;
          draft->upload.clear();
          return EndOperation(operation);
        }
        if (result.http.http_status == 412) {
          operation->status = absl::AlreadyExistsError(
              absl::StrCat(draft->label, " exists, expected no object by that name"));
        }
        if (result.lost || result.code == "NoSuchUpload") {
          return CheckWhetherCommitted(operation, draft);
        }
        RemoveUpload(operation, draft);
      });
}

// An attempt whose answer was lost may have succeeded: then the object is there.
void S3Store::CheckWhetherCommitted(Operation* operation, const std::shared_ptr<S3Object>& draft) {
  if (operation->status.ok()) {
    operation->status = absl::UnknownError(absl::StrCat(
        draft->label, ": the server's answer does not say that the upload is complete"));
  }
  StartCall(
      operation, *draft, {.method = "HEAD"},
      [this, draft](Operation* operation, const CallResult& result) {
        const std::string expected = EtagOf(*draft);
        const bool there = result.status.ok() && !expected.empty() && result.http.etag == expected;
        if (there) {
          operation->status = absl::OkStatus();
          operation->bytes = draft->bytes;
          draft->upload.clear();
          return EndOperation(operation);
        }
        if (!result.status.ok() && result.http.http_status != 404) {
          operation->status = absl::UnknownError(absl::StrCat(
              operation->status.message(), "; the server may have it: ", result.status.message()));
        }
        RemoveUpload(operation, draft);
      });
}

void S3Store::PostAbort(ObjectId id, uint64_t token) {
  auto found = Find(id, /*draft=*/true);
  if (!found.ok()) return Fail(token, found.status());
  const std::shared_ptr<S3Object> draft = *std::move(found);
  objects_.erase(id);
  StopWrites(*draft);
  RemoveUpload(
      StartOperation(Kind::kAbort, token, kNeverNs, absl::StrCat("abort of ", draft->label)),
      draft);
}

void S3Store::StopWrites(const S3Object& draft) {
  std::vector<uint64_t> ids;
  for (const auto& [id, operation] : operations_) {
    const auto& objects = operation->objects;
    const bool into = operation->kind == Kind::kWrite &&
                      std::any_of(objects.begin(), objects.end(),
                                  [&](const auto& object) { return object.get() == &draft; });
    if (into) ids.push_back(id);
  }
  for (const uint64_t id : ids) Stop(id, absl::StatusCode::kCancelled);
}

void S3Store::RemoveUpload(Operation* operation, const std::shared_ptr<S3Object>& draft) {
  for (S3Object::Part& part : draft->parts) {
    staged_bytes_ -= part.staging.size();
    part.staging = {};
  }
  if (draft->upload.empty()) return EndOperation(operation);
  const std::string upload = std::exchange(draft->upload, {});
  operation->removing = true;
  operation->deadline_ns = DeadlineAfterNs(options_.end_timeout);
  timers_.Set(operation->id, operation->deadline_ns);
  StartCall(operation, *draft, {.method = "DELETE", .query = {{"uploadId", upload}}},
            [this](Operation* operation, CallResult result) {
              const bool gone = result.status.ok() || result.http.http_status == 404;
              if (!gone && operation->kind == Kind::kAbort) {
                operation->status = std::move(result.status);
              }
              EndOperation(operation);
            });
}

void S3Store::RemoveUnheard(const std::shared_ptr<S3Object>& draft) {
  auto operation = std::make_unique<Operation>();
  operation->kind = Kind::kAbort;
  operation->id = next_id_++;
  operation->heard = false;
  operation->what = absl::StrCat("abort of ", draft->label);
  Operation* const borrowed = operation.get();
  operations_.emplace(borrowed->id, std::move(operation));
  RemoveUpload(borrowed, draft);
}

}  // namespace shunt::storage
