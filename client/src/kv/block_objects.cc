#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/kv/below.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"
#include "runtime/kv/types.h"

namespace shunt::client::kv {
namespace {

constexpr std::chrono::seconds kWriteWithin(60);
// Open at a time: each is a region of the session's.
constexpr size_t kOpenMax = 64;

int64_t LeftNs(int64_t deadline_ns) {
  if (deadline_ns == kNeverNs) return kNeverNs;
  return std::max<int64_t>(1, deadline_ns - NowNs());
}

}  // namespace

ObjectPlace BlockObjects::Place(const std::string& key) const {
  ObjectPlace place = place_;
  place.key = prefix_ + shunt::tiers::Hex(key);
  return place;
}

absl::Status BlockObjects::Write(const std::string& key, const std::byte* data, uint64_t bytes) {
  const int64_t deadline_ns = DeadlineAfterNs(kWriteWithin);
  const auto write = [&]() -> absl::Status {
    CreateObject request;
    request.place = Place(key);
    request.size_bytes = bytes;
    SHUNT_ASSIGN_OR_RETURN(
        const std::shared_ptr<File> draft,
        File::Create(mover_->session(), std::move(request), LeftNs(deadline_ns)));
    const uint64_t region = draft->region_id();
    {
      SHUNT_ASSIGN_OR_RETURN(
          auto list, List::Prepare(mover_->session(), {.sets = {{region, 0, bytes, {}}}}, {draft}));
      const Span memory{data, bytes};
      const ring::PostedPiece piece{region, 0, bytes};
      SHUNT_RETURN_IF_ERROR(
          Mover::Finish(mover_->Start(Way::kOutOfMemory, std::span(&memory, 1), std::move(list),
                                      std::span(&piece, 1), deadline_ns)));
    }
    return draft->Commit(LeftNs(deadline_ns));
  };
  absl::Status written = write();
  if (written.ok()) return written;
  return Because(
      written, absl::StrCat("write object ", place_.bucket, "/", prefix_, shunt::tiers::Hex(key)));
}

std::vector<ObjectRead> BlockObjects::Read(std::span<const Wanted> blocks, int64_t deadline_ns) {
  std::vector<ObjectRead> outcomes(blocks.size());
  for (size_t begin = 0; begin < blocks.size(); begin += kOpenMax) {
    const size_t count = std::min(kOpenMax, blocks.size() - begin);
    std::vector<std::shared_ptr<File>> files(count);
    for (size_t i = 0; i < count; ++i) {
      const Wanted& wanted = blocks[begin + i];
      OpenObject request;
      request.place = Place(wanted.key);
      auto opened = File::Open(mover_->session(), std::move(request), LeftNs(deadline_ns));
      if (!opened.ok()) {
        outcomes[begin + i].status =
            Because(opened.status(),
                    absl::StrCat("read object ", place_.bucket, "/", Place(wanted.key).key));
      } else if ((*opened)->bytes() != wanted.bytes) {
        outcomes[begin + i] = {
            absl::DataLossError(absl::StrCat("object ", place_.bucket, "/", Place(wanted.key).key,
                                             " has ", (*opened)->bytes(), " bytes, expected ",
                                             wanted.bytes, ": it is another one")),
            /*another=*/true};
      } else {
        files[i] = *std::move(opened);
      }
    }
    ReadOpened(blocks.subspan(begin, count), files, deadline_ns,
               std::span(outcomes).subspan(begin, count));
  }
  return outcomes;
}

void BlockObjects::ReadOpened(std::span<const Wanted> blocks,
                              std::span<const std::shared_ptr<File>> files, int64_t deadline_ns,
                              std::span<ObjectRead> outcomes) {
  PrepareList request;
  List::Files opened;
  std::vector<Span> memory;
  std::vector<ring::PostedPiece> pieces;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (files[i] == nullptr) continue;
    const uint64_t region = files[i]->region_id();
    request.sets.push_back({region, 0, blocks[i].bytes, {}});
    opened.push_back(files[i]);
    memory.push_back({blocks[i].data, blocks[i].bytes});
    pieces.push_back({region, 0, blocks[i].bytes});
  }
  if (pieces.empty()) return;
  auto list = List::Prepare(mover_->session(), request, std::move(opened));
  const absl::Status read =
      list.ok() ? Mover::Finish(mover_->Start(Way::kIntoMemory, memory, *std::move(list), pieces,
                                              deadline_ns))
                : list.status();
  if (read.ok()) return;
  if (pieces.size() > 1 && !absl::IsDeadlineExceeded(read) && !absl::IsUnavailable(read)) {
    // One that was replaced or removed meanwhile is no reason to do without the others.
    for (size_t i = 0; i < blocks.size(); ++i) {
      ReadOpened(blocks.subspan(i, 1), files.subspan(i, 1), deadline_ns, outcomes.subspan(i, 1));
    }
    return;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (files[i] == nullptr) continue;
    outcomes[i].status =
        Because(read, absl::StrCat("read object ", place_.bucket, "/", Place(blocks[i].key).key));
  }
}

}  // namespace shunt::client::kv
