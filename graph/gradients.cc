// Reverse-mode differentiation, in the phases of Run: Check the arguments; FindPaths marks the
// nodes on a path from an x to a y, the only ones to be differentiated; Seed puts grad_ys or ones
// at the ys; then, from the last node to the first, the gradients of a node's outputs are summed
// (Sum), and its op adds the nodes that compute those of the inputs (Differentiate). Contributions
// are sorted by consumer before they are summed, so that the order of a sum, and with it its bits,
// follows from the graph alone. Gradients of rows stay rows until somebody needs the whole tensor.
#include "graph/gradients.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/resource_handle.h"
#include "graph/structural_ops.h"

namespace monograph {
namespace {

// Only tensors of these types carry gradients; a variable's handle stands for its value.
bool CarriesGradient(DType dtype) {
  return IsFloating(dtype) || dtype == DT_COMPLEX64 || dtype == DT_COMPLEX128;
}

template <typename T>
Tensor Filled(const Shape& shape, T value) {
  Tensor tensor = Tensor::Allocate(kDTypeOf<T>, shape).value();
  T* data = tensor.template data<T>();
  std::fill(data, data + shape.elements(), value);
  return tensor;
}

// What one input of a consumer contributes to the gradient of an output. Sums are taken in the
// order of consumer and input.
struct Contribution {
  NodeId consumer;
  int32_t input;
  Gradient gradient;
};

Output MakeConst(const Scope& scope, Tensor value) {
  const DType dtype = value.dtype();
  return OpBuilder(scope, "Const")
      .Attr("value", std::move(value))
      .Attr("dtype", dtype)
      .BuildOutput();
}

PartialShape ShapeOfX(const Output& x) {
  return x.dtype() == DT_RESOURCE ? HandleShape(*x.graph, x.endpoint) : x.shape();
}

// The size of x's first dimension, a scalar.
Output NumRows(const Scope& scope, const Output& x) {
  const PartialShape shape = ShapeOfX(x);
  if (shape.known_rank() && shape.rank() > 0 && shape.dim(0) >= 0) {
    return MakeConst(scope.WithOpName("num_rows"), Tensor::Scalar<int64_t>(shape.dim(0)));
  }
  const Output dims = OpBuilder(scope, x.dtype() == DT_RESOURCE ? "VariableShape" : "Shape")
                          .Input(x)
                          .Attr("out_type", DT_INT64)
                          .BuildOutput();
  const Output first =
      OpBuilder(scope, "Slice")
          .Input(dims)
          .Input(MakeConst(scope.WithOpName("begin"), Tensor::Vector<int32_t>({0})))
          .Input(MakeConst(scope.WithOpName("size"), Tensor::Vector<int32_t>({1})))
          .BuildOutput();
  return OpBuilder(scope, "Reshape")
      .Input(first)
      .Input(MakeConst(scope.WithOpName("scalar"),
                       Tensor::FromValues<int32_t>(Shape{0}, std::initializer_list<int32_t>{})))
      .BuildOutput();
}

Output ConcatRows(const Scope& scope, const Outputs& parts) {
  return OpBuilder(scope, "ConcatV2")
      .Inputs(parts)
      .Input(MakeConst(scope.WithOpName("axis"), Tensor::Scalar<int32_t>(0)))
      .BuildOutput();
}

// Puts the rows of all parts into one gradient, in order.
Gradient ConcatSlices(const Scope& scope, std::span<const Contribution> parts) {
  bool wide = false;
  for (const Contribution& part : parts) wide |= part.gradient.indices.dtype() == DT_INT64;
  Outputs values, indices;
  for (const Contribution& part : parts) {
    values.push_back(part.gradient.values);
    Output index = part.gradient.indices;
    if (wide && index.dtype() != DT_INT64) {
      index = OpBuilder(scope, "Cast").Input(index).Attr("DstT", DT_INT64).BuildOutput();
    }
    indices.push_back(index);
  }
  return {ConcatRows(scope.SubScope("values"), values),
          ConcatRows(scope.SubScope("indices"), indices)};
}

class Differentiator {
 public:
  Differentiator(const Scope& scope, std::span<const Output> ys, std::span<const Output> xs,
                 std::span<const Output> grad_ys, const GradientOptions& options)
      : outer_(scope),
        scope_(scope.SubScope("gradients")),
        graph_(*scope.graph()),
        ys_(ys),
        xs_(xs),
        grad_ys_(grad_ys),
        options_(options) {}

  Result<std::vector<Gradient>> Run() {
    MG_RETURN_IF_ERROR(Check());
    MG_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    FindPaths(order);
    MG_RETURN_IF_ERROR(Seed());
    for (auto node = order.rbegin(); node != order.rend(); ++node) {
      if (active_[Index(*node)]) MG_RETURN_IF_ERROR(Differentiate(*node));
    }
    std::vector<Gradient> results;
    for (const Output& x : xs_) {
      MG_ASSIGN_OR_RETURN(const Gradient gradient, Sum(x.endpoint));
      results.push_back(gradient);
    }
    return results;
  }

  // Densify, with the new nodes on the device of x.
  Result<Output> Dense(const Gradient& gradient, const Output& x) {
    if (!gradient.sparse()) return gradient.values;
    const Output dense = Densify(NodeScope(x.node()).SubScope("densify"), gradient, x);
    MG_RETURN_IF_ERROR(scope_.status().WithContext("the gradient of '" + x.name() + "'"));
    return dense;
  }

 private:
  static size_t Index(NodeId node) { return static_cast<size_t>(node); }

  Status Check() {
    MG_RETURN_IF_ERROR(outer_.status());
    if (ys_.empty()) return InvalidArgument("AddGradients: there are no ys");
    if (!grad_ys_.empty() && grad_ys_.size() != ys_.size()) {
      return InvalidArgument(
          fmt::format("AddGradients: {} ys but {} grad_ys", ys_.size(), grad_ys_.size()));
    }
    auto check = [&](const char* what, const Output& output) {
      if (output.valid() && output.graph == &graph_) return Status();
      return InvalidArgument(std::string("AddGradients: one of the ") + what +
                             (output.valid()
                                  ? " is a tensor of another graph: '" + output.name() + "'"
                                  : std::string(" is not a tensor")));
    };
    for (const Output& y : ys_) MG_RETURN_IF_ERROR(check("ys", y));
    for (const Output& x : xs_) MG_RETURN_IF_ERROR(check("xs", x));
    for (const Output& stop : options_.stop_gradients)
      MG_RETURN_IF_ERROR(check("stop_gradients", stop));
    for (size_t i = 0; i < ys_.size(); ++i) {
      const Output& y = ys_[i];
      if (!CarriesGradient(y.dtype())) {
        return InvalidArgument(fmt::format("AddGradients: '{}' of type {} cannot be differentiated",
                                           y.name(), DTypeName(y.dtype())));
      }
      if (grad_ys_.empty() || !grad_ys_[i].valid()) continue;
      MG_RETURN_IF_ERROR(check("grad_ys", grad_ys_[i]));
      if (grad_ys_[i].dtype() != y.dtype()) {
        return InvalidArgument(
            fmt::format("AddGradients: the gradient given for '{}' is {}, not {}", y.name(),
                        DTypeName(grad_ys_[i].dtype()), DTypeName(y.dtype())));
      }
    }
    return Status();
  }

  // A node is active if it lies on a path from an x to a y.
  void FindPaths(const std::vector<NodeId>& order) {
    const size_t n = Index(graph_.num_nodes());
    std::vector<bool> before_y(n);
    for (const Output& y : ys_) before_y[Index(y.node())] = true;
    for (auto node = order.rbegin(); node != order.rend(); ++node) {
      if (!before_y[Index(*node)]) continue;
      for (const Endpoint& input : graph_.inputs(*node)) before_y[Index(input.node)] = true;
    }
    for (const Output& x : xs_) is_x_.insert(x.endpoint);
    for (const Output& stop : options_.stop_gradients) stops_.insert(stop.endpoint);
    active_.assign(n, false);
    for (NodeId node : order) {
      if (!before_y[Index(node)]) continue;
      for (const Endpoint& input : graph_.inputs(node)) {
        if (!Flows(input)) continue;
        active_[Index(node)] = true;
        break;
      }
    }
  }

  // Whether a gradient that reaches this output leads on to some x.
  bool Flows(Endpoint e) const {
    const DType dtype = graph_.dtype(e);
    if (!CarriesGradient(dtype) && dtype != DT_RESOURCE && dtype != DT_INVALID) return false;
    return is_x_.contains(e) || (active_[Index(e.node)] && !stops_.contains(e));
  }

  Scope NodeScope(NodeId node) const {
    Scope scope = scope_;
    if (options_.colocate_with_forward) {
      if (!graph_.device(node).empty()) scope = scope.WithDevice(graph_.device(node).ToString());
      scope = scope.ClearColocation().ColocateWith(Operation(&graph_, node));
    }
    return scope;
  }

  Status Seed() {
    for (size_t i = 0; i < ys_.size(); ++i) {
      const Output& y = ys_[i];
      Output gradient;
      if (!grad_ys_.empty() && grad_ys_[i].valid()) {
        gradient = grad_ys_[i];
      } else {
        MG_ASSIGN_OR_RETURN(gradient, Ones(y, "grad_ys_" + std::to_string(i)));
      }
      contributions_[y.endpoint].push_back(
          {graph_.num_nodes(), static_cast<int32_t>(i), {gradient}});
    }
    return Status();
  }

  Result<Tensor> OnesTensor(const Output& y, const Shape& shape) const {
    switch (y.dtype()) {
      case DT_FLOAT:
        return Filled(shape, 1.0f);
      case DT_DOUBLE:
        return Filled(shape, 1.0);
      case DT_HALF:
        return Filled(shape, half(1.0f));
      case DT_BFLOAT16:
        return Filled(shape, bfloat16(1.0f));
      default:
        return Unimplemented(fmt::format("AddGradients: no ones of type {} for '{}'; give grad_ys",
                                         DTypeName(y.dtype()), y.name()));
    }
  }

  Result<Output> Ones(const Output& y, const std::string& name) const {
    const Scope scope = NodeScope(y.node());
    Output ones;
    if (y.shape().fully_known() && y.shape().elements() <= 1024) {
      MG_ASSIGN_OR_RETURN(Tensor value, OnesTensor(y, y.shape().AsShape()));
      ones = MakeConst(scope.WithOpName(name), std::move(value));
    } else {
      MG_ASSIGN_OR_RETURN(Tensor one, OnesTensor(y, Shape()));
      const Output shape = OpBuilder(scope, "Shape").Input(y).BuildOutput();
      ones = OpBuilder(scope.WithOpName(name), "Fill")
                 .Input(shape)
                 .Input(MakeConst(scope, std::move(one)))
                 .BuildOutput();
    }
    MG_RETURN_IF_ERROR(scope_.status());
    return ones;
  }

  // The gradient of an output: the sum of what its consumers contribute, in order of consumers;
  // invalid if none does.
  Result<Gradient> Sum(Endpoint e) {
    auto found = contributions_.find(e);
    if (found == contributions_.end()) return Gradient();
    std::vector<Contribution>& list = found->second;
    if (list.size() > 1) {
      std::sort(list.begin(), list.end(), [](const Contribution& a, const Contribution& b) {
        return a.consumer != b.consumer ? a.consumer < b.consumer : a.input < b.input;
      });
      const Gradient sum = AddUp(Output{&graph_, e}, list);
      if (!scope_.ok()) {
        return scope_.status().WithContext("summing the gradients of '" + graph_.TensorName(e) +
                                           "'");
      }
      list = {{list[0].consumer, list[0].input, sum}};
    }
    return list[0].gradient;
  }

  Gradient AddUp(const Output& x, std::span<const Contribution> list) {
    const Scope beside = NodeScope(x.node());
    const auto sparse = [](const Contribution& c) { return c.gradient.sparse(); };
    if (std::all_of(list.begin(), list.end(), sparse)) {
      return ConcatSlices(beside.SubScope("concat"), list);
    }
    Outputs terms;
    for (const Contribution& c : list) {
      terms.push_back(c.gradient.sparse() ? Densify(beside.SubScope("densify"), c.gradient, x)
                                          : c.gradient.values);
    }
    return {OpBuilder(beside.WithOpName("AddN"), "AddN").Inputs(terms).BuildOutput()};
  }

  Status Differentiate(NodeId node) {
    std::vector<Gradient> gradients;
    bool any = false;
    for (int i = 0; i < graph_.num_outputs(node); ++i) {
      const Endpoint output{node, i};
      Gradient gradient;
      if (!stops_.contains(output)) {
        MG_ASSIGN_OR_RETURN(gradient, Sum(output));
      }
      any = any || gradient.valid();
      gradients.push_back(gradient);
    }
    if (!any) return Status();
    const OpDef& op = graph_.op(node);
    if (op.no_gradient()) return Status();
    if (op.gradient() == nullptr) {
      return Unimplemented(fmt::format(
          "AddGradients: node {}{}", graph_.NodeText(node),
          IsCall(graph_, node)
              ? " calls a function, and gradients do not go through calls: take the gradient "
                "inside the function "
                "(as Replicate does), or inline it first (InlineFunctions)"
              : " has no gradient; StopGradient in front of it keeps gradients out"));
    }
    const std::vector<Endpoint> inputs(graph_.inputs(node).begin(), graph_.inputs(node).end());
    const Scope scope = NodeScope(node).SubScope(std::string(graph_.name(node)) + "_grad");
    GradientContext context(scope, Operation(&graph_, node), gradients,
                            static_cast<int>(inputs.size()));
    Status status = op.gradient()(context);
    status.Update(scope_.status());
    if (!status.ok()) return status.WithContext("gradient of node " + graph_.NodeText(node));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Gradient& gradient = context.input_gradients()[i];
      if (!gradient.valid() || !Flows(inputs[i])) continue;
      MG_RETURN_IF_ERROR(CheckGradient(node, i, inputs[i], gradient));
      contributions_[inputs[i]].push_back({node, static_cast<int32_t>(i), gradient});
    }
    return Status();
  }

  // A gradient has the type and the shape of what it belongs to, or rows of that shape.
  Status CheckGradient(NodeId node, size_t i, Endpoint input, const Gradient& gradient) {
    const std::string what =
        "the gradient of node " + graph_.NodeText(node) + " for its input " + std::to_string(i);
    const bool handle = graph_.dtype(input) == DT_RESOURCE;
    const DType dtype = handle ? HandleDType(graph_, input) : graph_.dtype(input);
    const Output& values = gradient.values;
    if (values.dtype() != dtype && !(handle && dtype == DT_INVALID)) {
      return Internal(
          fmt::format("{} is {}, the input {}", what, DTypeName(values.dtype()), DTypeName(dtype)));
    }
    PartialShape wanted = handle ? HandleShape(graph_, input) : graph_.shape(input);
    if (gradient.sparse() && wanted.known_rank() && wanted.rank() > 0) wanted.set_dim(0, -1);
    Result<PartialShape> merged = PartialShape::Merge(values.shape(), wanted);
    if (!merged.ok()) {
      return Internal(fmt::format("{} has shape {}, the input {}", what, values.shape().ToString(),
                                  wanted.ToString()));
    }
    if (*merged != values.shape()) graph_.SetShape(values.endpoint, *merged);
    return Status();
  }

  Scope outer_, scope_;
  Graph& graph_;
  std::span<const Output> ys_, xs_, grad_ys_;
  const GradientOptions& options_;
  std::vector<bool> active_;
  std::set<Endpoint> is_x_, stops_;
  std::map<Endpoint, std::vector<Contribution>> contributions_;
};

}  // namespace

Output Densify(const Scope& scope, const Gradient& gradient, const Output& x) {
  if (!gradient.sparse() || !scope.ok()) return gradient.values;
  const Output dense = OpBuilder(scope, "UnsortedSegmentSum")
                           .Input(gradient.values)
                           .Input(gradient.indices)
                           .Input(NumRows(scope, x))
                           .BuildOutput();
  if (!scope.ok()) return dense;
  Result<PartialShape> merged = PartialShape::Merge(dense.shape(), ShapeOfX(x));
  if (!merged.ok()) {
    scope.Fail(merged.status().WithContext("rows of the gradient of '" + x.name() + "'"));
    return {};
  }
  scope.graph()->SetShape(dense.endpoint, *merged);
  return dense;
}

const Output& GradientContext::grad(int i) {
  Gradient& gradient = output_gradients_[static_cast<size_t>(i)];
  if (gradient.sparse()) {
    gradient = {Densify(scope_.SubScope("densify"), gradient, op_.output(i))};
  }
  return gradient.values;
}

Result<std::vector<Gradient>> AddSparseGradients(const Scope& scope, std::span<const Output> ys,
                                                 std::span<const Output> xs,
                                                 std::span<const Output> grad_ys,
                                                 const GradientOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  return Differentiator(scope, ys, xs, grad_ys, options).Run();
}

Result<Outputs> AddGradients(const Scope& scope, std::span<const Output> ys,
                             std::span<const Output> xs, std::span<const Output> grad_ys,
                             const GradientOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  Differentiator differentiator(scope, ys, xs, grad_ys, options);
  MG_ASSIGN_OR_RETURN(const std::vector<Gradient> gradients, differentiator.Run());
  Outputs dense;
  for (size_t i = 0; i < gradients.size(); ++i) {
    MG_ASSIGN_OR_RETURN(const Output gradient, differentiator.Dense(gradients[i], xs[i]));
    dense.push_back(gradient);
  }
  return dense;
}

}  // namespace monograph
