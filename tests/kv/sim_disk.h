// A disk that loses its power, or fails, at any step: every write, cut, sync, creation and rename
// is one. What was not synced is on the disk afterwards in part, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/kv/files.h"

namespace shunt::tiers::testing {

// Thrown at the step at which all ends.
struct PowerCut {};

class SimDisk {
 public:
  using Bytes = std::vector<std::byte>;

  // Step `cut_at` (from 0 on) does not happen, or half: PowerCut. Step `fail_at` fails with
  // RESOURCE_EXHAUSTED, a write by half.
  uint64_t cut_at = UINT64_MAX;
  uint64_t fail_at = UINT64_MAX;
  uint64_t steps = 0;
  std::mt19937_64 random{1};

  LogDirectory& directory() { return directory_; }
  SlotFile& slots() { return slots_; }
  explicit SimDisk(uint64_t slot_bytes) : slot_bytes_(slot_bytes) {}

  // As the next start finds it. After a kill all that was written is there, and what was not synced
  // still is not: the next power cut may take it.
  void Restart(bool power_cut) {
    cut_at = fail_at = UINT64_MAX;
    if (!power_cut) return;
    for (const auto& inode : all_) {
      for (const Change& change : inode->pending) {
        if (random() % 2 == 0) {
          Apply(change, random() % (change.bytes.size() + 1), &inode->durable);
        }
      }
      inode->pending.clear();
      inode->seen = inode->durable;
    }
    // A directory's changes are kept in order, as journals do.
    const size_t kept = random() % (unsynced_names_.size() + 1);
    if (kept > 0) durable_names_ = unsynced_names_[kept - 1];
    names_ = durable_names_;
    unsynced_names_.clear();
  }

  Bytes Slot(uint64_t slot, uint64_t bytes) const {
    Bytes read(bytes);
    const Bytes& seen = data_->seen;
    for (uint64_t i = 0; i < bytes && slot * slot_bytes_ + i < seen.size(); ++i) {
      read[i] = seen[slot * slot_bytes_ + i];
    }
    return read;
  }
  // For tests of what others leave there.
  Bytes& File(const std::string& name) { return names_.at(name)->seen; }
  bool Has(const std::string& name) const { return names_.contains(name); }

 private:
  struct Change {
    bool cut = false;
    uint64_t offset = 0;  // or the length
    Bytes bytes;
  };
  struct Inode {
    Bytes seen, durable;
    std::vector<Change> pending;
  };
  using InodePtr = std::shared_ptr<Inode>;
  using Names = std::map<std::string, InodePtr>;

  static void Apply(const Change& change, uint64_t count, Bytes* bytes) {
    if (change.cut) {
      bytes->resize(change.offset);
      return;
    }
    if (bytes->size() < change.offset + count) bytes->resize(change.offset + count);
    for (uint64_t i = 0; i < count; ++i) (*bytes)[change.offset + i] = change.bytes[i];
  }

  // True: it is to fail.
  bool Step() {
    const uint64_t step = steps++;
    if (step == cut_at) throw PowerCut();
    return step == fail_at;
  }
  static absl::Status Full() { return absl::ResourceExhaustedError("the simulated disk is full"); }

  absl::Status Write(Inode& inode, uint64_t offset, std::span<const std::byte> bytes) {
    Change change{false, offset, {bytes.begin(), bytes.end()}};
    bool fails = false;
    try {
      fails = Step();
    } catch (const PowerCut&) {
      // The kernel has got some of it.
      change.bytes.resize(random() % (bytes.size() + 1));
      Note(inode, std::move(change));
      throw;
    }
    if (fails) change.bytes.resize(random() % (bytes.size() + 1));
    Note(inode, std::move(change));
    return fails ? Full() : absl::OkStatus();
  }
  void Note(Inode& inode, Change change) {
    Apply(change, change.bytes.size(), &inode.seen);
    inode.pending.push_back(std::move(change));
  }
  absl::Status Sync(Inode& inode) {
    if (Step()) {
      // What is not on the disk now is never written again: the kernel holds it for clean.
      for (const Change& change : inode.pending) {
        if (random() % 2 == 0) Apply(change, change.bytes.size(), &inode.durable);
      }
      inode.pending.clear();
      return Full();
    }
    for (const Change& change : inode.pending) Apply(change, change.bytes.size(), &inode.durable);
    inode.pending.clear();
    return absl::OkStatus();
  }

  class SimFile final : public LogFile {
   public:
    SimFile(SimDisk* disk, InodePtr inode) : disk_(disk), inode_(std::move(inode)) {}
    absl::Status Write(uint64_t offset, std::span<const std::byte> bytes) override {
      return disk_->Write(*inode_, offset, bytes);
    }
    absl::Status Cut(uint64_t bytes) override {
      if (disk_->Step()) return Full();
      disk_->Note(*inode_, {true, bytes, {}});
      return absl::OkStatus();
    }
    absl::Status Sync() override { return disk_->Sync(*inode_); }

   private:
    SimDisk* const disk_;
    const InodePtr inode_;
  };

  class SimDirectory final : public LogDirectory {
   public:
    explicit SimDirectory(SimDisk* disk) : disk_(disk) {}
    const std::string& path() const override { return path_; }
    absl::StatusOr<std::vector<std::byte>> Read(std::string_view name) override {
      const auto at = disk_->names_.find(std::string(name));
      if (at == disk_->names_.end()) return absl::NotFoundError("no such file");
      return at->second->seen;
    }
    absl::StatusOr<std::unique_ptr<LogFile>> Open(std::string_view name) override {
      return std::make_unique<SimFile>(disk_, disk_->names_.at(std::string(name)));
    }
    absl::StatusOr<std::unique_ptr<LogFile>> Create(std::string_view name) override {
      if (disk_->Step()) return Full();
      auto inode = std::make_shared<Inode>();
      disk_->all_.push_back(inode);
      disk_->names_[std::string(name)] = inode;
      disk_->unsynced_names_.push_back(disk_->names_);
      return std::make_unique<SimFile>(disk_, std::move(inode));
    }
    absl::Status Rename(std::string_view from, std::string_view to) override {
      if (disk_->Step()) return Full();
      Names& names = disk_->names_;
      names[std::string(to)] = names.at(std::string(from));
      names.erase(std::string(from));
      disk_->unsynced_names_.push_back(names);
      return absl::OkStatus();
    }
    absl::Status Remove(std::string_view name) override {
      if (disk_->names_.erase(std::string(name)) > 0) {
        disk_->unsynced_names_.push_back(disk_->names_);
      }
      return absl::OkStatus();
    }
    absl::Status Sync() override {
      if (disk_->Step()) return Full();
      disk_->durable_names_ = disk_->names_;
      disk_->unsynced_names_.clear();
      return absl::OkStatus();
    }

   private:
    SimDisk* const disk_;
    const std::string path_ = "disk";
  };

  class SimSlots final : public SlotFile {
   public:
    explicit SimSlots(SimDisk* disk) : disk_(disk) {}
    absl::Status Write(std::span<const Piece> pieces) override {
      for (const Piece& piece : pieces) {
        const absl::Status written =
            disk_->Write(*disk_->data_, piece.slot * disk_->slot_bytes_, {piece.data, piece.bytes});
        if (!written.ok()) return written;
      }
      return absl::OkStatus();
    }
    absl::Status Sync() override { return disk_->Sync(*disk_->data_); }

   private:
    SimDisk* const disk_;
  };

  const uint64_t slot_bytes_;
  SimDirectory directory_{this};
  SimSlots slots_{this};
  InodePtr data_ = std::make_shared<Inode>();
  std::vector<InodePtr> all_{data_};
  Names names_, durable_names_;
  std::vector<Names> unsynced_names_;  // after each change
};

}  // namespace shunt::tiers::testing
