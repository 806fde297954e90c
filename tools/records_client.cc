#include "tools/records_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "shunt/v1/admin.grpc.pb.h"
#include "tools/admin_client.h"

namespace shunt::tools {
namespace {

// What the daemon waits for others, and then some.
constexpr auto kTimeout = std::chrono::seconds(20);
constexpr int kAnswerBytesMax = 1 << 30;

}  // namespace

absl::StatusOr<v1::GetRecordsResponse> AskRecords(const std::string& socket,
                                                  const v1::GetRecordsRequest& request) {
  // Its words on a daemon that is not there are the best.
  if (const auto status = AdminClient(socket).Status(); !status.ok()) return status.status();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  const auto stub = v1::Admin::NewStub(
      grpc::CreateCustomChannel("unix:" + std::filesystem::absolute(socket).string(),
                                grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  v1::GetRecordsResponse response;
  const grpc::Status status = stub->GetRecords(&context, request, &response);
  if (status.ok()) return response;
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(absl::StrCat(
        "the daemon at ", socket, " is older than this shuntctl and records nothing; restart it"));
  }
  return absl::Status(
      static_cast<absl::StatusCode>(status.error_code()),
      absl::StrCat("the daemon at ", socket, " did not answer: ", status.error_message()));
}

}  // namespace shunt::tools
