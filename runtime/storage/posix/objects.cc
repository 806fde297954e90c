// Objects and drafts of a posix store, and what is posted on them.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/storage/check.h"
#include "runtime/storage/posix/errors.h"
#include "runtime/storage/posix/posix_store.h"

namespace shunt::storage {
namespace {

absl::Status NoRoot(const std::string& name) {
  return absl::NotFoundError(
      absl::StrCat("root '", absl::CHexEscape(name), "' is not configured, expected one that is"));
}

}  // namespace

// The last reference may be dropped by Poll, but giving back a large file takes time: a thread
// does it.
std::shared_ptr<StoredFile> PosixStore::NewFile() {
  std::shared_ptr<StoredFile> file(new StoredFile, [pool = pool_.get()](StoredFile* last) {
    pool->PostUnheard([last] { delete last; });
  });
  file->id = next_id_++;
  return file;
}

absl::StatusOr<std::shared_ptr<StoredFile>> PosixStore::Find(ObjectId id, bool draft) const {
  const auto found = objects_.find(id);
  const char* const expected = draft ? "a draft" : "an open object";
  if (found == objects_.end()) {
    return absl::NotFoundError(absl::StrCat("object ", id, " is not open, expected ", expected));
  }
  if (found->second->draft.has_value() != draft) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", id, " (", found->second->file().label, ") is not ", expected));
  }
  return found->second;
}

void PosixStore::PostOpen(OpenRequest request, uint64_t token) {
  const bool by_name = !request.descriptor.valid();
  const Root* const root = by_name ? FindRoot(request.container) : nullptr;
  if (by_name && root == nullptr) return Fail(token, NoRoot(request.container));
  if (!by_name && !(request.container.empty() && request.name.empty())) {
    const auto descriptor = std::make_shared<UniqueFd>(std::move(request.descriptor));
    pool_->PostUnheard([descriptor] { descriptor->Reset(); });  // may take time
    return Fail(token, absl::InvalidArgumentError("both a descriptor and a name were given to be "
                                                  "opened, expected one of them"));
  }
  const int64_t deadline_ns = request.deadline_ns;
  const auto asked = std::make_shared<OpenRequest>(std::move(request));
  const auto opened = std::make_shared<absl::StatusOr<File>>(absl::UnknownError("not opened"));
  const bool direct = options_.direct;
  StartJob(
      token, deadline_ns, absl::StrCat("open of '", absl::CHexEscape(asked->name), "'"),
      [asked, opened, root, direct] {
        *opened = root == nullptr
                      ? OpenDescriptor(std::move(asked->descriptor), asked->access, direct)
                      : root->OpenFile(asked->name, asked->access, direct);
      },
      [this, opened](Completion* completion) {
        completion->status = opened->status();
        if (!opened->ok()) return;
        const std::shared_ptr<StoredFile> file = NewFile();
        file->opened = *std::move(*opened);
        completion->object = file->id;
        completion->bytes = file->opened.bytes;
        objects_.emplace(file->id, file);
      });
}

void PosixStore::PostBegin(BeginRequest request, uint64_t token) {
  const Root* const root = FindRoot(request.container);
  if (root == nullptr) return Fail(token, NoRoot(request.container));
  const int64_t deadline_ns = request.deadline_ns;
  const auto asked = std::make_shared<BeginRequest>(std::move(request));
  const std::shared_ptr<StoredFile> file = NewFile();
  file->charge = Charge(std::move(asked->budget));
  const auto status = std::make_shared<absl::Status>();
  StartJob(
      token, deadline_ns, absl::StrCat("begin of '", absl::CHexEscape(asked->name), "'"),
      [asked, file, root, status, this] {
        auto draft = Draft::Begin(*root, asked->name, asked->bytes, asked->if_absent, options_);
        *status = draft.status();
        if (draft.ok()) file->draft.emplace(*std::move(draft));
      },
      [this, file, status](Completion* completion) {
        completion->status = *status;
        if (!status->ok()) return;
        completion->object = file->id;
        objects_.emplace(file->id, file);
      });
}

void PosixStore::PostSync(ObjectId object, int64_t deadline_ns, uint64_t token) {
  auto found = Find(object, /*draft=*/false);
  if (!found.ok()) return Fail(token, found.status());
  const std::shared_ptr<StoredFile> file = *std::move(found);
  const auto status = std::make_shared<absl::Status>();
  StartJob(
      token, deadline_ns, absl::StrCat("sync of ", file->opened.label),
      [file, status] {
        if (::fdatasync(file->opened.fd.get()) == 0) return;
        *status = FileError(errno, absl::StrCat(file->opened.label, ": fdatasync"));
      },
      [status](Completion* completion) { completion->status = *status; });
}

void PosixStore::PostCommit(ObjectId draft, int64_t deadline_ns, uint64_t token) {
  auto found = Find(draft, /*draft=*/true);
  if (!found.ok()) return Fail(token, found.status());
  const std::shared_ptr<StoredFile> file = *std::move(found);
  objects_.erase(draft);
  const std::string label = file->file().label;
  const uint64_t bytes = file->file().bytes;
  absl::Status refused;
  if (file->broken) {
    refused = absl::FailedPreconditionError(
        absl::StrCat(label, ": a write into the draft failed, expected none"));
  } else if (file->writes > 0) {
    refused = absl::FailedPreconditionError(absl::StrCat(
        label, ": ", file->writes, " pieces of the draft are being written, expected none"));
  } else if (file->written.bytes() != bytes) {
    refused = absl::FailedPreconditionError(
        absl::StrCat(label, ": ", file->written.bytes(), " bytes were written, expected ", bytes,
                     "; the first missing is at offset ", file->written.first_missing()));
  }
  if (!refused.ok()) return AbortDraft(file, token, std::move(refused));
  const auto status = std::make_shared<absl::Status>();
  StartJob(
      token, deadline_ns, absl::StrCat("commit of ", label),
      [file, status] {
        *status = file->draft->Commit();
        file->EndDraft();  // with what is left of one that failed
      },
      [status, bytes](Completion* completion) {
        completion->status = *status;
        if (status->ok()) completion->bytes = bytes;
      });
}

void PosixStore::PostAbort(ObjectId draft, uint64_t token) {
  auto found = Find(draft, /*draft=*/true);
  if (!found.ok()) return Fail(token, found.status());
  objects_.erase(draft);
  AbortDraft(*std::move(found), token, absl::OkStatus());
}

// Completes with `status` when nothing is left of the draft.
void PosixStore::AbortDraft(std::shared_ptr<StoredFile> file, uint64_t token, absl::Status status) {
  if (file->writes > 0) {
    file->when_unused = [this, file, token, status] { AbortDraft(file, token, status); };
    for (const auto& [id, transfer] : transfers_) {
      const bool into = std::any_of(transfer->pieces.begin(), transfer->pieces.end(),
                                    [&](const FilePiece& piece) { return piece.file == file; });
      if (into) Stop(id, absl::StatusCode::kCancelled);
    }
    return;
  }
  const std::string label = file->file().label;
  StartJob(
      token, kNeverNs, absl::StrCat("abort of ", label),
      [file = std::move(file)] { file->EndDraft(); },
      [status = std::move(status)](Completion* completion) { completion->status = status; });
}

void PosixStore::Close(ObjectId object) { objects_.erase(object); }

void PosixStore::PostRead(TransferRequest request, uint64_t token) {
  StartTransfer(/*write=*/false, request, token);
}
void PosixStore::PostWrite(TransferRequest request, uint64_t token) {
  StartTransfer(/*write=*/true, request, token);
}

void PosixStore::StartTransfer(bool write, const TransferRequest& request, uint64_t token) {
  auto transfer = std::make_unique<Transfer>();
  transfer->id = next_id_++;
  transfer->token = token;
  transfer->write = write;
  transfer->urgency = request.urgency;
  absl::Status status = Resolve(write, request, &transfer->pieces);
  if (!status.ok()) return Fail(token, std::move(status));
  for (const FilePiece& piece : transfer->pieces) {
    if (write) ++piece.file->writes;
  }
  timers_.Set(transfer->id, request.deadline_ns);
  ids_[token] = transfer->id;
  pump_->Add(transfer.get());
  transfers_.emplace(transfer->id, std::move(transfer));
}

// Checks all pieces before any moves.
absl::Status PosixStore::Resolve(bool write, const TransferRequest& request,
                                 std::vector<FilePiece>* pieces) {
  pieces->reserve(request.pieces.size());
  const StoredFile* last = nullptr;
  uint64_t size = 0;
  absl::Status status;
  for (const Piece& piece : request.pieces) {
    const auto found = objects_.find(piece.object);
    if (found == objects_.end()) {
      status = absl::NotFoundError(
          absl::StrCat("object ", piece.object, " is not open, expected an open one"));
      break;
    }
    const std::shared_ptr<StoredFile>& stored = found->second;
    const File& file = stored->file();
    if (write ? !file.writable : stored->draft.has_value()) {
      status = absl::PermissionDeniedError(
          absl::StrCat(file.label, write ? " was not opened to be written" : " is a draft",
                       write ? ", expected Access::kReadWrite" : ", expected an open object"));
      break;
    }
    if (stored.get() != last) {
      last = stored.get();
      size = stored->draft.has_value() ? file.bytes : SizeNow(file);
    }
    status = CheckRange(file.label, piece.offset, piece.memory.size(), size);
    if (!status.ok()) break;
    if (stored->draft.has_value() && !stored->written.Add(piece.offset, piece.memory.size())) {
      status = absl::InvalidArgumentError(
          absl::StrCat(file.label, ": some of ", piece.memory.size(), " bytes at offset ",
                       piece.offset, " were written before, expected each byte once"));
      stored->broken = true;
      break;
    }
    status = stored->charge.Cover(stored->written.memory_bytes(), "the notes of a draft");
    if (!status.ok()) {
      status = Scattered(file.label, stored->written, status);
      stored->broken = true;
      break;
    }
    pieces->push_back({.file = stored, .offset = piece.offset, .memory = piece.memory});
  }
  if (status.ok()) return status;
  // Bytes were noted as written that never will be.
  for (const FilePiece& piece : *pieces) piece.file->broken |= piece.file->draft.has_value();
  return status;
}

void PosixStore::EndTransfer(Transfer* transfer) {
  const auto found = transfers_.find(transfer->id);
  const std::unique_ptr<Transfer> ended = std::move(found->second);
  transfers_.erase(found);
  ids_.erase(ended->token);
  timers_.Clear(ended->id);
  for (const FilePiece& piece : ended->pieces) {
    if (!ended->write) break;
    StoredFile& file = *piece.file;
    if (!ended->status.ok()) file.broken = true;
    if (--file.writes == 0 && file.when_unused) std::exchange(file.when_unused, nullptr)();
  }
  ended_.push_back(
      {.token = ended->token, .status = std::move(ended->status), .bytes = ended->bytes});
}

}  // namespace shunt::storage
