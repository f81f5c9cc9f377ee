// SPDX-License-Identifier: Apache-2.0

// Runs the ruedactl program against a server in this process: output, exit codes, time bounds.

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/serve/grpc_server.h"
#include "daemon/serve/listen_socket.h"
#include "tests/serve/serve_kit.h"

namespace {

using namespace std::chrono_literals;
using rueda::flow::StateView;
using rueda::serve::GrpcServer;
using rueda::serve::GrpcServerOptions;
using rueda::serve::test::FakeEngine;
using rueda::serve::test::privateName;
using rueda::serve::test::stuckJobView;
using rueda::serve::test::TempDir;

struct Outcome {
  int code = -1;
  std::string text;  // Both streams.
};

// Runs `client/cli/ruedactl <arguments>` by the shell, with `environment` ("A=b ") in front.
Outcome ruedactl(const std::string& arguments, const std::string& environment = "") {
  const std::string command = environment + "client/cli/ruedactl " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    outcome.text.append(buffer, got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

// A daemon at @rueda-cli-<pid>, as far as operators see.
class Fixture {
 public:
  explicit Fixture(StateView view = stuckJobView(), const std::string& name = "cli")
      : socket("--socket @" + privateName(name)) {
    engine.set(std::move(view));
    GrpcServerOptions options;
    options.unixAddress = "unix-abstract:" + privateName(name) + ".status";
    options.tcpAddress = "127.0.0.1:0";
    options.snapshots.timeout = 100ms;
    options.snapshots.maxAge = 0ms;
    auto started = GrpcServer::start(engine, options);
    if (!started.isOk()) throw std::runtime_error(started.status().message());
    server = std::move(started).value();
  }
  const std::string socket;
  FakeEngine engine;
  std::unique_ptr<GrpcServer> server;
};

int lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("the table of data types needs no daemon") {
  const Outcome table = ruedactl("types --socket /nowhere/rueda.sock");
  CHECK(table.code == 0);
  CHECK_THAT(table.text, Catch::StartsWith("TYPE ") && Catch::Contains("\ncomplex64 "));
  const Outcome json = ruedactl("types --json");
  CHECK(json.code == 0);
  CHECK(nlohmann::json::parse(json.text).at("types").at(7).at("name") == "float32");
}

TEST_CASE("each command answers from the daemon's socket name") {
  Fixture fixture;
  const Outcome status = ruedactl("status " + fixture.socket);
  CHECK(status.code == 0);
  CHECK_THAT(status.text, Catch::StartsWith("ruedad 0.1.0, pid 321, up 2h 03m\n"));
  const Outcome jobs = ruedactl("jobs " + fixture.socket);
  CHECK(jobs.code == 0);
  CHECK_THAT(jobs.text, Catch::Contains("\njob train-7: running, generation 4\n"));
  const Outcome pending = ruedactl("pending " + fixture.socket);
  CHECK(pending.code == 0);
  CHECK_THAT(pending.text,
             Catch::StartsWith("job train-7 waits for rank 2 (pid 4702 on hostA, stopped)"));
  const Outcome health = ruedactl("health " + fixture.socket);
  CHECK(health.code == 0);
  CHECK_THAT(health.text, Catch::StartsWith("healthy\n"));
}

TEST_CASE("the daemon is found by RUEDA_SOCKET, by path and by TCP") {
  Fixture fixture;
  CHECK(ruedactl("status", "RUEDA_SOCKET=@" + privateName("cli") + " ").code == 0);
  const std::string port = std::to_string(fixture.server->tcpPort());
  CHECK(ruedactl("status --socket 127.0.0.1:" + port).code == 0);
  const std::string proxied = "http_proxy=http://127.0.0.1:9 grpc_proxy=http://127.0.0.1:9 ";
  CHECK(ruedactl("status --socket 127.0.0.1:" + port, proxied).code == 0);
  const TempDir dir;
  GrpcServerOptions options;
  options.unixAddress = "unix:" + dir.file("status.sock");
  const auto server = GrpcServer::start(fixture.engine, options);
  REQUIRE(server.isOk());
  CHECK(ruedactl("status --socket " + dir.file("rueda.sock")).code == 0);
}

TEST_CASE("--json is JSON in every command") {
  Fixture fixture;
  for (const char* command : {"status", "jobs", "pending", "health"}) {
    const Outcome outcome = ruedactl(std::string(command) + " --json " + fixture.socket);
    INFO(outcome.text);
    CHECK(outcome.code == 0);
    CHECK_FALSE(nlohmann::json::parse(outcome.text, nullptr, false).is_discarded());
  }
}

TEST_CASE("the job filter reaches the daemon") {
  Fixture fixture;
  CHECK(ruedactl("pending --job train-7 " + fixture.socket).code == 0);
  const Outcome none = ruedactl("pending --job nope " + fixture.socket);
  CHECK(none.code == 1);
  CHECK(none.text == "ruedactl: no job \"nope\"\n");
}

TEST_CASE("health exits with 1 when something is wrong") {
  StateView view = stuckJobView();
  SECTION("a part does not serve") {
    view.health[3].serving = false;
    view.health[3].reason = "no memory for segments";
  }
  SECTION("a job failed") { view.jobs[0].state = "failed"; }
  SECTION("a job is deadlocked") { view.jobs[0].deadlocked = true; }
  Fixture fixture(view);
  const Outcome outcome = ruedactl("health " + fixture.socket);
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.text, Catch::StartsWith("UNHEALTHY\n"));
  CHECK(ruedactl("status " + fixture.socket).code == 0);
}

TEST_CASE("without --socket every private daemon is asked, and --job picks one") {
  // Once any second private daemon of the user made all commands fail. Others may run here too.
  StateView view = stuckJobView();
  view.jobs[0].id = "only-" + privateName("b");
  Fixture first(stuckJobView(), "a");
  Fixture second(view, "b");
  const std::string nowhere = "env -u RUEDA_SOCKET ";
  const Outcome all = ruedactl("jobs", nowhere);
  CHECK(all.code == 0);
  CHECK_THAT(all.text, Catch::Contains("ruedad at @" + privateName("a") + "\nJOB"));
  CHECK_THAT(all.text, Catch::Contains("\n\nruedad at @" + privateName("b") + "\nJOB"));
  const std::string job = " --job " + view.jobs[0].id;
  const Outcome one = ruedactl("pending" + job, nowhere);
  CHECK(one.code == 0);
  CHECK_THAT(one.text, Catch::StartsWith("job only-"));
  CHECK(ruedactl("jobs --json" + job, nowhere).code == 0);
  const Outcome both = ruedactl("jobs --json", nowhere);
  CHECK(both.code == 2);
  CHECK_THAT(both.text, Catch::Contains("private daemons run; choose one with --socket: "));
  const Outcome none = ruedactl("jobs --job nowhere", nowhere);
  CHECK(none.code == 1);
  CHECK_THAT(none.text, Catch::Contains("private daemons has job \"nowhere\"\n"));
}

TEST_CASE("--version says the version") { CHECK(ruedactl("--version").text == "0.1.0\n"); }

TEST_CASE("wrong arguments exit with 2 and one line") {
  const std::string arguments =
      GENERATE(as<std::string>{}, "", "nonsense", "status --nonsense", "status --timeout 0",
               "status --timeout x", "status --socket nonsense", "status jobs");
  const Outcome outcome = ruedactl(arguments);
  CHECK(outcome.code == 2);
  CHECK(lines(outcome.text) == 1);
  CHECK_THAT(outcome.text, Catch::StartsWith("ruedactl: "));
}

TEST_CASE("--help documents the exit codes") {
  const Outcome outcome = ruedactl("--help");
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.text, Catch::Contains("\n  3  cannot reach the daemon"));
}

TEST_CASE("no daemon exits with 3 and one line that says what to do") {
  const TempDir dir;
  const std::string command = GENERATE(as<std::string>{}, "status", "jobs", "pending", "health");
  const Outcome outcome = ruedactl(command + " --socket " + dir.file("rueda.sock"));
  CHECK(outcome.code == 3);
  CHECK(outcome.text == "ruedactl: cannot reach ruedad at " + dir.file("status.sock") +
                            ": No such file or directory; is the rueda service running? "
                            "(systemctl status ruedad)\n");
  CHECK(ruedactl(command + " --socket 127.0.0.1:1").code == 3);
}

TEST_CASE("a stuck engine is unhealthy, and no answer for the other commands") {
  Fixture fixture;
  fixture.engine.setStuck(true);
  const Outcome health = ruedactl("health " + fixture.socket);
  CHECK(health.code == 1);
  CHECK_THAT(health.text, Catch::Contains("the engine did not answer within 100 ms"));
  CHECK(lines(health.text) == 1);
  CHECK(ruedactl("pending " + fixture.socket).code == 3);
}

TEST_CASE("a daemon that takes connections but says nothing ends with the timeout") {
  // Listens and never accepts, like a stopped process.
  const auto silent = rueda::serve::ListenSocket::unixSocket(
      "unix-abstract:" + privateName("silent") + ".status", 0660);
  REQUIRE(silent.isOk());
  const std::string rest = " --timeout 50 --socket @" + privateName("silent");
  CHECK(ruedactl("health" + rest).code == 1);
  const Outcome status = ruedactl("status" + rest);
  CHECK(status.code == 3);
  CHECK_THAT(status.text, Catch::Contains("does not answer within 50 ms"));
}

TEST_CASE("private daemons that say nothing cost one timeout, not one each") {
  std::vector<rueda::shm::Result<rueda::serve::ListenSocket>> silent;
  for (const char* name : {"a", "b", "c", "d"})
    silent.push_back(rueda::serve::ListenSocket::unixSocket(
        "unix-abstract:" + privateName(name) + ".status", 0660));
  Fixture answers(stuckJobView(), "e");
  const auto begin = std::chrono::steady_clock::now();
  const Outcome jobs = ruedactl("jobs --timeout 1500", "env -u RUEDA_SOCKET ");
  CHECK(std::chrono::steady_clock::now() - begin < 4s);
  CHECK(jobs.code == 3);
  for (const char* name : {"a", "b", "c", "d"})
    CHECK_THAT(jobs.text, Catch::Contains("ruedad at @" + privateName(name) +
                                          ".status does not answer within 1500 ms"));
  CHECK_THAT(jobs.text, Catch::Contains("\njob train-7: running"));
}

TEST_CASE("an answer that cannot be written is an error") {
  // A full disk once passed for success.
  Fixture fixture;
  const Outcome outcome = ruedactl("status " + fixture.socket + " 3>&1 >/dev/full 2>&3 #");
  CHECK(outcome.code == 3);
  CHECK(outcome.text == "ruedactl: cannot write to standard output\n");
}
