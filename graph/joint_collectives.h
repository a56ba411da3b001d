// Joint collectives: those that a step's GPUs may launch as one, in an order that is fixed before
// the step runs, since nothing that any of them waits for comes from another member's GPU.
#pragma once

#include <span>
#include <string_view>

#include "graph/graph.h"

namespace monograph {

// Attribute of a MonographAllReduce, list(int): its place among the joint collectives of its
// device, and their number.
inline constexpr std::string_view kJointPlace = "_mg_joint_place";

// Finds the joint collectives of a step's placed graph, which is fed `feeds`, and gives each its
// place. All of one device have the same members; a device has one such list or none. Errors are
// those of control flow that cannot be. With MONOGRAPH_JOINT_COLLECTIVES=0 in the environment none
// is.
Status FindJointCollectives(Graph* graph, std::span<const Endpoint> feeds);

}  // namespace monograph
