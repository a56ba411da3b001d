// What every trace of a job has to hold, whoever reads it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace monograph {

struct TraceFacts {
  int tasks = 0;   // with events
  int arrows = 0;  // from a send to a receive
};

// Every task and every thread that shows has a name, and every arrow one beginning and one end, of
// which the end comes later.
inline TraceFacts CheckTrace(const std::string& text) {
  TraceFacts facts;
  const auto trace = nlohmann::json::parse(text, nullptr, false);
  EXPECT_TRUE(trace.is_object() && trace.contains("traceEvents")) << text;
  if (!trace.is_object() || !trace.contains("traceEvents")) return facts;
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::set<int> tasks;
  std::set<std::pair<int, int>> shown;
  std::map<int, std::vector<double>> begins, ends;
  for (const auto& event : trace["traceEvents"]) {
    const std::string phase = event.at("ph");
    const int process = event.at("pid");
    if (phase == "M") {
      const std::string name = event.at("args").at("name");
      EXPECT_FALSE(name.empty()) << event;
      if (event.at("name") == "process_name") processes[process] = name;
      if (event.at("name") == "thread_name") threads[{process, event.at("tid")}] = name;
      continue;
    }
    shown.emplace(process, event.at("tid"));
    tasks.insert(process);
    if (phase == "s") begins[event.at("id")].push_back(event.at("ts"));
    if (phase == "f") ends[event.at("id")].push_back(event.at("ts"));
  }
  for (const int task : tasks) EXPECT_EQ(processes.count(task), 1u) << "process " << task;
  for (const auto& [process, thread] : shown)
    EXPECT_EQ(threads.count({process, thread}), 1u) << processes[process] << " thread " << thread;
  for (const auto& [id, times] : begins) {
    EXPECT_EQ(times.size(), 1u) << "arrow " << id;
    EXPECT_EQ(ends[id].size(), 1u) << "arrow " << id;
    for (const double end : ends[id]) EXPECT_LE(times[0], end) << "arrow " << id;
  }
  for (const auto& [id, times] : ends) EXPECT_EQ(begins.count(id), 1u) << "arrow " << id;
  facts.tasks = static_cast<int>(tasks.size());
  facts.arrows = static_cast<int>(begins.size());
  return facts;
}

}  // namespace monograph
