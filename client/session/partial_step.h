// PartialStep: a step that takes its feeds and gives its fetches in parts (Session::PartialRun).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "client/master.h"
#include "executor/worker/step_ids.h"

namespace monograph {

// Read and changed under the session's mutex, but for `ready`, and what is constant after
// BeginPartial.
struct PartialStep {
  // What is asked for by one name.
  struct Fetch {
    std::string name;        // "node:0"
    std::vector<int> needs;  // feeds that it cannot do without
    bool done = false;       // a call has returned it, or is about to
  };

  uint64_t session = 0;                    // constant
  StepIds steps;                           // constant
  std::shared_ptr<PreparedStep> prepared;  // constant
  std::vector<std::string> feed_names;     // constant
  std::vector<Fetch> fetches;
  std::vector<bool> fed;
  std::vector<Tensor> returned_feeds;  // by feed: those that are fetched as they were fed
  int unfed = 0;                       // feeds that no call has sent
  bool running = false;                // a call is inside PartialRun
  bool over = false;                   // the last call has returned, or one failed
  // Of the call that runs: indices into `fetches`, and whether it waits for the step's end.
  std::vector<size_t> awaited;
  bool awaits_end = false;
  // The step has ended, and `result` is set, or all that the call awaits is here.
  std::atomic<bool> ready = false;
  Result<std::vector<Tensor>> result = std::vector<Tensor>();
};

}  // namespace monograph
