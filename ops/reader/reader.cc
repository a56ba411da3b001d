// Functions and definitions: one op for each kind of reader, the ops that all readers share, and
// ops on files. A reader is a resource; it takes the names of files from a queue and yields records
// one by one (reader_cpu.cc). No op has a gradient.
#include "ops/reader/reader.h"

#include <string>

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Output TFRecordReader(const Scope& scope, const std::string& compression_type) {
  return OpBuilder(scope, "TFRecordReaderV2")
      .Attr("compression_type", AttrValue(compression_type))
      .BuildOutput();
}
Output TextLineReader(const Scope& scope, int64_t skip_header_lines) {
  return OpBuilder(scope, "TextLineReaderV2")
      .Attr("skip_header_lines", AttrValue(skip_header_lines))
      .BuildOutput();
}
Output WholeFileReader(const Scope& scope) {
  return OpBuilder(scope, "WholeFileReaderV2").BuildOutput();
}
ReaderReadResult ReaderRead(const Scope& scope, const Output& reader, const Output& queue) {
  const Operation node = OpBuilder(scope, "ReaderReadV2").Input(reader).Input(queue).Build();
  return {node.output(0), node.output(1)};
}
Output ReadFile(const Scope& scope, const Output& filename) {
  return OpBuilder(scope, "ReadFile").Input(filename).BuildOutput();
}
Output MatchingFiles(const Scope& scope, const Output& pattern) {
  return OpBuilder(scope, "MatchingFiles").Input(pattern).BuildOutput();
}

namespace ops::reader {
namespace {

Status VectorsShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape{-1});
  return Status();
}

Status FileShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  c.set_output(0, PartialShape::Scalar());
  return Status();
}

Status WriteShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  return c.WithRank(1, 0).status();
}

Status RestoreShape(ShapeContext& c) { return c.WithRank(1, 0).status(); }

OpDef ReaderDef(const char* name) {
  return OpDef(name)
      .Output("reader_handle: resource")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Stateful()
      .Shape(ScalarShape)
      .NoGradient();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(ReaderDef("TFRecordReaderV2").Attr("compression_type: string = ''"));
  registry->Add(ReaderDef("TextLineReaderV2").Attr("skip_header_lines: int = 0"));
  registry->Add(ReaderDef("FixedLengthRecordReaderV2")
                    .Attr("header_bytes: int = 0")
                    .Attr("record_bytes: int")
                    .Attr("footer_bytes: int = 0")
                    .Attr("hop_bytes: int = 0")
                    .Attr("encoding: string = ''"));
  registry->Add(ReaderDef("WholeFileReaderV2"));
  registry->Add(ReaderDef("IdentityReaderV2"));
  registry->Add(OpDef("ReaderReadV2")
                    .Input("reader_handle: resource")
                    .Input("queue_handle: resource")
                    .Output("key: string")
                    .Output("value: string")
                    .Stateful()
                    .MayWait()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("ReaderReadUpToV2")
                    .Input("reader_handle: resource")
                    .Input("queue_handle: resource")
                    .Input("num_records: int64")
                    .Output("keys: string")
                    .Output("values: string")
                    .Stateful()
                    .MayWait()
                    .Shape(VectorsShape)
                    .NoGradient());
  registry->Add(OpDef("ReaderNumRecordsProducedV2")
                    .Input("reader_handle: resource")
                    .Output("records_produced: int64")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("ReaderNumWorkUnitsCompletedV2")
                    .Input("reader_handle: resource")
                    .Output("units_completed: int64")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("ReaderResetV2")
                    .Input("reader_handle: resource")
                    .Stateful()
                    .Shape(NoOutputs)
                    .NoGradient());
  registry->Add(OpDef("ReaderSerializeStateV2")
                    .Input("reader_handle: resource")
                    .Output("state: string")
                    .Stateful()
                    .Shape(ScalarShape)
                    .NoGradient());
  registry->Add(OpDef("ReaderRestoreStateV2")
                    .Input("reader_handle: resource")
                    .Input("state: string")
                    .Stateful()
                    .Shape(RestoreShape)
                    .NoGradient());
  for (const std::string name :
       {"TFRecordReader", "TextLineReader", "FixedLengthRecordReader", "WholeFileReader",
        "IdentityReader", "ReaderRead", "ReaderReadUpTo", "ReaderNumRecordsProduced",
        "ReaderNumWorkUnitsCompleted", "ReaderReset", "ReaderSerializeState", "ReaderRestoreState"})
    registry->AddStringReferenceForm(name, name + "V2");
  registry->Add(OpDef("ReadFile")
                    .Input("filename: string")
                    .Output("contents: string")
                    .Stateful()
                    .Shape(FileShape)
                    .NoGradient());
  registry->Add(OpDef("WriteFile")
                    .Input("filename: string")
                    .Input("contents: string")
                    .Stateful()
                    .Shape(WriteShape)
                    .NoGradient());
  registry->Add(OpDef("MatchingFiles")
                    .Input("pattern: string")
                    .Output("filenames: string")
                    .Stateful()
                    .Shape(VectorsShape)
                    .NoGradient());
}

}  // namespace ops::reader
}  // namespace monograph
