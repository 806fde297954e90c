#include "absl/strings/str_cat.h"
#include "daemon/services.h"
#include "runtime/core/status.h"

namespace shunt::daemon {

absl::StatusOr<std::shared_ptr<memory::Region>> Services::AllocateRegion(
    const SessionPtr& session, const v1::AllocateRegionRequest& request) {
  SHUNT_RETURN_IF_ERROR(CheckNotStopping());
  SHUNT_ASSIGN_OR_RETURN(std::shared_ptr<memory::Region> region,
                         context_.regions->Allocate(session->owner(), request.size_bytes()));
  // It may have ended meanwhile: then either EndSession or this frees the region.
  if (session->ended.load()) {
    context_.regions->Free(session->id, region->id()).IgnoreError();
    return absl::CancelledError("the session has ended");
  }
  return region;
}

absl::Status Services::FreeRegion(const SessionPtr& session, const v1::FreeRegionRequest& request) {
  if (context_.stores->Has(session->id, request.region_id())) {
    return context_.stores->Free(session->id, request.region_id());
  }
  if (context_.device_regions->Has(session->id, request.region_id())) {
    return context_.device_regions->Free(session->id, request.region_id());
  }
  std::vector<uint64_t> mapped_by;
  SHUNT_RETURN_IF_ERROR(context_.regions->Free(session->id, request.region_id(), &mapped_by));
  for (const uint64_t id : mapped_by) {
    if (const SessionPtr other = context_.sessions->Find(id)) other->RegionFreed();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<memory::Region>> Services::MapRegion(
    const SessionPtr& session, const v1::MapRegionRequest& request) {
  std::shared_ptr<memory::Region> region = context_.regions->FindAny(request.region_id());
  bool allowed = region != nullptr && region->owner().session == session->id;
  if (region != nullptr && !allowed) {
    std::vector<std::shared_ptr<Communicator>> communicators;
    {
      std::lock_guard lock(session->mutex);
      for (const auto& [id, membership] : session->memberships) {
        communicators.push_back(membership.communicator);
      }
    }
    for (const auto& communicator : communicators) {
      allowed = allowed || communicator->HasMember(region->owner().session);
    }
  }
  // The same answer for what isn't there and what isn't granted.
  if (!allowed) {
    return absl::NotFoundError(absl::StrCat("region ", request.region_id(),
                                            ": neither this session nor a fellow member of its "
                                            "communicators has such a region"));
  }
  if (region->owner().session != session->id)
    context_.regions->RecordMapping(region->id(), session->id);
  return region;
}

void Services::RegisterDevice(const SessionPtr& session, const v1::RegisterDeviceRequest& request,
                              ClientFd descriptor, RegisterDeviceReply reply) {
  if (absl::Status status = CheckNotStopping(); !status.ok()) return reply(status);
  DeviceRegions::Request asked;
  asked.device_uuid = request.device_uuid();
  asked.bytes = request.size_bytes();
  asked.ipc_handle = request.ipc_handle();
  asked.descriptor = std::move(descriptor);
  context_.device_regions->Register(session, std::move(asked),
                                    [reply = std::move(reply)](const absl::StatusOr<uint64_t>& id) {
                                      if (!id.ok()) return reply(id.status());
                                      v1::RegisterDeviceResponse response;
                                      response.set_region_id(*id);
                                      reply(response);
                                    });
}

v1::ListRegionsResponse Services::ListRegions(const SessionPtr& session) const {
  v1::ListRegionsResponse response;
  for (const std::shared_ptr<memory::Region>& region : context_.regions->List(session->id)) {
    v1::Region* out = response.add_regions();
    out->set_region_id(region->id());
    out->set_kind(v1::REGION_KIND_HOST_SHARED);
    out->set_size_bytes(region->bytes());
  }
  for (const std::shared_ptr<StoreRegion>& region : context_.stores->List(session->id)) {
    v1::Region* out = response.add_regions();
    out->set_region_id(region->id);
    out->set_kind(region->is_object ? v1::REGION_KIND_OBJECT : v1::REGION_KIND_FILE);
    out->set_size_bytes(region->bytes);
  }
  for (const std::shared_ptr<DeviceRegion>& region : context_.device_regions->List(session->id)) {
    v1::Region* out = response.add_regions();
    out->set_region_id(region->id);
    out->set_kind(v1::REGION_KIND_CUDA);
    out->set_size_bytes(region->bytes);
  }
  return response;
}

}  // namespace shunt::daemon
