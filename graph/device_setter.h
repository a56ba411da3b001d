// Device functions for training with parameter servers (tf.train.replica_device_setter): variables
// are spread over the ps tasks, everything else goes to the worker.
//
//   Scope scope = root.WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 2}).value());
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// Picks the ps task, 0 <= task < ps_tasks, of one more variable; negative: it cannot. Called once
// per variable, in the order in which they are built.
using PsStrategy = std::function<int(const NodeSpec& variable)>;

// 0, 1, ..., num_tasks - 1, 0, 1, ...   REQUIRES: num_tasks > 0, also below.
PsStrategy RoundRobinStrategy(int num_tasks);

// How much a variable adds to its task; NaN: that is not known.
using LoadFn = std::function<double(const NodeSpec& variable)>;

// The task with the least load so far, the first of equals. Cannot place a variable of unknown
// load.
PsStrategy GreedyLoadBalancingStrategy(int num_tasks, LoadFn load);

// The bytes of a variable by its attributes `dtype` and `shape`; NaN where the shape is not fully
// known. TensorFlow's byte_size_load_fn.
double ByteSizeLoad(const NodeSpec& variable);

struct ReplicaDeviceSetterOptions {
  int ps_tasks = 0;  // 0: no parameter servers, variables go to the worker too
  std::string ps_device = "/job:ps";
  std::string worker_device = "/job:worker";
  // Completes what a node asks for itself. Otherwise a node that asks for anything is left alone.
  bool merge_devices = true;
  // TensorFlow's: variables, tables and what else keeps state that all workers share.
  std::vector<std::string> ps_ops = {"Variable",
                                     "VariableV2",
                                     "AutoReloadVariable",
                                     "MutableHashTable",
                                     "MutableHashTableV2",
                                     "MutableHashTableOfTensors",
                                     "MutableHashTableOfTensorsV2",
                                     "MutableDenseHashTable",
                                     "MutableDenseHashTableV2",
                                     "VarHandleOp",
                                     "ResourceConditionalAccumulator",
                                     "MonographSparseConditionalAccumulator"};
  PsStrategy strategy = {};  // empty: round robin
  // Gets the InvalidArgument for a variable that the strategy puts on no task that there is, such
  // as
  // [&](const Status& status) { scope.Fail(status); }. Empty: it goes to task 0.
  std::function<void(const Status&)> report = {};
};

// InvalidArgument for a device that does not parse or a negative number of tasks. Copies of the
// function share the strategy's state.
Result<Scope::DeviceFunction> ReplicaDeviceSetter(const ReplicaDeviceSetterOptions& options);

}  // namespace monograph
