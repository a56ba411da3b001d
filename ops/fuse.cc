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
        absorbed_(kept_.size()),
        position_(kept_.size()) {
    for (NodeId id : keep) kept_[static_cast<size_t>(id)] = true;
  }

  Result<Graph> Run(std::vector<NodeId>* mapping) {
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    for (size_t i = 0; i < order.size(); ++i) position_[static_cast<size_t>(order[i])] = i;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.is(id, "BiasAdd")) FindProduct(id);
      if (graph_.is(id, "ReluGrad")) FindPoolGradient(id);
      if (graph_.is(id, "Relu")) FindNorm(id);
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.is(id, "FusedBatchNormGradV3")) FindNormGradient(id);
    }
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
        case Kind::kNorm:
          MG_RETURN_IF_ERROR(AddNorm(id, &out));
          break;
        case Kind::kNormGradient:
          MG_RETURN_IF_ERROR(AddNormGradient(id, &out));
          break;
      }
    }
    if (mapping != nullptr) *mapping = std::move(mapped_);
    return out;
  }

 private:
  enum class Kind { kNone, kProduct, kPoolGradient, kNorm, kNormGradient };
  // What the last node of a group stands for.
  struct Group {
    Kind kind = Kind::kNone;
    NodeId product = -1;  // Conv2D or MatMul; or MaxPoolGrad, or FusedBatchNormV3
    NodeId bias = -1;     // BiasAdd; or the AddV2 after a normalisation
    NodeId relu = -1;     // Relu; or ReluGrad
    int side = -1;        // which input of the AddV2 does not come from the normalisation
  };

  bool kept(NodeId id) const { return kept_[static_cast<size_t>(id)]; }
  // Whether the fused kernels of the node's device gain anything with this type.
  bool HasFused(NodeId id, DType dtype) const {
    return dtype == DT_FLOAT ||
           ((dtype == DT_HALF || dtype == DT_BFLOAT16) && graph_.device(id).type == "GPU");
  }
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
    return graph_.device_index(a) == graph_.device_index(b) && HasFused(a, graph_.dtype({a, 0})) &&
           Free(a) && Free(b);
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

  // Whether output 0 of a normalisation goes to `user` alone, and nobody reads its statistics
  // before `last` is computed.
  bool FeedsOnly(NodeId norm, NodeId user, NodeId last) const {
    if (kept(norm)) return false;
    int uses = 0;
    for (const auto& edge : consumers_.of(norm)) {
      if (edge.input >= 0 &&
          graph_.inputs(edge.target)[static_cast<size_t>(edge.input)].index == 0) {
        if (edge.target != user) return false;
        ++uses;
      } else if (position_[static_cast<size_t>(edge.target)] <
                 position_[static_cast<size_t>(last)]) {
        return false;
      }
    }
    return uses == 1;
  }
  bool IsNorm(Endpoint e) const { return e.index == 0 && graph_.is(e.node, "FusedBatchNormV3"); }

  void FindNorm(NodeId relu) {
    if (graph_.device(relu).type != "GPU" || !Free(relu)) return;
    if (graph_.registry().Find("_FusedBatchNormEx") == nullptr) return;
    const Endpoint source = graph_.inputs(relu)[0];
    NodeId add = -1, norm = source.node;
    int side = -1;
    if (graph_.is(source.node, "AddV2")) {
      add = source.node;
      const auto terms = graph_.inputs(add);
      side = IsNorm(terms[0]) ? 1 : 0;
      norm = terms[static_cast<size_t>(1 - side)].node;
      const PartialShape &a = graph_.shape(terms[0]), &b = graph_.shape(terms[1]);
      if (!a.fully_known() || !(a == b) || OnlyConsumer(add) != relu || !Free(add)) return;
      if (graph_.device_index(add) != graph_.device_index(relu)) return;
    }
    if (!IsNorm({norm, add < 0 ? source.index : graph_.inputs(add)[side == 1 ? 0 : 1].index}))
      return;
    if (graph_.device_index(norm) != graph_.device_index(relu) || !Free(norm)) return;
    if (!FeedsOnly(norm, add < 0 ? relu : add, relu)) return;
    group_[static_cast<size_t>(relu)] = {Kind::kNorm, norm, add, relu, side};
    absorbed_[static_cast<size_t>(norm)] = true;
    if (add >= 0) absorbed_[static_cast<size_t>(add)] = true;
  }

  // The gradient of a normalisation followed by a ReLU and nothing between: what passes the ReLU
  // follows from x.
  void FindNormGradient(NodeId gradient) {
    const auto in = graph_.inputs(gradient);
    const NodeId relu_grad = in[0].node;
    if (!graph_.is(relu_grad, "ReluGrad") || OnlyConsumer(relu_grad) != gradient) return;
    if (!Free(relu_grad) || !Free(gradient) ||
        graph_.device_index(relu_grad) != graph_.device_index(gradient))
      return;
    const Endpoint active = graph_.inputs(relu_grad)[1];
    const Group& forward = group_[static_cast<size_t>(active.node)];
    if (forward.kind != Kind::kNorm || forward.side >= 0) return;
    const NodeId norm = forward.product;
    const auto of = graph_.inputs(norm);
    if (!graph_.attrs(norm).Get<bool>("is_training") || in[1] != of[0] || in[2] != of[1] ||
        in[3] != Endpoint{norm, 3} || in[4] != Endpoint{norm, 4})
      return;
    group_[static_cast<size_t>(gradient)] = {Kind::kNormGradient, norm, -1, relu_grad, -1};
    absorbed_[static_cast<size_t>(relu_grad)] = true;
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

  Status AddNorm(NodeId relu, Graph* out) {
    const Group& group = group_[static_cast<size_t>(relu)];
    std::vector<Endpoint> inputs;
    for (Endpoint e : graph_.inputs(group.product)) inputs.push_back(Map(e));
    if (group.side >= 0)
      inputs.push_back(Map(graph_.inputs(group.bias)[static_cast<size_t>(group.side)]));
    auto attrs = std::make_shared<Attrs>(graph_.attrs(group.product));
    attrs->Set("activation_mode", std::string("Relu"));
    attrs->Set("num_side_inputs", int64_t{group.side >= 0 ? 1 : 0});
    const std::string device = graph_.device(relu).ToString();
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->AddNode({.name = graph_.name(relu),
                                      .op = "_FusedBatchNormEx",
                                      .inputs = inputs,
                                      .control_inputs = Controls({group.product, group.bias, relu}),
                                      .attrs = std::move(attrs),
                                      .device = device}));
    mapped_[static_cast<size_t>(relu)] = mapped_[static_cast<size_t>(group.product)] = made;
    for (int i = 0; i < graph_.num_outputs(group.product); ++i)
      out->SetShape({made, i}, graph_.shape({group.product, i}));
    return Status();
  }

  Status AddNormGradient(NodeId gradient, Graph* out) {
    const Group& group = group_[static_cast<size_t>(gradient)];
    const auto through = graph_.inputs(group.relu);
    std::vector<Endpoint> inputs{Map(through[0])};
    const auto own = graph_.inputs(gradient);
    for (size_t i = 1; i < own.size(); ++i) inputs.push_back(Map(own[i]));
    inputs.push_back(Map(graph_.inputs(group.product)[2]));  // offset
    inputs.push_back(Map(through[1]));
    auto attrs = std::make_shared<Attrs>(graph_.attrs(gradient));
    attrs->Set("activation_mode", std::string("Relu"));
    const std::string device = graph_.device(gradient).ToString();
    MG_ASSIGN_OR_RETURN(mapped_[static_cast<size_t>(gradient)],
                        out->AddNode({.name = graph_.name(gradient),
                                      .op = "_FusedBatchNormGradEx",
                                      .inputs = inputs,
                                      .control_inputs = Controls({group.relu, gradient}),
                                      .attrs = std::move(attrs),
                                      .device = device}));
    for (int i = 0; i < graph_.num_outputs(gradient); ++i)
      out->SetShape({mapped_[static_cast<size_t>(gradient)], i}, graph_.shape({gradient, i}));
    return Status();
  }

  const Graph& graph_;
  const OutEdges consumers_;
  std::vector<bool> kept_;
  std::vector<Group> group_;
  std::vector<bool> absorbed_;
  std::vector<size_t> position_;  // in topological order
  std::vector<NodeId> mapped_;    // old node to new
  std::vector<NodeId> small_;     // of a pool-gradient group: its new ReluGrad
};

}  // namespace

Result<Graph> FuseOps(const Graph& graph, std::span<const NodeId> keep,
                      std::vector<NodeId>* mapping) {
  return Fuser(graph, keep).Run(mapping);
}

}  // namespace monograph
