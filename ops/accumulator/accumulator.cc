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

Operation AccumulatorApplyGradient(const Scope& scope, const Output& accumulator,
                                   const Output& local_step, const Output& gradient, int rank) {
  OpBuilder builder(scope, "ResourceAccumulatorApplyGradient");
  builder.Input(accumulator).Input(local_step).Input(gradient);
  if (rank >= 0) builder.Attr("_mg_rank", rank);
  return builder.Build();
}

Output AccumulatorTakeGradient(const Scope& scope, const Output& accumulator,
                               const Output& num_required) {
  if (!scope.ok() || !accumulator.valid()) return {};
  Operation node = accumulator;
  while (node.graph->is(node.id, "Identity")) node = node.input(0);
  const DType dtype = node.attrs().GetOr<DType>("dtype", DT_INVALID);
  if (dtype == DT_INVALID) {
    scope.Fail(InvalidArgument("AccumulatorTakeGradient: '" + std::string(node.name()) +
                               "' is not an accumulator's node"));
    return {};
  }
  return OpBuilder(scope, "ResourceAccumulatorTakeGradient")
      .Input(accumulator)
      .Input(num_required)
      .Attr("dtype", dtype)
      .BuildOutput();
}

Output AccumulatorTakeGradient(const Scope& scope, const Output& accumulator, int num_required) {
  const Scope helper = scope.HelperScope("ResourceAccumulatorTakeGradient");
  return AccumulatorTakeGradient(scope, accumulator,
                                 Const(helper.WithOpName("num_required"), num_required));
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

Output StepGateWait(const Scope& scope, const Output& gate, const Output& local_step) {
  return OpBuilder(scope, "MonographStepGateWait").Input(gate).Input(local_step).BuildOutput();
}

Operation StepGateClose(const Scope& scope, const Output& gate, const Output& code,
                        const Output& message) {
  return OpBuilder(scope, "MonographStepGateClose").Input(gate).Input(code).Input(message).Build();
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
  registry->Add(OnHandle("MonographStepGateWait").Input("local_step: int64").Output("step: int64"));
  registry->Add(OnHandle("MonographStepGateClose").Input("code: int32").Input("message: string"));
  registry->Add(OnHandle("MonographStepGateStep").Output("step: int64"));
}

}  // namespace

void Define(OpRegistry* registry) {
  const std::string numbers = kNumbers;
  registry->Add(OpDef("ResourceConditionalAccumulator")
                    .Output("handle: resource")
                    .Attr("dtype: " + numbers)
                    .Attr("shape: shape")
                    .Attr("container: string = ''")
                    .Attr("shared_name: string = ''")
                    .Attr("reduction_type: {'MEAN', 'SUM'} = 'MEAN'")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OnHandle("ResourceAccumulatorApplyGradient")
                    .Input("local_step: int64")
                    .Input("gradient: dtype")
                    .Attr("dtype: " + numbers)
                    .Shape(ApplyShape));
  registry->Add(OnHandle("ResourceAccumulatorTakeGradient")
                    .Input("num_required: int32")
                    .Output("average: dtype")
                    .Attr("dtype: " + numbers)
                    .Shape(TakeShape));
  registry->Add(OnHandle("ResourceAccumulatorSetGlobalStep").Input("new_global_step: int64"));
  registry->Add(OnHandle("ResourceAccumulatorNumAccumulated").Output("num_accumulated: int32"));
  registry->Add(OnHandle("MonographAccumulatorRanks").Output("ranks: int64").Shape(RanksShape));
  DefineStepGate(registry);
}

}  // namespace ops::accumulator
}  // namespace monograph
