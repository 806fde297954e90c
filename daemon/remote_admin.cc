#include "daemon/remote_admin.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <shared_mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/log.h"
#include "runtime/core/utf8.h"
#include "shunt/v1/admin.grpc.pb.h"

namespace shunt::daemon {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

class Admin final : public RemoteAdmin, public v1::Admin::CallbackService {
 public:
  explicit Admin(std::vector<std::string> names) : names_(std::move(names)) {}

  void Open(Services* services) override {
    const std::unique_lock lock(mutex_);
    services_ = services;
  }
  void Close() override {
    const std::unique_lock lock(mutex_);
    services_ = nullptr;
  }
  grpc::Service* service() override { return this; }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest*,
                                      v1::GetStatusResponse* out) override {
    return Answer(context, [out](const Services& services, const Peer& peer) {
      *out = services.GetStatus(peer);
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest*,
                                         v1::ListSessionsResponse* out) override {
    return Answer(context, [out](const Services& services, const Peer& peer) {
      *out = services.ListSessions(peer);
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* ListCommunicators(grpc::CallbackServerContext* context,
                                              const v1::ListCommunicatorsRequest*,
                                              v1::ListCommunicatorsResponse* out) override {
    return Answer(context, [out](const Services& services, const Peer& peer) {
      *out = services.ListCommunicators(peer);
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context,
                                        const v1::GetTopologyRequest*,
                                        v1::GetTopologyResponse* out) override {
    return Answer(context, [out](const Services& services, const Peer&) {
      *out = services.GetTopology();
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const v1::ExplainRequest* request,
                                    v1::ExplainResponse* out) override {
    return Answer(context, [request, out](const Services& services, const Peer& peer) {
      return services.Explain(peer, *request, out);
    });
  }
  grpc::ServerUnaryReactor* ListLinks(grpc::CallbackServerContext* context,
                                      const v1::ListLinksRequest*,
                                      v1::ListLinksResponse* out) override {
    return Answer(context, [out](const Services& services, const Peer& peer) {
      absl::StatusOr<v1::ListLinksResponse> links = services.ListLinks(peer);
      if (links.ok()) *out = *std::move(links);
      return links.status();
    });
  }
  grpc::ServerUnaryReactor* ListTransfers(grpc::CallbackServerContext* context,
                                          const v1::ListTransfersRequest*,
                                          v1::ListTransfersResponse* out) override {
    return Answer(context, [out](const Services& services, const Peer& peer) {
      *out = services.ListTransfers(peer);
      return absl::OkStatus();
    });
  }
  // Its answer may come late or never, and every node of the cluster gives the same.
  grpc::ServerUnaryReactor* GetRecords(grpc::CallbackServerContext* context,
                                       const v1::GetRecordsRequest*,
                                       v1::GetRecordsResponse*) override {
    return Answer(context, [](const Services&, const Peer&) {
      return absl::FailedPreconditionError(
          "records are not served over the network; run shuntctl on a node, whose daemon asks the "
          "others");
    });
  }
  // What changes something; what is not here is answered with UNIMPLEMENTED.
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse*) override {
    return Answer(context, [](const Services&, const Peer&) {
      return absl::PermissionDeniedError(
          "over the network a daemon can be looked at, not drained; run shuntctl on its node");
    });
  }

 private:
  template <typename Ask>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const Ask& ask) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(Check(*context, ask)));
    return reactor;
  }

  template <typename Ask>
  absl::Status Check(const grpc::CallbackServerContext& context, const Ask& ask) {
    std::vector<std::string> shown;
    if (const auto auth = context.auth_context(); auth != nullptr && auth->IsPeerAuthenticated()) {
      for (const grpc::string_ref& name : auth->FindPropertyValues("x509_subject_alternative_name"))
        shown.emplace_back(name.data(), name.size());
    }
    const bool allowed = std::any_of(shown.begin(), shown.end(), [this](const std::string& name) {
      return std::find(names_.begin(), names_.end(), name) != names_.end();
    });
    if (!allowed) {
      return absl::PermissionDeniedError(
          absl::StrCat("this certificate is made out for ",
                       shown.empty() ? "nobody" : Printable(absl::StrJoin(shown, ", ")),
                       ", whom the daemon's admin.remote does not name"));
    }
    const std::shared_lock lock(mutex_);
    if (services_ == nullptr) return absl::UnavailableError("shuntd is starting or stopping");
    const Peer root;  // uid 0: it sees all
    return ask(*services_, root);
  }

  const std::vector<std::string> names_;
  std::shared_mutex mutex_;
  Services* services_ = nullptr;
};

}  // namespace

std::unique_ptr<RemoteAdmin> RemoteAdmin::Make(std::vector<std::string> names) {
  return std::make_unique<Admin>(std::move(names));
}

}  // namespace shunt::daemon
