// GPUs that compute on the CPU (tests/gpu/fake/recording_driver.h), as those of a session in
// one process: the functions here stand in for those of executor/gpu/plugin.h.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/fake/fake_gpus.h"

namespace monograph::testing {

// As many as MG_FAKE_GPUS says in the environment; else two.
inline int FakeGpuCount() {
  const char* const count = std::getenv("MG_FAKE_GPUS");
  return count == nullptr ? 2 : std::atoi(count);
}

// What the devices of the next session are like.
struct FakeGpuOptions {
  int count = FakeGpuCount();
  bool replay = true;              // CUDA graphs
  bool quiet = false;              // RecordingDriver::BeQuiet
  std::vector<std::string> cards;  // of each, as of MakeFakeGpu; empty: none has a link to others
  // Several tasks of this process have `count` each, of the cards in order, and see each other.
  bool tasks = false;
};
inline FakeGpuOptions fake_gpus;

// Of the devices that were made last.
std::vector<std::shared_ptr<RecordingDriver>>& FakeDrivers();
void ExpectNoRaces();  // what each test ends with

}  // namespace monograph::testing
