#include "ops/fuse.h"

#include <algorithm>
#include <string>

namespace monograph {
namespace {

class Fuser {
 public:
  Fuser(const Graph& graph, std::span<const NodeId> keep)
      : graph_(graph),
        consumers_(graph),
        kept_(static_cast<size_t>(graph.num_nodes())),
        group_(kept_.size()),
        absorbed_(kept_.size()) {
    for (NodeId id : keep) kept_[static_cast<size_t>(id)] = true;
  }

  Result<Graph> Run(std::vector<NodeId>* mapping) {
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.is(id, "BiasAdd")) FindProduct(id);
      if (graph_.is(id, "ReluGrad")) FindPoolGradient(id);
    }
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    Graph out(&graph_.registry());
    out.ShareFunctions(graph_.shared_functions());
    mapped_.assign(kept_.size(), -1);
    small_.assign(kept_.size(), -1);
    for (NodeId id : order) {
      const auto i = static_cast<size_t>(id);
      if (absorbed_[i]) continue;
      switch (group_[i].kind) {
        case Kind::kNone:
          MG_RETURN_IF_ERROR(Copy(id, &out));
          break;
        case Kind::kProduct:
          MG_RETURN_IF_ERROR(AddProduct(id, &out));
          break;
        case Kind::kPoolGradient:
          MG_RETURN_IF_ERROR(AddPoolGradient(id, &out));
          break;
      }
    }
    if (mapping != nullptr) *mapping = std::move(mapped_);
    return out;
  }

 private:
  enum class Kind { kNone, kProduct, kPoolGradient };
  // What the last node of a group stands for.
  struct Group {
    Kind kind = Kind::kNone;
    NodeId product = -1;  // Conv2D or MatMul; or MaxPoolGrad
    NodeId bias = -1;     // BiasAdd
    NodeId relu = -1;
  };

  bool kept(NodeId id) const { return kept_[static_cast<size_t>(id)]; }
  bool OnGpu(NodeId id) const { return graph_.device(id).type == "GPU"; }
  bool Free(NodeId id) const {
    return !absorbed_[static_cast<size_t>(id)] &&
           group_[static_cast<size_t>(id)].kind == Kind::kNone;
  }

  // The one node that uses `id`, or -1 if there are none or several, or somebody waits for it, or
  // its output must survive.
  NodeId OnlyConsumer(NodeId id) const {
    const auto edges = consumers_.of(id);
    if (edges.size() != 1 || edges[0].input < 0 || kept(id)) return -1;
    return edges[0].target;
  }
  // Whether `b`, the consumer of `a`, can stand for both.
  bool SamePlace(NodeId a, NodeId b) const {
    return graph_.device_index(a) == graph_.device_index(b) && !OnGpu(a) &&
           graph_.dtype({a, 0}) == DT_FLOAT && Free(a) && Free(b);
  }

  void FindProduct(NodeId bias) {
    const Endpoint source = graph_.inputs(bias)[0];
    const NodeId product = source.node;
    const bool conv = graph_.is(product, "Conv2D");
    if (!conv && !graph_.is(product, "MatMul")) return;
    if (graph_.registry().Find(conv ? "_FusedConv2D" : "_FusedMatMul") == nullptr) return;
    if (OnlyConsumer(product) != bias || !SamePlace(product, bias)) return;
    const auto format = [&](NodeId id) {
      return graph_.attrs(id).GetOr<std::string>("data_format", "NHWC");
    };
    if (format(bias) != (conv ? format(product) : "NHWC")) return;
    NodeId last = bias, relu = -1;
    if (const NodeId next = OnlyConsumer(bias);
        next >= 0 && graph_.is(next, "Relu") && SamePlace(bias, next))
      last = relu = next;
    group_[static_cast<size_t>(last)] = {Kind::kProduct, product, bias, relu};
    for (NodeId id : {product, bias}) {
      if (id != last) absorbed_[static_cast<size_t>(id)] = true;
    }
  }

  void FindPoolGradient(NodeId relu) {
    const NodeId pool = graph_.inputs(relu)[0].node;
    if (!graph_.is(pool, "MaxPoolGrad") || graph_.inputs(pool)[0] != graph_.inputs(relu)[1]) return;
    if (OnlyConsumer(pool) != relu || !SamePlace(pool, relu)) return;
    group_[static_cast<size_t>(relu)] = {Kind::kPoolGradient, pool, -1, relu};
    absorbed_[static_cast<size_t>(pool)] = true;
  }

  Endpoint Map(Endpoint e) const { return {mapped_[static_cast<size_t>(e.node)], e.index}; }

  std::vector<NodeId> Controls(std::initializer_list<NodeId> nodes) const {
    std::vector<NodeId> controls;
    for (NodeId id : nodes) {
      if (id < 0) continue;
      for (NodeId control : graph_.control_inputs(id))
        controls.push_back(mapped_[static_cast<size_t>(control)]);
    }
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    return controls;
  }

  Status Copy(NodeId id, Graph* out) {
    std::vector<Endpoint> inputs;
    for (Endpoint e : graph_.inputs(id)) inputs.push_back(Map(e));
    if (graph_.is(id, "BiasAddGrad")) {
      // The bias gradient of a spread gradient is that of the small one, as long as channels lie in
      // the same place.
      const NodeId source = graph_.inputs(id)[0].node;
      const Group& group = group_[static_cast<size_t>(source)];
      if (group.kind == Kind::kPoolGradient &&
          graph_.attrs(id).GetOr<std::string>("data_format", "NHWC") ==
              graph_.attrs(group.product).GetOr<std::string>("data_format", "NHWC")) {
        inputs[0] = {small_[static_cast<size_t>(source)], 0};
      }
    }
    mapped_[static_cast<size_t>(id)] =
        out->CopyNode(graph_, id, graph_.name(id), inputs, Controls({id}));
    return Status();
  }

  Status AddProduct(NodeId last, Graph* out) {
    const Group& group = group_[static_cast<size_t>(last)];
    const auto sources = graph_.inputs(group.product);
    const std::vector<Endpoint> inputs{Map(sources[0]), Map(sources[1]),
                                       Map(graph_.inputs(group.bias)[1])};
    auto attrs = std::make_shared<Attrs>(graph_.attrs(group.product));
    std::vector<std::string> fused{"BiasAdd"};
    if (group.relu >= 0) fused.push_back("Relu");
    attrs->Set("fused_ops", fused);
    attrs->Set("num_args", int64_t{1});
    const std::vector<NodeId> controls = Controls({group.product, group.bias, group.relu});
    const std::string device = graph_.device(last).ToString();
    MG_ASSIGN_OR_RETURN(
        mapped_[static_cast<size_t>(last)],
        out->AddNode({.name = graph_.name(last),
                      .op = graph_.is(group.product, "Conv2D") ? "_FusedConv2D" : "_FusedMatMul",
                      .inputs = inputs,
                      .control_inputs = controls,
                      .attrs = std::move(attrs),
                      .device = device}));
    // What is known beyond inference (a feed's shape that a caller set) is not lost.
    out->SetShape({mapped_[static_cast<size_t>(last)], 0}, graph_.shape({last, 0}));
    return Status();
  }

  Status AddPoolGradient(NodeId relu, Graph* out) {
    const NodeId pool = group_[static_cast<size_t>(relu)].product;
    const auto sources = graph_.inputs(pool);
    const std::vector<Endpoint> small_inputs{Map(sources[2]), Map(sources[1])};
    const std::string device = graph_.device(relu).ToString();
    MG_ASSIGN_OR_RETURN(const NodeId small, out->AddNode({.name = graph_.name(pool),
                                                          .op = "ReluGrad",
                                                          .inputs = small_inputs,
                                                          .control_inputs = Controls({pool, relu}),
                                                          .device = device}));
    small_[static_cast<size_t>(relu)] = small;
    const std::vector<Endpoint> inputs{Map(sources[0]), Map(sources[1]), {small, 0}};
    MG_ASSIGN_OR_RETURN(mapped_[static_cast<size_t>(relu)],
                        out->AddNode({.name = graph_.name(relu),
                                      .op = "MaxPoolGrad",
                                      .inputs = inputs,
                                      .attrs = graph_.shared_attrs(pool),
                                      .device = device}));
    out->SetShape({mapped_[static_cast<size_t>(relu)], 0}, graph_.shape({relu, 0}));
    return Status();
  }

  const Graph& graph_;
  const OutEdges consumers_;
  std::vector<bool> kept_;
  std::vector<Group> group_;
  std::vector<bool> absorbed_;
  std::vector<NodeId> mapped_;  // old node to new
  std::vector<NodeId> small_;   // of a pool-gradient group: its new ReluGrad
};

}  // namespace

Result<Graph> FuseOps(const Graph& graph, std::span<const NodeId> keep,
                      std::vector<NodeId>* mapping) {
  return Fuser(graph, keep).Run(mapping);
}

}  // namespace monograph
