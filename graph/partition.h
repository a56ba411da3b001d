// Partitioning: cuts a placed graph into one graph per task, with _Send and _Recv where an edge
// crosses devices.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// One tensor that crosses from a device to another: one pair per (tensor, destination device),
// whatever the number of consumers. Ids are dense over the partitioned graph.
struct CrossEdge {
  int32_t id;
  std::string tensor_name;  // "conv1/Relu:0", "^init" for a control edge
  DeviceName from, to;
  DType dtype;  // DT_INVALID: a control edge (one per pair of devices and set of sources)
  PartialShape shape;
  int32_t priority;  // smaller goes first: how soon the receiver needs it
};

struct Partition {
  DeviceName task;  // job, replica, task
  Graph graph;
};

// A feed replaces an output; a fetch reads one. Both sit on the client's device: a feed is a cross
// edge from it, a fetch one to it.
struct PartitionRequest {
  std::vector<Endpoint> feeds;  // an invalid one is read by nothing and has no edges
  std::vector<Endpoint> fetches;
  DeviceName client;  // "/job:client/replica:0/task:0/device:CPU:0"
};

struct PartitionedGraph {
  std::vector<Partition> partitions;  // tasks that have nodes, by name; the client's own too if
                                      // something is pinned there
  std::vector<CrossEdge> edges;       // by id
  // Edges that carry feed i / fetch i; a feed may go to several devices. A fetch of a feed is
  // InvalidArgument "X is both fed and fetched.".
  std::vector<std::vector<int32_t>> feed_edges;
  std::vector<int32_t> fetch_edges;
};

// REQUIRES: `graph` is pruned to the request, and every node has a full device.
Result<PartitionedGraph> PartitionGraph(const Graph& graph, const PartitionRequest& request);

}  // namespace monograph
