// Functions, shape functions and definitions of ops on strings: joins, splits, patterns,
// substrings, base64, numbers to and from text, raw bytes and CSV. What a split or DecodeRaw yields
// is known only when it runs, so these dimensions are unknown. No op has a gradient.
#include "ops/string/string.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"

namespace monograph {

Output StringJoin(const Scope& scope, const Outputs& inputs, const std::string& separator) {
  return OpBuilder(scope, "StringJoin")
      .Inputs(inputs)
      .Attr("separator", AttrValue(separator))
      .BuildOutput();
}

Output RegexFullMatch(const Scope& scope, Output input, const std::string& pattern) {
  return OpBuilder(scope, "StaticRegexFullMatch")
      .Input(input)
      .Attr("pattern", pattern)
      .BuildOutput();
}

Output RegexReplace(const Scope& scope, const Output& input, const std::string& pattern,
                    const std::string& rewrite, bool replace_global) {
  return OpBuilder(scope, "StaticRegexReplace")
      .Input(input)
      .Attr("pattern", pattern)
      .Attr("rewrite", rewrite)
      .Attr("replace_global", replace_global)
      .BuildOutput();
}

Output StringToHashBucketFast(const Scope& scope, const Output& input, int64_t num_buckets) {
  return OpBuilder(scope, "StringToHashBucketFast")
      .Input(input)
      .Attr("num_buckets", num_buckets)
      .BuildOutput();
}

Output StringToHashBucketStrong(const Scope& scope, const Output& input, int64_t num_buckets,
                                const std::array<int64_t, 2>& key) {
  return OpBuilder(scope, "StringToHashBucketStrong")
      .Input(input)
      .Attr("num_buckets", num_buckets)
      .Attr("key", AttrValue(std::vector<int64_t>(key.begin(), key.end())))
      .BuildOutput();
}

Output StringToNumber(const Scope& scope, const Output& string_tensor, DType out_type) {
  return OpBuilder(scope, "StringToNumber")
      .Input(string_tensor)
      .Attr("out_type", AttrValue(out_type))
      .BuildOutput();
}

Output DecodeRaw(const Scope& scope, const Output& bytes, DType out_type, bool little_endian) {
  return OpBuilder(scope, "DecodeRaw")
      .Input(bytes)
      .Attr("out_type", AttrValue(out_type))
      .Attr("little_endian", AttrValue(little_endian))
      .BuildOutput();
}

Outputs DecodeCSV(const Scope& scope, const Output& records, const Outputs& record_defaults,
                  const std::string& field_delim) {
  std::vector<DType> types;
  for (const Output& value : record_defaults) {
    if (!value.valid()) return {};
    types.push_back(value.dtype());
  }
  const Operation node = OpBuilder(scope, "DecodeCSV")
                             .Input(records)
                             .Inputs(record_defaults)
                             .Attr("OUT_TYPE", AttrValue(types))
                             .Attr("field_delim", AttrValue(field_delim))
                             .Build();
  Outputs columns;
  for (size_t i = 0; i < types.size(); ++i) columns.push_back(node.output(static_cast<int>(i)));
  return columns;
}

namespace ops::string {
namespace {

Status JoinShape(ShapeContext& c) {
  PartialShape shape = PartialShape::Scalar();
  bool unknown = false;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialShape& input = c.input(i);
    if (!input.known_rank()) {
      unknown = true;
    } else if (input.rank() > 0) {
      if (shape.rank() == 0) {
        shape = input;
      } else {
        MG_ASSIGN_OR_RETURN(shape, PartialShape::Merge(shape, input));
      }
    }
  }
  c.set_output(0, unknown && shape.rank() == 0 ? PartialShape() : shape);
  return Status();
}

// As input 0; all others are scalars.
Status MatchShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  c.set_output(0, c.input(0));
  return Status();
}

Status SplitShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, PartialShape{-1, 2});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{2});
  return Status();
}

Status ReduceJoinShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  const auto axes = c.InputAsInts(1);
  const bool keep = c.attr<bool>("keep_dims");
  if (!input.known_rank() || !axes) {
    c.set_output(0, PartialShape());
    return Status();
  }
  std::vector<bool> joined(static_cast<size_t>(input.rank()));
  for (int64_t axis : *axes) {
    MG_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, input.rank()));
    joined[static_cast<size_t>(at)] = true;
  }
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i < input.rank(); ++i) {
    if (!joined[static_cast<size_t>(i)]) {
      output.AddDim(input.dim(i));
    } else if (keep) {
      output.AddDim(1);
    }
  }
  c.set_output(0, output);
  return Status();
}

Status DecodeRawShape(ShapeContext& c) {
  const PartialShape& bytes = c.input(0);
  PartialShape output;
  if (bytes.known_rank()) {
    if (bytes.rank() == kMaxRank) return TooManyDimensions();
    output = bytes;
    output.AddDim(-1);
  }
  c.set_output(0, output);
  return Status();
}

Status DecodeCsvShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.input(i).known_rank() &&
        (c.input(i).rank() > 1 || (c.input(i).rank() == 1 && c.input(i).dim(0) > 1)))
      return InvalidArgument("record_defaults must be scalars or vectors of at most one element");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return Status();
}

Status SubstrShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape parts, PartialShape::Merge(c.input(1), c.input(2)));
  if (!c.input(0).known_rank() || !parts.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  MG_ASSIGN_OR_RETURN(const PartialShape shape, BroadcastShapes(c.input(0), parts));
  c.set_output(0, shape);
  return Status();
}

OpDef Each(const char* name) {  // string by string
  return OpDef(name)
      .Input("input: string")
      .Output("output: string")
      .Shape(UnchangedShape)
      .NoGradient();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("StringJoin")
                    .Attr("N: int >= 0")
                    .Attr("separator: string = ''")
                    .Input("inputs: N * string")
                    .Output("output: string")
                    .NoGradient()
                    .Shape(JoinShape));
  registry->Add(OpDef("StaticRegexFullMatch")
                    .Input("input: string")
                    .Output("output: bool")
                    .Attr("pattern: string")
                    .NoGradient()
                    .Shape(UnchangedShape));
  registry->Add(OpDef("RegexFullMatch")
                    .Input("input: string")
                    .Input("pattern: string")
                    .Output("output: bool")
                    .NoGradient()
                    .Shape(MatchShape));
  registry->Add(OpDef("StaticRegexReplace")
                    .Input("input: string")
                    .Output("output: string")
                    .Attr("pattern: string")
                    .Attr("rewrite: string")
                    .Attr("replace_global: bool = true")
                    .NoGradient()
                    .Shape(UnchangedShape));
  registry->Add(OpDef("RegexReplace")
                    .Input("input: string")
                    .Input("pattern: string")
                    .Input("rewrite: string")
                    .Output("output: string")
                    .Attr("replace_global: bool = true")
                    .NoGradient()
                    .Shape(MatchShape));
  registry->Add(OpDef("StringToHashBucket")
                    .Input("string_tensor: string")
                    .Output("output: int64")
                    .Attr("num_buckets: int >= 1")
                    .NoGradient()
                    .Shape(UnchangedShape));
  registry->Add(OpDef("StringToHashBucketFast")
                    .Input("input: string")
                    .Output("output: int64")
                    .Attr("num_buckets: int >= 1")
                    .NoGradient()
                    .Shape(UnchangedShape));
  registry->Add(OpDef("StringToHashBucketStrong")
                    .Input("input: string")
                    .Output("output: int64")
                    .Attr("num_buckets: int >= 1")
                    .Attr("key: list(int)")
                    .NoGradient()
                    .Shape(UnchangedShape));
  const auto split = [registry](const char* name, const char* separator, const char* attr) {
    registry->Add(OpDef(name)
                      .Input("input: string")
                      .Input(separator)
                      .Output("indices: int64")
                      .Output("values: string")
                      .Output("shape: int64")
                      .Attr(attr)
                      .Shape(SplitShape)
                      .NoGradient());
  };
  split("StringSplit", "delimiter: string", "skip_empty: bool = true");
  split("StringSplitV2", "sep: string", "maxsplit: int = -1");
  registry->Add(OpDef("StringToNumber")
                    .Input("string_tensor: string")
                    .Output("output: out_type")
                    .Attr("out_type: {float, double, int32, int64, uint32, uint64} = DT_FLOAT")
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("AsString")
                    .Input("input: T")
                    .Output("output: string")
                    .Attr("T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, "
                          "half, uint32, uint64, bool, string}")
                    .Attr("precision: int = -1")
                    .Attr("scientific: bool = false")
                    .Attr("shortest: bool = false")
                    .Attr("width: int = -1")
                    .Attr("fill: string = ''")
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("Substr")
                    .Input("input: string")
                    .Input("pos: T")
                    .Input("len: T")
                    .Output("output: string")
                    .Attr("T: {int32, int64}")
                    .Attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
                    .Shape(SubstrShape)
                    .NoGradient());
  registry->Add(OpDef("StringLength")
                    .Input("input: string")
                    .Output("output: int32")
                    .Attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
                    .Shape(UnchangedShape)
                    .NoGradient());
  // Letters beyond ASCII's ('utf-8') are borrowed.
  for (const char* name : {"StringLower", "StringUpper"})
    registry->Add(Each(name).Attr("encoding: {''} = ''"));
  registry->Add(Each("StringStrip"));
  registry->Add(Each("EncodeBase64").Attr("pad: bool = false"));
  registry->Add(Each("DecodeBase64"));
  registry->Add(OpDef("ReduceJoin")
                    .Input("inputs: string")
                    .Input("reduction_indices: int32")
                    .Output("output: string")
                    .Attr("keep_dims: bool = false")
                    .Attr("separator: string = ''")
                    .Shape(ReduceJoinShape)
                    .NoGradient());
  registry->Add(OpDef("DecodeRaw")
                    .Input("bytes: string")
                    .Output("output: out_type")
                    .Attr("out_type: {half, float, double, int32, uint16, uint8, int16, int8, "
                          "int64, bool, bfloat16}")
                    .Attr("little_endian: bool = true")
                    .Shape(DecodeRawShape)
                    .NoGradient());
  registry->Add(OpDef("DecodeCSV")
                    .Input("records: string")
                    .Input("record_defaults: OUT_TYPE")
                    .Output("output: OUT_TYPE")
                    .Attr("OUT_TYPE: list({float, double, int32, int64, string})")
                    .Attr("field_delim: string = ','")
                    .Attr("use_quote_delim: bool = true")
                    .Attr("na_value: string = ''")
                    .Attr("select_cols: list(int) >= 0 = []")
                    .Shape(DecodeCsvShape)
                    .NoGradient());
}

}  // namespace ops::string
}  // namespace monograph
