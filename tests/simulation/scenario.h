// Scenarios: what a schedule runs. Each builds a small cluster in this process, uses it as a
// program would, disturbs it, and fails (tests/simulation/scheduler.h) when an invariant does not
// hold.
#pragma once

#include <chrono>
#include <span>
#include <string>

namespace monograph::simulation {

struct Scenario {
  const char* name;
  const char* what;  // in a line
  void (*run)();     // on the first thread of a schedule
  std::chrono::seconds longest{600};
  uint64_t most_decisions = 2'000'000;
};

std::span<const Scenario> Scenarios();

// A folder for files, in memory where that is possible. One schedule uses it at a time.
const std::string& ScratchFolder();

}  // namespace monograph::simulation
