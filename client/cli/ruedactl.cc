// SPDX-License-Identifier: Apache-2.0

// ruedactl: what operators ask a ruedad. The argument table and the dispatch; nothing else.

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <string>

#include "client/cli/commands.h"
#include "shm/version.h"

namespace {

using rueda::cli::CommandOptions;
using rueda::cli::Streams;

constexpr char kFooter[] = R"(
Without --socket: the daemon at /run/rueda/status.sock, else every private daemon of this user;
--job picks the one that has the job, and --json needs one of them.

Exit codes:
  0  fine; health: healthy
  1  health: a part does not serve, a job failed or is (or may be) deadlocked, or no answer;
     others: no such job
  2  wrong arguments, or --json and several daemons to choose from
  3  cannot reach the daemon, it gives no answer, or the answer cannot be written)";

struct Command {
  const char* name;
  const char* description;
  int (*run)(const CommandOptions&, Streams);
};

constexpr Command kCommands[] = {
    {"status", "The daemon: version, memory, sessions, health, jobs", rueda::cli::runStatus},
    {"jobs", "Jobs with their ranks: pid, host, state, counters", rueda::cli::runJobs},
    {"pending", "Who is stuck: operations that wait, and the ranks they wait for",
     rueda::cli::runPending},
    {"health", "Whether every part serves and no job is stuck; see the exit codes",
     rueda::cli::runHealth},
    {"types", "Data types, and what an allreduce can do with each; needs no daemon",
     rueda::cli::runTypes},
};

void addOptions(CLI::App* app, CommandOptions* options, int64_t* timeoutMs) {
  app->set_version_flag("--version", rueda::shm::kVersion);
  app->add_flag("--json", options->json, "JSON for programs instead of text");
  app->add_option("--socket", options->socket,
                  "The daemon's socket (/path/rueda.sock, @name), its status socket, or host:port")
      ->envname("RUEDA_SOCKET");
  app->add_option("--job", options->job, "Only this job");
  app->add_option("--timeout", *timeoutMs, "Milliseconds to wait for an answer, default 2000")
      ->check(CLI::Range(1, 600000));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("ruedactl asks a running ruedad about its jobs and its health.", "ruedactl");
  CommandOptions options;
  int64_t timeoutMs = options.timeout.count();
  addOptions(&app, &options, &timeoutMs);
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();  // Options may follow the command.
  int (*run)(const CommandOptions&, Streams) = nullptr;
  for (const Command& command : kCommands) {
    app.add_subcommand(command.name, command.description)->callback([&run, &command] {
      run = command.run;
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "ruedactl: " << error.what() << "; see ruedactl --help\n";
    return rueda::cli::kExitUsage;
  }
  options.timeout = std::chrono::milliseconds(timeoutMs);
  const int code = run(options, {std::cout, std::cerr});
  if (std::cout.flush()) return code;
  std::cerr << "ruedactl: cannot write to standard output\n";
  return rueda::cli::kExitUnreachable;
}
