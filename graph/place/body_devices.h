// BodyDevices: which devices the bodies of functions request, as far as a call's placement depends
// on them.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/function.h"

namespace monograph::place {

class BodyDevices {
 public:
  explicit BodyDevices(const FunctionLibrary& library) : library_(library) {}

  // Job, replica and task that `call` and the body of its function request together; false if they
  // contradict each other.
  bool TaskOf(const Graph& graph, NodeId call, DeviceName* task);

  // As CallsThatSpanTasks (graph/place.h), for one call.
  bool SpansTasks(const Graph& graph, NodeId call);

 private:
  // The different devices that the body requests, relative to the call; bodies of calls within it
  // are included.
  const std::vector<DeviceName>& RequestedBy(const Function& function, int depth);

  const FunctionLibrary& library_;
  std::unordered_map<const Function*, std::vector<DeviceName>> requested_;
};

}  // namespace monograph::place
