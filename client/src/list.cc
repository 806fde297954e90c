#include "client/src/list.h"

#include <algorithm>
#include <utility>

#include "runtime/core/status.h"

namespace shunt::client {
namespace {

std::vector<uint64_t> RegionsOf(const std::vector<StridedSet>& sets) {
  std::vector<uint64_t> regions;
  regions.reserve(sets.size());
  for (const StridedSet& set : sets) regions.push_back(set.region_id);
  std::sort(regions.begin(), regions.end());
  regions.erase(std::unique(regions.begin(), regions.end()), regions.end());
  return regions;
}

template <typename Response>
absl::StatusOr<Response> Ask(Session& session, const LeaseRequest& request, const char* what) {
  SHUNT_ASSIGN_OR_RETURN(const LeaseConnection::Reply reply,
                         session.lease().Call(request, RequestDeadlineNs()));
  const auto* response = std::get_if<Response>(&reply.message.response);
  if (response == nullptr) {
    return absl::InternalError(std::string("shuntd's reply to ") + what + " has no list");
  }
  return *response;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const List>> List::Publish(const std::shared_ptr<Session>& session,
                                                          const PublishSection& request,
                                                          Files files) {
  std::shared_ptr<List> list(new List(session, Kind::kPublished));
  list->files_ = std::move(files);
  list->regions_ = RegionsOf(request.sets);
  SHUNT_ASSIGN_OR_RETURN(const auto published,
                         Ask<SectionPublished>(*session, request, "PublishSection"));
  list->info_ = published.list;
  list->version_ = published.version;
  return list;
}

absl::StatusOr<std::shared_ptr<const List>> List::Prepare(const std::shared_ptr<Session>& session,
                                                          const PrepareList& request, Files files) {
  std::shared_ptr<List> list(new List(session, Kind::kPrepared));
  list->files_ = std::move(files);
  list->regions_ = RegionsOf(request.sets);
  SHUNT_ASSIGN_OR_RETURN(const auto prepared, Ask<ListPrepared>(*session, request, "PrepareList"));
  list->info_ = prepared.list;
  return list;
}

absl::StatusOr<std::shared_ptr<const List>> List::Fetch(const std::shared_ptr<Session>& session,
                                                        const FetchSection& request) {
  std::shared_ptr<List> list(new List(session, Kind::kFetched));
  SHUNT_ASSIGN_OR_RETURN(auto fetched, Ask<SectionFetched>(*session, request, "FetchSection"));
  list->info_ = fetched.list;
  list->version_ = fetched.version;
  list->incarnation_ = fetched.incarnation;
  list->node_ = std::move(fetched.node);
  return list;
}

List::~List() {
  if (kind_ == Kind::kPublished || info_.list_id == 0 || session_->InForkedChild()) return;
  // If the daemon is gone, so is the list.
  (void)session_->lease().Call(ReleaseList{info_.list_id}, RequestDeadlineNs());
}

bool List::Names(uint64_t region_id) const {
  return std::binary_search(regions_.begin(), regions_.end(), region_id);
}

}  // namespace shunt::client
