// A few ops for tests of graph passes, and an interpreter for them: slow, obvious, and independent
// of any kernel.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/gradients.h"
#include "graph/scope.h"

namespace monograph {

// Const, Placeholder, Identity, StopGradient, Add, Sub, Mul, RealDiv, FloorDiv, Square, Exp2 (no
// gradient), AddN, Sum, Fill, Shape, Slice, Reshape, Cast, GreaterEqual, Assert, Split, SplitV,
// Unpack, NoOp, RandomUniform, VarHandleOp, ReadVariableOp, AssignVariableOp.
const OpRegistry& PassOps();

struct Value {
  std::vector<int64_t> dims;
  std::vector<double> data;
  std::string text;  // of a string
  friend bool operator==(const Value&, const Value&) = default;
};

// Computes `fetches`, going into calls. Variables are fed by their ReadVariableOp. A failing Assert
// is InvalidArgument with its data.
Result<std::vector<Value>> Evaluate(const Graph& graph, const std::map<std::string, Value>& feeds,
                                    const std::vector<Output>& fetches);

// ---- Short forms for building ----

Output Placeholder(const Scope& scope, const PartialShape& shape = PartialShape::Scalar(),
                   DType dtype = DT_FLOAT);
Output Constant(const Scope& scope, Tensor value);
Output Op1(const Scope& scope, std::string_view op, const Output& x);
Output Op2(const Scope& scope, std::string_view op, const Output& x, const Output& y);
// A float variable's handle.
Output Variable(const Scope& scope, const std::string& name,
                const PartialShape& shape = PartialShape::Scalar());
Output Read(const Scope& scope, const Output& handle);
Operation Group(const Scope& scope, const std::vector<Operation>& operations);

DeviceName ParsedDevice(std::string_view text);  // ends the test program if it does not parse

}  // namespace monograph
