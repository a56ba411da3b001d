#include "ops/summary/summary.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/types.h"

namespace monograph {

Output ScalarSummary(const Scope& scope, Output tags, Output values) {
  return OpBuilder(scope, "ScalarSummary").Input(tags).Input(values).BuildOutput();
}

Output HistogramSummary(const Scope& scope, Output tag, Output values) {
  return OpBuilder(scope, "HistogramSummary").Input(tag).Input(values).BuildOutput();
}

Output TensorSummary(const Scope& scope, Output tag, Output tensor, Output metadata) {
  return OpBuilder(scope, "TensorSummaryV2").Input(tag).Input(tensor).Input(metadata).BuildOutput();
}

Output MergeSummary(const Scope& scope, const Outputs& inputs) {
  return OpBuilder(scope, "MergeSummary").Inputs(inputs).BuildOutput();
}

namespace ops::summary {

void Define(OpRegistry* registry) {
  registry->Add(OpDef("ScalarSummary")
                    .Input("tags: string")
                    .Input("values: T")
                    .Output("summary: string")
                    .Attr("T: " MG_OP_REAL_TYPES)
                    .NoGradient()
                    .Shape(ScalarShape));
  registry->Add(OpDef("HistogramSummary")
                    .Input("tag: string")
                    .Input("values: T")
                    .Output("summary: string")
                    .Attr("T: " MG_OP_REAL_TYPES " = float")
                    .NoGradient()
                    .Shape(ScalarShape));
  registry->Add(OpDef("TensorSummaryV2")
                    .Input("tag: string")
                    .Input("tensor: T")
                    .Input("serialized_summary_metadata: string")
                    .Output("summary: string")
                    .Attr("T: type")
                    .NoGradient()
                    .Shape(ScalarShape));
  registry->Add(OpDef("MergeSummary")
                    .Input("inputs: N * string")
                    .Output("summary: string")
                    .Attr("N: int >= 1")
                    .NoGradient()
                    .Shape(ScalarShape));
}

}  // namespace ops::summary
}  // namespace monograph
