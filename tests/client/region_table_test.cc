#include "client/src/region_table.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace shunt::client {
namespace {

constexpr size_t kPage = 4096;

Mapping MakeMapping(size_t bytes) {
  auto fd = MakeSealedMemfd("test", bytes);
  REQUIRE(fd.ok());
  auto mapping = Mapping::Map(fd->get(), bytes);
  REQUIRE(mapping.ok());
  return *std::move(mapping);
}

std::byte* Add(RegionTable& table, uint64_t id, size_t bytes) {
  Mapping mapping = MakeMapping(bytes);
  std::byte* data = mapping.data();
  table.AddOwn({id, std::move(mapping)});
  return data;
}

TEST_CASE("tells which region holds a pointer, for lookups in a row") {
  RegionTable table;
  std::byte* a = Add(table, 1, 4 * kPage);
  const RegionTable::Holder holder = table.HolderOf(a + kPage);
  CHECK(holder.id == 1);
  CHECK(holder.Offset(a + 100) == 100);
  CHECK(holder.Holds(a, 4 * kPage));
  CHECK(holder.Holds(a + 4 * kPage - 1, 1));
  CHECK_FALSE(holder.Holds(a + 1, 4 * kPage));
  CHECK_FALSE(holder.Holds(a - 1, 1));
  CHECK_FALSE(holder.Holds(a, SIZE_MAX));
  int on_stack = 0;
  CHECK(table.HolderOf(&on_stack).id == 0);
  CHECK(table.HolderOf(nullptr).id == 0);
  CHECK_FALSE(RegionTable::Holder{}.Holds(nullptr, 0));
}

TEST_CASE("finds memory of GPUs by address, and never as memory of this process") {
  RegionTable table;
  std::byte* host = Add(table, 1, kPage);
  const uint64_t address = 0x10'0000'0000;
  table.AddDevice(2, address, 2 * kPage);
  const auto* const gpu = reinterpret_cast<const std::byte*>(address);
  CHECK(table.Find(gpu + 8, 2 * kPage - 8).region == 2);
  CHECK(table.Find(gpu + 8, 2 * kPage - 8).offset == 8);
  CHECK(table.Find(gpu + 8, 2 * kPage).region == 0);
  CHECK(table.HolderOf(gpu).device);
  CHECK_FALSE(table.HolderOf(host).device);
  CHECK(table.OwnId(gpu) == 0);
  CHECK(table.BytesOf(1) == kPage);
  CHECK(table.BytesOf(2) == 2 * kPage);
  CHECK(table.BytesOf(3) == 0);
  CHECK(table.Own(2).data == nullptr);
  CHECK_FALSE(table.RemoveOwn(gpu).has_value());
  CHECK_FALSE(table.RemoveDevice(1));
  CHECK(table.RemoveDevice(2));
  CHECK(table.HolderOf(gpu).id == 0);
  CHECK(table.HolderOf(host).id == 1);
}

TEST_CASE("finds the region that wholly holds a range") {
  RegionTable table;
  std::byte* a = Add(table, 1, 4 * kPage);
  std::byte* b = Add(table, 2, kPage);
  CHECK(table.Find(a, 4 * kPage).region == 1);
  CHECK(table.Find(a + 100, 50).offset == 100);
  CHECK(table.Find(b + kPage - 1, 1).region == 2);
  CHECK(table.Find(b + 1, kPage).region == 0);
  CHECK(table.Find(a + 4, SIZE_MAX).region == 0);
  int on_stack = 0;
  CHECK(table.Find(&on_stack, sizeof(on_stack)).region == 0);
  CHECK(table.Find(nullptr, 1).region == 0);
}

TEST_CASE("own regions are known by their beginning and by their id") {
  RegionTable table;
  std::byte* a = Add(table, 10, kPage);
  std::byte* b = Add(table, 11, kPage);
  CHECK(table.OwnId(a) == 10);
  CHECK(table.OwnId(b + 1) == 0);
  CHECK(table.Own(11).data == b);
  CHECK(table.Own(12).data == nullptr);
  CHECK_FALSE(table.RemoveOwn(b + 1).has_value());
  CHECK(table.RemoveOwn(a)->id == 10);
  CHECK(table.Find(a, 1).region == 0);
  CHECK(table.Own(10).data == nullptr);
  CHECK(table.Own(11).data == b);
}

TEST_CASE("of two mappings of a peer's region the first one stays") {
  RegionTable table;
  Mapping first = MakeMapping(kPage);
  std::byte* data = first.data();
  CHECK(table.AddPeer(5, std::move(first)).data == data);
  CHECK(table.AddPeer(5, MakeMapping(kPage)).data == data);
  CHECK(table.Peer(5).bytes == kPage);
  CHECK(table.Peer(4).data == nullptr);
}

TEST_CASE("peers' regions are dropped only when idle") {
  RegionTable table;
  table.AddPeer(5, MakeMapping(kPage));
  CHECK_FALSE(table.DropPeers([] { return false; }));
  CHECK(table.Peer(5).data != nullptr);
  CHECK(table.DropPeers([] { return true; }));
  CHECK(table.Peer(5).data == nullptr);
}

TEST_CASE("lookups see whole regions while others come and go") {
  RegionTable table;
  std::byte* fixed = Add(table, 1, kPage);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        if (table.Find(fixed + 8, 8).offset != 8) ++wrong;
        if (table.Own(1).data != fixed) ++wrong;
        (void)table.Peer(3);
      }
    });
  }
  for (uint64_t id = 2; id < 300; ++id) {
    std::byte* data = Add(table, id, kPage);
    table.AddPeer(id, MakeMapping(kPage));
    CHECK(table.RemoveOwn(data)->id == id);
    if (id % 10 == 0) table.DropPeers([] { return true; });
  }
  stop = true;
  for (auto& reader : readers) reader.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace shunt::client
