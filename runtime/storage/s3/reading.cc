#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/storage/check.h"
#include "runtime/storage/s3/answer.h"
#include "runtime/storage/s3/s3_store.h"

namespace shunt::storage {
void S3Store::PostOpen(OpenRequest request, uint64_t token) {
  if (request.descriptor.valid()) {
    return Fail(token, absl::UnimplementedError(
                           "a descriptor was given to a store of S3 objects, expected a name"));
  }
  absl::Status status = CheckBucket(request.container);
  if (status.ok()) status = CheckName("object key", request.name, kKeyBytesMax);
  if (!status.ok()) return Fail(token, std::move(status));
  const auto object = std::make_shared<S3Object>();
  object->bucket = std::move(request.container);
  object->key = std::move(request.name);
  object->label = absl::StrCat(object->bucket, "/", absl::CHexEscape(object->key));
  if (request.access != Access::kRead) {
    return Fail(token, absl::UnimplementedError(
                           absl::StrCat(object->label,
                                        ": S3 objects are not written in place, expected "
                                        "Access::kRead or a draft")));
  }
  Operation* const operation = StartOperation(Kind::kOpen, token, request.deadline_ns,
                                              absl::StrCat("open of ", object->label));
  StartCall(operation, *object, {.method = "HEAD"},
            [this, object](Operation* operation, CallResult result) {
              if (!result.status.ok()) return Explain(operation, object, std::move(result));
              if (result.http.content_length < 0) {
                operation->status = absl::DataLossError(absl::StrCat(
                    object->label, ": the server did not say its size, expected Content-Length"));
                return EndOperation(operation);
              }
              Opened(operation, object, static_cast<uint64_t>(result.http.content_length),
                     result.http.etag);
            });
}

// An answer to HEAD has no body that says why. One to GET has.
void S3Store::Explain(Operation* operation, const std::shared_ptr<S3Object>& object,
                      CallResult head) {
  if (head.http.http_status < 300) {
    operation->status = std::move(head.status);
    return EndOperation(operation);
  }
  StartCall(operation, *object, {.method = "GET", .headers = {"Range: bytes=0-0"}},
            [this, object](Operation* operation, CallResult result) {
              // Meanwhile it may be there, or new keys let us see it.
              const auto range = ParseContentRange(result.http.content_range);
              if (result.status.ok() && range.has_value()) {
                return Opened(operation, object, range->size, result.http.etag);
              }
              operation->status = std::move(result.status);
              if (operation->status.ok()) {
                operation->status = absl::DataLossError(absl::StrCat(
                    object->label, ": the server did not say its size, expected Content-Range"));
              }
              EndOperation(operation);
            });
}

void S3Store::Opened(Operation* operation, const std::shared_ptr<S3Object>& object, uint64_t bytes,
                     std::string etag) {
  object->id = next_id_++;
  object->bytes = bytes;
  object->etag = std::move(etag);
  operation->object = object->id;
  operation->bytes = bytes;
  objects_.emplace(object->id, object);
  EndOperation(operation);
}

void S3Store::PostRead(TransferRequest request, uint64_t token) {
  std::vector<std::shared_ptr<S3Object>> objects;
  for (const Piece& piece : request.pieces) {
    auto found = Find(piece.object, /*draft=*/false);
    if (!found.ok()) return Fail(token, found.status());
    absl::Status status =
        CheckRange((*found)->label, piece.offset, piece.memory.size(), (*found)->bytes);
    if (!status.ok()) return Fail(token, std::move(status));
    objects.push_back(*std::move(found));
  }
  Operation* const operation = StartOperation(Kind::kRead, token, request.deadline_ns, "read");
  operation->urgency = request.urgency;
  // Neighbours in the object come with one request, up to range_bytes, wherever they go to.
  Spans into;
  uint64_t begin = 0, end = 0;
  const S3Object* of = nullptr;
  const auto flush = [&] {
    if (of != nullptr && !into.empty()) {
      StartRange(operation, *of, begin, std::exchange(into, {}));
    }
  };
  for (size_t i = 0; i < request.pieces.size(); ++i) {
    const Piece& piece = request.pieces[i];
    for (uint64_t at = 0; at < piece.memory.size();) {
      const uint64_t offset = piece.offset + at;
      if (into.empty() || of != objects[i].get() || offset != end ||
          end - begin >= options_.range_bytes) {
        flush();
        of = objects[i].get();
        begin = end = offset;
      }
      const absl::Span<std::byte> part =
          piece.memory.subspan(at, options_.range_bytes - (end - begin));
      into.push_back(part);
      at += part.size();
      end += part.size();
    }
  }
  flush();
  operation->objects = std::move(objects);
  if (operation->calls.empty()) EndOperation(operation);
}

void S3Store::StartRange(Operation* operation, const S3Object& object, uint64_t offset,
                         Spans into) {
  uint64_t bytes = 0;
  for (const auto span : into) bytes += span.size();
  const uint64_t last = offset + bytes - 1;
  Call call{.method = "GET",
            .headers = {absl::StrCat("Range: bytes=", offset, "-", last)},
            .into = std::move(into)};
  // The same object as when it was opened, and not another by its name.
  if (!object.etag.empty()) call.headers.push_back(absl::StrCat("If-Match: ", object.etag));
  StartCall(operation, object, std::move(call),
            [this, offset, bytes, last, label = object.label, size = object.bytes,
             etag = object.etag](Operation* operation, CallResult result) {
              absl::Status status = std::move(result.status);
              const auto range = ParseContentRange(result.http.content_range);
              if (result.http.http_status == 412) {
                status = absl::AbortedError(absl::StrCat(
                    label, " was replaced since it was opened, expected the same object"));
              } else if (status.ok() &&
                         (!range.has_value() || range->first != offset || range->last != last)) {
                status = absl::DataLossError(
                    absl::StrCat(label, ": the server sent the range '",
                                 absl::CHexEscape(result.http.content_range.substr(0, 80)),
                                 "', expected bytes ", offset, "-", last));
              } else if (status.ok() &&
                         (range->size != size || (!etag.empty() && !result.http.etag.empty() &&
                                                  result.http.etag != etag))) {
                // Not every server heeds If-Match.
                status = absl::AbortedError(absl::StrCat(
                    label, ": the server sent some of an object of ", range->size,
                    " bytes and ETag ", absl::CHexEscape(result.http.etag), ", expected that of ",
                    size, " bytes and ETag ", absl::CHexEscape(etag), " that was opened"));
              }
              if (status.ok()) {
                operation->bytes += bytes;
                if (operation->calls.empty()) EndOperation(operation);
                return;
              }
              operation->status = std::move(status);
              EndOperation(operation);
            });
}

}  // namespace shunt::storage
