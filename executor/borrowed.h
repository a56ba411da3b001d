// Borrowed ops: what Monograph lacks, computed by the kernels of an installed TensorFlow.
//
// A Python interpreter that has TensorFlow is named by the environment's MONOGRAPH_TENSORFLOW (or
// by NameTensorFlow; "none": there is none). It is asked, once, in a process of its own, where the
// library lies, which ops it has, and which shapes their outputs have; so whoever builds, places or
// cuts a graph opens nothing. Where such an op is to be computed, the library is opened
// (executor/tensorflow/), and stays open until the process ends.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "executor/kernel.h"
#include "graph/op_def.h"

namespace monograph {

class FunctionLibrary;  // graph/function.h

// Lets this process's registries find there what they lack (graph/op_source.h). Nothing is asked or
// opened before a graph needs it.
void BorrowFromTensorFlow();

// The kernel of every borrowed op, on CPUs; nullptr in a process that does not borrow, and in
// plug-ins, which are linked without TensorFlow's side.
const KernelRegistry::Entry* BorrowedKernel();
// Sets it, once; it lives until the process ends.
void SetBorrowedKernel(const KernelRegistry::Entry* entry);
// What traces and reports call an op that is computed by it: "Lgamma (borrowed)". It lives until
// the process ends.
std::string_view BorrowedName(const std::string& op);

// Offered by the constructions of kernels that are made for a task.
class FunctionsConstruction {
 public:
  virtual ~FunctionsConstruction() = default;
  // Those of the node's graph.
  virtual const FunctionLibrary& functions() const = 0;
};

// Names the interpreter, in place of the environment. Before a graph needs one.
void NameTensorFlow(std::string interpreter);

// Hears, as long as it lives, of a crash in TensorFlow's library, before the process ends: by
// `heard`, with "node 'x' (Lgamma)", what was computed, on the thread mg-crash. `heard` has half a
// second, and may find locks taken that the crashing thread holds.
class CrashListener {
 public:
  explicit CrashListener(std::function<void(const std::string& computed)> on_crash);
  ~CrashListener();  // waits while `heard` runs
  CrashListener(const CrashListener&) = delete;
  CrashListener& operator=(const CrashListener&) = delete;

  const std::function<void(const std::string& computed)> heard;
};
// Calls all listeners.
void TellOfCrash(const std::string& computed);

// "TensorFlow 2.21.0", or why there is none. May take seconds at the first call.
Result<std::string> TensorFlowVersion();
// All ops that can be borrowed, sorted by name; none without TensorFlow.
std::vector<const OpDef*> BorrowedOps();
// What TensorFlow's kernels for CPUs take: the types of each attribute that they ask for.
std::map<std::string, std::set<DType>> BorrowedTypes(const std::string& op);
// Ops that TensorFlow knows and cannot lend, and why.
std::map<std::string, std::string, std::less<>> RefusedOps();

}  // namespace monograph
