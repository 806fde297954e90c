// The records of all nodes: this daemon asks the others, and says which gave no answer.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/cluster/cluster.h"
#include "daemon/services.h"

namespace shunt::daemon {
namespace {

// Longer than a busy daemon takes, shorter than shuntctl waits; what may be asked for instead.
constexpr std::chrono::milliseconds kAnswerTimeout(4000);
constexpr uint32_t kAnswerTimeoutMinMs = 50, kAnswerTimeoutMaxMs = 8000;

// Answers that are awaited. Thread-safe.
struct Gathering {
  std::mutex mutex;
  v1::GetRecordsResponse response;
  size_t open = 0;
  Services::RecordsReply reply;

  void Answered(const std::function<void(v1::GetRecordsResponse*)>& add) {
    {
      const std::lock_guard lock(mutex);
      add(&response);
      if (--open != 0) return;
    }
    auto* const nodes = response.mutable_nodes();
    if (nodes->size() > 1) {
      std::sort(nodes->begin() + 1, nodes->end(),
                [](const auto& a, const auto& b) { return a.node() < b.node(); });
    }
    reply(std::move(response));
  }
};

}  // namespace

void Services::GetRecords(const Peer& peer, const v1::GetRecordsRequest& request,
                          RecordsReply reply) const {
  const Viewer viewer = ViewerOf(peer);
  const bool open_only = request.open_only();
  const bool alone = request.this_node_only();
  const auto timeout =
      request.answer_timeout_ms() == 0
          ? kAnswerTimeout
          : std::chrono::milliseconds(
                std::clamp(request.answer_timeout_ms(), kAnswerTimeoutMinMs, kAnswerTimeoutMaxMs));
  CollectRecords(
      viewer, open_only,
      [this, viewer, open_only, alone, timeout, reply = std::move(reply)](v1::NodeRecords own) {
        auto gathering = std::make_shared<Gathering>();
        gathering->reply = reply;
        *gathering->response.add_nodes() = std::move(own);
        if (alone || context_.operations->engine == nullptr) {
          return gathering->reply(std::move(gathering->response));
        }
        // The cluster is the loop's.
        context_.loop->Post([this, viewer, open_only, timeout, gathering] {
          cluster::Cluster* const cluster = context_.operations->cluster;
          if (cluster == nullptr) return gathering->reply(std::move(gathering->response));
          const std::vector<cluster::OtherNode> others = cluster->OtherNodes();
          if (others.empty()) return gathering->reply(std::move(gathering->response));
          gathering->open = others.size();
          for (const cluster::OtherNode& other : others) {
            // Who was never needed yet may be there.
            if (!other.up && !other.why.empty()) {
              gathering->Answered([&](v1::GetRecordsResponse* response) {
                v1::SilentNode* const silent = response->add_silent();
                silent->set_node(other.name);
                silent->set_why(other.why);
              });
              continue;
            }
            cluster->AskRecords(
                other.name, {viewer.uid, viewer.all, open_only}, timeout,
                [gathering, name = other.name](absl::StatusOr<v1::NodeRecords> records) {
                  gathering->Answered([&](v1::GetRecordsResponse* response) {
                    if (records.ok()) {
                      *response->add_nodes() = *std::move(records);
                      return;
                    }
                    v1::SilentNode* const silent = response->add_silent();
                    silent->set_node(name);
                    silent->set_why(std::string(records.status().message()));
                  });
                });
          }
        });
      });
}

}  // namespace shunt::daemon
