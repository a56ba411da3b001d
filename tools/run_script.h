// RunScript: runs the steps of a script on a GraphDef, for `monograph run`.
//
// Script: {"steps": [{"targets": ["init"], "feeds": {"x:0": "x.npy"}, "fetches": ["y:0"]}]}; paths
// relative to the script; other keys are ignored. Output folder: "<step>_<fetch>.npy" and
// result.json:
//   {"load": {"code": "OK", "message": ""}, "steps": [{"code": "OK", "message": "", "outputs": ["0_0.npy"]}]}
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "client/cluster.h"
#include "client/session.h"

namespace monograph {

struct RunScriptOptions {
  std::string graph;  // .pb or .pbtxt
  std::string script;
  std::string out;  // folder, made if needed
  std::optional<ClusterSpec> cluster;
  SessionOptions session;
};

// True if the graph loaded and every step succeeded. A failed step is recorded and the next one
// still runs; it is also said on standard error. The Status is for what has no place in
// result.json: a script that is none, a folder that cannot be written.
Result<bool> RunScript(const RunScriptOptions& options);

}  // namespace monograph
