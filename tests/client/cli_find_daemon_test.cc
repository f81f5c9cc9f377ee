// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <fstream>

#include "client/cli/find_daemon.h"
#include "tests/serve/serve_kit.h"

namespace {

using namespace rueda::cli;
using rueda::serve::test::TempDir;
using rueda::shm::Code;
using Kind = StatusAddress::Kind;
using Names = std::vector<std::string>;

constexpr char kHeader[] = "Num       RefCount Protocol Flags    Type St Inode Path\n";

// One line as the kernel writes it: listening sockets have flag 0x10000.
std::string line(const std::string& path, bool listening = true) {
  return "0000000000000000: 00000002 00000000 " + std::string(listening ? "00010000" : "00000000") +
         " 0001 01 12345 " + path + "\n";
}

// A machine whose /proc/net/unix holds `sockets`, all of them usable, without a system daemon.
struct Machine {
  explicit Machine(const std::string& sockets) {
    options.systemSocket = dir.file("status.sock");
    options.procNetUnix = dir.file("unix");
    options.usable = [](const std::string&) { return true; };
    std::ofstream(options.procNetUnix) << kHeader << sockets;
  }
  TempDir dir;
  FindOptions options;
};

// The one daemon that is found.
std::string only(const FindOptions& options) {
  const auto found = findDaemons(options).value();
  return found.size() == 1 ? found[0].toString() : std::to_string(found.size()) + " daemons";
}

}  // namespace

TEST_CASE("the status address follows from what a user passes") {
  const auto of = [](const std::string& socket) { return statusAddressOf(socket).value(); };
  CHECK(of("/run/rueda/rueda.sock") == StatusAddress{Kind::kPath, "/run/rueda/status.sock"});
  CHECK(of("/run/rueda/status.sock") == StatusAddress{Kind::kPath, "/run/rueda/status.sock"});
  CHECK(of("./rueda.sock") == StatusAddress{Kind::kPath, "./status.sock"});
  CHECK(of("@rueda-x") == StatusAddress{Kind::kAbstract, "rueda-x.status"});
  CHECK(of("@rueda-x.status") == StatusAddress{Kind::kAbstract, "rueda-x.status"});
  CHECK(of("unix:/tmp/other") == StatusAddress{Kind::kPath, "/tmp/other"});
  CHECK(of("unix-abstract:other") == StatusAddress{Kind::kAbstract, "other"});
  CHECK(of("127.0.0.1:7707") == StatusAddress{Kind::kTcp, "127.0.0.1:7707"});
  CHECK(of("[::1]:7707") == StatusAddress{Kind::kTcp, "[::1]:7707"});
}

TEST_CASE("anything else is a usage error") {
  const std::string socket = GENERATE(as<std::string>{}, "", "@", "x", "host:", ":80", "host:8a",
                                      "unix:", "unix-abstract:");
  CHECK(statusAddressOf(socket).status().code() == Code::kInvalidArgument);
}

TEST_CASE("private daemons are the listening rueda sockets, each once") {
  const std::string text = kHeader + line("@rueda-b.status") + line("@rueda-b.status", false) +
                           line("@rueda-a.status") + line("@rueda-a.status") + line("@rueda-a") +
                           line("@rueda-gone.status", false) + line("/run/rueda-x.status") +
                           line("@other.status") + line("") + "garbage\n";
  CHECK(privateStatusSockets(text) == Names{"rueda-a.status", "rueda-b.status"});
  CHECK(privateStatusSockets("").empty());
}

TEST_CASE("the socket given wins over all others") {
  Machine machine(line("@rueda-a.status"));
  machine.options.socket = "@rueda-z";
  CHECK(only(machine.options) == "@rueda-z.status");
}

TEST_CASE("the system daemon comes before private ones") {
  Machine machine(line("@rueda-a.status"));
  std::ofstream(machine.options.systemSocket) << "";
  CHECK(only(machine.options) == machine.options.systemSocket);
}

TEST_CASE("the only private daemon of the caller is used") {
  Machine machine(line("@rueda-a.status") + line("@rueda-b.status"));
  machine.options.usable = [](const std::string& name) { return name == "rueda-b.status"; };
  CHECK(only(machine.options) == "@rueda-b.status");
}

TEST_CASE("several private daemons are all found, sorted") {
  Machine machine(line("@rueda-b.status") + line("@rueda-a.status"));
  const auto found = findDaemons(machine.options).value();
  REQUIRE(found.size() == 2);
  CHECK(found[0].daemonSocket() == "@rueda-a");
  CHECK(found[1].daemonSocket() == "@rueda-b");
  CHECK(severalRun(found).code() == Code::kInvalidArgument);
  CHECK(severalRun(found).message() ==
        "2 private daemons run; choose one with --socket: @rueda-a, @rueda-b");
}

TEST_CASE("too many daemons for one line are counted") {
  std::vector<StatusAddress> many;
  for (int i = 10; i < 22; ++i)
    many.push_back({StatusAddress::Kind::kAbstract, "rueda-" + std::to_string(i) + ".status"});
  CHECK_THAT(severalRun(many).message(), Catch::EndsWith("@rueda-18, @rueda-19 and 2 more"));
}

TEST_CASE("no daemon at all is said with where it was looked for") {
  Machine machine("");
  const bool unreadable = GENERATE(false, true);
  if (unreadable) machine.options.procNetUnix = "/nonexistent";
  const auto status = findDaemons(machine.options).status();
  CHECK(status.code() == Code::kUnavailable);
  CHECK(status.message() == "no ruedad found: " + machine.options.systemSocket +
                                " does not exist and no private daemon of yours runs");
}

TEST_CASE("connecting reports the system's reason") {
  const TempDir dir;
  CHECK(connectStatus({Kind::kPath, dir.file("none")}).status().message() ==
        "No such file or directory");
  CHECK(connectStatus({Kind::kAbstract, "rueda-nobody-listens.status"}).status().message() ==
        "Connection refused");
  CHECK(connectStatus({Kind::kPath, std::string(200, 'x')}).status().code() ==
        Code::kInvalidArgument);
}
