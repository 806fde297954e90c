// The C++ interface of libshunt: header-only over the C one (shunt.h), which says what each call
// does. C++17; with C++20 there are overloads for std::span. Needs nothing but the standard
// library.
//
//   shunt::Session session;
//   shunt::Communicator comm = session.Join("train", rank, world_size);
//   shunt::Buffer<float> gradients = session.Allocate<float>(1 << 20);
//   comm.AllReduce(gradients.data(), gradients.data(), gradients.size());
//
// Errors are thrown as shunt::Error. Objects are movable owners: the last of a session's
// communicators, buffers, operations and of itself closes it. Threads as in shunt.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_span)
#include <span>
#endif

#include "shunt.h"

namespace shunt {

// A failed call: its code, and the words of shunt_last_error().
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& words)
      : std::runtime_error(std::string(shunt_code_name(code)) + ": " + words), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

inline void ThrowIfError(int code) {
  if (code != SHUNT_OK) throw Error(code, shunt_last_error());
}

// Elements of types that C++17 has no name for. Shunt reads and writes their bits.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Float8E4M3 {
  uint8_t bits;
};
struct Float8E5M2 {
  uint8_t bits;
};

// The data type of elements of type T.
template <typename T>
struct DataTypeOf;
#define SHUNT_DATA_TYPE(TYPE, VALUE)            \
  template <>                                   \
  struct DataTypeOf<TYPE> {                     \
    static constexpr shunt_dtype value = VALUE; \
  }
SHUNT_DATA_TYPE(int8_t, SHUNT_INT8);
SHUNT_DATA_TYPE(uint8_t, SHUNT_UINT8);
SHUNT_DATA_TYPE(int32_t, SHUNT_INT32);
SHUNT_DATA_TYPE(uint32_t, SHUNT_UINT32);
SHUNT_DATA_TYPE(int64_t, SHUNT_INT64);
SHUNT_DATA_TYPE(uint64_t, SHUNT_UINT64);
SHUNT_DATA_TYPE(Float16, SHUNT_FLOAT16);
SHUNT_DATA_TYPE(BFloat16, SHUNT_BFLOAT16);
SHUNT_DATA_TYPE(float, SHUNT_FLOAT32);
SHUNT_DATA_TYPE(double, SHUNT_FLOAT64);
SHUNT_DATA_TYPE(Float8E4M3, SHUNT_FLOAT8_E4M3);
SHUNT_DATA_TYPE(Float8E5M2, SHUNT_FLOAT8_E5M2);
#undef SHUNT_DATA_TYPE

// A CUDA stream for a call: a cudaStream_t or CUstream; Stream(nullptr) is the legacy default one.
struct Stream {
  explicit Stream(void* s) : handle(s) {}
  void* handle;
};

// A call's timeout (0: the communicator's default) and, for SHUNT_PREMUL_SUM, this rank's factor.
// With a stream the call takes effect there and returns at once; see SHUNT_CALL_STREAM.
struct CallOptions {
  std::chrono::nanoseconds timeout{0};
  const void* scalar = nullptr;
  std::optional<Stream> stream = {};
};

namespace internal {

// Owns a C handle; freed after the handles that hold it.
using SessionHandle = std::shared_ptr<shunt_session>;

struct Comm {
  Comm(SessionHandle s, shunt_comm* c) : session(std::move(s)), comm(c) {}
  ~Comm() { shunt_leave(comm); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  SessionHandle session;
  shunt_comm* comm;
};

}  // namespace internal

// An asynchronous call, or a group of them. Destroying it waits for its end.
class Operation {
 public:
  Operation() = default;
  Operation(Operation&& other) noexcept
      : comm_(std::move(other.comm_)), op_(std::exchange(other.op_, nullptr)) {}
  Operation& operator=(Operation&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(op_, other.op_);
    return *this;
  }
  ~Operation() { shunt_op_release(op_); }

  // True when it has ended well; throws if it has failed.
  bool Done() {
    int done = 0;
    ThrowIfError(shunt_op_poll(op_, &done));
    return done != 0;
  }
  // Until it has ended; throws if it fails. A timeout (0: the communicator's default) is a
  // DEADLINE_EXCEEDED too, and the operation goes on.
  void Wait(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) {
    ThrowIfError(shunt_op_wait(op_, timeout.count()));
  }
  // For poll() and friends; owned by this object.
  int Fd() {
    int fd = -1;
    ThrowIfError(shunt_op_fd(op_, &fd));
    return fd;
  }

 private:
  friend class Communicator;
  explicit Operation(std::shared_ptr<internal::Comm> comm) : comm_(std::move(comm)) {}

  std::shared_ptr<internal::Comm> comm_;
  shunt_op* op_ = nullptr;
};

class Communicator {
 public:
  int32_t rank() const { return shunt_rank(comm_->comm); }
  int32_t world_size() const { return shunt_world_size(comm_->comm); }
  shunt_comm* get() const { return comm_->comm; }

  // A communicator of the ranks with the same colour, ordered by (key, rank). Empty for a negative
  // colour.
  Communicator Split(int32_t color, int32_t key, std::chrono::nanoseconds timeout = {}) {
    shunt_comm* out = nullptr;
    ThrowIfError(shunt_split(get(), color, key, timeout.count(), &out));
    return out == nullptr ? Communicator() : Communicator(comm_->session, out);
  }
  void Abort(const std::string& reason) { ThrowIfError(shunt_abort(get(), reason.c_str())); }
  // Until all calls on streams have ended; throws the first failure. A timeout (0: the
  // communicator's default) is a DEADLINE_EXCEEDED, and they go on.
  void Sync(std::chrono::nanoseconds timeout = {}) {
    ThrowIfError(shunt_sync(get(), timeout.count()));
  }
  explicit operator bool() const { return comm_ != nullptr; }

  // Blocking calls. Counts are in elements, as in shunt.h.

  template <typename T>
  void AllReduce(const T* in, T* out, uint64_t count, shunt_redop redop = SHUNT_SUM,
                 CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_all_reduce(get(), in, out, count, DataTypeOf<T>::value, redop, call, op);
    });
  }
  template <typename T>
  void Reduce(const T* in, T* out, uint64_t count, int32_t root, shunt_redop redop = SHUNT_SUM,
              CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_reduce(get(), in, out, count, DataTypeOf<T>::value, redop, root, call, op);
    });
  }
  template <typename T>
  void Broadcast(const T* in, T* out, uint64_t count, int32_t root, CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_broadcast(get(), in, out, count, DataTypeOf<T>::value, root, call, op);
    });
  }
  template <typename T>
  void AllGather(const T* in, T* out, uint64_t count, CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_all_gather(get(), in, out, count, DataTypeOf<T>::value, call, op);
    });
  }
  template <typename T>
  void ReduceScatter(const T* in, T* out, uint64_t count, shunt_redop redop = SHUNT_SUM,
                     CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_reduce_scatter(get(), in, out, count, DataTypeOf<T>::value, redop, call, op);
    });
  }
  template <typename T>
  void AllToAll(const T* in, T* out, uint64_t count, CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_all_to_all(get(), in, out, count, DataTypeOf<T>::value, call, op);
    });
  }
  template <typename T>
  void AllToAllV(const T* in, const uint64_t* send_counts, const uint64_t* send_displs, T* out,
                 const uint64_t* recv_counts, const uint64_t* recv_displs,
                 CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_all_to_all_v(get(), in, send_counts, send_displs, out, recv_counts, recv_displs,
                                DataTypeOf<T>::value, call, op);
    });
  }
  template <typename T>
  void Gather(const T* in, T* out, uint64_t count, int32_t root, CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_gather(get(), in, out, count, DataTypeOf<T>::value, root, call, op);
    });
  }
  template <typename T>
  void Scatter(const T* in, T* out, uint64_t count, int32_t root, CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_scatter(get(), in, out, count, DataTypeOf<T>::value, root, call, op);
    });
  }
  template <typename T>
  void Send(const T* in, uint64_t count, int32_t peer, CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_send(get(), in, count, DataTypeOf<T>::value, peer, call, op);
    });
  }
  template <typename T>
  void Recv(T* out, uint64_t count, int32_t peer, CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) {
      return shunt_recv(get(), out, count, DataTypeOf<T>::value, peer, call, op);
    });
  }
  void Barrier(CallOptions options = {}) {
    Block(options, [&](auto* call, shunt_op** op) { return shunt_barrier(get(), call, op); });
  }

  // The same, returning at once: buffers belong to the operation until it is done.

  template <typename T>
  Operation AllReduceAsync(const T* in, T* out, uint64_t count, shunt_redop redop = SHUNT_SUM,
                           CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_all_reduce(get(), in, out, count, DataTypeOf<T>::value, redop, call, op);
    });
  }
  template <typename T>
  Operation ReduceAsync(const T* in, T* out, uint64_t count, int32_t root,
                        shunt_redop redop = SHUNT_SUM, CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_reduce(get(), in, out, count, DataTypeOf<T>::value, redop, root, call, op);
    });
  }
  template <typename T>
  Operation BroadcastAsync(const T* in, T* out, uint64_t count, int32_t root,
                           CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_broadcast(get(), in, out, count, DataTypeOf<T>::value, root, call, op);
    });
  }
  template <typename T>
  Operation AllGatherAsync(const T* in, T* out, uint64_t count, CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_all_gather(get(), in, out, count, DataTypeOf<T>::value, call, op);
    });
  }
  template <typename T>
  Operation ReduceScatterAsync(const T* in, T* out, uint64_t count, shunt_redop redop = SHUNT_SUM,
                               CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_reduce_scatter(get(), in, out, count, DataTypeOf<T>::value, redop, call, op);
    });
  }
  template <typename T>
  Operation AllToAllAsync(const T* in, T* out, uint64_t count, CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_all_to_all(get(), in, out, count, DataTypeOf<T>::value, call, op);
    });
  }
  template <typename T>
  Operation SendAsync(const T* in, uint64_t count, int32_t peer, CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_send(get(), in, count, DataTypeOf<T>::value, peer, call, op);
    });
  }
  template <typename T>
  Operation RecvAsync(T* out, uint64_t count, int32_t peer, CallOptions options = {}) {
    return Start(options, [&](auto* call, shunt_op** op) {
      return shunt_recv(get(), out, count, DataTypeOf<T>::value, peer, call, op);
    });
  }
  Operation BarrierAsync(CallOptions options = {}) {
    return Start(options,
                 [&](auto* call, shunt_op** op) { return shunt_barrier(get(), call, op); });
  }

  // The blocking calls that `body` makes on this communicator, submitted as one; none of them if it
  // throws.
  template <typename Body>
  void Group(Body&& body) {
    Collect(std::forward<Body>(body));
    ThrowIfError(shunt_group_end(get(), nullptr));
  }
  template <typename Body>
  Operation GroupAsync(Body&& body) {
    Collect(std::forward<Body>(body));
    Operation operation(comm_);
    ThrowIfError(shunt_group_end(get(), &operation.op_));
    return operation;
  }

#if defined(__cpp_lib_span)
  // Sizes from the spans, which must agree (INVALID_ARGUMENT).

  template <typename T>
  void AllReduce(std::span<const T> in, std::span<T> out, shunt_redop redop = SHUNT_SUM,
                 CallOptions options = {}) {
    CheckSizes("AllReduce", in.size(), out.size());
    AllReduce(in.data(), out.data(), out.size(), redop, options);
  }
  // In place.
  template <typename T>
  void AllReduce(std::span<T> data, shunt_redop redop = SHUNT_SUM, CallOptions options = {}) {
    AllReduce(data.data(), data.data(), data.size(), redop, options);
  }
  template <typename T>
  void Broadcast(std::span<T> data, int32_t root, CallOptions options = {}) {
    Broadcast(data.data(), data.data(), data.size(), root, options);
  }
  template <typename T>
  void AllGather(std::span<const T> in, std::span<T> out, CallOptions options = {}) {
    CheckSizes("AllGather", in.size() * static_cast<size_t>(world_size()), out.size());
    AllGather(in.data(), out.data(), in.size(), options);
  }
  template <typename T>
  void ReduceScatter(std::span<const T> in, std::span<T> out, shunt_redop redop = SHUNT_SUM,
                     CallOptions options = {}) {
    CheckSizes("ReduceScatter", in.size(), out.size() * static_cast<size_t>(world_size()));
    ReduceScatter(in.data(), out.data(), out.size(), redop, options);
  }
  template <typename T>
  void Send(std::span<const T> in, int32_t peer, CallOptions options = {}) {
    Send(in.data(), in.size(), peer, options);
  }
  template <typename T>
  void Recv(std::span<T> out, int32_t peer, CallOptions options = {}) {
    Recv(out.data(), out.size(), peer, options);
  }
#endif

 private:
  friend class Session;
  Communicator() = default;
  Communicator(internal::SessionHandle session, shunt_comm* comm)
      : comm_(std::make_shared<internal::Comm>(std::move(session), comm)) {}

  static shunt_call Convert(const CallOptions& options) {
    shunt_call call{};
    call.struct_size = sizeof(call);
    call.timeout_ns = options.timeout.count();
    call.scalar = options.scalar;
    if (options.stream) {
      call.flags = SHUNT_CALL_STREAM;
      call.stream = options.stream->handle;
    }
    return call;
  }
  template <typename Call>
  void Block(const CallOptions& options, Call&& make) {
    const shunt_call call = Convert(options);
    const bool plain = options.timeout.count() == 0 && options.scalar == nullptr && !options.stream;
    ThrowIfError(make(plain ? nullptr : &call, static_cast<shunt_op**>(nullptr)));
  }
  template <typename Call>
  Operation Start(const CallOptions& options, Call&& make) {
    const shunt_call call = Convert(options);
    Operation operation(comm_);
    ThrowIfError(make(&call, &operation.op_));
    return operation;
  }
  template <typename Body>
  void Collect(Body&& body) {
    ThrowIfError(shunt_group_begin(get()));
    try {
      std::forward<Body>(body)();
    } catch (...) {
      // A call that is refused makes the group submit nothing when it is closed.
      const shunt_call refused{};
      (void)shunt_barrier(get(), &refused, nullptr);
      (void)shunt_group_end(get(), nullptr);
      throw;
    }
  }
  static void CheckSizes(const char* what, size_t in, size_t out) {
    if (in != out) {
      throw Error(SHUNT_INVALID_ARGUMENT, std::string(what) + ": spans of " + std::to_string(in) +
                                              " and " + std::to_string(out) +
                                              " elements, expected equal sizes");
    }
  }

  std::shared_ptr<internal::Comm> comm_;
};

// Elements in a region of shared memory, zeroed: collectives on them need no copies.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  // An operation that still uses the memory keeps it until the session ends.
  ~Buffer() {
    if (data_ != nullptr) (void)shunt_free(session_.get(), data_);
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
#if defined(__cpp_lib_span)
  std::span<T> span() const { return {data_, size_}; }
#endif

 private:
  friend class Session;
  Buffer(internal::SessionHandle session, T* data, size_t size)
      : session_(std::move(session)), data_(data), size_(size) {}

  internal::SessionHandle session_;
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Elements in a GPU's memory, which only CUDA reaches: registered, and shareable with the daemon
// from everywhere.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  // An operation that still uses the memory keeps it until the session ends.
  ~DeviceBuffer() {
    if (data_ != nullptr) (void)shunt_free_device(session_.get(), data_);
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  friend class Session;
  DeviceBuffer(internal::SessionHandle session, T* data, size_t size)
      : session_(std::move(session)), data_(data), size_(size) {}

  internal::SessionHandle session_;
  T* data_ = nullptr;
  size_t size_ = 0;
};

class Agent;
class File;
namespace kv {
class Store;
}
struct Object;
struct CreateOptions;

class Session {
 public:
  struct Options {
    std::string socket;  // empty: $SHUNT_SOCKET, else the system's daemon
    std::string name;    // empty: the program's name
  };

  Session() : Session(Options{}) {}
  explicit Session(const Options& options) {
    shunt_open_options o{};
    o.struct_size = sizeof(o);
    o.socket = options.socket.empty() ? nullptr : options.socket.c_str();
    o.name = options.name.empty() ? nullptr : options.name.c_str();
    shunt_session* session = nullptr;
    ThrowIfError(shunt_open(&o, &session));
    session_ = internal::SessionHandle(session, shunt_close);
  }

  uint64_t id() const { return shunt_session_id(get()); }
  shunt_session* get() const { return session_.get(); }

  struct JoinOptions {
    std::string job;                              // empty: $SHUNT_JOB, else ""
    std::chrono::nanoseconds timeout{0};          // 0: 60 s
    std::chrono::nanoseconds default_timeout{0};  // of calls that name none; 0: 60 s
    std::string algorithm;       // between nodes; empty: $SHUNT_ALGORITHM, else the fastest
    bool deterministic = false;  // nothing that was measured decides how data meets
    bool device = false;         // buffers may be GPU memory; see SHUNT_JOIN_DEVICE
  };
  Communicator Join(const std::string& name, int32_t rank, int32_t world_size) {
    return Join(name, rank, world_size, JoinOptions{});
  }
  Communicator Join(const std::string& name, int32_t rank, int32_t world_size,
                    const JoinOptions& options) {
    shunt_join_options o{};
    o.struct_size = sizeof(o);
    o.name = name.c_str();
    o.job = options.job.empty() ? nullptr : options.job.c_str();
    o.rank = rank;
    o.world_size = world_size;
    o.timeout_ns = options.timeout.count();
    o.default_timeout_ns = options.default_timeout.count();
    o.algorithm = options.algorithm.empty() ? nullptr : options.algorithm.c_str();
    o.flags = (options.deterministic ? uint32_t{SHUNT_JOIN_DETERMINISTIC} : 0) |
              (options.device ? uint32_t{SHUNT_JOIN_DEVICE} : 0);
    shunt_comm* comm = nullptr;
    ThrowIfError(shunt_join(get(), &o, &comm));
    return Communicator(session_, comm);
  }

  template <typename T>
  Buffer<T> Allocate(size_t count) {
    if (count > SIZE_MAX / sizeof(T)) {
      throw Error(SHUNT_INVALID_ARGUMENT, "a buffer larger than the address space");
    }
    void* data = nullptr;
    ThrowIfError(shunt_alloc(get(), count * sizeof(T), &data));
    return Buffer<T>(session_, static_cast<T*>(data), count);
  }

  // `device`: the ordinal of this process.
  template <typename T>
  DeviceBuffer<T> AllocateDevice(size_t count, int32_t device) {
    if (count > SIZE_MAX / sizeof(T)) {
      throw Error(SHUNT_INVALID_ARGUMENT, "a buffer larger than the address space");
    }
    void* data = nullptr;
    ThrowIfError(shunt_alloc_device(get(), device, count * sizeof(T), &data));
    return DeviceBuffer<T>(session_, static_cast<T*>(data), count);
  }
  // The whole CUDA allocation that holds the pointer; see shunt_register.
  void Register(const void* pointer) { ThrowIfError(shunt_register(get(), pointer)); }
  void Deregister(const void* pointer) { ThrowIfError(shunt_deregister(get(), pointer)); }

  // Transfers (shunt/transfers.h). Takes `name`, by which other agents find this one's sections
  // until the session ends.
  inline shunt::Agent Agent(const std::string& name);

  // Files and objects (shunt/files.h). A descriptor stays the caller's. A timeout of 0 is 60 s.
  inline File OpenFile(int fd, shunt_access access = SHUNT_ACCESS_READ,
                       std::chrono::nanoseconds timeout = {});
  inline File OpenFile(const std::string& root, const std::string& path,
                       shunt_access access = SHUNT_ACCESS_READ,
                       std::chrono::nanoseconds timeout = {});
  inline File CreateFile(const std::string& root, const std::string& path, uint64_t bytes);
  inline File CreateFile(const std::string& root, const std::string& path, uint64_t bytes,
                         const CreateOptions& options);
  inline File OpenObject(const Object& object, std::chrono::nanoseconds timeout = {});
  inline File CreateObject(const Object& object, uint64_t bytes);
  inline File CreateObject(const Object& object, uint64_t bytes, const CreateOptions& options);

 private:
  friend class shunt::Agent;
  friend class kv::Store;
  internal::SessionHandle session_;
};

}  // namespace shunt

#include "shunt/files.h"      // IWYU pragma: export
#include "shunt/transfers.h"  // IWYU pragma: export
