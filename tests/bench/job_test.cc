// A driver and its ranks, with a library of one rank that can be told to misbehave.
#include "bench/harness/job.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>

#include "bench/harness/worker.h"

namespace shunt::bench {
namespace {

enum Behaviour { kCorrect, kFlipsABit, kWritesTooMuch, kSpoilsItsInput, kCannot, kFails, kDies };

// A world of one: every operation is a copy.
class LonelyBackend final : public Backend {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  absl::Status Prepare(const Call& call) override {
    call_ = call;
    if (call.variant == kCannot) return absl::UnimplementedError("no such thing");
    return absl::OkStatus();
  }
  bool Run() override {
    const size_t bytes = call_.problem.count * SizeOf(call_.problem.dtype);
    char* const in = static_cast<char*>(call_.input);
    char* const out = static_cast<char*>(call_.output);
    if (in != out) std::memcpy(out, in, bytes);
    if (call_.variant == kFlipsABit) out[0] ^= 1;
    if (call_.variant == kWritesTooMuch) out[bytes] ^= 1;
    if (call_.variant == kSpoilsItsInput) in[1] ^= 1;
    if (call_.variant == kDies) ::_exit(7);
    return call_.variant != kFails;
  }
  std::string LastError() const override { return "some words"; }

 private:
  Call call_;
};

std::unique_ptr<Job> StartLonely() {
  auto job = Job::Fork("lonely", 1, [](int, Control* control) {
    LonelyBackend backend;
    return ServeBenchmark(control, backend);
  });
  REQUIRE(job.ok());
  return *std::move(job);
}

Command CommandFor(Behaviour behaviour) {
  Command command;
  command.variant = behaviour;
  command.problem = MakeProblem(Operation::kAllReduce, DataType::kFloat32, 1, 4096);
  command.blocks = 2;
  command.block_ns = 200'000;
  return command;
}

TEST_CASE("a correct library is timed and found correct") {
  const auto job = StartLonely();
  for (const bool in_place : {false, true}) {
    Command command = CommandFor(kCorrect);
    command.in_place = in_place;
    const auto m = job->Run(command);
    REQUIRE(m.ok());
    CHECK(m->wrong == 0);
    CHECK(m->time_us > 0);
    CHECK(m->iterations > 1);
  }
  CHECK(job->Stop().ok());
}

TEST_CASE("every operation of a command is counted, warm-up and checks too") {
  const auto job = StartLonely();
  Command command = CommandFor(kCorrect);
  command.blocks = 0;
  command.check = true;
  for (int i = 0; i < 2; ++i) {  // each command from zero
    const auto checks = job->Run(command);
    REQUIRE(checks.ok());
    CHECK(checks->operations == 2);
  }
  command.blocks = 2;
  command.iterations = 13;
  const auto timed = job->Run(command);
  REQUIRE(timed.ok());
  CHECK(timed->operations > 2 + 2 * 13);
  CHECK(job->Stop().ok());
}

TEST_CASE("every kind of wrong result is counted") {
  const auto job = StartLonely();
  for (const Behaviour behaviour : {kFlipsABit, kWritesTooMuch, kSpoilsItsInput}) {
    INFO("behaviour " << behaviour);
    const auto m = job->Run(CommandFor(behaviour));
    REQUIRE(m.ok());
    CHECK(m->wrong > 0);
  }
  CHECK(job->Stop().ok());
}

TEST_CASE("an operation that the library lacks is unimplemented") {
  const auto m = StartLonely()->Run(CommandFor(kCannot));
  CHECK(absl::IsUnimplemented(m.status()));
}

TEST_CASE("a failing operation ends the run with the library's words") {
  const auto m = StartLonely()->Run(CommandFor(kFails));
  REQUIRE(!m.ok());
  CHECK(std::string(m.status().message()).find("some words") != std::string::npos);
}

TEST_CASE("a rank that dies ends the run and is named") {
  const auto m = StartLonely()->Run(CommandFor(kDies));
  REQUIRE(!m.ok());
  CHECK(std::string(m.status().message()).find("exited with code 7") != std::string::npos);
}

TEST_CASE("iterations can be fixed") {
  const auto job = StartLonely();
  Command command = CommandFor(kCorrect);
  command.iterations = 13;
  const auto m = job->Run(command);
  REQUIRE(m.ok());
  CHECK(m->iterations == 13);
  CHECK(job->Stop().ok());
}

TEST_CASE("a program that does not exist fails to start") {
  const auto job =
      Job::Start("ghost", 1, [](const std::string&) -> absl::StatusOr<std::vector<pid_t>> {
        const auto pid = SpawnProgram({"/no/such/program"});
        if (!pid.ok()) return pid.status();
        return std::vector<pid_t>{*pid};
      });
  REQUIRE(!job.ok());
  CHECK(std::string(job.status().message()).find("exited with code 127") != std::string::npos);
}

}  // namespace
}  // namespace shunt::bench
