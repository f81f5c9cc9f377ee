// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/trace_events.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "client/cpp/trace_file.h"
#include "tests/kit/trace.h"

using nlohmann::json;
using rueda::client::TimedOperation;
using rueda::client::TraceEvents;
using rueda::client::TraceFile;
using rueda::shm::OpKind;
using Words = std::vector<std::string>;

namespace {

constexpr int64_t kBegin = 1000000;

// A sum of two ranks that came 10 and 20 us after the begin and ran from 40 to 50.
TimedOperation sum(const std::string& name) {
  TimedOperation op;
  op.name = name;
  op.isBlocking = true;
  op.shape = {3, 4};
  op.submitted = kBegin + 20000;
  op.arrivals = {{0, 0, kBegin + 20000}, {1, 0, kBegin + 10000}};
  op.times = {kBegin + 30000, kBegin + 30000, kBegin + 35000, kBegin + 40000, kBegin + 50000};
  op.ended = kBegin + 60000;
  return op;
}

json traceOf(const std::vector<std::string>& texts) {
  json trace = json::array();
  for (const std::string& text : texts) trace.push_back(json::parse(text));
  return trace;
}

json eventsOf(const TimedOperation& op, bool marksCycles = false) {
  TraceEvents events(kBegin, 123, marksCycles);
  return traceOf(events.of(op));
}

Words wordsOf(const TimedOperation& op) { return rueda::kit::wordsByName(eventsOf(op))[op.name]; }

}  // namespace

TEST_CASE("a trace begins with the moment that is 0 in it") {
  const TraceEvents events(kBegin, 1234567, false);
  CHECK(events.begin() == Words{"{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{"
                                "\"start_time_since_epoch_in_micros\":1234567}}"});
}

TEST_CASE("an operation is negotiated, waits, and runs, with its keys in their order") {
  TraceEvents events(kBegin, 0, false);
  CHECK(events.of(sum("allreduce.x")) ==
        Words{R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"allreduce.x"}})",
              R"({"name":"process_sort_index","ph":"M","pid":1,"args":{"sort_index":1}})",
              R"({"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":10,"pid":1})",
              R"({"ph":"X","name":"1","ts":10,"pid":1,"dur":0})",
              R"({"ph":"X","name":"0","ts":20,"pid":1,"dur":0})", R"({"ph":"E","ts":30,"pid":1})",
              R"({"ph":"B","name":"ALLREDUCE","ts":30,"pid":1})",
              R"({"ph":"B","name":"QUEUE","ts":30,"pid":1})", R"({"ph":"E","ts":40,"pid":1})",
              R"({"ph":"B","name":"SHM_ALLREDUCE","ts":40,"pid":1})",
              R"({"ph":"E","ts":50,"pid":1})",
              R"({"ph":"E","ts":50,"pid":1,"args":{"dtype":"float32","shape":"[3, 4]"}})"});
  CHECK(events.of(sum("allreduce.x")).size() == 10);
  CHECK(json::parse(events.of(sum("y"))[0])["pid"] == 2);
}

TEST_CASE("each kind has its names") {
  TimedOperation op = sum("t");
  const auto names = [&op] {
    Words found;
    for (const std::string& word : wordsOf(op))
      if (word[0] == 'B') found.push_back(word.substr(2));
    return found;
  };
  op.kind = OpKind::kBroadcast;
  CHECK(names() == Words{"NEGOTIATE_BROADCAST", "BROADCAST", "QUEUE", "SHM_BCAST"});
  op.kind = OpKind::kReducescatter;
  CHECK(names() == Words{"NEGOTIATE_REDUCESCATTER", "REDUCESCATTER", "QUEUE", "SHM_REDUCESCATTER"});
  op.kind = OpKind::kBarrier;
  CHECK(names() == Words{"NEGOTIATE_BARRIER", "BARRIER"});
  op.kind = OpKind::kJoin;
  CHECK(names() == Words{"NEGOTIATE_JOIN", "JOIN"});
  op.kind = OpKind::kAddSet;
  CHECK(names() == Words{"NEGOTIATE_ADD_PROCESS_SET", "ADD_PROCESS_SET"});
  op.copyBegin = op.copyEnd = kBegin + 70000;
  op.kind = OpKind::kAllgather;
  CHECK(names() == Words{"NEGOTIATE_ALLGATHER", "ALLGATHER", "COPY_ALLGATHER_OUTPUT"});
  op.kind = OpKind::kAlltoall;
  CHECK(names() == Words{"NEGOTIATE_ALLTOALL", "ALLTOALL", "SHM_ALLTOALL"});
  op.kind = OpKind::kAllreduce;
  op.isAdasum = true;
  CHECK(names() == Words{"NEGOTIATE_ADASUM", "ADASUM", "QUEUE", "SHM_ADASUM_ALLREDUCE",
                         "MEMCPY_OUT_SHARED_BUFFER"});
}

TEST_CASE("one of a group waits for the others of it") {
  TimedOperation op = sum("t");
  op.times.complete -= 5000;
  const json trace = eventsOf(op);
  const Words words = rueda::kit::wordsByName(trace)["t"];
  CHECK(words[4] == "B ALLREDUCE");
  CHECK(words[5] == "B WAIT_FOR_OTHER_TENSOR_DATA");
  CHECK(rueda::kit::nestingProblem(trace) == "");
}

TEST_CASE("a result that is fetched later is copied after the operation") {
  TimedOperation op = sum("t");
  op.copyBegin = kBegin + 80000;
  op.copyEnd = kBegin + 90000;
  CHECK(wordsOf(op).back() == "E");
  CHECK(eventsOf(op).back().contains("args"));
  op.isBlocking = false;
  CHECK(eventsOf(op).back() == json{{"ph", "E"}, {"ts", 90}, {"pid", 1}});
}

TEST_CASE("one that fails says why, and never runs") {
  TimedOperation op = sum("t");
  op.error = "ranks \"disagree\"";
  op.times.started = op.times.ended = 0;
  CHECK(wordsOf(op) == Words{"B NEGOTIATE_ALLREDUCE", "X 1", "X 0", "E"});
  CHECK(eventsOf(op).back()["args"] == json{{"error", "ranks \"disagree\""}});
  op.arrivals.clear();
  CHECK(wordsOf(op) == Words{"B NEGOTIATE_ALLREDUCE", "X 0", "E"});
  CHECK(eventsOf(op).back()["ts"] == 60);
}

TEST_CASE("time never goes back, neither before the begin nor in one name") {
  TraceEvents events(kBegin, 0, false);
  TimedOperation op = sum("t");
  op.arrivals[1].submitted = 5;
  auto texts = events.of(op);
  op.arrivals[0].submitted += 10000;  // The other came while the first one's result was copied.
  for (std::string& text : events.of(op)) texts.push_back(std::move(text));
  const json trace = traceOf(texts);
  CHECK(rueda::kit::nestingProblem(trace) == "");
  CHECK(trace[3]["ts"] == 0);
}

TEST_CASE("cycles are marked once each, in any order") {
  TraceEvents events(kBegin, 0, true);
  size_t marks = 0;
  TimedOperation op = sum("t");
  for (const int64_t cycle : {5, 3, 5, 4, 3}) {
    op.times.cycle = kBegin + cycle * 1000;
    for (const std::string& text : events.of(op)) {
      const json event = json::parse(text);
      if (event["ph"] != "i") continue;
      CHECK(text == "{\"ph\":\"i\",\"name\":\"CYCLE_START\",\"ts\":" + std::to_string(cycle) +
                        ",\"s\":\"g\"}");
      ++marks;
    }
  }
  CHECK(marks == 3);
}

TEST_CASE("any name is valid JSON, and the usual ones stay as they are") {
  const auto quoted = [](const std::string& text) { return TraceEvents::quoted(text, 3000); };
  CHECK(quoted("gru\xC3\x9F \xF0\x9F\x98\x80") == "\"gru\xC3\x9F \xF0\x9F\x98\x80\"");
  CHECK(quoted("a\"b\\c/d") == "\"a\\\"b\\\\c/d\"");
  CHECK(quoted(std::string("\0\n\x1F\x7F", 4)) == "\"\\u0000\\u000a\\u001f\\u007f\"");
  const std::string bad = "\xEF\xBF\xBD";
  // A lone continuation, a cut character, an overlong one, a surrogate, and what lies above
  // Unicode.
  CHECK(quoted("\x80z") == "\"" + bad + "z\"");
  CHECK(quoted("\xC3") == "\"" + bad + "\"");
  CHECK(quoted("\xC0\xAF") == "\"" + bad + bad + "\"");
  CHECK(quoted("\xED\xA0\x80") == "\"" + bad + bad + bad + "\"");
  CHECK(quoted("\xF4\x90\x80\x80") == "\"" + bad + bad + bad + bad + "\"");
  CHECK(quoted("\xE0\x80\x80") == "\"" + bad + bad + bad + "\"");
  std::mt19937 random(Catch::rngSeed());
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random());
    REQUIRE(json::accept(quoted(text)));
  }
}

TEST_CASE("the longest names, shapes and errors fit into the file's elements") {
  TimedOperation op = sum(std::string(1024, GENERATE('x', '"', '\x01', '\xFF')));
  op.shape.assign(64, INT64_MAX);
  op.error = std::string(8192, '"');
  TraceEvents events(kBegin, 0, true);
  const auto texts = events.of(op);
  for (const std::string& text : texts) {
    CHECK(json::accept(text));
    CHECK(text.size() <= TraceFile::kMaxElementBytes);
  }
  if (op.name[0] == 'x') CHECK(json::parse(texts[0])["args"]["name"] == op.name);
}

TEST_CASE("many names are many processes, and names of process sets are their own") {
  TraceEvents events(kBegin, 0, false);
  int last = 0;
  for (int i = 0; i < 1000; ++i) last = json::parse(events.of(sum(std::to_string(i)))[0])["pid"];
  CHECK(last == 1000);
  TimedOperation op = sum("0");
  op.processSet = 2;
  CHECK(json::parse(events.of(op)[0])["args"]["name"] == "0 of process set 2");
}
