// The C interface's agents, sections and lists.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/src/error.h"
#include "client/src/options.h"
#include "client/src/transfer_handles.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

using shunt::client::CheckSession;
using shunt::client::Fail;
using shunt::client::File;
using shunt::client::Guarded;
using shunt::client::List;
using shunt::client::ReadOptions;
using shunt::client::Result;
using shunt::client::TextArgument;

namespace {

// A section has no more; the rest would not fit into a request either.
constexpr uint64_t kSetsMax = 1024;

struct Sets {
  std::vector<shunt::client::StridedSet> sets;
  List::Files files;
};

absl::Status ReadSet(const shunt_session& session, const shunt_set& given, uint64_t number,
                     Sets* out) {
  const auto wrong = [number](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("sets[", number, "]", words...));
  };
  if (given.dimensions > 3) return wrong(".dimensions is ", given.dimensions, ", expected 0 to 3");
  if (given.reserved != 0) return wrong(".reserved is ", given.reserved, ", expected 0");
  shunt::client::StridedSet set;
  set.length_bytes = given.bytes;
  if (given.file != nullptr) {
    const std::shared_ptr<File>& file = given.file->impl;
    if (given.pointer != nullptr) return wrong(": both a file and a pointer, expected one of them");
    if (&file->session() != session.impl.get()) {
      return wrong(".file is of session ", file->session().id(), ", expected one of session ",
                   session.impl->id());
    }
    SHUNT_RETURN_IF_ERROR(file->CheckOpen());
    set.region_id = file->region_id();
    set.offset_bytes = given.offset;
    if (out->files.empty() || out->files.back() != file) out->files.push_back(file);
  } else {
    if (given.offset != 0) return wrong(".offset is ", given.offset, ", expected 0 without a file");
    const auto place = session.impl->regions().Find(given.pointer, given.bytes);
    if (place.region == 0) {
      return wrong(": ", given.bytes, " bytes at 0x",
                   absl::Hex(reinterpret_cast<uintptr_t>(given.pointer)),
                   " lie in no region of this session, expected memory from shunt_alloc or "
                   "shunt_register");
    }
    set.region_id = place.region;
    set.offset_bytes = place.offset;
  }
  for (uint32_t d = 0; d < given.dimensions; ++d) {
    set.dimensions.push_back({given.dims[d].count, given.dims[d].stride_bytes});
  }
  out->sets.push_back(std::move(set));
  return absl::OkStatus();
}

absl::StatusOr<Sets> ReadSets(const shunt_session& session, const shunt_set* sets, uint64_t count) {
  if (sets == nullptr) return absl::InvalidArgumentError("sets is null");
  if (count < 1 || count > kSetsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("count is ", count, " sets, expected 1 to ", kSetsMax));
  }
  Sets read;
  for (uint64_t i = 0; i < count; ++i) {
    SHUNT_RETURN_IF_ERROR(ReadSet(session, sets[i], i, &read));
  }
  return read;
}

absl::StatusOr<shunt::client::PublishSection> ReadPublish(const shunt_session& session,
                                                          const char* name, const shunt_set* sets,
                                                          uint64_t count,
                                                          const shunt_publish_options* given,
                                                          List::Files* files) {
  shunt_publish_options o;
  SHUNT_RETURN_IF_ERROR(ReadOptions("shunt_publish_options", sizeof(o), given, &o));
  if (o.tenant_count > 0 && o.tenants == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shunt_publish_options.tenants is null, expected ", o.tenant_count, " user ids"));
  }
  shunt::client::PublishSection request;
  SHUNT_ASSIGN_OR_RETURN(request.name, TextArgument("name", name));
  SHUNT_ASSIGN_OR_RETURN(Sets read, ReadSets(session, sets, count));
  request.sets = std::move(read.sets);
  *files = std::move(read.files);
  request.access = o.access;
  if (o.tenant_count > 0) request.tenants.assign(o.tenants, o.tenants + o.tenant_count);
  return request;
}

int GiveList(absl::StatusOr<std::shared_ptr<const List>> made, shunt_list** list) {
  if (!made.ok()) return Fail(made.status());
  if (list != nullptr) *list = new shunt_list{*std::move(made)};
  return SHUNT_OK;
}

}  // namespace

namespace shunt::client {

absl::StatusOr<std::string> TextArgument(const char* name, const char* text, size_t bytes_max) {
  if (text == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, " is null"));
  if (const size_t bytes = ::strnlen(text, bytes_max + 1); bytes > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is longer than ", bytes_max, " bytes, which no name is"));
  }
  if (!IsUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is \"", Printable(text), "\", which is no UTF-8 text"));
  }
  return std::string(text);
}

}  // namespace shunt::client

extern "C" {

int shunt_agent_register(shunt_session* session, const char* name, uint64_t* incarnation) {
  return Guarded([&]() -> int {
    if (incarnation != nullptr) *incarnation = 0;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    auto text = TextArgument("name", name);
    if (!text.ok()) return Fail(text.status());
    const auto reply = session->impl->lease().Call(shunt::client::RegisterAgent{*std::move(text)},
                                                   shunt::client::RequestDeadlineNs());
    if (!reply.ok()) return Fail(reply.status());
    const auto* registered = std::get_if<shunt::client::AgentRegistered>(&reply->message.response);
    if (incarnation != nullptr && registered != nullptr) *incarnation = registered->incarnation;
    return SHUNT_OK;
  });
}

int shunt_section_publish(shunt_session* session, const char* name, const shunt_set* sets,
                          uint64_t count, const shunt_publish_options* options, shunt_list** list) {
  return Guarded([&]() -> int {
    if (list != nullptr) *list = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    List::Files files;
    const auto request = ReadPublish(*session, name, sets, count, options, &files);
    if (!request.ok()) return Fail(request.status());
    return GiveList(List::Publish(session->impl, *request, std::move(files)), list);
  });
}

int shunt_section_withdraw(shunt_session* session, const char* name) {
  return Guarded([&]() -> int {
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    auto text = TextArgument("name", name);
    if (!text.ok()) return Fail(text.status());
    return Result(session->impl->lease()
                      .Call(shunt::client::WithdrawSection{*std::move(text)},
                            shunt::client::RequestDeadlineNs())
                      .status());
  });
}

int shunt_section_fetch(shunt_session* session, const char* agent, const char* section,
                        shunt_access access, shunt_list** list) {
  return Guarded([&]() -> int {
    if (list == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "list is null");
    *list = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    auto agent_text = TextArgument("agent", agent);
    if (!agent_text.ok()) return Fail(agent_text.status());
    auto section_text = TextArgument("section", section);
    if (!section_text.ok()) return Fail(section_text.status());
    return GiveList(
        List::Fetch(session->impl, {*std::move(agent_text), *std::move(section_text), access}),
        list);
  });
}

int shunt_list_prepare(shunt_session* session, const shunt_set* sets, uint64_t count,
                       shunt_list** list) {
  return Guarded([&]() -> int {
    if (list == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "list is null");
    *list = nullptr;
    if (absl::Status s = CheckSession(session); !s.ok()) return Fail(s);
    auto read = ReadSets(*session, sets, count);
    if (!read.ok()) return Fail(read.status());
    return GiveList(List::Prepare(session->impl, {std::move(read->sets)}, std::move(read->files)),
                    list);
  });
}

int shunt_list_info(const shunt_list* list, shunt_list_facts* facts) {
  return Guarded([&]() -> int {
    if (list == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "list is null");
    if (facts == nullptr) return Fail(absl::StatusCode::kInvalidArgument, "facts is null");
    const List& l = *list->impl;
    return Result(shunt::client::FillStruct(
        "shunt_list_facts",
        shunt_list_facts{0, l.info().pieces, l.info().piece_bytes, l.info().bytes, l.version(),
                         l.incarnation(), l.node().c_str()},
        facts));
  });
}

void shunt_list_release(shunt_list* list) {
  Guarded([&] {
    delete list;
    return 0;
  });
}

}  // extern "C"
