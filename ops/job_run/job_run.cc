#include "ops/job_run/job_run.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Output JobRun(const Scope& scope, const std::string& shared_name) {
  return OpBuilder(scope, "MonographJobRun").Attr("shared_name", shared_name).BuildOutput();
}

Operation JobRunBegin(const Scope& scope, const Output& run) {
  return OpBuilder(scope, "MonographJobRunBegin").Input(run).Build();
}

Operation JobRunReady(const Scope& scope, const Output& run) {
  return OpBuilder(scope, "MonographJobRunReady").Input(run).Build();
}

Operation JobRunFinish(const Scope& scope, const Output& run) {
  return OpBuilder(scope, "MonographJobRunFinish").Input(run).Build();
}

Output JobRunFinished(const Scope& scope, const Output& run) {
  return OpBuilder(scope, "MonographJobRunFinished").Input(run).BuildOutput();
}

Output JobRunJoin(const Scope& scope, const Output& run, int rank, bool rejoin) {
  return OpBuilder(scope, "MonographJobRunJoin")
      .Input(run)
      .Attr("rank", rank)
      .Attr("rejoin", rejoin)
      .BuildOutput();
}

namespace ops::job_run {
namespace {

Status OneScalar(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  return Status();
}

Status NoOutputs(ShapeContext&) { return Status(); }

OpDef OnRun(const char* name) {
  OpDef def(name);
  def.Input("handle: resource").Stateful().Shape(NoOutputs).NoGradient();
  return def;
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("MonographJobRun")
                    .Output("handle: resource")
                    .Attr("container: string = ''")
                    .Attr("shared_name: string = ''")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OnRun("MonographJobRunBegin"));
  registry->Add(OnRun("MonographJobRunReady"));
  registry->Add(OnRun("MonographJobRunFinish"));
  registry->Add(OnRun("MonographJobRunFinished").Output("finished: bool").Shape(OneScalar));
  registry->Add(OnRun("MonographJobRunJoin")
                    .Output("joined: int32")
                    .Attr("rank: int")
                    .Attr("rejoin: bool = false")
                    .Shape(OneScalar));
}

}  // namespace ops::job_run
}  // namespace monograph
