// How drafts end: one PUT or the completion of an upload, or the upload's removal.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/storage/s3/s3_store.h"
#include "runtime/storage/s3/xml.h"

namespace shunt::storage {
namespace {

constexpr uint32_t kRemovalsMax = 4;  // of one upload

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
                return CheckWhetherCommitted(operation, draft, /*lost=*/true);
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
            operation->status = absl::UnknownError(absl::StrCat(
                draft->label, ": the server's answer does not say that the upload is complete"));
            return CheckWhetherCommitted(operation, draft, /*lost=*/true);
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
          return CheckWhetherCommitted(operation, draft, result.lost);
        }
        RemoveUpload(operation, draft);
      });
}

// An attempt whose answer was lost may have succeeded: then the object is there. If it is not, the
// server may be at it yet; if there is one by another ETag, not every server's ETag is a checksum.
void S3Store::CheckWhetherCommitted(Operation* operation, const std::shared_ptr<S3Object>& draft,
                                    bool lost) {
  StartCall(operation, *draft, {.method = "HEAD"},
            [this, draft, lost](Operation* operation, const CallResult& result) {
              const std::string expected = EtagOf(*draft);
              const bool found = result.status.ok(), none = result.http.http_status == 404;
              const bool as_long = result.http.content_length == static_cast<int64_t>(draft->bytes);
              if (found && as_long && !expected.empty() && result.http.etag == expected) {
                operation->status = absl::OkStatus();
                operation->bytes = draft->bytes;
                draft->upload.clear();
                return EndOperation(operation);
              }
              const bool not_ours = found && !as_long && absl::IsAlreadyExists(operation->status);
              if (!not_ours && (lost || !none)) {
                operation->status = absl::UnknownError(
                    absl::StrCat(operation->status.message(), "; the server may have it: ",
                                 found  ? "there is an object that does not tell"
                                 : none ? "not yet"
                                        : result.status.message()));
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
  StopWrites(*draft);  // they read what is given back here
  for (S3Object::Part& part : draft->parts) {
    staged_bytes_ -= part.staging.size();
    part.staging = std::vector<std::byte>();  // "= {}" would keep the memory
    part.paid.reset();
  }
  draft->written = Coverage();
  draft->charge = Charge();
  if (draft->upload.empty()) return EndOperation(operation);
  const std::string upload = std::exchange(draft->upload, {});
  operation->removing = true;
  operation->deadline_ns = DeadlineAfterNs(options_.abort_timeout);
  timers_.Set(operation->id, operation->deadline_ns);
  RemoveParts(operation, draft, upload, 1);
}

// A part that was on its way may come after the removal and stay (S3 API reference,
// "AbortMultipartUpload"): so it is looked for, and removed again.
void S3Store::RemoveParts(Operation* operation, const std::shared_ptr<S3Object>& draft,
                          const std::string& upload, uint32_t round) {
  const auto listed = [this, draft, upload, round](Operation* operation, const CallResult& result) {
    // 404, as it should be; or it is not ours to see.
    if (!result.status.ok()) return EndOperation(operation);
    if (round < kRemovalsMax) return RemoveParts(operation, draft, upload, round + 1);
    if (operation->kind == Kind::kAbort) {
      operation->status = absl::UnavailableError(absl::StrCat(
          draft->label, ": the server has the upload after ", round, " removals, expected none"));
    }
    EndOperation(operation);
  };
  StartCall(operation, *draft, {.method = "DELETE", .query = {{"uploadId", upload}}},
            [this, draft, upload, listed](Operation* operation, CallResult result) {
              if (result.status.ok()) {
                return StartCall(operation, *draft,
                                 {.query = {{"max-parts", "1"}, {"uploadId", upload}}}, listed);
              }
              if (result.http.http_status != 404 && operation->kind == Kind::kAbort) {
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
