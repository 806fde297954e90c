#include "daemon/cluster/agent_messages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/core/utf8.h"

namespace shunt::cluster {
namespace {

constexpr size_t kNameBytesMax = 255;
constexpr size_t kPayloadBytesMax = 1024;
constexpr size_t kWordsBytesMax = 512;

absl::Status CheckAgent(const char* what, const std::string& name) {
  if (name.size() <= kNameBytesMax && Printable(name) == name &&
      name.find_first_of("/@") == std::string::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, " \"", Printable(name.substr(0, kNameBytesMax)), "\" of ", name.size(),
      " bytes: expected at most ", kNameBytesMax, " printable ones without \"/\" and \"@\""));
}

absl::Status Wrong(const std::string& words) {
  return absl::InvalidArgumentError(absl::StrCat("its answer is wrong: ", words));
}

}  // namespace

void ToProto(const SectionQuery& query, v1::FetchPeerSectionRequest* out) {
  out->set_uid(query.uid);
  out->set_agent(query.agent);
  out->set_section(query.section);
  out->set_read(query.read);
  out->set_write(query.write);
  out->set_known_incarnation(query.known_incarnation);
  out->set_known_version(query.known_version);
}

absl::StatusOr<SectionQuery> FromProto(const v1::FetchPeerSectionRequest& in) {
  SHUNT_RETURN_IF_ERROR(CheckAgent("agent", in.agent()));
  if (in.section().size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("section name of ", in.section().size(),
                                                   " bytes, expected at most ", kNameBytesMax));
  }
  return SectionQuery{in.uid(),          in.agent(), in.section(),
                      in.read(),         in.write(), in.known_incarnation(),
                      in.known_version()};
}

void ToProto(SectionAnswer answer, v1::FetchPeerSectionResponse* out) {
  switch (answer.kind) {
    case SectionAnswer::Kind::kWhole:
      out->set_whole(std::move(answer.content));
      break;
    case SectionAnswer::Kind::kDelta:
      out->set_delta(std::move(answer.content));
      break;
    case SectionAnswer::Kind::kUnchanged:
      out->set_unchanged(true);
      break;
    case SectionAnswer::Kind::kNoSection:
      out->set_no_section(answer.content.substr(0, kWordsBytesMax));
      break;
  }
  out->set_agent_incarnation(answer.agent_incarnation);
  out->set_version(answer.version);
  out->set_read(answer.read);
  out->set_write(answer.write);
}

absl::StatusOr<SectionAnswer> FromProto(const v1::FetchPeerSectionResponse& in,
                                        const SectionQuery& query) {
  using Kind = SectionAnswer::Kind;
  SectionAnswer answer;
  answer.agent_incarnation = in.agent_incarnation();
  answer.version = in.version();
  answer.read = in.read();
  answer.write = in.write();
  switch (in.content_case()) {
    case v1::FetchPeerSectionResponse::kWhole:
      answer.kind = Kind::kWhole;
      answer.content = in.whole();
      break;
    case v1::FetchPeerSectionResponse::kDelta:
      answer.kind = Kind::kDelta;
      answer.content = in.delta();
      break;
    case v1::FetchPeerSectionResponse::kUnchanged:
      answer.kind = Kind::kUnchanged;
      break;
    case v1::FetchPeerSectionResponse::kNoSection:
      answer.kind = Kind::kNoSection;
      answer.content = Printable(in.no_section().substr(0, kWordsBytesMax));
      return answer;
    default:
      return Wrong("it holds neither a section nor why there is none");
  }
  if (query.section.empty()) return Wrong("it holds a section, and none was asked for");
  if (answer.agent_incarnation == 0 || answer.version == 0) {
    return Wrong(absl::StrCat("version ", answer.version, " of incarnation ",
                              answer.agent_incarnation, ", expected neither to be 0"));
  }
  const bool same_agent = answer.agent_incarnation == query.known_incarnation;
  if (answer.kind == Kind::kUnchanged && !(same_agent && answer.version == query.known_version)) {
    return Wrong(absl::StrCat("unchanged, but as version ", answer.version, " of incarnation ",
                              absl::Hex(answer.agent_incarnation), "; what is here is version ",
                              query.known_version, " of ", absl::Hex(query.known_incarnation)));
  }
  if (answer.kind == Kind::kDelta && !same_agent) {
    return Wrong(absl::StrCat("a change of incarnation ", absl::Hex(answer.agent_incarnation),
                              "; what is here is of ", absl::Hex(query.known_incarnation)));
  }
  if ((query.read && !answer.read) || (query.write && !answer.write)) {
    return Wrong("a section that may not be used as was asked");
  }
  return answer;
}

void ToProto(const AgentNotice& notice, v1::NotifyAgentRequest* out) {
  out->set_uid(notice.uid);
  out->set_agent(notice.agent);
  out->set_from(notice.from);
  out->set_payload(notice.payload);
}

absl::StatusOr<AgentNotice> FromProto(const v1::NotifyAgentRequest& in, const std::string& node) {
  SHUNT_RETURN_IF_ERROR(CheckAgent("agent", in.agent()));
  SHUNT_RETURN_IF_ERROR(CheckAgent("sender", in.from()));
  if (in.payload().size() > kPayloadBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("notification of ", in.payload().size(),
                                                   " bytes, expected at most ", kPayloadBytesMax));
  }
  return AgentNotice{in.uid(), in.agent(), absl::StrCat(in.from(), "@", node), in.payload()};
}

}  // namespace shunt::cluster
