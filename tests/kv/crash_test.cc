// Whatever stops a writer, and wherever: what the index names is there, whole and right, and what
// was flushed is named.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/kv/index_log.h"
#include "runtime/kv/slot_map.h"
#include "runtime/kv/write_down.h"
#include "tests/kv/sim_disk.h"

namespace shunt::tiers::testing {
namespace {

constexpr uint64_t kSlotBytes = 48;
constexpr uint32_t kSlots = 6;
constexpr int kKeys = 20;

std::string Key(uint64_t number) { return absl::StrCat("key-", number); }

std::vector<std::byte> Content(const std::string& key) {
  std::mt19937_64 random(std::hash<std::string>()(key));
  std::vector<std::byte> bytes(1 + random() % kSlotBytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// As a store's writer does it: makes room, un-names, writes, names; flushes now and then.
class Writer {
 public:
  explicit Writer(SimDisk* disk) : disk_(disk) {}

  absl::Status Open() {
    auto index = IndexLog::Open(&disk_->directory(), kSlotBytes, kSlots, /*slack_records=*/4);
    if (!index.ok()) return index.status();
    index_ = *std::move(index);
    for (const IndexRecord& record : index_->contents().All()) {
      map_.Restore(static_cast<uint32_t>(record.slot), record.block);
    }
    return absl::OkStatus();
  }

  // What the index names now must be readable now.
  bool AllReadable() const {
    for (const IndexRecord& record : index_->contents().All()) {
      const auto expected = Content(record.block.key);
      if (record.block.bytes != expected.size() || record.block.sum != Checksum(0, expected) ||
          disk_->Slot(record.slot, record.block.bytes) != expected) {
        return false;
      }
    }
    return true;
  }

  void Step(std::mt19937_64& random) {
    std::set<std::string> keys;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::string key = Key(random() % kKeys);
      if (!map_.Find(key)) keys.insert(key);
    }
    if (random() % 5 == 0) {
      if (const auto old = map_.Oldest(1, false); !old.empty()) Forget(old);
    }
    Forget(map_.Oldest(keys.size() > map_.counts().free ? keys.size() - map_.counts().free : 0,
                       false));
    std::map<std::string, std::vector<std::byte>> contents;
    std::vector<Written> written;
    std::vector<uint32_t> slots;
    for (const std::string& key : keys) {
      const auto slot = map_.Reserve(key);
      if (!slot) break;
      const auto& bytes = contents[key] = Content(key);
      slots.push_back(*slot);
      written.push_back({{*slot, {key, bytes.size(), Checksum(0, bytes)}}, bytes.data()});
    }
    const absl::Status done = WriteDown(written, &disk_->slots(), index_.get());
    for (size_t i = 0; i < slots.size(); ++i) {
      if (done.ok()) {
        map_.Fill(slots[i], written[i].named.block.bytes, written[i].named.block.sum, false);
      } else {
        map_.Abandon(slots[i]);
      }
    }
    if (random() % 3 == 0 && index_->Sync().ok()) {
      flushed.clear();
      for (const IndexRecord& r : index_->contents().All()) {
        if (map_.Find(r.block.key)) flushed.insert(r.block.key);  // or it is about to be un-named
      }
    }
  }

  IndexLog& index() { return *index_; }
  std::set<std::string> flushed;  // and not given up since

 private:
  void Forget(const std::vector<uint32_t>& slots) {
    for (const uint32_t slot : slots) {
      flushed.erase(map_.block(slot).key);
      map_.Doom(slot);
    }
    std::vector<Named> named;
    const std::vector<uint32_t> doomed = map_.Doomed();
    for (const uint32_t slot : doomed) named.push_back({slot, map_.block(slot)});
    if (!Unname(Tier::kFile, named, index_.get()).ok()) return;
    for (const uint32_t slot : doomed) map_.Free(slot);
  }

  SimDisk* const disk_;
  SlotMap map_{kSlots};
  std::unique_ptr<IndexLog> index_;
};

void CheckStart(SimDisk& disk, const std::set<std::string>& flushed) {
  Writer next(&disk);
  REQUIRE(next.Open().ok());
  REQUIRE(next.AllReadable());
  std::set<std::string> found;
  for (const IndexRecord& r : next.index().contents().All()) found.insert(r.block.key);
  for (const std::string& key : flushed) REQUIRE(found.contains(key));
}

TEST_CASE("a power cut or a kill at any step loses no flushed block and names no wrong one") {
  const bool power_cut = GENERATE(true, false);
  const uint64_t seed = GENERATE(1, 2, 3, 4, 5, 6);
  CAPTURE(power_cut, seed);
  for (uint64_t cut_at = 0;; ++cut_at) {
    CAPTURE(cut_at);
    SimDisk disk(kSlotBytes);
    disk.random.seed(seed * 1000 + cut_at);
    disk.cut_at = cut_at;
    std::mt19937_64 random(seed);
    Writer writer(&disk);
    bool cut = false;
    absl::Status opened;
    try {
      opened = writer.Open();
      for (int i = 0; opened.ok() && i < 12; ++i) writer.Step(random);
    } catch (const PowerCut&) {
      cut = true;
    }
    REQUIRE(opened.ok());
    disk.Restart(power_cut);
    CheckStart(disk, writer.flushed);

    // And on from there, with a cut soon after: a start must not build on what is not on the disk.
    disk.cut_at = disk.steps + disk.random() % 12;
    Writer second(&disk);
    try {
      opened = second.Open();
      for (int i = 0; opened.ok() && i < 6; ++i) second.Step(random);
    } catch (const PowerCut&) {
    }
    REQUIRE(opened.ok());
    disk.Restart(true);
    CheckStart(disk, second.flushed);
    if (!cut) break;
  }
}

// True if the step came.
bool FailsAndIsCut(uint64_t seed, uint64_t fail_at, uint64_t cut_after, bool power_cut) {
  SimDisk disk(kSlotBytes);
  disk.random.seed(seed * 1000 + fail_at * 10 + cut_after);
  disk.fail_at = fail_at;
  disk.cut_at = fail_at + cut_after;
  std::mt19937_64 random(seed);
  Writer writer(&disk);
  absl::Status opened;
  bool checked = true;
  try {
    opened = writer.Open();
    for (int i = 0; opened.ok() && i < 15; ++i) {
      writer.Step(random);
      checked = checked && writer.AllReadable();
    }
  } catch (const PowerCut&) {
  }
  if (!opened.ok()) REQUIRE(absl::IsResourceExhausted(opened));
  REQUIRE(checked);
  disk.Restart(power_cut);
  CheckStart(disk, writer.flushed);
  return disk.steps > fail_at;
}

TEST_CASE("a step that fails is an error, and nothing wrong is named after a cut that follows") {
  const bool power_cut = GENERATE(true, false);
  const uint64_t seed = GENERATE(range(1, 12));
  CAPTURE(power_cut, seed);
  bool more = true;
  for (uint64_t fail_at = 0; more; ++fail_at) {
    for (uint64_t cut_after = 1; cut_after <= 12; ++cut_after) {
      CAPTURE(fail_at, cut_after);
      more = FailsAndIsCut(seed, fail_at, cut_after, power_cut);
    }
  }
}

}  // namespace
}  // namespace shunt::tiers::testing
