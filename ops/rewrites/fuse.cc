// FuseOps in two phases. Find* looks for the patterns of the header and records each as a Group at
// one node; the other members are absorbed. Patterns that look at the groups of others (gradients
// of normalisations and of convolutions) come after those. Then the nodes are copied in topological
// order, each group as the node that takes its place (Add*). The graph is copied and not changed in
// place, since a Graph cannot drop nodes.
#include "ops/rewrites/fuse.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "graph/control_flow.h"
#include "ops/rewrites/rewrite.h"

namespace monograph {
namespace {

// A gradient that more nodes read is not looked at: each of them might look at all others.
constexpr size_t kMostConsumers = 64;

class Fuser {
 public:
  explicit Fuser(const Graph& graph)
      : graph_(graph),
        consumers_(graph),
        group_(static_cast<size_t>(graph.num_nodes())),
        absorbed_(group_.size()),
        position_(group_.size()),
        small_(group_.size(), -1) {}

  Result<Graph> Run() {
    MG_ASSIGN_OR_RETURN(std::vector<NodeId> order, graph_.TopologicalOrder());
    if (HasControlFlow(graph_)) {
      MG_ASSIGN_OR_RETURN(ControlFlow flow, FindControlFlow(graph_));
      region_ = std::move(flow.region);
    }
    // Nodes without inputs come first, so that a group may stand at any position behind what it
    // computes from.
    std::stable_partition(order.begin(), order.end(), [&](NodeId id) {
      return graph_.inputs(id).empty() && graph_.control_inputs(id).empty();
    });
    for (size_t i = 0; i < order.size(); ++i) position_[static_cast<size_t>(order[i])] = i;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.is(id, "BiasAdd")) FindProduct(id);
      if (graph_.is(id, "ReluGrad")) FindPoolGradient(id);
      if (graph_.is(id, "Relu")) FindNorm(id);
    }
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.is(id, "FusedBatchNormGradV3")) FindNormGradient(id);
      if (graph_.is(id, "Conv2DBackpropFilter")) FindConvGradients(id);
    }
    Rewrite out(graph_);
    for (NodeId id : order) {
      const auto i = static_cast<size_t>(id);
      if (absorbed_[i]) continue;
      switch (group_[i].kind) {
        case Kind::kNone:
          Copy(id, &out);
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
        case Kind::kJoinGradient:
          MG_RETURN_IF_ERROR(AddJoinGradient(id, &out));
          break;
        case Kind::kConvGradients:
          MG_RETURN_IF_ERROR(AddConvGradients(id, &out));
          break;
      }
    }
    return out.Finish();
  }

 private:
  enum class Kind {
    kNone,
    kProduct,
    kPoolGradient,
    kNorm,
    kNormGradient,
    kJoinGradient,
    kConvGradients
  };
  // Recorded at the last node of a group (of kConvGradients: at the first; of kJoinGradient: at its
  // ReluGrad, which others read, too).
  struct Group {
    Kind kind = Kind::kNone;
    NodeId product = -1;  // Conv2D or MatMul; or MaxPoolGrad, FusedBatchNormV3,
                          // Conv2DBackpropFilter; or, of kJoinGradient, FusedBatchNormGradV3
    NodeId bias = -1;  // BiasAdd; or the AddV2 after a normalisation, the AddN before the gradient
                       // of one, or Conv2DBackpropInput
    NodeId relu = -1;  // Relu; or ReluGrad
    int side = -1;     // which input of the AddV2 does not come from the normalisation
    NodeId pool = -1;  // MaxPoolGrad, or the ReluGrad that stands for it, before kConvGradients
    bool spread_later = false;  // kPoolGradient: only its small gradient is computed
  };

  // Whether the fused kernels of the node's device gain anything with this type.
  bool HasFused(NodeId id, DType dtype) const {
    return dtype == DT_FLOAT || dtype == DT_BFLOAT16 ||
           (dtype == DT_HALF && graph_.device(id).type == kGpu);
  }
  bool Free(NodeId id) const {
    return !absorbed_[static_cast<size_t>(id)] &&
           group_[static_cast<size_t>(id)].kind == Kind::kNone;
  }

  // The only node that reads `id`; -1 if there are none or several, or if a control edge leaves
  // `id`.
  NodeId OnlyConsumer(NodeId id) const {
    const auto edges = consumers_.of(id);
    if (edges.size() != 1 || edges[0].input < 0) return -1;
    return edges[0].target;
  }
  // Whether the nodes are on one device, and always run together.
  bool Together(NodeId a, NodeId b) const {
    return graph_.device_index(a) == graph_.device_index(b) &&
           (region_.empty() || region_[static_cast<size_t>(a)] == region_[static_cast<size_t>(b)]);
  }
  // Whether `a` and its consumer `b` can become one node: together, of a type with fused kernels,
  // and both in no group yet.
  bool SamePlace(NodeId a, NodeId b) const {
    return Together(a, b) && HasFused(a, graph_.dtype({a, 0})) && Free(a) && Free(b);
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
    if (!HasFused(relu, graph_.dtype({relu, 0})) || !Free(relu)) return;
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

  // The gradient of a normalisation that a ReLU follows directly, or after the addition of a side
  // input. Without one, which elements passed the ReLU can be computed from x.
  void FindNormGradient(NodeId gradient) {
    const auto in = graph_.inputs(gradient);
    const NodeId relu_grad = in[0].node;
    if (!graph_.is(relu_grad, "ReluGrad")) return;
    if (!Free(relu_grad) || !Free(gradient) ||
        graph_.device_index(relu_grad) != graph_.device_index(gradient))
      return;
    const Endpoint active = graph_.inputs(relu_grad)[1];
    const Group& forward = group_[static_cast<size_t>(active.node)];
    if (forward.kind != Kind::kNorm) return;
    if (forward.side < 0 && OnlyConsumer(relu_grad) != gradient) return;
    const NodeId norm = forward.product;
    const auto of = graph_.inputs(norm);
    if (!graph_.attrs(norm).Get<bool>("is_training") || in[1] != of[0] || in[2] != of[1] ||
        in[3] != Endpoint{norm, 3} || in[4] != Endpoint{norm, 4})
      return;
    if (forward.side >= 0) return FindJoinGradient(gradient, relu_grad);
    group_[static_cast<size_t>(gradient)] = {Kind::kNormGradient, norm, -1, relu_grad, -1};
    absorbed_[static_cast<size_t>(relu_grad)] = true;
  }

  // Others read what passes the ReLU, too, so the group's node stands where the ReluGrad did.
  void FindJoinGradient(NodeId gradient, NodeId relu_grad) {
    const auto in = graph_.inputs(gradient);
    const auto late = [&](NodeId source) {
      return source != relu_grad &&
             position_[static_cast<size_t>(source)] > position_[static_cast<size_t>(relu_grad)];
    };
    const auto controls = graph_.control_inputs(gradient);
    if (std::any_of(in.begin(), in.end(), [&](Endpoint e) { return late(e.node); }) ||
        std::any_of(controls.begin(), controls.end(), late))
      return;
    const NodeId sum = graph_.inputs(relu_grad)[0].node;
    const bool sums = graph_.is(sum, "AddN") && graph_.inputs(sum).size() == 2 && Free(sum) &&
                      OnlyConsumer(sum) == relu_grad &&
                      graph_.device_index(sum) == graph_.device_index(relu_grad);
    group_[static_cast<size_t>(relu_grad)] = {Kind::kJoinGradient, gradient, sums ? sum : -1,
                                              relu_grad};
    absorbed_[static_cast<size_t>(gradient)] = true;
    if (sums) absorbed_[static_cast<size_t>(sum)] = true;
  }

  // Whether `sizes` is the shape of `value` in every step.
  bool IsShapeOf(Endpoint sizes, Endpoint value) const {
    if (graph_.is(sizes.node, "Shape") || graph_.is(sizes.node, "ShapeN"))
      return graph_.inputs(sizes.node)[static_cast<size_t>(sizes.index)] == value;
    const PartialShape& shape = graph_.shape(value);
    if (!graph_.is(sizes.node, "Const") || !shape.fully_known()) return false;
    const Tensor& dims = graph_.attrs(sizes.node).Get<Tensor>("value");
    return dims.dtype() == DT_INT32 && dims.elements() == shape.rank() &&
           std::equal(shape.dims().begin(), shape.dims().end(), dims.data<int32_t>());
  }

  // The input's gradient of the convolution whose filter's gradient is `filter`, or -1.
  NodeId InputGradientFor(NodeId filter) const {
    const auto of = graph_.inputs(filter);
    const auto edges = consumers_.of(of[2].node);
    if (edges.size() > kMostConsumers) return -1;
    for (const auto& edge : edges) {
      const NodeId input = edge.target;
      if (edge.input != 2 || !graph_.is(input, "Conv2DBackpropInput")) continue;
      const auto in = graph_.inputs(input);
      if (in[2] == of[2] && SamePlace(filter, input) && IsShapeOf(in[0], of[0]) &&
          IsShapeOf(of[1], in[1]) && graph_.attrs(input) == graph_.attrs(filter))
        return input;
    }
    return -1;
  }

  // Whether `gradient` is that of a max pooling with windows of 2x2 that do not overlap, read only
  // by `users` and by gradients of a bias, which can read the pooled gradient instead.
  bool SpreadsFor(Endpoint gradient, std::span<const NodeId> users) const {
    const NodeId last = gradient.node;
    const Group& group = group_[static_cast<size_t>(last)];
    const bool moved = group.kind == Kind::kPoolGradient;
    const NodeId pool = moved ? group.product : last;
    if (consumers_.of(last).size() > kMostConsumers) return false;
    if (!graph_.is(pool, "MaxPoolGrad") || !(moved || Free(pool))) return false;
    if (!Together(last, users[0])) return false;
    const Attrs& attrs = graph_.attrs(pool);
    const std::vector<int64_t> window{1, 2, 2, 1};
    const auto padding = attrs.Get<std::string>("padding");
    if (attrs.Get<std::vector<int64_t>>("ksize") != window ||
        attrs.Get<std::vector<int64_t>>("strides") != window ||
        attrs.GetOr<std::string>("data_format", "NHWC") != "NHWC" ||
        (padding != "SAME" && padding != "VALID"))
      return false;
    for (const auto& edge : consumers_.of(last)) {
      const bool used =
          edge.input == 2 && std::find(users.begin(), users.end(), edge.target) != users.end();
      if (!used && !(moved && ReadsSmall(edge.target, last) && edge.input == 0)) return false;
    }
    return true;
  }

  void FindConvGradients(NodeId filter) {
    if (graph_.device(filter).type == kGpu || !HasFused(filter, graph_.dtype({filter, 0})) ||
        !Free(filter) || graph_.registry().Find("_Conv2DBackprop") == nullptr)
      return;
    const NodeId input = InputGradientFor(filter);
    const Endpoint gradient = graph_.inputs(filter)[2];
    std::vector<NodeId> members{filter};
    if (input >= 0) members.push_back(input);
    const bool spreads = graph_.attrs(filter).GetOr<std::string>("data_format", "NHWC") == "NHWC" &&
                         SpreadsFor(gradient, members);
    if (input < 0 && !spreads) return;
    const auto position = [&](NodeId id) { return position_[static_cast<size_t>(id)]; };
    NodeId first = filter, second = input;
    if (input >= 0 && position(input) < position(filter)) std::swap(first, second);
    if (second >= 0) {
      // Input 0 of the input's gradient is left out: it is the shape of the filter gradient's
      // input.
      auto inputs = graph_.inputs(second);
      if (second == input) inputs = inputs.subspan(1);
      const auto late = [&](NodeId source) { return position(source) > position(first); };
      const auto controls = graph_.control_inputs(second);
      if (std::any_of(inputs.begin(), inputs.end(), [&](Endpoint e) { return late(e.node); }) ||
          std::any_of(controls.begin(), controls.end(), late))
        return;
      absorbed_[static_cast<size_t>(second)] = true;
    }
    group_[static_cast<size_t>(first)] = {
        .kind = Kind::kConvGradients, .product = filter, .bias = input};
    if (!spreads) return;
    group_[static_cast<size_t>(first)].pool = gradient.node;
    if (Group& group = group_[static_cast<size_t>(gradient.node)];
        group.kind == Kind::kPoolGradient) {
      group.spread_later = true;
    } else {
      absorbed_[static_cast<size_t>(gradient.node)] = true;
    }
  }

  // Whether the node is the gradient of a bias that reads the pooled gradient of the pooling that
  // ends at `last`. Both must have their channels in the same dimension.
  bool ReadsSmall(NodeId id, NodeId last) const {
    const Group& group = group_[static_cast<size_t>(last)];
    return graph_.is(id, "BiasAddGrad") && group.kind == Kind::kPoolGradient &&
           graph_.attrs(id).GetOr<std::string>("data_format", "NHWC") ==
               graph_.attrs(group.product).GetOr<std::string>("data_format", "NHWC");
  }

  void Copy(NodeId id, Rewrite* out) {
    std::vector<Endpoint> inputs = out->Inputs(id);
    if (const NodeId source = inputs.empty() ? -1 : graph_.inputs(id)[0].node;
        source >= 0 && ReadsSmall(id, source))
      inputs[0] = {small_[static_cast<size_t>(source)], 0};
    out->Copy(id, inputs);
  }

  Status AddProduct(NodeId last, Rewrite* out) {
    const Group& group = group_[static_cast<size_t>(last)];
    const auto sources = graph_.inputs(group.product);
    const std::vector<Endpoint> inputs{out->Map(sources[0]), out->Map(sources[1]),
                                       out->Map(graph_.inputs(group.bias)[1])};
    auto attrs = std::make_shared<Attrs>(graph_.attrs(group.product));
    std::vector<std::string> fused{"BiasAdd"};
    if (group.relu >= 0) fused.push_back("Relu");
    attrs->Set("fused_ops", fused);
    attrs->Set("num_args", int64_t{1});
    MG_ASSIGN_OR_RETURN(
        const NodeId made,
        out->Add(last, graph_.is(group.product, "Conv2D") ? "_FusedConv2D" : "_FusedMatMul", inputs,
                 std::move(attrs), std::array{group.product, group.bias, group.relu}));
    out->Replace(last, made);
    return Status();
  }

  Status AddPoolGradient(NodeId relu, Rewrite* out) {
    const NodeId pool = group_[static_cast<size_t>(relu)].product;
    const auto sources = graph_.inputs(pool);
    const std::vector<Endpoint> small_inputs{out->Map(sources[2]), out->Map(sources[1])};
    MG_ASSIGN_OR_RETURN(const NodeId small,
                        out->Add(pool, "ReluGrad", small_inputs, nullptr, std::array{pool, relu}));
    small_[static_cast<size_t>(relu)] = small;
    if (group_[static_cast<size_t>(relu)].spread_later) return Status();
    const std::vector<Endpoint> inputs{out->Map(sources[0]), out->Map(sources[1]), {small, 0}};
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->Add(relu, "MaxPoolGrad", inputs, graph_.shared_attrs(pool), {}));
    out->Replace(relu, made);
    return Status();
  }

  Status AddNorm(NodeId relu, Rewrite* out) {
    const Group& group = group_[static_cast<size_t>(relu)];
    std::vector<Endpoint> inputs = out->Inputs(group.product);
    if (group.side >= 0)
      inputs.push_back(out->Map(graph_.inputs(group.bias)[static_cast<size_t>(group.side)]));
    auto attrs = std::make_shared<Attrs>(graph_.attrs(group.product));
    attrs->Set("activation_mode", std::string("Relu"));
    attrs->Set("num_side_inputs", int64_t{group.side >= 0 ? 1 : 0});
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->Add(relu, "_FusedBatchNormEx", inputs, std::move(attrs),
                                 std::array{group.product, group.bias, relu}));
    out->Replace(relu, made);
    out->Replace(group.product, made);
    return Status();
  }

  Status AddNormGradient(NodeId gradient, Rewrite* out) {
    const Group& group = group_[static_cast<size_t>(gradient)];
    const auto through = graph_.inputs(group.relu);
    std::vector<Endpoint> inputs{out->Map(through[0])};
    const auto own = graph_.inputs(gradient);
    for (size_t i = 1; i < own.size(); ++i) inputs.push_back(out->Map(own[i]));
    inputs.push_back(out->Map(graph_.inputs(group.product)[2]));  // offset
    inputs.push_back(out->Map(through[1]));
    auto attrs = std::make_shared<Attrs>(graph_.attrs(gradient));
    attrs->Set("activation_mode", std::string("Relu"));
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->Add(gradient, "_FusedBatchNormGradEx", inputs, std::move(attrs),
                                 std::array{group.relu, gradient}));
    out->Replace(gradient, made);
    return Status();
  }

  Status AddJoinGradient(NodeId relu_grad, Rewrite* out) {
    const Group& group = group_[static_cast<size_t>(relu_grad)];
    const NodeId gradient = group.product;
    const auto through = graph_.inputs(relu_grad), own = graph_.inputs(gradient);
    const auto terms = group.bias < 0 ? through.first(1) : graph_.inputs(group.bias);
    std::vector<Endpoint> inputs{out->Map(terms[0])};
    for (size_t i = 1; i < own.size(); ++i) inputs.push_back(out->Map(own[i]));
    const NodeId norm = group_[static_cast<size_t>(through[1].node)].product;
    inputs.push_back(out->Map(graph_.inputs(norm)[2]));  // offset
    inputs.push_back(out->Map(through[1]));
    if (terms.size() > 1) inputs.push_back(out->Map(terms[1]));
    auto attrs = std::make_shared<Attrs>(graph_.attrs(gradient));
    attrs->Set("activation_mode", std::string("Relu"));
    attrs->Set("num_side_inputs", int64_t{1});
    attrs->Set("num_added", static_cast<int64_t>(terms.size() - 1));
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->Add(gradient, "_FusedBatchNormGradEx", inputs, std::move(attrs),
                                 std::array{group.bias, relu_grad, gradient}));
    out->Replace(gradient, made);
    out->Replace(relu_grad, made, 5);
    return Status();
  }

  Status AddConvGradients(NodeId first, Rewrite* out) {
    const Group& group = group_[static_cast<size_t>(first)];
    const auto of = graph_.inputs(group.product);
    auto attrs = std::make_shared<Attrs>(graph_.attrs(group.product));
    attrs->Set("num_filters", int64_t{group.bias >= 0 ? 1 : 0});
    attrs->Set("num_args", int64_t{group.pool >= 0 ? 2 : 0});
    std::vector<Endpoint> inputs{out->Map(of[0]), out->Map(of[1]), {}}, pooled;
    NodeId pool = group.pool;
    if (pool < 0) {
      inputs[2] = out->Map(of[2]);
    } else {
      const NodeId small = small_[static_cast<size_t>(pool)];
      if (small >= 0) pool = group_[static_cast<size_t>(pool)].product;
      const auto sources = graph_.inputs(pool);
      inputs[2] = small >= 0 ? Endpoint{small, 0} : out->Map(sources[2]);
      pooled = {out->Map(sources[0]), out->Map(sources[1])};
      attrs->Set("fused_ops", std::vector<std::string>{"MaxPoolGrad"});
      attrs->Set("pool_padding", graph_.attrs(pool).Get<std::string>("padding"));
    }
    if (group.bias >= 0) inputs.push_back(out->Map(graph_.inputs(group.bias)[1]));
    inputs.insert(inputs.end(), pooled.begin(), pooled.end());
    MG_ASSIGN_OR_RETURN(const NodeId made,
                        out->Add(group.product, "_Conv2DBackprop", inputs, std::move(attrs),
                                 std::array{group.product, group.bias, group.pool}));
    out->Replace(group.product, made);
    if (group.bias >= 0) out->Replace(group.bias, made, 1);
    return Status();
  }

  const Graph& graph_;
  const OutEdges consumers_;
  std::vector<Group> group_;
  std::vector<bool> absorbed_;
  std::vector<size_t> position_;  // in topological order
  std::vector<NodeId> small_;     // of a pool-gradient group: its new ReluGrad
  std::vector<int32_t> region_;   // ControlFlow::region; empty: no control flow
};

}  // namespace

Result<Graph> FuseOps(const Graph& graph) { return Fuser(graph).Run(); }

}  // namespace monograph
