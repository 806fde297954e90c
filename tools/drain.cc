#include <chrono>

#include "absl/strings/str_cat.h"
#include "tools/show.h"

namespace shunt::tools {
namespace {

constexpr double kLookSeconds = 0.1;
// What was cut off ends soon after; then it is said whether it has.
constexpr double kEndSeconds = 10;

std::string Running(const v1::GetStatusResponse& status) {
  return absl::StrCat(status.communicators_busy(), " communicators with a call under way, ",
                      status.transfers_in_flight(), " transfers in flight");
}

}  // namespace

int Drain(const Shown& to, bool undo, double grace_seconds) {
  v1::DrainRequest request;
  request.set_undo(undo);
  request.set_grace_ms(static_cast<uint64_t>(grace_seconds * 1e3));
  if (const absl::Status asked = to.client.Drain(request); !asked.ok()) {
    return Fail(to.client, asked);
  }
  const auto began = std::chrono::steady_clock::now();
  const auto passed = [began] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  v1::GetStatusResponse status;
  std::string said;
  double drained_at = -1;
  for (;;) {
    auto answer = to.client.Status();
    if (!answer.ok()) return Fail(to.client, answer.status());
    status = *std::move(answer);
    if (undo || status.state() == "serving" || status.stopping()) break;
    if (status.state() == "drained") {
      if (drained_at < 0) drained_at = passed();
      const bool over = status.transfers_in_flight() == 0 && status.communicators_busy() == 0;
      if (over || passed() - drained_at > kEndSeconds) break;
    }
    const std::string words = Running(status);
    if (!to.json && words != said && status.state() == "draining") {
      Print(absl::StrCat("draining: ", words, "; at most ", AgeText(status.drain_seconds_left()),
                         " more\n"));
      said = words;
    }
    Pause(kLookSeconds);
  }
  const bool quiet = status.transfers_in_flight() == 0 && status.communicators_busy() == 0;
  const bool fine = undo ? status.state() == "serving"
                         : status.state() == "drained" && quiet && !status.drain_cut_off();
  if (to.json) {
    Print(Json::Object()
              .Add("state", status.state())
              .Add("cut_off", status.drain_cut_off())
              .Add("communicators_busy", status.communicators_busy())
              .Add("transfers_in_flight", status.transfers_in_flight())
              .Add("waited_seconds", passed()));
  } else if (undo) {
    Print("the daemon takes up work again; jobs whose communicators were ended join again\n");
  } else if (status.state() == "serving") {
    Print("somebody else has taken the drain back: the daemon is at work\n");
  } else if (!quiet) {
    Print(absl::StrCat("drained, but something does not end: ", Running(status), "\n"));
  } else if (status.drain_cut_off()) {
    Print("drained: what still ran after the grace period was ended with an error\n");
  } else {
    Print("drained: nothing runs, and nothing new begins until `shuntctl drain --undo`\n");
  }
  return fine ? kFine : kTrouble;
}

}  // namespace shunt::tools
