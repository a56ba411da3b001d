// NodeConstruction: the view of a graph's node that its kernel is made from. Lives only while the
// kernel is made.
#pragma once

#include <string_view>

#include "executor/kernel.h"
#include "graph/graph.h"

namespace monograph {

class NodeConstruction : public KernelConstruction {
 public:
  // `device` is the full name.
  NodeConstruction(const Graph& graph, NodeId node, std::string_view device)
      : graph_(graph), node_(node), device_(device) {}

  std::string_view node_name() const override { return graph_.name(node_); }
  std::string_view op() const override { return graph_.op(node_).name(); }
  const Attrs& attrs() const override { return graph_.attrs(node_); }
  std::string_view device() const override { return device_; }
  int num_inputs() const override { return static_cast<int>(graph_.inputs(node_).size()); }
  int num_outputs() const override { return graph_.num_outputs(node_); }
  DType input_dtype(int i) const override {
    return graph_.dtype(graph_.inputs(node_)[static_cast<size_t>(i)]);
  }
  DType output_dtype(int i) const override { return graph_.dtype({node_, i}); }
  const PartialShape& input_shape(int i) const override {
    return graph_.shape(graph_.inputs(node_)[static_cast<size_t>(i)]);
  }
  const PartialShape& output_shape(int i) const override { return graph_.shape({node_, i}); }

 private:
  const Graph& graph_;
  const NodeId node_;
  const std::string_view device_;
};

}  // namespace monograph
