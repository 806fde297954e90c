#include "daemon/liveness.h"

#include <catch2/catch.hpp>
#include <utility>

namespace shunt::daemon {
namespace {

using Names = std::vector<std::string>;

// A thread that takes work when the test says so.
struct Loop {
  std::vector<std::function<void()>> work;
  void Run() {
    for (const auto& f : std::exchange(work, {})) f();
  }
};

TEST_CASE("a thread that answers is not silent, one that does not is, until it answers") {
  Loop quick, stuck;
  Liveness liveness;
  liveness.Add("quick", [&](auto answer) { answer(); });
  liveness.Add("slow", [&](auto answer) { quick.work.push_back(std::move(answer)); });
  liveness.Add("stuck", [&](auto answer) { stuck.work.push_back(std::move(answer)); });
  CHECK(liveness.Silent().empty());  // asked just now
  quick.Run();
  CHECK(liveness.Silent() == Names{"stuck"});
  CHECK(liveness.Silent() == Names{"slow", "stuck"});
  quick.Run();
  stuck.Run();
  CHECK(liveness.Silent().empty());
}

TEST_CASE("questions do not pile up at a thread that is stuck") {
  Loop stuck;
  Liveness liveness;
  liveness.Add("stuck", [&](auto answer) { stuck.work.push_back(std::move(answer)); });
  for (int i = 0; i < 10; ++i) liveness.Silent();
  CHECK(stuck.work.size() == 1);
}

TEST_CASE("an answer may come when nobody asks any more") {
  Loop late;
  {
    Liveness liveness;
    liveness.Add("late", [&](auto answer) { late.work.push_back(std::move(answer)); });
    liveness.Silent();
  }
  late.Run();
}

}  // namespace
}  // namespace shunt::daemon
