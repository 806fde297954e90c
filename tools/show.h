// The commands that show something: each asks, prints a table or JSON, and gives the exit status.
#pragma once

#include <cstdint>
#include <string>

#include "tools/admin_client.h"
#include "tools/exit_code.h"
#include "tools/output.h"
#include "tools/terminal.h"

namespace shunt::tools {

struct Shown {
  AdminClient& client;
  bool json = false;
  Style style;
};

int Print(const std::string& text);
int Print(const Json& json);
// To stderr; the exit status that says what kind of failure it was.
int Fail(const AdminClient& client, const absl::Status& status);
// `words` is a usage error.
int FailUsage(const std::string& words);

// show_status.cc
int ShowStatus(const Shown& to);
int ShowSessions(const Shown& to);
int ShowCommunicators(const Shown& to);
int Explain(const Shown& to, const v1::ExplainRequest& request);
Table SessionTable(const v1::ListSessionsResponse& sessions);
Table CommunicatorTable(const v1::ListCommunicatorsResponse& communicators);

// show_links.cc: rates are those between two looks, `seconds` apart.
int ShowLinks(const Shown& to, double seconds);
int ShowTransfers(const Shown& to);
// What went over a link between two looks; 0 if it is another connection.
struct LinkRate {
  double sent = 0, received = 0;  // bytes per second
};
LinkRate RateOf(const v1::Link& before, const v1::Link& now, double seconds);
// Looks at all links again for the link of that node; a fresh one if it was not there.
LinkRate RateOf(const v1::ListLinksResponse& before, const v1::Link& now, double seconds);
Table LinkTable(const v1::ListLinksResponse& before, const v1::ListLinksResponse& now,
                double seconds);
Table TransferTable(const v1::ListTransfersResponse& transfers);

// show_topology.cc. `svg`: a file to draw into instead; empty: none.
int ShowTopology(const Shown& to, const std::string& svg, double seconds);

// top.cc: again and again on a terminal, or so many samples (0: for ever) one after the other.
int ShowTop(const Shown& to, double seconds, uint64_t samples);

// drain.cc: waits until the daemon says that it is drained.
int Drain(const Shown& to, bool undo, double grace_seconds);

int ShowDoctor(const Shown& to);

// For so long; false if a signal came. What is between two looks.
void Pause(double seconds);

}  // namespace shunt::tools
