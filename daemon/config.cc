// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>

#include "shm/version.h"

namespace rueda::daemon {
namespace {

using shm::Code;
using shm::Result;
using shm::Status;

constexpr char kBoolean[] = "0|1";

// One setting: how it is called everywhere, and how text becomes its value (false: not valid).
struct Setting {
  std::string name;  // flag --a-b, environment RUEDAD_A_B, file key a_b
  std::string type;  // As --help shows it.
  std::string help;
  std::function<bool(const std::string&, Config*)> set;
  std::function<std::string(const Config&)> show;
};

bool parseUnsigned(const std::string& text, uint64_t low, uint64_t high, uint64_t* value) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return false;
  if (text.size() > 19) return false;
  *value = std::stoull(text);
  return *value >= low && *value <= high;
}

template <typename T>
Setting number(const char* name, T Config::*field, uint64_t low, uint64_t high, const char* help) {
  const std::string range = " (" + std::to_string(low) + ".." + std::to_string(high) + ")";
  return {name, "NUMBER", help + range,
          [field, low, high](const std::string& text, Config* config) {
            uint64_t value = 0;
            if (!parseUnsigned(text, low, high, &value)) return false;
            config->*field = static_cast<T>(value);
            return true;
          },
          [field](const Config& config) { return std::to_string(config.*field); }};
}

Setting boolean(const char* name, bool Config::*field, const char* help) {
  return {name, kBoolean, help,
          [field](const std::string& text, Config* config) {
            if (text != "0" && text != "1" && text != "true" && text != "false") return false;
            config->*field = text == "1" || text == "true";
            return true;
          },
          [field](const Config& config) { return std::string(config.*field ? "1" : "0"); }};
}

Setting text(const char* name, std::string Config::*field, const char* help) {
  return {name, "TEXT", help,
          [field](const std::string& value, Config* config) {
            config->*field = value;
            return value.size() < 108;
          },
          [field](const Config& config) { return config.*field; }};
}

Setting logLevel() {
  static const std::vector<std::string> kNames = {"debug", "info", "warning", "error", "off"};
  return {"log-level", "LEVEL", "debug, info, warning, error or off",
          [](const std::string& value, Config* config) {
            for (size_t i = 0; i < kNames.size(); ++i)
              if (kNames[i] == value) config->logLevel = static_cast<base::LogLevel>(i);
            return std::find(kNames.begin(), kNames.end(), value) != kNames.end();
          },
          [](const Config& config) { return kNames[static_cast<size_t>(config.logLevel)]; }};
}

Setting lifeline() {
  return {"lifeline-fd", "NUMBER", "descriptor of a pipe; a private daemon ends when it closes",
          [](const std::string& value, Config* config) {
            uint64_t fd = 0;
            if (!parseUnsigned(value, 0, std::numeric_limits<int>::max(), &fd)) return false;
            config->lifelineFd = static_cast<int>(fd);
            return true;
          },
          [](const Config& config) { return std::to_string(config.lifelineFd); }};
}

const std::vector<Setting>& settings() {
  constexpr uint64_t kManyBytes = uint64_t{1} << 50;
  static const std::vector<Setting> kSettings = {
      text("socket", &Config::socket, "where clients connect: a path or @abstract-name"),
      text("status-tcp", &Config::statusTcp,
           "host:port of the gRPC status service beside its socket"),
      boolean("private", &Config::isPrivate, "serve only this user, end with the last client"),
      lifeline(),
      number("workers", &Config::workers, 0, 64, "reduction threads; 0: cores, at most 4"),
      number("max-sessions", &Config::maxSessions, 1, 4096, "clients at once"),
      number("max-sessions-per-uid", &Config::maxSessionsPerUid, 1, 4096, "clients of one user"),
      number("max-jobs-per-uid", &Config::maxJobsPerUid, 1, 1024, "jobs of one user"),
      number("max-bytes-per-uid", &Config::maxBytesPerUid, 0, kManyBytes,
             "bytes of shared memory of one user, boards of jobs included; 0: 80 % of memory"),
      number("handshake-timeout-ms", &Config::handshakeTimeoutMs, 50, 60000,
             "from connect to a complete hello"),
      number("drain-seconds", &Config::drainSeconds, 0, 3600, "how long SIGTERM waits for jobs"),
      number("stall-warn-ms", &Config::stallWarnMs, 100, 3600000,
             "log an operation that waits for ranks after this"),
      number("stall-shutdown-seconds", &Config::stallShutdownSeconds, 0, 1000000,
             "fail such an operation after this; 0: never"),
      number("fusion-bytes", &Config::fusionBytes, 0, kManyBytes,
             "largest fused operation; 0: off"),
      boolean("isolated", &Config::isolated, "ranks never map each other's memory"),
      logLevel(),
      boolean("log-journal", &Config::logJournal, "log lines without time stamps"),
  };
  return kSettings;
}

std::string envName(const std::string& flag) {
  std::string name = "RUEDAD_";
  for (const char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::string fileKey(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Status apply(const Setting& setting, const std::string& value, const std::string& from,
             Config* config) {
  if (setting.set(value, config)) return Status::ok();
  return {Code::kInvalidArgument, from + ": " + setting.name + " = '" + value + "' is not valid: " +
                                      setting.help + (setting.type == kBoolean ? " (0 or 1)" : "")};
}

Status applyFile(const std::string& path, Config* config) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::ParserException& error) {
    return {Code::kInvalidArgument, path + " line " + std::to_string(error.mark.line + 1) +
                                        " column " + std::to_string(error.mark.column + 1) + ": " +
                                        error.msg};
  } catch (const YAML::Exception& error) {
    return {Code::kInvalidArgument, path + ": " + error.what()};
  }
  if (root.IsNull()) return Status::ok();
  if (!root.IsMap()) return {Code::kInvalidArgument, path + ": must be 'name: value' lines"};
  for (const auto& entry : root) {
    const std::string where = path + " line " + std::to_string(entry.first.Mark().line + 1);
    if (!entry.first.IsScalar() || !entry.second.IsScalar())
      return {Code::kInvalidArgument, where + ": must be 'name: value'"};
    const auto key = entry.first.as<std::string>();
    const auto match = std::find_if(settings().begin(), settings().end(),
                                    [&key](const Setting& s) { return fileKey(s.name) == key; });
    if (match == settings().end())
      return {Code::kInvalidArgument, where + ": no setting is called '" + key + "'"};
    RUEDA_RETURN_IF_ERROR(apply(*match, entry.second.as<std::string>(), where, config));
  }
  return Status::ok();
}

Status validate(const Config& config) {
  if (config.socket.size() < 2)
    return {Code::kInvalidArgument, "socket = '" + config.socket + "' is too short"};
  if (config.lifelineFd >= 0 && !config.isPrivate)
    return {Code::kInvalidArgument, "lifeline-fd needs private = 1"};
  return Status::ok();
}

constexpr char kFooter[] =
    "Every setting is also read from the environment (RUEDAD_ and the name in capitals) and from\n"
    "the YAML file (name_with_underscores: value); a flag wins over the environment over the "
    "file.\n"
    "Exit codes: 0 normal end, 2 bad configuration, 3 another daemon has the socket, 4 the status\n"
    "port is in use, 5 the socket path cannot be used.";

}  // namespace

std::string Config::describe() const {
  std::string out;
  for (const Setting& setting : settings())
    out += setting.name + " = " + setting.show(*this) + "\n";
  return out;
}

Result<Config> parseConfig(const std::vector<std::string>& arguments, std::string* help) {
  Config config;
  CLI::App app("ruedad: sums the tensors of local training processes", "ruedad");
  app.footer(kFooter);
  std::vector<std::string> values(settings().size());
  std::vector<CLI::Option*> options;
  if (const char* file = std::getenv("RUEDAD_CONFIG")) config.file = file;
  app.set_version_flag("--version", shm::kVersion);
  app.add_option("--config", config.file, "YAML file with settings");
  app.add_flag("--check-config", config.checkOnly, "validate, print every setting, exit");
  for (size_t i = 0; i < settings().size(); ++i) {
    CLI::Option* option = app.add_option("--" + settings()[i].name, values[i], settings()[i].help);
    option->type_name(settings()[i].type);
    if (settings()[i].type == kBoolean) option->expected(0, 1);
    options.push_back(option);
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    *help = app.help();
    return config;
  } catch (const CLI::CallForVersion&) {
    *help = std::string(shm::kVersion) + "\n";
    return config;
  } catch (const CLI::ParseError& error) {
    return Status(Code::kInvalidArgument, std::string("command line: ") + error.what());
  }
  if (!config.file.empty()) RUEDA_RETURN_IF_ERROR(applyFile(config.file, &config));
  for (size_t i = 0; i < settings().size(); ++i) {
    const Setting& setting = settings()[i];
    const std::string env = envName(setting.name);
    if (const char* value = std::getenv(env.c_str()))
      RUEDA_RETURN_IF_ERROR(apply(setting, value, "environment " + env, &config));
    if (options[i]->count() > 0)
      RUEDA_RETURN_IF_ERROR(
          apply(setting, values[i].empty() ? "1" : values[i], "command line", &config));
  }
  RUEDA_RETURN_IF_ERROR(validate(config));
  return config;
}

}  // namespace rueda::daemon
