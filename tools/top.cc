#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tools/show.h"

namespace shunt::tools {
namespace {

// What one look sees. Links are for root and the daemon's user; others see the rest.
struct Sample {
  std::chrono::steady_clock::time_point at;
  v1::GetStatusResponse status;
  v1::ListSessionsResponse sessions;
  v1::ListCommunicatorsResponse communicators;
  v1::ListTransfersResponse transfers;
  v1::ListLinksResponse links;
  v1::GetTopologyResponse topology;
};

absl::Status Look(AdminClient& client, Sample* sample) {
  sample->at = std::chrono::steady_clock::now();
  const auto take = [](auto answer, auto* to) {
    if (answer.ok()) *to = *std::move(answer);
    return answer.status();
  };
  absl::Status status = take(client.Status(), &sample->status);
  if (status.ok()) status = take(client.Sessions(), &sample->sessions);
  if (status.ok()) status = take(client.Communicators(), &sample->communicators);
  if (status.ok()) status = take(client.Transfers(), &sample->transfers);
  if (status.ok()) status = take(client.Topology(), &sample->topology);
  if (!status.ok()) return status;
  const absl::Status links = take(client.Links(), &sample->links);
  return absl::IsPermissionDenied(links) ? absl::OkStatus() : links;
}

struct Rates {
  double seconds = 0;
  double operations = 0, failed = 0;  // per second
  double sent = 0, received = 0;      // bytes per second, of all links
};

Rates RatesOf(const Sample& before, const Sample& now) {
  Rates rates;
  rates.seconds = std::chrono::duration<double>(now.at - before.at).count();
  // Another incarnation counts from nothing.
  const bool same = before.status.incarnation() == now.status.incarnation();
  const auto per_second = [&](uint64_t then, uint64_t counted) {
    return same && counted > then ? static_cast<double>(counted - then) / rates.seconds : 0;
  };
  rates.operations = per_second(before.status.operations_served(), now.status.operations_served());
  rates.failed = per_second(before.status.operations_failed(), now.status.operations_failed());
  for (const v1::Link& link : now.links.links()) {
    const LinkRate rate = RateOf(before.links, link, rates.seconds);
    rates.sent += rate.sent;
    rates.received += rate.received;
  }
  return rates;
}

std::string PageText(const Shown& to, const Sample& before, const Sample& now) {
  const Rates rates = RatesOf(before, now);
  const v1::GetStatusResponse& status = now.status;
  char operations[64];
  std::snprintf(operations, sizeof(operations), "%.1f/s, failed %.1f/s", rates.operations,
                rates.failed);
  const std::string state = status.stopping() ? "stopping" : status.state();
  std::string text =
      absl::StrCat(to.style.Bold(absl::StrCat("shuntd ", status.version(), " on ",
                                              Printable(now.topology.host()))),
                   ": ", to.style.State(state, state), ", up ", AgeText(status.uptime_seconds()),
                   ", pid ", status.pid(), "\n", "sessions ", status.sessions(), ", communicators ",
                   status.communicators(), " (busy ", status.communicators_busy(), "), transfers ",
                   status.transfers_in_flight(), ", memory ", SizeText(status.region_bytes()),
                   " of ", SizeText(status.memory_limit_bytes()), " (",
                   PartText(static_cast<double>(status.region_bytes()),
                            static_cast<double>(status.memory_limit_bytes())),
                   ")\n", "operations of the daemon ", operations, "; to other nodes ",
                   RateText(rates.sent), ", from them ", RateText(rates.received), "\n");
  const auto add = [&](const char* title, const Table& table) {
    if (!table.empty()) {
      absl::StrAppend(&text, "\n", to.style.Dim(title), "\n", table.Text(to.style));
    }
  };
  add("links", LinkTable(before.links, now.links, rates.seconds));
  add("transfers", TransferTable(now.transfers));
  v1::ListCommunicatorsResponse live;
  for (const v1::CommunicatorInfo& c : now.communicators.communicators()) {
    if (c.state() != "idle") *live.add_communicators() = c;
  }
  add("communicators", CommunicatorTable(live));
  v1::ListSessionsResponse sessions = now.sessions;
  std::stable_sort(sessions.mutable_sessions()->begin(), sessions.mutable_sessions()->end(),
                   [](const v1::SessionInfo& a, const v1::SessionInfo& b) {
                     if (a.operations_in_flight() != b.operations_in_flight()) {
                       return a.operations_in_flight() > b.operations_in_flight();
                     }
                     return a.region_bytes() > b.region_bytes();
                   });
  add("sessions", SessionTable(sessions));
  return text;
}

Json SampleJson(const Sample& before, const Sample& now) {
  const Rates rates = RatesOf(before, now);
  return Json::Object()
      .Add("seconds", rates.seconds)
      .Add("state", now.status.stopping() ? std::string("stopping") : now.status.state())
      .Add("sessions", now.status.sessions())
      .Add("communicators", now.status.communicators())
      .Add("communicators_busy", now.status.communicators_busy())
      .Add("transfers_in_flight", now.status.transfers_in_flight())
      .Add("region_bytes", now.status.region_bytes())
      .Add("memory_limit_bytes", now.status.memory_limit_bytes())
      .Add("operations_per_second", rates.operations)
      .Add("operations_failed_per_second", rates.failed)
      .Add("sent_bytes_per_second", rates.sent)
      .Add("received_bytes_per_second", rates.received);
}

}  // namespace

int ShowTop(const Shown& to, double seconds, uint64_t samples) {
  Sample before;
  if (const absl::Status s = Look(to.client, &before); !s.ok()) return Fail(to.client, s);
  std::optional<Screen> screen;
  if (StdoutIsTerminal() && !to.json && samples == 0) {
    screen.emplace();
    screen->Draw(PageText(to, before, before));
  }
  for (uint64_t taken = 0; samples == 0 || taken < samples; ++taken) {
    if (!screen.has_value()) {
      Pause(seconds);
    } else if (!screen->Wait(seconds)) {
      return kFine;
    }
    Sample now;
    if (const absl::Status s = Look(to.client, &now); !s.ok()) {
      screen.reset();  // first: the words are to stay on the terminal
      return Fail(to.client, s);
    }
    if (screen.has_value()) {
      screen->Draw(absl::StrCat(PageText(to, before, now), "\n", to.style.Dim("q: quit")));
    } else if (to.json) {
      Print(SampleJson(before, now));
    } else {
      Print(absl::StrCat(taken == 0 ? "" : "\n", PageText(to, before, now)));
    }
    if (std::fflush(stdout) != 0) return kFine;  // nobody reads any more
    before = std::move(now);
  }
  return kFine;
}

}  // namespace shunt::tools
