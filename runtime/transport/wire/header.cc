#include "runtime/transport/wire/header.h"

#include "absl/strings/str_cat.h"
#include "runtime/transport/wire/bytes.h"

namespace shunt::transport::wire {
namespace {

// Which fields a type uses.
enum Field : uint32_t {
  kCommunicator = 1,
  kTag = 2,  // channel, sequence, step, slice
  kClassField = 4,
  kSignature = 8,
  kGrantId = 16,
  kMessageBytes = 32,
  kOffset = 64,
  kPayload = 128,
  kReturned = 256,  // slots and notes
};
constexpr uint32_t kMessage = kCommunicator | kTag | kClassField | kSignature | kMessageBytes;

struct Shape {
  std::string_view name;
  uint32_t fields;
};
constexpr std::array<Shape, kTypeCount + 1> kShapes = {{
    {"", 0},
    {"open", kCommunicator | kReturned | kMessageBytes | kOffset},
    {"close", kCommunicator | kOffset},
    {"eager", kMessage | kPayload | kReturned},
    {"announce", kMessage | kReturned},
    {"grant", kMessage | kGrantId | kReturned},
    {"data", kMessage | kGrantId | kOffset | kPayload | kReturned},
    {"refuse message", kCommunicator | kTag},
    {"refuse grant", kCommunicator | kTag | kGrantId},
    {"withdraw", kCommunicator | kTag | kGrantId},
    {"credit", kCommunicator | kReturned},
    {"note", kCommunicator | kPayload | kReturned},
    {"ping", 0},
}};

bool IsType(uint8_t type) { return type >= 1 && type <= kTypeCount; }

absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

absl::Status Wrong(const Header& h, absl::string_view field, uint64_t value,
                   absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("frame ", View(Name(h.type)), ": ", field, " is ",
                                                 value, ", expected ", expected));
}

absl::Status CheckUnused(const Header& h) {
  const uint32_t fields = kShapes[static_cast<size_t>(h.type)].fields;
  const auto bad = [&](uint32_t field, uint64_t value) {
    return (fields & field) == 0 && value != 0;
  };
  if (bad(kCommunicator, h.tag.communicator))
    return Wrong(h, "communicator", h.tag.communicator, "0");
  if (bad(kTag, h.tag.sequence)) return Wrong(h, "sequence", h.tag.sequence, "0");
  if (bad(kTag, h.tag.channel)) return Wrong(h, "channel", h.tag.channel, "0");
  if (bad(kTag, h.tag.step)) return Wrong(h, "step", h.tag.step, "0");
  if (bad(kTag, h.tag.slice)) return Wrong(h, "slice", h.tag.slice, "0");
  if (bad(kClassField, static_cast<uint64_t>(h.service_class))) {
    return Wrong(h, "class", static_cast<uint64_t>(h.service_class), "0");
  }
  if (bad(kSignature, h.signature)) return Wrong(h, "signature", h.signature, "0");
  if (bad(kGrantId, h.grant)) return Wrong(h, "grant", h.grant, "0");
  if (bad(kMessageBytes, h.message_bytes)) return Wrong(h, "message bytes", h.message_bytes, "0");
  if (bad(kOffset, h.offset)) return Wrong(h, "offset", h.offset, "0");
  if (bad(kPayload, h.payload_bytes)) return Wrong(h, "payload bytes", h.payload_bytes, "0");
  if (bad(kReturned, h.slots)) return Wrong(h, "slots", h.slots, "0");
  if (bad(kReturned, h.notes)) return Wrong(h, "notes", h.notes, "0");
  return absl::OkStatus();
}

}  // namespace

std::string_view Name(Type type) {
  const auto number = static_cast<uint8_t>(type);
  return IsType(number) ? kShapes[number].name : "unknown";
}

absl::Status Check(const Header& h) {
  if (!IsType(static_cast<uint8_t>(h.type))) {
    return Wrong(h, "type", static_cast<uint64_t>(h.type), "1 to 12");
  }
  if (static_cast<uint8_t>(h.service_class) > 2) {
    return Wrong(h, "class", static_cast<uint64_t>(h.service_class), "0 to 2");
  }
  const uint8_t flags = kFlagCrc | (h.type == Type::kData ? kFlagAnnounced : 0);
  if ((h.flags & ~flags) != 0) return Wrong(h, "flags", h.flags, absl::StrCat("bits of ", flags));
  if (h.payload_bytes > kPayloadBytesMax) {
    return Wrong(h, "payload bytes", h.payload_bytes, absl::StrCat("at most ", kPayloadBytesMax));
  }
  if ((h.flags & kFlagCrc) == 0 && h.crc != 0) return Wrong(h, "CRC", h.crc, "0 without its flag");
  if (absl::Status unused = CheckUnused(h); !unused.ok()) return unused;
  switch (h.type) {
    case Type::kEager:
      if (h.payload_bytes != h.message_bytes) {
        return Wrong(h, "payload bytes", h.payload_bytes, absl::StrCat(h.message_bytes));
      }
      break;
    case Type::kData:
      if (h.offset > h.message_bytes) {
        return Wrong(h, "offset", h.offset, absl::StrCat("at most ", h.message_bytes));
      }
      if (h.payload_bytes > h.message_bytes - h.offset) {
        return Wrong(h, "payload bytes", h.payload_bytes,
                     absl::StrCat("at most ", h.message_bytes - h.offset));
      }
      if (h.payload_bytes == 0 && h.message_bytes != 0) {
        return Wrong(h, "payload bytes", 0, "more than 0");
      }
      [[fallthrough]];
    case Type::kGrant:
    case Type::kRefuseGrant:
    case Type::kWithdraw:
      if (h.grant == 0) return Wrong(h, "grant", 0, "an id");
      break;
    case Type::kCredit:
      if (h.slots == 0 && h.notes == 0) return Wrong(h, "slots and notes", 0, "more than 0");
      break;
    default:
      break;
  }
  return absl::OkStatus();
}

void Encode(const Header& h, uint8_t version, std::span<std::byte, kHeaderBytes> out) {
  std::byte* p = out.data();
  Put(p, kMagic);
  Put(p + 2, version);
  Put(p + 3, static_cast<uint8_t>(h.type));
  Put(p + 4, static_cast<uint8_t>(h.service_class));
  Put(p + 5, h.flags);
  Put(p + 6, h.slots);
  Put(p + 8, h.payload_bytes);
  Put(p + 12, h.tag.channel);
  Put(p + 16, h.tag.communicator);
  Put(p + 24, h.tag.sequence);
  Put(p + 32, h.tag.step);
  Put(p + 36, h.tag.slice);
  Put(p + 40, h.signature);
  Put(p + 48, h.grant);
  Put(p + 56, h.message_bytes);
  Put(p + 64, h.offset);
  Put(p + 72, h.notes);
  Put(p + 74, uint16_t{0});
  Put(p + 76, h.crc);
}

absl::Status Decode(std::span<const std::byte, kHeaderBytes> bytes, uint8_t version, Header* out) {
  const std::byte* p = bytes.data();
  Header& h = *out;
  h.type = static_cast<Type>(Get<uint8_t>(p + 3));
  h.service_class = static_cast<Class>(Get<uint8_t>(p + 4));
  h.flags = Get<uint8_t>(p + 5);
  h.slots = Get<uint16_t>(p + 6);
  h.payload_bytes = Get<uint32_t>(p + 8);
  h.tag.channel = Get<uint32_t>(p + 12);
  h.tag.communicator = Get<uint64_t>(p + 16);
  h.tag.sequence = Get<uint64_t>(p + 24);
  h.tag.step = Get<uint32_t>(p + 32);
  h.tag.slice = Get<uint32_t>(p + 36);
  h.signature = Get<uint64_t>(p + 40);
  h.grant = Get<uint64_t>(p + 48);
  h.message_bytes = Get<uint64_t>(p + 56);
  h.offset = Get<uint64_t>(p + 64);
  h.notes = Get<uint16_t>(p + 72);
  h.crc = Get<uint32_t>(p + 76);
  if (Get<uint16_t>(p) != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: magic is ", Get<uint16_t>(p), ", expected ", kMagic));
  }
  if (Get<uint8_t>(p + 2) != version) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: wire version is ", Get<uint8_t>(p + 2), ", expected ", version));
  }
  if (Get<uint16_t>(p + 74) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: bytes 74 and 75 are ", Get<uint16_t>(p + 74), ", expected 0"));
  }
  return Check(h);
}

}  // namespace shunt::transport::wire
