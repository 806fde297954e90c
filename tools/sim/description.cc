#include "tools/sim/description.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "tools/output.h"
#include "tools/sim/quantity.h"

namespace shunt::tools {
namespace {

absl::Status Wrong(const Value& value, const absl::Status& expected) {
  return absl::InvalidArgumentError(absl::StrCat("is ", Show(value), ", ", expected.message()));
}

// The value as the key's type; its text is read by `parse` if it has one.
template <typename T, typename Parse>
absl::Status Read(const Value& value, Parse parse, T* out) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    const auto parsed = parse(*text);
    if (!parsed.ok()) return Wrong(value, parsed.status());
    *out = static_cast<T>(*parsed);
    return absl::OkStatus();
  }
  return Wrong(value, parse("").status());
}

absl::Status ReadInt(const Value& value, int* out) {
  int64_t number = 0;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    number = *whole;
  } else if (absl::Status s = Read(value, ParseInteger, &number); !s.ok()) {
    return s;
  }
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) {
    return Wrong(value, absl::InvalidArgumentError("expected a whole number of 32 bits"));
  }
  *out = static_cast<int>(number);
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadBytes(const Value& value, T* out) {
  uint64_t number = 0;
  const auto* whole = std::get_if<int64_t>(&value);
  if (whole != nullptr && *whole >= 0) {
    number = static_cast<uint64_t>(*whole);
  } else if (whole != nullptr) {
    return Wrong(value, ParseBytes("").status());
  } else if (absl::Status s = Read(value, ParseBytes, &number); !s.ok()) {
    return s;
  }
  if constexpr (std::is_integral_v<T>) {  // a double holds them all
    if (number > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      return Wrong(value, absl::InvalidArgumentError("expected fewer bytes"));
    }
  }
  *out = static_cast<T>(number);
  return absl::OkStatus();
}

absl::Status ReadRate(const Value& value, double* out) { return Read(value, ParseRate, out); }
absl::Status ReadTime(const Value& value, double* out) { return Read(value, ParseSeconds, out); }

absl::Status ReadNumber(const Value& value, double* out) {
  if (const auto* number = std::get_if<double>(&value)) {
    *out = *number;
    return absl::OkStatus();
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    *out = static_cast<double>(*whole);
    return absl::OkStatus();
  }
  return Read(value, ParseNumber, out);
}

absl::Status ReadCount(const Value& value, uint32_t* out) {
  int number = 0;
  if (absl::Status s = ReadInt(value, &number); !s.ok()) return s;
  // sim::Check refuses what is too large.
  *out = number < 0 ? 0 : static_cast<uint32_t>(number);
  return absl::OkStatus();
}

absl::Status SetMethod(Description* d, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text != nullptr && *text == "auto") {
    d->method = sim::Method::kAuto;
  } else if (text != nullptr && *text == "executed") {
    d->method = sim::Method::kExecuted;
  } else if (text != nullptr && *text == "computed") {
    d->method = sim::Method::kComputed;
  } else {
    return Wrong(value, absl::InvalidArgumentError("expected auto, executed or computed"));
  }
  return absl::OkStatus();
}

absl::Status SetName(Description* d, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return Wrong(value, absl::InvalidArgumentError("expected text"));
  d->name = Printable(*text);
  return absl::OkStatus();
}

#define SHUNT_SIM_KEY(name, read, field, help)                                            \
  {                                                                                       \
    name, help, [](Description* d, const Value& v) { return read(v, &d->cluster.field); } \
  }

constexpr Key kKeys[] = {
    {"name", "what the cluster is called", SetName},
    SHUNT_SIM_KEY("nodes", ReadInt, nodes, "how many; 1 to 65535 (default 1)"),
    SHUNT_SIM_KEY("gpus", ReadInt, gpus, "of a node, or its processes (1)"),
    SHUNT_SIM_KEY("nvlink_domain", ReadInt, nvlink_domain,
                  "GPUs of an NVLink domain, in whole nodes or parts of one (those of a node)"),
    SHUNT_SIM_KEY("nvlink_rate", ReadRate, nvlink_bytes_per_s, "of a GPU, each direction"),
    SHUNT_SIM_KEY("nvlink_latency", ReadTime, nvlink_latency_s, "of a phase in a domain (0s)"),
    SHUNT_SIM_KEY("rails", ReadInt, rails, "links of a node to the network (1)"),
    SHUNT_SIM_KEY("rate", ReadRate, bytes_per_s, "of a rail, each direction"),
    SHUNT_SIM_KEY("efficiency", ReadNumber, efficiency,
                  "part of the rate that is not headers of TCP, IP and Ethernet (1)"),
    SHUNT_SIM_KEY("burst", ReadBytes, burst_bytes, "of a token bucket at both ends of a rail (0)"),
    SHUNT_SIM_KEY("burst_rate", ReadRate, burst_bytes_per_s, "at which a burst passes (no limit)"),
    SHUNT_SIM_KEY("latency", ReadTime, latency_s, "from node to node, one way (0s)"),
    SHUNT_SIM_KEY("message_overhead", ReadTime, message_s, "a rail's own time for a frame (0s)"),
    SHUNT_SIM_KEY("call_overhead", ReadTime, call_s, "a node's own time for an operation (0s)"),
    SHUNT_SIM_KEY("lost_after", ReadTime, lost_after_s, "silence that ends a connection (3s)"),
    SHUNT_SIM_KEY("slice", ReadBytes, slice_bytes, "least part of a block (256KiB)"),
    SHUNT_SIM_KEY("slices_max", ReadCount, slices_max, "of a block (4096)"),
    SHUNT_SIM_KEY("window", ReadCount, window, "slices under way at a time (4)"),
    SHUNT_SIM_KEY("frame", ReadBytes, piece_bytes,
                  "a message may be overtaken after so much (256KiB)"),
    SHUNT_SIM_KEY("eager", ReadBytes, eager_bytes, "messages up to here are sent unasked (64KiB)"),
    SHUNT_SIM_KEY("aggregators", ReadInt, aggregators, "further nodes that add for others (0)"),
    SHUNT_SIM_KEY("operations", ReadInt, operations,
                  "one after the other, the later half is measured (1)"),
    {"root", "rank that broadcast, reduce, gather and scatter begin or end at (0)",
     [](Description* d, const Value& v) { return ReadInt(v, &d->root); }},
    {"method", "auto, executed or computed (auto)", SetMethod},
};

#undef SHUNT_SIM_KEY

}  // namespace

std::string Show(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return absl::StrCat(*whole);
  if (const auto* number = std::get_if<double>(&value)) return absl::StrCat(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return absl::StrCat("\"", Printable(std::get<std::string>(value)), "\"");
}

absl::Span<const Key> Keys() { return kKeys; }

const Key* FindKey(std::string_view name) {
  for (const Key& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

absl::Status SetKinds(const std::vector<std::string>& names, Description* d) {
  d->kinds.clear();
  std::string all;
  for (const std::string& name : names) {
    all.clear();
    bool found = false;
    for (int i = 0; i < kOpKindCount && !found; ++i) {
      const auto kind = static_cast<OpKind>(i);
      // Those that a plan among nodes exists for.
      if (!Supports(Algorithm::kDirect, kind)) continue;
      const std::string word(Name(kind));
      absl::StrAppend(&all, all.empty() ? "" : ", ", word);
      if (word != name) continue;
      d->kinds.push_back(kind);
      found = true;
    }
    if (!found) return Wrong(name, absl::InvalidArgumentError("expected one of " + all));
  }
  return absl::OkStatus();
}

absl::Status SetAlgorithms(const std::vector<std::string>& names, Description* d) {
  d->algorithms.clear();
  for (const std::string& name : names) {
    const absl::StatusOr<Algorithm> algorithm = AlgorithmOf(Printable(name));
    if (!algorithm.ok())
      return absl::InvalidArgumentError(absl::StrCat("has ", algorithm.status().message()));
    d->algorithms.push_back(*algorithm);
  }
  return absl::OkStatus();
}

absl::Status SetSizes(const std::vector<Value>& values, Description* d) {
  d->sizes.clear();
  for (const Value& value : values) {
    uint64_t bytes = 0;
    if (absl::Status s = ReadBytes(value, &bytes); !s.ok()) return s;
    // A PiB: what is larger overflows on its way through a plan.
    if (bytes > uint64_t{1} << 50) {
      return Wrong(value, absl::InvalidArgumentError("expected at most 1024 TiB"));
    }
    d->sizes.push_back(bytes);
  }
  return absl::OkStatus();
}

absl::Status SetLinkKey(std::string_view key, const Value& value, sim::LinkChange* link) {
  if (key == "node") return ReadInt(value, &link->node);
  if (key == "rail") {
    if (absl::Status s = ReadInt(value, &link->rail); !s.ok()) return s;
    if (link->rail >= 0) return absl::OkStatus();
    return Wrong(value, absl::InvalidArgumentError("expected 0 or more"));
  }
  if (key == "rate") return ReadRate(value, &link->bytes_per_s);
  if (key == "down") {
    if (const auto* flag = std::get_if<bool>(&value)) {
      link->down = *flag;
      return absl::OkStatus();
    }
    return Wrong(value, absl::InvalidArgumentError("expected true or false"));
  }
  return absl::NotFoundError("node, rail, rate, down");
}

absl::Status SetFailureKey(std::string_view key, const Value& value, sim::Failure* failure) {
  if (key == "node") return ReadInt(value, &failure->node);
  if (key == "at") return ReadTime(value, &failure->at_s);
  if (key == "what") {
    const auto* text = std::get_if<std::string>(&value);
    const bool link = text != nullptr && *text == "link";
    if (!link && (text == nullptr || *text != "node")) {
      return Wrong(value, absl::InvalidArgumentError("expected \"node\" or \"link\""));
    }
    failure->what = link ? sim::Failure::What::kLink : sim::Failure::What::kNode;
    return absl::OkStatus();
  }
  return absl::NotFoundError("node, at, what");
}

absl::Status CheckDescription(const Description& d) {
  absl::Status status = sim::Check(d.cluster);
  if (status.ok()) return status;
  const std::string message(status.message());
  const auto at = d.set_at.find(message.substr(0, message.find_first_of(" .")));
  if (at == d.set_at.end()) return status;
  return absl::InvalidArgumentError(absl::StrCat(at->second, ": ", message));
}

}  // namespace shunt::tools
