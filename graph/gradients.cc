// Reverse-mode differentiation, in the phases of Run: Check the arguments; FindPaths marks the
// nodes on a path from an x to a y; calls, Ifs, Cases and Whiles among them become the nodes of
// their functions (ExpandCalls), so that what follows knows Switches, Merges and loops only and
// nothing is computed a second time; Seed puts grad_ys or ones at the ys; then, from the last node
// to the first, the gradients of a node's outputs are summed (Sum), and its op adds the nodes that
// compute those of the inputs (Differentiate). Contributions are sorted by consumer before they are
// summed, so that the bits of a sum follow from the graph alone. A loop is one unit
// (DifferentiateLoop).
#include "graph/gradients.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "graph/control_flow.h"
#include "graph/function.h"
#include "graph/loop_values.h"
#include "graph/resource_handle.h"
#include "graph/structural_ops.h"
#include "graph/topological_sort.h"

namespace monograph {
namespace {

// Only tensors of these types carry gradients; a variable's handle stands for its value.
bool CarriesGradient(DType dtype) {
  return IsFloating(dtype) || IsComplex(dtype) || dtype == DT_VARIANT;
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

PartialShape ShapeOfX(const Output& x) {
  return x.dtype() == DT_RESOURCE ? HandleShape(*x.graph, x.endpoint) : x.shape();
}

// The size of x's first dimension, a scalar: an int32 where it fits, since a GPU's constants of
// that type lie in host memory, where who asks for it looks.
Output NumRows(const Scope& scope, const Output& x) {
  const PartialShape shape = ShapeOfX(x);
  if (shape.known_rank() && shape.rank() > 0 && shape.dim(0) >= 0) {
    const int64_t rows = shape.dim(0);
    return MakeConst(scope.WithOpName("num_rows"), rows <= std::numeric_limits<int32_t>::max()
                                                       ? Tensor::Scalar(static_cast<int32_t>(rows))
                                                       : Tensor::Scalar(rows));
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
        level_scope_(scope_),
        graph_(*scope.graph()),
        ys_(ys),
        xs_(xs),
        grad_ys_(grad_ys),
        options_(options) {}

  Result<std::vector<Gradient>> Run() {
    MG_RETURN_IF_ERROR(Check());
    MG_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
    FindPaths();
    if (const std::vector<NodeId> calls = CallsOnPaths(); !calls.empty()) {
      MG_RETURN_IF_ERROR(ExpandCalls(&graph_, calls).WithContext("AddGradients"));
      MG_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
      FindPaths();
    }
    if (graph_.has_flow_ops()) {
      MG_ASSIGN_OR_RETURN(ControlFlow flow, FindControlFlow(graph_));
      MG_RETURN_IF_ERROR(CheckOutside(flow));
      loops_.emplace(&graph_, std::move(flow),
                     [this](NodeId node) { return Beside(scope_, node); });
    }
    MG_RETURN_IF_ERROR(Seed());
    MG_RETURN_IF_ERROR(DifferentiateLevel(0));
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

  // A gradient is one of all iterations: what is asked for, and of what, is outside of loops.
  Status CheckOutside(const ControlFlow& flow) const {
    for (const std::span<const Output> outputs : {ys_, xs_}) {
      for (const Output& output : outputs) {
        const int32_t frame = flow.FrameOfOutputs(graph_, output.node());
        if (frame == 0) continue;
        return InvalidArgument("AddGradients: '" + output.name() + "' is inside of " +
                               flow.FrameText(frame) + "; take what enters or leaves the loop");
      }
    }
    return Status();
  }

  // A node is active if it lies on a path from an x to a y.
  void FindPaths() {
    const size_t n = Index(graph_.num_nodes());
    std::vector<bool> before_y(n);
    std::vector<NodeId> open;
    const auto mark = [&](NodeId node) {
      if (before_y[Index(node)]) return;
      before_y[Index(node)] = true;
      open.push_back(node);
    };
    for (const Output& y : ys_) mark(y.node());
    while (!open.empty()) {
      const NodeId node = open.back();
      open.pop_back();
      for (const Endpoint& input : graph_.inputs(node)) mark(input.node);
    }
    for (const Output& x : xs_) is_x_.insert(x.endpoint);
    for (const Output& stop : options_.stop_gradients) stops_.insert(stop.endpoint);
    active_.assign(n, false);
    const auto activate = [&](NodeId node) {
      if (!before_y[Index(node)] || active_[Index(node)]) return false;
      for (const Endpoint& input : graph_.inputs(node)) {
        if (!Flows(input)) continue;
        active_[Index(node)] = true;
        return true;
      }
      return false;
    };
    // Again where a loop's next iteration has found more.
    for (bool more = true; more;) {
      more = false;
      for (const NodeId node : order_) more |= activate(node) && graph_.has_flow_ops();
    }
  }

  // The calls, Ifs, Cases and Whiles that a gradient may go through.
  std::vector<NodeId> CallsOnPaths() const {
    std::vector<NodeId> calls;
    for (NodeId node = 0; node < graph_.num_nodes(); ++node) {
      if (!active_[Index(node)] || !(IsCall(graph_, node) || IsFunctional(graph_, node))) continue;
      bool flows = false;
      for (int i = 0; i < graph_.num_outputs(node); ++i) flows |= Flows({node, i});
      if (flows) calls.push_back(node);
    }
    return calls;
  }

  // ---- loops

  // A node, or all of a loop that is one of this level's.
  struct Unit {
    std::vector<NodeId> nodes;
    int32_t loop = 0;  // 0: a node
  };

  // The nodes and loops of a frame, each behind what it reads. A loop is a unit, as its gradient
  // needs those of all that leaves it.
  std::vector<Unit> UnitsOf(int32_t frame) const {
    const ControlFlow& flow = loops_->flow();
    std::vector<Unit> units;
    std::vector<int32_t> unit_of(active_.size(), -1);
    std::map<int32_t, int32_t> of_loop;
    for (const NodeId node : order_) {
      int32_t within = flow.entered[Index(node)];
      if (within < 0) within = flow.frame[Index(node)];
      if (within == frame && flow.entered[Index(node)] == frame) continue;
      while (within != frame && within != 0 && flow.frames[Index(within)].parent != frame)
        within = flow.frames[Index(within)].parent;
      if (within != frame && within == 0) continue;  // of another loop
      auto at = static_cast<int32_t>(units.size());
      if (within != frame) at = of_loop.try_emplace(within, at).first->second;
      if (Index(at) == units.size()) units.push_back({{}, within == frame ? 0 : within});
      units[Index(at)].nodes.push_back(node);
      unit_of[Index(node)] = at;
    }
    std::vector<std::vector<int32_t>> readers(units.size());
    for (const NodeId node : order_) {
      const int32_t to = unit_of[Index(node)];
      for (const Endpoint& input : graph_.inputs(node)) {
        const int32_t from = unit_of[Index(input.node)];
        if (to < 0 || from < 0 || from == to || graph_.IsBackEdge(input.node, node)) continue;
        readers[Index(from)].push_back(to);
      }
    }
    std::vector<Unit> sorted;
    for (const int32_t unit :
         TopologicalSort(units.size(), NextReady::kFirstIn, [&](int32_t from, const auto&visit) {
           for (const int32_t to : readers[Index(from)]) visit(to);
         })) {
      sorted.push_back(std::move(units[Index(unit)]));
    }
    return sorted;
  }

  Status DifferentiateLevel(int32_t frame) {
    if (!loops_.has_value() || loops_->flow().frames.size() == 1) {
      for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
        if (active_[Index(*node)]) MG_RETURN_IF_ERROR(Differentiate(*node));
      }
      return Status();
    }
    const std::vector<Unit> units = UnitsOf(frame);
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      if (unit->loop != 0) {
        MG_RETURN_IF_ERROR(DifferentiateLoop(unit->loop));
      } else if (active_[Index(unit->nodes[0])]) {
        const NodeId node = unit->nodes[0];
        MG_RETURN_IF_ERROR(IsOfLoop(node) ? ThroughConstant(node) : Differentiate(node));
      }
    }
    return Status();
  }

  // What a body reads of a constant may come through a Switch by the LoopCond, as that of a While
  // node does. Its gradient is that of the constant.
  Status ThroughConstant(NodeId node) {
    if (graph_.op(node).flow() != FlowOp::kSwitch) return Status();
    const Endpoint constant = graph_.inputs(node)[0];
    if (graph_.op(constant.node).flow() != FlowOp::kEnter || !Flows(constant)) return Status();
    MG_ASSIGN_OR_RETURN(const Gradient gradient, Sum({node, 1}));
    if (gradient.valid()) contributions_[constant].push_back({node, 0, gradient});
    return Status();
  }

  // Whether the node only drives the loop (its Merge, Switch, Enter, Exit, ...) and computes
  // nothing.
  bool IsOfLoop(NodeId node) const {
    const auto reads = [&](FlowOp flow) {
      return std::ranges::any_of(graph_.inputs(node), [&](const Endpoint& input) {
        return graph_.op(input.node).flow() == flow;
      });
    };
    switch (graph_.op(node).flow()) {
      case FlowOp::kMerge:
        return reads(FlowOp::kNextIteration);
      case FlowOp::kSwitch:
        return reads(FlowOp::kLoopCond);
      case FlowOp::kEnter:
      case FlowOp::kExit:
      case FlowOp::kNextIteration:
      case FlowOp::kLoopCond:
        return true;
      default:
        return false;
    }
  }

  Result<Output> DenseSum(const Scope& scope, Endpoint e) {
    MG_ASSIGN_OR_RETURN(const Gradient sum, Sum(e));
    return Densify(scope.SubScope("densify"), sum, Output{&graph_, e});
  }

  // What the loop of gradients carries from one iteration to the next.
  struct Carried {
    Output start, merge, stays, next, exit;
  };

  // Adds a loop that runs the iterations' gradients backwards. It carries the number of iterations
  // left, one gradient per loop variable and one sum per constant.
  Status DifferentiateLoop(int32_t frame) {
    MG_ASSIGN_OR_RETURN(LoopValues::Loop* const loop, loops_->FindLoop(frame));
    std::vector<LoopValues::Variable*> variables;
    std::vector<Output> starts;
    bool any = false;
    for (LoopValues::Variable& variable : loop->variables) {
      if (!active_[Index(variable.merge)] || !CarriesGradient(graph_.dtype({variable.merge, 0})))
        continue;
      Output start;
      if (variable.exit >= 0) {
        MG_ASSIGN_OR_RETURN(start, DenseSum(NodeScope(variable.exit), {variable.exit, 0}));
      }
      any = any || start.valid();
      variables.push_back(&variable);
      starts.push_back(start);
    }
    if (!any) return Status();
    MG_RETURN_IF_ERROR(loops_->CountIterations(loop));
    const Scope sub = level_scope_.SubScope(ScopeName(loop->name));
    std::vector<Carried> carried{{.start = loop->count}};
    for (size_t i = 0; i < variables.size(); ++i) {
      if (!starts[i].valid()) {
        if (variables[i]->exit < 0) MG_RETURN_IF_ERROR(loops_->AddExit(loop, variables[i]));
        starts[i] = ZerosOf(NodeScope(variables[i]->exit), {&graph_, {variables[i]->exit, 0}});
      }
      carried.push_back({.start = starts[i]});
    }
    std::vector<NodeId> constants;
    for (const NodeId enter : loop->constants) {
      if (!Flows({enter, 0})) continue;
      constants.push_back(enter);
      const Output outside{&graph_, graph_.inputs(enter)[0]};
      carried.push_back({.start = ZerosOf(NodeScope(enter), outside)});
    }
    MG_RETURN_IF_ERROR(scope_.status());
    LoopValues::Backward backward{.loop = loop,
                                  .inside = sub,
                                  .index = {},
                                  .first = 0,
                                  .entry = -1,
                                  .name = sub.prefix(),
                                  .led = {}};
    std::vector<Output> enters;
    for (const Carried& c : carried) {
      enters.push_back(OpBuilder(sub, "Enter")
                           .Input(c.start)
                           .Attr("frame_name", backward.name)
                           .Attr("parallel_iterations", int64_t{loop->parallel_iterations})
                           .BuildOutput());
    }
    MG_RETURN_IF_ERROR(scope_.status());
    backward.entry = enters[0].node();
    backward.first = graph_.num_nodes();
    for (size_t i = 0; i < carried.size(); ++i) {
      carried[i].merge =
          OpBuilder(sub, "Merge").Inputs(Outputs{enters[i], enters[i]}).BuildOutput();
      MG_RETURN_IF_ERROR(scope_.status());
      // In the loop variables may change their shapes, and their gradients do.
      if (i > 0 && i <= variables.size())
        graph_.SetShape(carried[i].merge.endpoint, graph_.shape({variables[i - 1]->merge, 0}));
    }
    const Scope asks = sub.WithControlDependencies({carried[0].merge});
    const Output more = OpBuilder(asks, "Greater")
                            .Input(carried[0].merge)
                            .Input(MakeConst(asks, Tensor::Scalar<int32_t>(0)))
                            .BuildOutput();
    const Output goes_on = OpBuilder(sub, "LoopCond").Input(more).BuildOutput();
    for (Carried& c : carried) {
      const Operation split = OpBuilder(sub, "Switch").Input(c.merge).Input(goes_on).Build();
      c.stays = OpBuilder(sub, "Identity").Input(split.output(1)).BuildOutput();
      c.exit = OpBuilder(sub, "Exit").Input(split.output(0)).BuildOutput();
    }
    MG_RETURN_IF_ERROR(scope_.status());
    backward.inside = sub.SubScope("body").WithControlDependencies({carried[0].stays});
    backward.index = carried[0].next =
        OpBuilder(backward.inside, "Sub")
            .Input(carried[0].stays)
            .Input(MakeConst(backward.inside, Tensor::Scalar<int32_t>(1)))
            .BuildOutput();
    MG_RETURN_IF_ERROR(scope_.status());

    const Scope outer = std::exchange(level_scope_, backward.inside);
    for (size_t i = 0; i < variables.size(); ++i) {
      const Endpoint given = graph_.inputs(variables[i]->next)[0];
      contributions_[given].push_back({variables[i]->next, 0, {carried[i + 1].stays}});
    }
    MG_RETURN_IF_ERROR(DifferentiateLevel(frame));
    for (size_t i = 0; i < variables.size(); ++i) {
      const Endpoint taken{variables[i]->switch_node, 1};
      Carried& c = carried[i + 1];
      MG_ASSIGN_OR_RETURN(c.next, DenseSum(NodeScope(taken.node), taken));
      if (!c.next.valid()) c.next = ZerosOf(NodeScope(taken.node), {&graph_, taken});
    }
    for (size_t i = 0; i < constants.size(); ++i) {
      Carried& c = carried[1 + variables.size() + i];
      MG_ASSIGN_OR_RETURN(const Output more_of_it,
                          DenseSum(NodeScope(constants[i]), {constants[i], 0}));
      c.next = !more_of_it.valid() ? c.stays
                                   : OpBuilder(NodeScope(constants[i]), "AddN")
                                         .Inputs(Outputs{c.stays, more_of_it})
                                         .BuildOutput();
    }
    level_scope_ = outer;
    for (const Carried& c : carried) {
      const Output back = OpBuilder(sub, "NextIteration").Input(c.next).BuildOutput();
      MG_RETURN_IF_ERROR(scope_.status());
      graph_.ReplaceInput(c.merge.node(), 1, back.endpoint);
    }
    MG_RETURN_IF_ERROR(loops_->LeadIn(&backward));
    for (size_t i = 0; i < variables.size() + constants.size(); ++i) {
      const NodeId enter =
          i < variables.size() ? variables[i]->enter : constants[i - variables.size()];
      const Endpoint outside = graph_.inputs(enter)[0];
      if (Flows(outside)) contributions_[outside].push_back({enter, 0, {carried[i + 1].exit}});
    }
    return Status();
  }

  // "while" of "model/while".
  static std::string ScopeName(const std::string& frame) {
    std::string name = frame.substr(frame.rfind('/') + 1) + "_grad";
    const bool good = std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    return good ? name : "loop_grad";
  }

  // Whether a gradient that reaches this output leads on to some x.
  bool Flows(Endpoint e) const {
    const DType dtype = graph_.dtype(e);
    if (!CarriesGradient(dtype) && dtype != DT_RESOURCE && dtype != DT_INVALID) return false;
    return is_x_.contains(e) || (active_[Index(e.node)] && !stops_.contains(e));
  }

  Scope NodeScope(NodeId node) const { return Beside(level_scope_, node); }
  Scope Beside(Scope scope, NodeId node) const {
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

  // Gradients of rows stay rows unless one of them is a whole tensor.
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
      if (gradient.valid() && IsComplex(graph_.dtype(output))) {
        return Unimplemented(fmt::format(
            "AddGradients: node {} gives complex numbers, whose gradients are not computed; "
            "StopGradient behind it keeps gradients out",
            graph_.NodeText(node)));
      }
      any = any || gradient.valid();
      gradients.push_back(gradient);
    }
    if (!any) return Status();
    const OpDef& op = graph_.op(node);
    if (op.no_gradient()) return Status();
    if (op.gradient() == nullptr) {
      return Unimplemented(
          fmt::format("AddGradients: node {} has no gradient; StopGradient in front of it keeps "
                      "gradients out",
                      graph_.NodeText(node)));
    }
    const std::vector<Endpoint> inputs(graph_.inputs(node).begin(), graph_.inputs(node).end());
    const Scope scope = NodeScope(node).SubScope(std::string(graph_.name(node)) + "_grad");
    GradientContext context(scope, scope_.prefix(), Operation(&graph_, node), gradients,
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

  // level_scope_: the scope of new nodes; the body of the gradient loop while one is built.
  Scope outer_, scope_, level_scope_;
  Graph& graph_;
  std::vector<NodeId> order_;        // of the nodes that were there before
  std::optional<LoopValues> loops_;  // if there are loops or branches
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

Output ZerosOf(const Scope& scope, const Output& x) {
  if (!scope.ok()) return {};
  if (x.dtype() != DT_RESOURCE) return OpBuilder(scope, "ZerosLike").Input(x).BuildOutput();
  const DType dtype = HandleDType(*x.graph, x.endpoint);
  if (dtype == DT_INVALID) {
    scope.Fail(Unimplemented("nothing tells the type of the variable whose handle '" + x.name() +
                             "' is, so there is no gradient of it"));
    return {};
  }
  const Output dims = OpBuilder(scope, "VariableShape").Input(x).BuildOutput();
  const Output zero = OpBuilder(scope, "Cast")
                          .Input(MakeConst(scope, Tensor::Scalar(0.0f)))
                          .Attr("DstT", dtype)
                          .BuildOutput();
  return OpBuilder(scope, "Fill").Input(dims).Input(zero).BuildOutput();
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
