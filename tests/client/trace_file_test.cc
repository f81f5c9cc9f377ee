// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/trace_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/kit/child.h"
#include "tests/kit/temp_dir.h"
#include "tests/kit/trace.h"

using rueda::client::TraceFile;
using rueda::kit::TempDir;
using rueda::kit::textOf;
using rueda::kit::traceOf;

namespace {

std::string element(size_t number, size_t bytes) {
  return "{\"n\":" + std::to_string(number) + ",\"x\":\"" + std::string(bytes, 'x') + "\"}";
}

}  // namespace

TEST_CASE("the file is valid JSON after every element, and holds them all") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  auto file = TraceFile::create(path);
  REQUIRE(file.isOk());
  CHECK(traceOf(path) == nlohmann::json::array());
  std::mt19937 random(Catch::rngSeed());
  for (size_t i = 0; i < 300; ++i) {
    REQUIRE(file.value().add({element(i, random() % 3900)}).isOk());
    const auto trace = traceOf(path);
    REQUIRE(trace.is_array());
    REQUIRE(trace.size() == i + 1);
    REQUIRE(trace.back()["n"] == i);
  }
  const size_t withRoom = textOf(path).size();
  REQUIRE(file.value().finish().isOk());
  CHECK(traceOf(path).size() == 300);
  CHECK(textOf(path).size() < withRoom);
  CHECK(textOf(path).substr(0, 3) == "[\n{");
  CHECK(textOf(path).back() == ']');
}

TEST_CASE("elements of every length around the end of a page fit") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  auto file = TraceFile::create(path);
  REQUIRE(file.isOk());
  size_t count = 0;
  for (size_t bytes = 0; bytes < 3900; bytes += 13) {
    REQUIRE(file.value().add({element(count, bytes), element(count + 1, 3900 - bytes)}).isOk());
    count += 2;
  }
  CHECK(traceOf(path).size() == count);
  CHECK(file.value().add({}).isOk());
  CHECK(file.value().finish().isOk());
  CHECK(traceOf(path).size() == count);
}

TEST_CASE("an element that is too long is left out") {
  const TempDir folder;
  auto file = TraceFile::create(folder.file("t.json"));
  REQUIRE(file.isOk());
  CHECK(file.value().add({element(0, 5000), element(1, 1)}).isOk());
  CHECK(traceOf(folder.file("t.json")).size() == 1);
}

TEST_CASE("a file that was there is replaced") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  std::ofstream(path) << std::string(1 << 20, '?');
  auto file = TraceFile::create(path);
  REQUIRE(file.isOk());
  CHECK(file.value().finish().isOk());
  CHECK(textOf(path) == "[\n]");
}

TEST_CASE("what cannot be written is named with its reason") {
  const TempDir folder;
  const auto refusal = [](const std::string& path) {
    return TraceFile::create(path).status().message();
  };
  CHECK_THAT(refusal(folder.file("no/t.json")),
             Catch::Contains("no/t.json") && Catch::Contains("No such file or directory"));
  CHECK_THAT(refusal(folder.path()), Catch::Contains("Is a directory"));
  CHECK_THAT(refusal("/dev/null"), Catch::Contains("it is no regular file"));
  REQUIRE(::mkfifo(folder.file("fifo").c_str(), 0600) == 0);
  CHECK_THAT(refusal(folder.file("fifo")), Catch::Contains("it is no regular file"));
}

TEST_CASE("where the disk is full the file ends in valid JSON") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{200 << 10, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto file = TraceFile::create(path);
  size_t added = 0;
  rueda::shm::Status status;
  while (file.isOk() && status.isOk() && added < 10000) {
    status = file.value().add({element(added, 100)});
    if (status.isOk()) ++added;
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  REQUIRE(file.isOk());
  CHECK(status.code() == rueda::shm::Code::kResourceExhausted);
  CHECK_THAT(status.message(), Catch::Contains(path) && Catch::Contains("File too large"));
  CHECK(added > 500);
  CHECK(traceOf(path).size() == added);
}

// It used to be emptied under the first one, and both wrote into it.
TEST_CASE("a file that another process writes is refused, and stays as it is") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  for (const size_t elements : {0, 100}) {  // With 100 the file has been replaced by a copy.
    rueda::kit::Child writer([&] {
      auto file = TraceFile::create(path);
      for (size_t i = 0; file.isOk() && i < elements; ++i)
        if (!file.value().add({element(i, 3000)}).isOk()) return 1;
      ::raise(SIGSTOP);
      return 0;
    });
    writer.awaitStop();
    const std::string before = textOf(path);
    REQUIRE(!before.empty());
    CHECK(TraceFile::create(path).status().message() ==
          "cannot write the timeline '" + path + "': another session writes it");
    CHECK(textOf(path) == before);
  }
  CHECK(TraceFile::create(path).isOk());  // The writers have been killed.
}

// A lock of the process did not keep out its other session, and went when anybody closed the file.
TEST_CASE(
    "a file that another session of the process writes is refused, also when it has been read") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  auto file = TraceFile::create(path);
  REQUIRE(file.isOk());
  for (size_t i = 0; i < 100; ++i) REQUIRE(file.value().add({element(i, 3000)}).isOk());
  CHECK(traceOf(path).size() == 100);
  CHECK_THAT(TraceFile::create(path).status().message(),
             Catch::Contains("another session writes it"));
  CHECK(traceOf(path).size() == 100);
}

TEST_CASE("children that were forked while it was written do not keep a file") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  std::unique_ptr<rueda::kit::Child> child;
  {
    auto file = TraceFile::create(path);
    REQUIRE(file.isOk());
    child = std::make_unique<rueda::kit::Child>([] {
      ::raise(SIGSTOP);
      return 0;
    });
    child->awaitStop();
    CHECK_FALSE(TraceFile::create(path).isOk());
  }
  CHECK(TraceFile::create(path).isOk());
}

TEST_CASE("a file is free when its writer was killed, also if the writer's children live on") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  {
    rueda::kit::Child writer([&] {
      auto file = TraceFile::create(path);
      if (!file.isOk() || !file.value().add({element(0, 10)}).isOk()) return 1;
      if (::fork() == 0) {
        std::ofstream(folder.file("child")) << ::getpid();
        ::pause();
      }
      ::raise(SIGSTOP);
      return 0;
    });
    writer.awaitStop();
    CHECK_FALSE(TraceFile::create(path).isOk());
  }
  pid_t child = 0;
  for (int look = 0; look < 1000 && child == 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream(folder.file("child")) >> child;
  }
  REQUIRE((child != 0 && ::kill(child, 0) == 0));
  CHECK(TraceFile::create(path).isOk());
  ::kill(child, SIGKILL);
}

TEST_CASE("a kill at any moment leaves valid JSON") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  std::mt19937 random(Catch::rngSeed());
  for (int round = 0; round < 25; ++round) {
    {
      std::ofstream(path) << "[]";
      rueda::kit::Child child([&] {
        auto file = TraceFile::create(path);
        for (size_t i = 0; file.isOk(); ++i) {
          std::vector<std::string> elements;
          for (size_t k = 0; k <= i % 60; ++k) elements.push_back(element(i, 17 * i % 3000));
          if (!file.value().add(elements).isOk()) return 1;
        }
        return 1;
      });
      // Not before the first room: making the file takes the old content away first.
      while (std::filesystem::file_size(path) < 4096) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    }
    REQUIRE(traceOf(path).is_array());
  }
}

TEST_CASE("a reader sees a growing file as it was or as it is") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  auto file = TraceFile::create(path);
  REQUIRE(file.isOk());
  std::atomic<bool> isOver{false};
  std::thread writer([&] {
    for (size_t i = 0; i < 2000; ++i) {
      (void)file.value().add({element(i, i % 1000)});
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    isOver = true;
  });
  size_t wrong = 0;
  while (!isOver) wrong += traceOf(path).is_array() ? 0 : 1;
  writer.join();
  CHECK(wrong <= 1);  // Half an element: the reader copied that very page meanwhile.
}

TEST_CASE("the file stays where it is, with its rights, and nothing beside it") {
  const TempDir folder;
  std::ofstream(folder.file("t.json")) << "old";
  ::chmod(folder.file("t.json").c_str(), 0640);
  std::filesystem::create_symlink(folder.file("t.json"), folder.file("link"));
  // What is in the way of a copy: the file grows in place then.
  const bool growsInPlace = GENERATE(false, true);
  const std::string next = folder.file("t.json." + std::to_string(::getpid()) + ".next");
  if (growsInPlace) std::ofstream(next) << "of somebody else";
  auto file = TraceFile::create(folder.file("link"));
  REQUIRE(file.isOk());
  for (size_t i = 0; i < 1000; ++i) REQUIRE(file.value().add({element(i, 300)}).isOk());
  REQUIRE(file.value().finish().isOk());
  CHECK(traceOf(folder.file("t.json")).size() == 1000);
  struct stat status {};
  ::lstat(folder.file("link").c_str(), &status);
  CHECK(S_ISLNK(status.st_mode));
  ::stat(folder.file("t.json").c_str(), &status);
  CHECK((status.st_mode & 0777) == 0640);
  if (growsInPlace)
    CHECK(textOf(next) == "of somebody else");
  else
    CHECK_FALSE(std::filesystem::exists(next));
}
