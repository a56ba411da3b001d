// RunFetches: one step of a GraphDef or a SavedModel, for `monograph run` without a script.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "tools/run_model.h"

namespace monograph {

struct RunFetchesOptions {
  RunModelOptions model;  // without fetches and targets all outputs of its signature are fetched
  // "x:0=x.npy", or a value: "x:0=3.5", "x:0=[[1, 2], [3, 4]]".
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;  // "y:0" is printed, "y:0=y.npy" is written there
  std::vector<std::string> targets;  // operations that run in the same step
  std::vector<std::string> init;     // operations that run before, in a step without feeds
};

// "a,b=[1,2],c" as a, b=[1,2] and c: commas within brackets, braces and double quotes do not
// separate.
std::vector<std::string> SplitArguments(const std::string& list);

// Whether the files of fetches can be written; nothing is made.
Status CheckFetches(const std::vector<std::string>& fetches);

// Prints a line "y:0 float[2,3]" with the values below it for each fetch. Everything that was asked
// for is looked at before anything runs. Errors name the feed or fetch.
Status RunFetches(const RunFetchesOptions& options);

}  // namespace monograph
