// Collectives: ops of devices that meet: CollectiveReduceV2, CollectiveGatherV2,
// CollectiveBcastSendV2, CollectiveBcastRecvV2, and MonographAllReduce, the first one for many
// tensors at once.
//
// Every member of a group runs the op once per step, with the group's key and size and the same
// instance key; each then gets the result. A member is a device. Members may be devices of one
// task, of the tasks of one session, or of tasks that different clients drive, each with a graph of
// its own (executor/collective/collective.h says how they find each other). Sums are made in rank
// order: the bits are those of AddN of the inputs in rank order.
//
//   // One client, two workers:
//   CollectiveGroup group{.size = 2, .key = 1,
//                         .members = {"/job:worker/task:0", "/job:worker/task:1"}};
//   Output sum0 = CollectiveReduce(root.WithDevice(group.members[0]), x0, group, 1);
//   Output sum1 = CollectiveReduce(root.WithDevice(group.members[1]), x1, group, 1);
//   // A client per worker: the same without members.
//
// Failures. A member that does not come: DeadlineExceeded, which names it. A lost task:
// Unavailable, which names it. Inputs that differ in type or shape: InvalidArgument.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct CollectiveGroup {
  int size = 0;
  int key = 1;
  // The members' devices in rank order, if one client drives them all: they need not find each
  // other then. Parts that are left open are replica:0, task:0 and CPU:0. Empty: members meet at
  // run time and are ranked by their names; the n-th step of one client with an op of the group
  // meets the n-th of each other, also if several are in flight.
  std::vector<std::string> members = {};
  double timeout_seconds = 0;  // 0: 30 s
};

// The elementwise "Add", "Mul", "Max" or "Min" of all members' inputs (final_op "Id"), or that
// divided by their number ("Div").
Output CollectiveReduce(const Scope& scope, const Output& input, const CollectiveGroup& group,
                        int instance_key, std::string_view merge_op = "Add",
                        std::string_view final_op = "Id");
// The members' inputs one after the other along the first dimension, whose size may differ between
// them.
Output CollectiveGather(const Scope& scope, const Output& input, const CollectiveGroup& group,
                        int instance_key);
// One member sends, the others receive; each gets the sender's tensor.
Output CollectiveBroadcastSend(const Scope& scope, const Output& input,
                               const CollectiveGroup& group, int instance_key);
Output CollectiveBroadcastRecv(const Scope& scope, DType dtype, const Shape& shape,
                               const CollectiveGroup& group, int instance_key);

// Whether a node of the graph, or of a function in its library, takes part in a collective.
bool HasCollectives(const Graph& graph);

// CollectiveReduce of many tensors of one type in one operation, without copying them together.
Outputs MonographAllReduce(const Scope& scope, const Outputs& inputs, const CollectiveGroup& group,
                           int instance_key, std::string_view merge_op = "Add",
                           std::string_view final_op = "Id");

}  // namespace monograph
