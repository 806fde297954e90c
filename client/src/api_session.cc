// The C interface's sessions, memory and communicators.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/error.h"
#include "client/src/handles.h"
#include "client/src/options.h"
#include "runtime/collectives/plan/net_plan.h"
#include "runtime/core/clock.h"
#include "runtime/core/types.h"
#include "runtime/core/utf8.h"

using shunt::client::Fail;
using shunt::client::Guarded;
using shunt::client::ReadOptions;
using shunt::client::Result;

namespace {

constexpr const char* kDefaultSocket = "/run/shunt/shuntd.sock";
constexpr int64_t kDefaultTimeoutNs = int64_t{60} * 1'000'000'000;

// The interface's numbers are those of the rest of Shunt.
static_assert(SHUNT_INT8 == static_cast<int>(shunt::DataType::kInt8));
static_assert(SHUNT_UINT8 == static_cast<int>(shunt::DataType::kUint8));
static_assert(SHUNT_INT32 == static_cast<int>(shunt::DataType::kInt32));
static_assert(SHUNT_UINT32 == static_cast<int>(shunt::DataType::kUint32));
static_assert(SHUNT_INT64 == static_cast<int>(shunt::DataType::kInt64));
static_assert(SHUNT_UINT64 == static_cast<int>(shunt::DataType::kUint64));
static_assert(SHUNT_FLOAT16 == static_cast<int>(shunt::DataType::kFloat16));
static_assert(SHUNT_BFLOAT16 == static_cast<int>(shunt::DataType::kBfloat16));
static_assert(SHUNT_FLOAT32 == static_cast<int>(shunt::DataType::kFloat32));
static_assert(SHUNT_FLOAT64 == static_cast<int>(shunt::DataType::kFloat64));
static_assert(SHUNT_FLOAT8_E4M3 == static_cast<int>(shunt::DataType::kFloat8E4M3));
static_assert(SHUNT_FLOAT8_E5M2 == static_cast<int>(shunt::DataType::kFloat8E5M2));
static_assert(SHUNT_SUM == static_cast<int>(shunt::Redop::kSum));
static_assert(SHUNT_PROD == static_cast<int>(shunt::Redop::kProd));
static_assert(SHUNT_MIN == static_cast<int>(shunt::Redop::kMin));
static_assert(SHUNT_MAX == static_cast<int>(shunt::Redop::kMax));
static_assert(SHUNT_AVG == static_cast<int>(shunt::Redop::kAvg));
static_assert(SHUNT_PREMUL_SUM == static_cast<int>(shunt::Redop::kPremulSum));
static_assert(SHUNT_INVALID_ARGUMENT == static_cast<int>(absl::StatusCode::kInvalidArgument));
static_assert(SHUNT_UNAUTHENTICATED == static_cast<int>(absl::StatusCode::kUnauthenticated));
static_assert(SHUNT_UNAVAILABLE == static_cast<int>(absl::StatusCode::kUnavailable));
static_assert(SHUNT_FOREVER == shunt::kNeverNs);

std::string FirstOf(const char* given, const char* variable, const char* otherwise) {
  if (given != nullptr) return given;
  const char* from_environment = std::getenv(variable);
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : otherwise;
}

absl::Status CheckSession(const shunt_session* session) {
  if (session == nullptr) return absl::InvalidArgumentError("session is null");
  return session->impl->CheckProcess();
}

absl::Status CheckComm(const shunt_comm* comm) {
  if (comm == nullptr) return absl::InvalidArgumentError("comm is null");
  return comm->impl->session().CheckProcess();
}

absl::StatusOr<int64_t> Timeout(const char* name, int64_t given_ns, int64_t default_ns) {
  if (given_ns < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", given_ns, ", expected 0 or more"));
  }
  return given_ns == 0 ? default_ns : given_ns;
}

absl::StatusOr<shunt::client::Communicator::Options> JoinOptions(const shunt_join_options* given) {
  if (given == nullptr) return absl::InvalidArgumentError("options is null");
  shunt_join_options o;
  if (absl::Status s = ReadOptions("shunt_join_options", sizeof(o), given, &o); !s.ok()) return s;
  if (o.name == nullptr) return absl::InvalidArgumentError("shunt_join_options.name is null");
  if (const size_t bytes = std::strlen(o.name); bytes < 1 || bytes > 128) {
    return absl::InvalidArgumentError(
        absl::StrCat("the communicator's name has ", bytes, " bytes, expected 1 to 128"));
  }
  for (const auto& [what, text] :
       {std::pair("name", o.name), std::pair("job", o.job), std::pair("algorithm", o.algorithm)}) {
    if (text != nullptr && !shunt::IsUtf8(text)) {
      return absl::InvalidArgumentError(absl::StrCat("shunt_join_options.", what, " is \"",
                                                     shunt::Printable(text),
                                                     "\", which is no UTF-8 text"));
    }
  }
  auto timeout = Timeout("shunt_join_options.timeout_ns", o.timeout_ns, kDefaultTimeoutNs);
  if (!timeout.ok()) return timeout.status();
  auto default_timeout =
      Timeout("shunt_join_options.default_timeout_ns", o.default_timeout_ns, kDefaultTimeoutNs);
  if (!default_timeout.ok()) return default_timeout.status();
  if (o.world_size < 1 || o.world_size > shunt::board::kMaxWorld) {
    return absl::InvalidArgumentError(
        absl::StrCat("world size ", o.world_size, ", expected 1 to ", shunt::board::kMaxWorld));
  }
  constexpr uint32_t kFlags = SHUNT_JOIN_DETERMINISTIC | SHUNT_JOIN_DEVICE;
  if ((o.flags & ~kFlags) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shunt_join_options.flags is ", o.flags, ", expected 0 or of ",
                     static_cast<int>(SHUNT_JOIN_DETERMINISTIC), " (SHUNT_JOIN_DETERMINISTIC) and ",
                     static_cast<int>(SHUNT_JOIN_DEVICE), " (SHUNT_JOIN_DEVICE)"));
  }
  std::string algorithm = FirstOf(o.algorithm, "SHUNT_ALGORITHM", "");
  if (!algorithm.empty()) {
    if (const auto known = shunt::AlgorithmOf(algorithm); !known.ok()) return known.status();
  }
  if (o.rank < 0 || o.rank >= o.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", o.rank, ", expected 0 to ", o.world_size - 1));
  }
  return shunt::client::Communicator::Options{
      .name = o.name,
      .job = FirstOf(o.job, "SHUNT_JOB", ""),
      .rank = o.rank,
      .world_size = o.world_size,
      .timeout_ns = *timeout,
      .default_timeout_ns = *default_timeout,
      .algorithm = std::move(algorithm),
      .deterministic = (o.flags & SHUNT_JOIN_DETERMINISTIC) != 0,
      .device = (o.flags & SHUNT_JOIN_DEVICE) != 0};
}

}  // namespace

extern "C" {

const char* shunt_version(void) { return SHUNT_VERSION; }

const char* shunt_last_error(void) { return shunt::client::LastError(); }

const char* shunt_code_name(int code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= 0 && code < static_cast<int>(std::size(kNames)) ? kNames[code] : "UNKNOWN";
}

int shunt_open(const shunt_open_options* options, shunt_session** session) {
  return Guarded([&]() -> int {
    if (session == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "session is null");
    *session = nullptr;
    shunt_open_options o;
    if (absl::Status s = ReadOptions("shunt_open_options", sizeof(o), options, &o); !s.ok())
      return Fail(s);
    auto opened = shunt::client::Session::Open(
        {.socket = FirstOf(o.socket, "SHUNT_SOCKET", kDefaultSocket),
         .name = o.name != nullptr ? o.name : program_invocation_short_name});
    if (!opened.ok()) return Fail(opened.status());
    *session = new shunt_session{*std::move(opened)};
    return SHUNT_OK;
  });
}

void shunt_close(shunt_session* session) {
  Guarded([&] {
    if (session == nullptr) return 0;
    if (!session->impl->InForkedChild()) session->impl->Close();
    delete session;
    return 0;
  });
}

uint64_t shunt_session_id(const shunt_session* session) {
  return session == nullptr ? 0 : session->impl->id();
}

int shunt_alloc(shunt_session* session, size_t bytes, void** pointer) {
  return Guarded([&]() -> int {
    if (pointer == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "pointer is null");
    *pointer = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    if (bytes == 0) {
      return Fail(absl::StatusCode::kInvalidArgument, "a region of 0 bytes, expected at least 1");
    }
    auto data = session->impl->Allocate(bytes);
    if (!data.ok()) return Fail(data.status());
    *pointer = *data;
    return SHUNT_OK;
  });
}

int shunt_free(shunt_session* session, void* pointer) {
  return Guarded([&]() -> int {
    absl::Status status = CheckSession(session);
    if (status.ok()) status = session->impl->Free(pointer);
    return Result(status);
  });
}

int shunt_region_id(shunt_session* session, const void* pointer, uint64_t* region_id) {
  return Guarded([&]() -> int {
    if (region_id == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "region_id is null");
    *region_id = 0;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    *region_id = session->impl->regions().Find(pointer, 1).region;
    if (*region_id == 0) return Fail(absl::StatusCode::kNotFound, "no region holds this pointer");
    return SHUNT_OK;
  });
}

int shunt_join(shunt_session* session, const shunt_join_options* options, shunt_comm** comm) {
  return Guarded([&]() -> int {
    if (comm == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "comm is null");
    *comm = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    auto join_options = JoinOptions(options);
    if (!join_options.ok()) return Fail(join_options.status());
    auto joined = shunt::client::Communicator::Join(session->impl, *join_options);
    if (!joined.ok()) return Fail(joined.status());
    *comm = new shunt_comm{*std::move(joined)};
    return SHUNT_OK;
  });
}

int shunt_split(shunt_comm* comm, int32_t color, int32_t key, int64_t timeout_ns,
                shunt_comm** out) {
  return Guarded([&]() -> int {
    if (out == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "out is null");
    *out = nullptr;
    if (absl::Status s = CheckComm(comm); !s.ok()) return Fail(s);
    if (comm->impl->OpenGroup() != nullptr) {
      return Fail(absl::StatusCode::kFailedPrecondition,
                  "this thread has a group open on this communicator: end it first");
    }
    auto timeout = Timeout("timeout_ns", timeout_ns, comm->impl->default_timeout_ns());
    if (!timeout.ok()) return Fail(timeout.status());
    auto split = comm->impl->Split(color, key, *timeout);
    if (!split.ok()) return Fail(split.status());
    if (*split != nullptr) *out = new shunt_comm{*std::move(split)};
    return SHUNT_OK;
  });
}

void shunt_leave(shunt_comm* comm) {
  Guarded([&] {
    if (comm == nullptr) return 0;
    if (!comm->impl->session().InForkedChild()) comm->impl->Leave();
    delete comm;
    return 0;
  });
}

int shunt_abort(shunt_comm* comm, const char* reason) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckComm(comm); !s.ok()) return Fail(s);
    comm->impl->Abort(reason == nullptr ? "no reason given" : reason);
    return SHUNT_OK;
  });
}

int32_t shunt_rank(const shunt_comm* comm) { return comm == nullptr ? -1 : comm->impl->rank(); }

int32_t shunt_world_size(const shunt_comm* comm) {
  return comm == nullptr ? -1 : comm->impl->world_size();
}

}  // extern "C"
