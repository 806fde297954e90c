#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/admin_json.h"
#include "tools/show.h"

namespace shunt::tools {
namespace {

std::string NameOf(const v1::NodeStatus& node) {
  return Printable(node.name().empty() ? node.address() : node.name());
}

}  // namespace

void Pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

LinkRate RateOf(const v1::Link& before, const v1::Link& now, double seconds) {
  LinkRate rate;
  const auto per_second = [seconds](uint64_t then, uint64_t counted) {
    return counted > then && seconds > 0 ? static_cast<double>(counted - then) / seconds : 0;
  };
  if (before.connection() != now.connection() || !now.connected()) return rate;
  rate.sent = per_second(before.bytes_sent(), now.bytes_sent());
  rate.received = per_second(before.bytes_received(), now.bytes_received());
  return rate;
}

LinkRate RateOf(const v1::ListLinksResponse& before, const v1::Link& now, double seconds) {
  for (const v1::Link& link : before.links()) {
    if (link.node().name() == now.node().name() && link.node().address() == now.node().address()) {
      return RateOf(link, now, seconds);
    }
  }
  return {};
}

Table LinkTable(const v1::ListLinksResponse& before, const v1::ListLinksResponse& now,
                double seconds) {
  Table table({"NODE", "ROLE", "STATE", ">LATENCY", ">MEASURED", ">SENT", ">RECEIVED", ">OUT NOW",
               ">IN NOW", ">LOAD", "WHY"});
  for (const v1::Link& link : now.links()) {
    const v1::NodeStatus& node = link.node();
    const LinkRate rate = RateOf(before, link, seconds);
    const bool measured = link.bytes_per_second() != 0;
    const bool ever = link.connection() != 0;
    const std::string state =
        node.state() == "up" && !link.connected() ? "up, no data" : node.state();
    table.Add(
        {NameOf(node), node.role(), state,
         measured ? TimeText(1e-9 * static_cast<double>(link.latency_ns())) : "-",
         RateText(static_cast<double>(link.bytes_per_second())),
         ever ? SizeText(link.bytes_sent()) : "-", ever ? SizeText(link.bytes_received()) : "-",
         RateText(rate.sent), RateText(rate.received),
         PartText(std::max(rate.sent, rate.received), static_cast<double>(link.bytes_per_second())),
         Printable(node.why())});
  }
  return table;
}

int ShowLinks(const Shown& to, double seconds) {
  const auto before = to.client.Links();
  if (!before.ok()) return Fail(to.client, before.status());
  if (before->links().empty()) {
    return to.json ? Print(Json::List())
                   : Print("no links: the daemon is in no cluster, or alone in it\n");
  }
  const auto began = std::chrono::steady_clock::now();
  Pause(seconds);
  const auto now = to.client.Links();
  if (!now.ok()) return Fail(to.client, now.status());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!to.json) return Print(LinkTable(*before, *now, took.count()).Text(to.style));
  Json list = Json::List();
  for (v1::Link link : now->links()) {
    const LinkRate rate = RateOf(*before, link, took.count());
    link.set_sent_bytes_per_second_now(rate.sent);
    link.set_received_bytes_per_second_now(rate.received);
    list.Append(daemon::ToJson(link));
  }
  return Print(list);
}

Table TransferTable(const v1::ListTransfersResponse& transfers) {
  Table table({">SESSION", ">TRANSFER", "UID", "AGENT", "WITH", "ROUTE", "CLASS", ">BYTES", ">DONE",
               ">AGE"});
  for (const v1::TransferInfo& t : transfers.transfers()) {
    // A ring's numbers are its client's, and may be any.
    table.Add({t.session_id() == 0 ? "-" : absl::StrCat(t.session_id()),
               t.session_id() == 0 ? "-" : absl::StrCat(t.transfer_id()), absl::StrCat(t.uid()),
               t.agent().empty() ? "-" : Printable(t.agent()),
               t.other().empty() ? "itself" : Printable(t.other()), t.route(), t.service_class(),
               SizeText(t.bytes()),
               PartText(static_cast<double>(t.bytes_done()), static_cast<double>(t.bytes())),
               t.age_seconds() == 0 ? "-" : AgeText(t.age_seconds())});
  }
  return table;
}

int ShowTransfers(const Shown& to) {
  const auto response = to.client.Transfers();
  if (!response.ok()) return Fail(to.client, response.status());
  if (to.json) return Print(daemon::ListToJson(response->transfers()));
  return Print(response->transfers().empty() ? "no transfers in flight\n"
                                             : TransferTable(*response).Text(to.style));
}

}  // namespace shunt::tools
