// Definitions of barriers. TensorFlow has them by reference alone, as strings: what runs are the
// ops of the same names with a "_" before them, whose handles are resources.
#include <string>

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph::ops::barrier {
namespace {

// One row of the values for each key.
Status InsertShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape keys, c.WithRank(1, 1));
  const PartialShape& values = c.input(2);
  if (!values.known_rank()) return Status();
  const int64_t rows = values.rank() >= 1 ? values.dim(0) : 0, wanted = keys.dim(0);
  if (values.rank() >= 1 && (rows < 0 || wanted < 0 || rows == wanted)) return Status();
  return InvalidArgument("values of shape " + values.ToString() + " have no row for each of " +
                         keys.ToString() + " keys");
}

Status TakeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, PartialShape{-1});
  c.set_output(1, PartialShape{-1});
  return Status();
}

OpDef OnBarrier(const char* name) {
  return OpDef(name).Input("handle: resource").Stateful().NoGradient();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("_Barrier")
                    .Output("handle: resource")
                    .Attr("component_types: list(type) >= 1")
                    .Attr("shapes: list(shape) >= 0 = []")
                    .Attr("capacity: int = -1")
                    .Attr("container: string = ''")
                    .Attr("shared_name: string = ''")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OnBarrier("_BarrierInsertMany")
                    .Input("keys: string")
                    .Input("values: T")
                    .Attr("T: type")
                    .Attr("component_index: int")
                    .MayWait()
                    .Shape(InsertShape));
  registry->Add(OnBarrier("_BarrierTakeMany")
                    .Input("num_elements: int32")
                    .Output("indices: int64")
                    .Output("keys: string")
                    .Output("values: component_types")
                    .Attr("component_types: list(type) >= 1")
                    .Attr("allow_small_batch: bool = false")
                    .Attr("wait_for_incomplete: bool = false")
                    .Attr("timeout_ms: int = -1")
                    .MayWait()
                    .Shape(TakeShape));
  registry->Add(
      OnBarrier("_BarrierClose").Attr("cancel_pending_enqueues: bool = false").Shape(NoOutputs));
  for (const char* name : {"_BarrierReadySize", "_BarrierIncompleteSize"})
    registry->Add(OnBarrier(name).Output("size: int32").Shape(ScalarShape));
  for (const std::string name : {"Barrier", "BarrierInsertMany", "BarrierTakeMany", "BarrierClose",
                                 "BarrierReadySize", "BarrierIncompleteSize"})
    registry->AddStringReferenceForm(name, "_" + name);
}

}  // namespace monograph::ops::barrier
