#include "runtime/transport/ucx/ucx_worker.h"

#include <ucp/api/ucp.h>

#include "absl/strings/str_cat.h"
#include "runtime/core/check.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::transport {
namespace {

ucp_context_h ContextOf(void* context) { return static_cast<ucp_context_h>(context); }
ucp_worker_h WorkerOf(void* worker) { return static_cast<ucp_worker_h>(worker); }

absl::Status FromUcs(ucs_status_t status, absl::string_view what) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  switch (status) {
    case UCS_OK:
      return absl::OkStatus();
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_NO_ELEM:
    case UCS_ERR_INVALID_ADDR:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case UCS_ERR_CANCELED:
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_REJECTED:
    case UCS_ERR_IO_ERROR:
      code = absl::StatusCode::kUnavailable;
      break;
    default:
      break;
  }
  return absl::Status(code, absl::StrCat(what, ": UCX says \"", ucs_status_string(status), "\""));
}

}  // namespace

// An endpoint, and whom to tell of its failure.
class UcxWorker::Endpoint {
 public:
  Endpoint(UcxWorker* owner, void* told) : worker(owner), context(told) {}
  UcxWorker* worker;
  void* context;
  ucp_ep_h ep = nullptr;
  bool closed = false;
};

// UCX's handles under our names.
struct UcxWorker::Memory {
  ucp_mem_h handle = nullptr;
};

struct UcxWorker::Callbacks {
  static ucs_status_t OnMessage(UcxWorker* self, Kind kind, const void* head, size_t head_bytes,
                                void* data, size_t bytes, const ucp_am_recv_param_t* param) {
    const bool offered = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    const bool kept =
        self->owner_->OnMessage(kind, {static_cast<const std::byte*>(head), head_bytes},
                                {static_cast<const std::byte*>(data), offered ? 0 : bytes},
                                offered ? static_cast<Offer*>(data) : nullptr, bytes);
    return offered && kept ? UCS_INPROGRESS : UCS_OK;
  }
  static ucs_status_t OnFrame(void* arg, const void* head, size_t head_bytes, void* data,
                              size_t bytes, const ucp_am_recv_param_t* param) {
    return OnMessage(static_cast<UcxWorker*>(arg), Kind::kFrame, head, head_bytes, data, bytes,
                     param);
  }
  static ucs_status_t OnWord(void* arg, const void* head, size_t head_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param) {
    return OnMessage(static_cast<UcxWorker*>(arg), Kind::kWord, head, head_bytes, data, bytes,
                     param);
  }
  static void OnSent(void* request, ucs_status_t status, void* arg) {
    auto* call = static_cast<Call*>(arg);
    ucp_request_free(request);
    --call->worker->unfinished_;
    call->worker->owner_->OnSent(call, FromUcs(status, "sending"));
  }
  static void OnFetched(void* request, ucs_status_t status, size_t /*bytes*/, void* arg) {
    auto* call = static_cast<Call*>(arg);
    ucp_request_free(request);
    --call->worker->unfinished_;
    call->worker->owner_->OnFetched(call, FromUcs(status, "fetching"));
  }
  static void OnFailed(void* arg, ucp_ep_h /*ep*/, ucs_status_t status) {
    auto* endpoint = static_cast<Endpoint*>(arg);
    if (endpoint->closed) return;
    endpoint->worker->owner_->OnFailed(endpoint->context, FromUcs(status, "the rail's endpoint"));
  }
  static void OnClosed(void* request, ucs_status_t /*status*/, void* arg) {
    auto* endpoint = static_cast<Endpoint*>(arg);
    --endpoint->worker->unfinished_;
    delete endpoint;
    ucp_request_free(request);
  }
};

UcxWorker::UcxWorker(Owner* owner) : owner_(owner) {}

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(const UcxOptions& options,
                                                             Owner* owner) {
  SHUNT_RETURN_IF_ERROR(CheckTransports(options.transports));
  std::unique_ptr<UcxWorker> worker(new UcxWorker(owner));
  SHUNT_RETURN_IF_ERROR(worker->Start(options));
  return worker;
}

absl::Status UcxWorker::Start(const UcxOptions& options) {
  ucp_config_t* read = nullptr;
  SHUNT_RETURN_IF_ERROR(
      FromUcs(ucp_config_read(nullptr, nullptr, &read), "reading UCX's configuration"));
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> config(read,
                                                                            &ucp_config_release);
  std::vector<std::pair<std::string, std::string>> settings = options.settings;
  // After the caller's: these are what the rest of the transport relies on. Reads by the receiver
  // only. No hooks into this process's mmap and munmap, which a cache of UCX's would need. No
  // keepalive of UCX's (we have heartbeats): it would bring a UD lane.
  settings.emplace_back("TLS", options.transports);
  settings.emplace_back("RNDV_SCHEME", "get_zcopy");
  settings.emplace_back("KEEPALIVE_INTERVAL", "inf");
  tells_failures_ = AreRdma(options.transports);
  if (tells_failures_) settings.emplace_back("REG_METHODS", "direct");
  if (!options.devices.empty()) settings.emplace_back("NET_DEVICES", options.devices);
  for (const auto& [name, value] : settings) {
    SHUNT_RETURN_IF_ERROR(FromUcs(ucp_config_modify(config.get(), name.c_str(), value.c_str()),
                                  absl::StrCat("UCX setting ", name, " = \"", value, "\"")));
  }

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  SHUNT_RETURN_IF_ERROR(FromUcs(ucp_init(&params, config.get(), &context),
                                absl::StrCat("UCX with ", options.transports)));
  context_ = context;

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  SHUNT_RETURN_IF_ERROR(
      FromUcs(ucp_worker_create(context, &worker_params, &worker), "making a UCX worker"));
  worker_ = worker;
  SHUNT_RETURN_IF_ERROR(FromUcs(ucp_worker_get_efd(worker, &fd_), "the UCX worker's descriptor"));

  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  SHUNT_RETURN_IF_ERROR(
      FromUcs(ucp_worker_get_address(worker, &address, &bytes), "the UCX worker's address"));
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker, address);

  for (const Kind kind : {Kind::kFrame, Kind::kWord}) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = static_cast<unsigned>(kind);
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = kind == Kind::kFrame ? &Callbacks::OnFrame : &Callbacks::OnWord;
    handler.arg = this;
    SHUNT_RETURN_IF_ERROR(
        FromUcs(ucp_worker_set_am_recv_handler(worker, &handler), "setting a UCX handler"));
  }
  return absl::OkStatus();
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) {
    const int64_t deadline_ns = NowNs() + 5'000'000'000;
    while (tells_failures_ && unfinished_ > 0 && NowNs() < deadline_ns) Progress();
    ucp_worker_destroy(WorkerOf(worker_));
  }
  if (context_ != nullptr) ucp_cleanup(ContextOf(context_));
}

bool UcxWorker::Arm() { return ucp_worker_arm(WorkerOf(worker_)) != UCS_ERR_BUSY; }
bool UcxWorker::Progress() { return ucp_worker_progress(WorkerOf(worker_)) != 0; }

absl::StatusOr<UcxWorker::Endpoint*> UcxWorker::Connect(const std::string& address, void* context) {
  auto endpoint = std::make_unique<Endpoint>(this, context);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = tells_failures_ ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = &Callbacks::OnFailed;
  params.err_handler.arg = endpoint.get();
  SHUNT_RETURN_IF_ERROR(
      FromUcs(ucp_ep_create(WorkerOf(worker_), &params, &endpoint->ep), "connecting the rail"));
  return endpoint.release();
}

void UcxWorker::Close(Endpoint* endpoint) {
  endpoint->closed = true;
  if (!tells_failures_) {
    closed_.emplace_back(endpoint);
    return;
  }
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = &Callbacks::OnClosed;
  param.user_data = endpoint;
  ++unfinished_;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint->ep, &param);
  if (UCS_PTR_IS_PTR(closing)) return;
  --unfinished_;
  delete endpoint;
}

absl::StatusOr<UcxWorker::Started> UcxWorker::Send(Endpoint* endpoint, Kind kind,
                                                   std::span<const std::byte> head,
                                                   std::span<const std::byte> payload,
                                                   const Memory* memory, bool fetch, Call* call) {
  call->worker = this;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = fetch ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &Callbacks::OnSent;
  param.user_data = call;
  if (memory != nullptr) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = memory->handle;
  }
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(endpoint->ep, static_cast<unsigned>(kind), head.data(), head.size(),
                      payload.data(), payload.size(), &param);
  if (UCS_PTR_IS_ERR(sent)) return FromUcs(UCS_PTR_STATUS(sent), "sending");
  if (!UCS_PTR_IS_PTR(sent)) return Started::kDone;
  ++unfinished_;
  return Started::kGoesOn;
}

absl::StatusOr<UcxWorker::Started> UcxWorker::Fetch(Offer* offer, std::span<std::byte> to,
                                                    const Memory* memory, Call* call) {
  call->worker = this;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.recv_am = &Callbacks::OnFetched;
  param.user_data = call;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  if (memory != nullptr) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = memory->handle;
  }
  const ucs_status_ptr_t fetched =
      ucp_am_recv_data_nbx(WorkerOf(worker_), offer, to.data(), to.size(), &param);
  if (UCS_PTR_IS_ERR(fetched)) return FromUcs(UCS_PTR_STATUS(fetched), "fetching");
  if (!UCS_PTR_IS_PTR(fetched)) return Started::kDone;
  ++unfinished_;
  return Started::kGoesOn;
}

void UcxWorker::Drop(Offer* offer) { ucp_am_data_release(WorkerOf(worker_), offer); }

UcxWorker::Memory* UcxWorker::Register(std::byte* at, size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = at;
  params.length = bytes;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  ucp_mem_h handle = nullptr;
  if (ucp_mem_map(ContextOf(context_), &params, &handle) != UCS_OK) return nullptr;
  return new Memory{handle};
}

void UcxWorker::Unregister(Memory* memory) {
  ucp_mem_unmap(ContextOf(context_), memory->handle);
  delete memory;
}

}  // namespace shunt::transport
