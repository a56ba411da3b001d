// RunScript: runs the steps of a script on a GraphDef, for `monograph run`.
//
// Script: {"steps": [{"targets": ["init"], "feeds": {"x:0": "x.npy"}, "fetches": ["y:0"],
// "timeout_ms": 500}]}. A feed is a .npy file, {"string": "text"} or {"bytes_file": "picture.png"},
// a scalar of the file's bytes; paths are relative to the script; other keys are ignored. Of a
// SavedModel feeds and fetches may have the signature's names, its variables are restored before
// the first step, and a step without fetches and targets fetches all outputs, in the order of their
// names. Output folder: "<step>_<fetch>.npy" and result.json:
//   {"load": {"code": "OK", "message": ""}, "steps": [{"code": "OK", "message": "", "outputs": ["0_0.npy"]}]}
#pragma once

#include <string>

#include "base/status.h"
#include "tools/run_model.h"

namespace monograph {

struct RunScriptOptions {
  RunModelOptions model;
  std::string script;
  std::string out;  // folder, made if needed
};

// True if the graph loaded and every step succeeded. A failed step is recorded and the next one
// still runs; it is also said on standard error. The Status is for what has no place in
// result.json: a script that is none, a folder that cannot be written.
Result<bool> RunScript(const RunScriptOptions& options);

}  // namespace monograph
