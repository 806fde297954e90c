// Another node's records, and how its clock stands to this one's.
#include <utility>

#include "daemon/cluster/agent_caller.h"
#include "runtime/core/clock.h"

namespace shunt::cluster {
namespace {

// The fastest of these counts. The first may wait for a thread to wake.
constexpr size_t kClockQuestions = 8;

}  // namespace

struct AgentCaller::RecordsQuestion {
  std::string node;
  Cluster::RecordsQuery query;
  std::chrono::nanoseconds timeout;
  Cluster::RecordsDone done;
  uint64_t number = 0;
  std::vector<recorder::RoundTrip> trips;
};

void AgentCaller::AskRecords(const std::string& node, const Cluster::RecordsQuery& query,
                             std::chrono::nanoseconds timeout, Cluster::RecordsDone done) {
  auto asked =
      std::make_shared<RecordsQuestion>(RecordsQuestion{node, query, timeout, done, 0, {}});
  Begin(
      node, timeout,
      [this, asked](PeerClient*, uint64_t, uint64_t question) {
        asked->number = question;
        AskOn(asked);
      },
      [done](const absl::Status& status) { done(status); });
}

void AgentCaller::AskOn(std::shared_ptr<RecordsQuestion> asked) {
  const auto it = questions_.find(asked->number);
  if (it == questions_.end()) return;  // its time has passed
  PeerClient* const client = peers_->FindUp(asked->node) == nullptr
                                 ? nullptr
                                 : peers_->ClientOf(peers_->IdOf(asked->node, ""));
  if (client == nullptr) return End(asked->number, absl::UnavailableError("it is not connected"));
  if (asked->trips.size() < kClockQuestions) {
    const int64_t began = NowNs();
    return client->Ping({}, asked->timeout,
                        [this, asked, began](const absl::StatusOr<v1::PingResponse>& answer) {
                          if (!answer.ok()) return End(asked->number, answer.status());
                          asked->trips.push_back({began, answer->monotonic_ns(), NowNs()});
                          AskOn(asked);
                        });
  }
  v1::PeerRecordsRequest request;
  *request.mutable_caller() = Identity(*self_);
  request.set_uid(asked->query.uid);
  request.set_all(asked->query.all);
  request.set_open_only(asked->query.open_only);
  client->Records(request, asked->timeout,
                  [this, asked](absl::StatusOr<v1::PeerRecordsResponse> answer) {
                    if (!Take(asked->number)) return;
                    if (!answer.ok()) return asked->done(answer.status());
                    v1::NodeRecords records = std::move(*answer->mutable_records());
                    const recorder::ClockOffset clock = recorder::OffsetOf(asked->trips);
                    records.set_node(asked->node);
                    records.set_clock_offset_ns(clock.offset_ns);
                    records.set_clock_uncertainty_ns(static_cast<uint64_t>(clock.uncertainty_ns));
                    asked->done(std::move(records));
                  });
}

}  // namespace shunt::cluster
