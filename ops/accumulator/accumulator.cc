// Accumulators and the step gate: functions that build the nodes, shape functions, definitions. A
// handle says nothing of the type of its gradients, so the functions that take gradients look at
// the node that made the handle (MakerOf). The rank of a gradient is the attribute _mg_rank, since
// TensorFlow's op has no input for it.
#include "ops/accumulator/accumulator.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"

namespace monograph {

Output ConditionalAccumulator(const Scope& scope, DType dtype, const PartialShape& shape,
                              const ConditionalAccumulatorOptions& options) {
  const bool mean = options.reduction == ConditionalAccumulatorOptions::Reduction::kMean;
  return OpBuilder(scope, "ResourceConditionalAccumulator")
      .Attr("dtype", dtype)
      .Attr("shape", shape)
      .Attr("container", options.container)
      .Attr("shared_name", options.shared_name)
      .Attr("reduction_type", mean ? "MEAN" : "SUM")
      .BuildOutput();
}

namespace {

// The node that makes the accumulator; invalid, and the scope fails, if there is none.
Operation MakerOf(const Scope& scope, const Output& accumulator, const char* what) {
  if (!scope.ok() || !accumulator.valid()) return {};
  Operation node = accumulator;
  while (node.graph->is(node.id, "Identity")) node = node.input(0);
  if (node.attrs().GetOr<DType>("dtype", DT_INVALID) != DT_INVALID) return node;
  scope.Fail(InvalidArgument(std::string(what) + ": '" + std::string(node.name()) +
                             "' is not an accumulator's node"));
  return {};
}

}  // namespace

Operation AccumulatorApplyGradient(const Scope& scope, const Output& accumulator,
                                   const Output& local_step, const Output& gradient, int rank) {
  OpBuilder builder(scope, "ResourceAccumulatorApplyGradient");
  builder.Input(accumulator).Input(local_step).Input(gradient);
  if (rank >= 0) builder.Attr("_mg_rank", rank);
  return builder.Build();
}

Output AccumulatorTakeGradient(const Scope& scope, const Output& accumulator,
                               const Output& num_required) {
  const Operation maker = MakerOf(scope, accumulator, "AccumulatorTakeGradient");
  if (!maker.valid()) return {};
  return OpBuilder(scope, "ResourceAccumulatorTakeGradient")
      .Input(accumulator)
      .Input(num_required)
      .Attr("dtype", maker.attrs().Get<DType>("dtype"))
      .BuildOutput();
}

Output AccumulatorTakeGradient(const Scope& scope, const Output& accumulator, int num_required) {
  const Scope helper = scope.HelperScope("ResourceAccumulatorTakeGradient");
  return AccumulatorTakeGradient(scope, accumulator,
                                 Const(helper.WithOpName("num_required"), num_required));
}

Output SparseConditionalAccumulator(const Scope& scope, DType dtype, const PartialShape& shape,
                                    DType indices_dtype,
                                    const ConditionalAccumulatorOptions& options) {
  const bool mean = options.reduction == ConditionalAccumulatorOptions::Reduction::kMean;
  return OpBuilder(scope, "MonographSparseConditionalAccumulator")
      .Attr("dtype", dtype)
      .Attr("Tindices", indices_dtype)
      .Attr("shape", shape)
      .Attr("container", options.container)
      .Attr("shared_name", options.shared_name)
      .Attr("reduction_type", mean ? "MEAN" : "SUM")
      .BuildOutput();
}

Operation SparseAccumulatorApplyGradient(const Scope& scope, const Output& accumulator,
                                         const Output& local_step, const Gradient& rows, int rank) {
  OpBuilder builder(scope, "MonographSparseAccumulatorApplyGradient");
  builder.Input(accumulator).Input(local_step).Input(rows.indices).Input(rows.values);
  if (rank >= 0) builder.Attr("_mg_rank", rank);
  return builder.Build();
}

Gradient SparseAccumulatorTakeGradient(const Scope& scope, const Output& accumulator,
                                       const Output& num_required) {
  const Operation maker = MakerOf(scope, accumulator, "SparseAccumulatorTakeGradient");
  if (!maker.valid()) return {};
  const Operation take = OpBuilder(scope, "MonographSparseAccumulatorTakeGradient")
                             .Input(accumulator)
                             .Input(num_required)
                             .Attr("dtype", maker.attrs().Get<DType>("dtype"))
                             .Attr("Tindices", maker.attrs().GetOr<DType>("Tindices", DT_INT64))
                             .Build();
  if (!take.valid()) return {};
  return {take.output(1), take.output(0)};
}

Operation AccumulatorSetGlobalStep(const Scope& scope, const Output& accumulator,
                                   const Output& new_global_step) {
  return OpBuilder(scope, "ResourceAccumulatorSetGlobalStep")
      .Input(accumulator)
      .Input(new_global_step)
      .Build();
}

Output AccumulatorNumAccumulated(const Scope& scope, const Output& accumulator) {
  return OpBuilder(scope, "ResourceAccumulatorNumAccumulated").Input(accumulator).BuildOutput();
}

Output AccumulatorRanks(const Scope& scope, const Output& accumulator) {
  return OpBuilder(scope, "MonographAccumulatorRanks").Input(accumulator).BuildOutput();
}

Output StepGate(const Scope& scope, const std::string& shared_name) {
  return OpBuilder(scope, "MonographStepGate").Attr("shared_name", shared_name).BuildOutput();
}

Operation StepGateSet(const Scope& scope, const Output& gate, const Output& step, bool restart) {
  return OpBuilder(scope, "MonographStepGateSet")
      .Input(gate)
      .Input(step)
      .Attr("restart", restart)
      .Build();
}

Output StepGateWait(const Scope& scope, const Output& gate, const Output& local_step,
                    const StepGateReplica& replica) {
  return OpBuilder(scope, "MonographStepGateWait")
      .Input(gate)
      .Input(local_step)
      .Attr("rank", replica.rank)
      .Attr("replicas", replica.replicas)
      .Attr("required", replica.required)
      .Attr("replica", replica.name)
      .BuildOutput();
}

Operation StepGateClose(const Scope& scope, const Output& gate, const Output& code,
                        const Output& message) {
  return OpBuilder(scope, "MonographStepGateClose").Input(gate).Input(code).Input(message).Build();
}

Operation StepGateHold(const Scope& scope, const Output& gate, const std::string& holder) {
  return OpBuilder(scope, "MonographStepGateHold").Input(gate).Attr("holder", holder).Build();
}

Output StepGateStep(const Scope& scope, const Output& gate) {
  return OpBuilder(scope, "MonographStepGateStep").Input(gate).BuildOutput();
}

namespace ops::accumulator {
namespace {

constexpr char kNumbers[] = "{bfloat16, half, float, double, int32, int64}";

Status ApplyShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  return PartialShape::Merge(c.handle_shape(0), c.input(2)).status();
}

Status TakeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, c.handle_shape(0));
  return Status();
}

// The variable's shape with any number of rows.
PartialShape RowsOf(PartialShape shape) {
  if (shape.known_rank() && shape.rank() > 0) shape.set_dim(0, -1);
  return shape;
}

Status SparseAccumulatorShape(ShapeContext& c) {
  const auto shape = c.attr<PartialShape>("shape");
  if (shape.known_rank() && shape.rank() == 0)
    return InvalidArgument("a scalar has no rows: shape must have a first dimension");
  return ScalarShape(c);
}

Status SparseApplyShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(2, 1));
  const PartialShape& rows = c.input(3);
  if (rows.known_rank() && rows.rank() > 0 && rows.dim(0) >= 0 && indices.dim(0) >= 0 &&
      rows.dim(0) != indices.dim(0)) {
    return InvalidArgument(std::to_string(rows.dim(0)) + " rows of a gradient but " +
                           std::to_string(indices.dim(0)) + " indices");
  }
  return PartialShape::Merge(RowsOf(c.handle_shape(0)), RowsOf(rows)).status();
}

Status SparseTakeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, PartialShape{-1});
  c.set_output(1, RowsOf(c.handle_shape(0)));
  return Status();
}

// A variable whose shape is said to be a scalar may have any (SyncReplicasOptimizer says so).
Status ByRowTakeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, PartialShape{-1});
  c.set_output(2, PartialShape{-1});
  return Status();
}

Status ByRowApplyShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MG_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  return c.WithRank(4, 1).status();
}

Status ScalarInputsShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::Scalar());
  return Status();
}

Status RanksShape(ShapeContext& c) {
  c.set_output(0, PartialShape{-1});
  return Status();
}

// An op on a resource. Inputs and outputs besides the handle are added by the caller.
OpDef OnHandle(const char* name) {
  OpDef def(name);
  def.Input("handle: resource").Stateful().Shape(ScalarInputsShape).NoGradient();
  return def;
}

void DefineSparse(OpRegistry* registry, const std::string& numbers) {
  const char* const indices = "Tindices: {int32, int64} = DT_INT64";
  registry->Add(OpDef("MonographSparseConditionalAccumulator")
                    .Output("handle: resource")
                    .Attr("dtype: " + numbers)
                    .Attr(indices)
                    .Attr("shape: shape")
                    .Attr("container: string = ''")
                    .Attr("shared_name: string = ''")
                    .Attr("reduction_type: {'MEAN', 'SUM'} = 'MEAN'")
                    .Stateful()
                    .Shape(SparseAccumulatorShape)
                    .NoGradient());
  registry->Add(OnHandle("MonographSparseAccumulatorApplyGradient")
                    .Input("local_step: int64")
                    .Input("indices: Tindices")
                    .Input("values: dtype")
                    .Attr("dtype: " + numbers)
                    .Attr(indices)
                    .Shape(SparseApplyShape));
  registry->Add(OnHandle("MonographSparseAccumulatorTakeGradient")
                    .Input("num_required: int32")
                    .Output("indices: Tindices")
                    .Output("values: dtype")
                    .Attr("dtype: " + numbers)
                    .Attr(indices)
                    .MayWait()
                    .Shape(SparseTakeShape));
}

OpDef Accumulator(const std::string& name, const std::string& numbers) {
  return OpDef(name)
      .Output("handle: resource")
      .Attr("dtype: " + numbers)
      .Attr("shape: shape")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Attr("reduction_type: {'MEAN', 'SUM'} = 'MEAN'")
      .Stateful()
      .Shape(ScalarShape)
      .NoGradient();
}

// TensorFlow's accumulators of rows, which it has by reference alone. Below them ops on resources.
void DefineByRow(OpRegistry* registry, const std::string& numbers) {
  registry->Add(Accumulator("_SparseConditionalAccumulator", numbers));
  registry->Add(OnHandle("_SparseAccumulatorApplyGradient")
                    .Input("local_step: int64")
                    .Input("gradient_indices: int64")
                    .Input("gradient_values: dtype")
                    .Input("gradient_shape: int64")
                    .Attr("dtype: " + numbers)
                    .Attr("has_known_shape: bool")
                    .Shape(ByRowApplyShape));
  registry->Add(OnHandle("_SparseAccumulatorTakeGradient")
                    .Input("num_required: int32")
                    .Output("indices: int64")
                    .Output("values: dtype")
                    .Output("shape: int64")
                    .Attr("dtype: " + numbers)
                    .MayWait()
                    .Shape(ByRowTakeShape));
  for (const std::string name : {"SparseConditionalAccumulator", "SparseAccumulatorApplyGradient",
                                 "SparseAccumulatorTakeGradient"})
    registry->AddStringReferenceForm(name, "_" + name);
}

void DefineStepGate(OpRegistry* registry) {
  registry->Add(OpDef("MonographStepGate")
                    .Output("handle: resource")
                    .Attr("container: string = ''")
                    .Attr("shared_name: string = ''")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(
      OnHandle("MonographStepGateSet").Input("step: int64").Attr("restart: bool = false"));
  registry->Add(OnHandle("MonographStepGateWait")
                    .Input("local_step: int64")
                    .Output("step: int64")
                    .Attr("rank: int = -1")
                    .Attr("replicas: int = 0")
                    .Attr("required: int = 0")
                    .Attr("replica: string = ''")
                    .MayWait());
  registry->Add(OnHandle("MonographStepGateClose").Input("code: int32").Input("message: string"));
  registry->Add(OnHandle("MonographStepGateStep").Output("step: int64"));
  registry->Add(OnHandle("MonographStepGateHold").Attr("holder: string"));
}

}  // namespace

void Define(OpRegistry* registry) {
  const std::string numbers = kNumbers;
  registry->Add(Accumulator("ResourceConditionalAccumulator", numbers));
  registry->Add(OnHandle("ResourceAccumulatorApplyGradient")
                    .Input("local_step: int64")
                    .Input("gradient: dtype")
                    .Attr("dtype: " + numbers)
                    .Shape(ApplyShape));
  registry->Add(OnHandle("ResourceAccumulatorTakeGradient")
                    .Input("num_required: int32")
                    .Output("average: dtype")
                    .Attr("dtype: " + numbers)
                    .MayWait()
                    .Shape(TakeShape));
  registry->Add(OnHandle("ResourceAccumulatorSetGlobalStep").Input("new_global_step: int64"));
  registry->Add(OnHandle("ResourceAccumulatorNumAccumulated").Output("num_accumulated: int32"));
  for (const std::string name :
       {"ConditionalAccumulator", "AccumulatorApplyGradient", "AccumulatorTakeGradient",
        "AccumulatorSetGlobalStep", "AccumulatorNumAccumulated"})
    registry->AddStringReferenceForm(name, "Resource" + name);
  registry->Add(OnHandle("MonographAccumulatorRanks").Output("ranks: int64").Shape(RanksShape));
  DefineSparse(registry, numbers);
  DefineByRow(registry, numbers);
  DefineStepGate(registry);
}

}  // namespace ops::accumulator
}  // namespace monograph
