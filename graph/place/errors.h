// The texts of what placement refuses.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/place/device_set.h"

namespace monograph::place {

// What one refusal is about: a colocation group, or one node by itself.
struct Refusal {
  struct Member {
    NodeId node;
    DeviceName requested;
    TypeMask types;  // that have a kernel for it
  };

  const Graph& graph;
  const DeviceSet& devices;
  std::vector<Member> members;  // by id
  bool allow_soft_placement;
  // PlaceOptions::kernel_remark
  const std::function<std::string(const Graph& graph, NodeId node)>& kernel_remark;

  // Nodes `a` and `b` are colocated, but nothing fulfils the constraints of both, or has kernels
  // for both.
  Status Conflict(NodeId a, NodeId b, const std::array<DeviceName, 2>& constraints,
                  const std::array<TypeMask, 2>& types) const;

  // No device fulfils `constraint` and has one of `types`.
  Status Unplaceable(const DeviceName& constraint, TypeMask types) const;

 private:
  std::string GroupText() const;
};

// No type of device has a kernel for the node.
Status NoKernelError(const Graph& graph, NodeId node, const DeviceSet& devices);

// "GPU, CPU"; "none".
std::string TypesText(const DeviceSet& devices, TypeMask types);

// Which part of `constraint` no device has, and what there is instead.
std::string MissingText(const DeviceSet& devices, const DeviceName& constraint);

}  // namespace monograph::place
