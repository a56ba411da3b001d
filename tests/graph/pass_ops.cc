#include "tests/graph/pass_ops.h"

#include <cmath>
#include <numeric>

#include "graph/function.h"
#include "graph/shape_inference.h"

namespace monograph {
namespace {

Status ShapeFromAttr(ShapeContext& c) {
  c.set_output(0, c.attr<PartialShape>("shape"));
  return Status();
}

Status ConstShape(ShapeContext& c) {
  c.set_output(0, c.attr<Tensor>("value").shape());
  return Status();
}

Status ShapeOpShape(ShapeContext& c) {
  c.set_output(0, c.input(0).known_rank() ? PartialShape({c.input(0).rank()}) : PartialShape({-1}));
  return Status();
}

Status ReshapeShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(1));
  c.set_output(0, shape);
  return Status();
}

Status ToScalarShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  return Status();
}

Status SplitShape(ShapeContext& c) {
  const int value = c.num_inputs() == 2 ? 1 : 0;
  PartialShape part = c.input(value);
  if (part.known_rank()) {
    part.set_dim(0, value == 1 && part.dim(0) >= 0 ? part.dim(0) / c.num_outputs() : -1);
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, part);
  return Status();
}

Status PassThrough(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_grad(i, c.grad(0));
  return Status();
}

Status MulGradient(GradientContext& c) {
  for (int i = 0; i < 2; ++i) {
    const Output product = Op2(c.scope(), "Mul", c.grad(0), c.input(1 - i));
    const bool broadcast = c.input(i).shape().rank() == 0 && product.shape().rank() != 0;
    c.set_grad(i, broadcast ? Op1(c.scope(), "Sum", product) : product);
  }
  return Status();
}

Status SquareGradient(GradientContext& c) {
  const Output twice = Op2(c.scope(), "Add", c.input(0), c.input(0));
  c.set_grad(0, Op2(c.scope(), "Mul", c.grad(0), twice));
  return Status();
}

Status SumGradient(GradientContext& c) {
  c.set_grad(0, Op2(c.scope(), "Fill", Op1(c.scope(), "Shape", c.input(0)), c.grad(0)));
  return Status();
}

Status FillShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(0));
  c.set_output(0, shape);
  return Status();
}

OpDef Unary(const char* name) {
  return OpDef(name).Input("x: T").Output("y: T").Attr("T: type").Shape(UnchangedShape);
}
OpDef Binary(const char* name) {
  return OpDef(name).Input("x: T").Input("y: T").Output("z: T").Attr("T: type").Shape(
      BroadcastShape);
}

void DefineAll(OpRegistry* r) {
  r->Add(OpDef("Const")
             .Output("output: dtype")
             .Attr("value: tensor")
             .Attr("dtype: type")
             .Shape(ConstShape));
  r->Add(OpDef("Placeholder")
             .Output("output: dtype")
             .Attr("dtype: type")
             .Attr("shape: shape = ?")
             .Shape(ShapeFromAttr));
  r->Add(Unary("Identity").Gradient(PassThrough));
  r->Add(Unary("StopGradient").NoGradient());
  r->Add(Binary("Add").Gradient(PassThrough));
  r->Add(Binary("Sub"));
  r->Add(Binary("Mul").Gradient(MulGradient));
  r->Add(Binary("RealDiv"));
  r->Add(Binary("FloorDiv"));
  r->Add(Unary("Square").Gradient(SquareGradient));
  r->Add(Unary("Exp2"));
  r->Add(OpDef("AddN")
             .Input("inputs: N * T")
             .Output("sum: T")
             .Attr("N: int >= 1")
             .Attr("T: type")
             .Shape(MergeAllShape));
  r->Add(OpDef("Sum")
             .Input("x: T")
             .Output("y: T")
             .Attr("T: type")
             .Shape(ToScalarShape)
             .Gradient(SumGradient));
  r->Add(OpDef("Fill")
             .Input("dims: index_type")
             .Input("value: T")
             .Output("output: T")
             .Attr("T: type")
             .Attr("index_type: {int32, int64} = DT_INT32")
             .Shape(FillShape));
  r->Add(OpDef("Shape")
             .Input("input: T")
             .Output("output: out_type")
             .Attr("T: type")
             .Attr("out_type: {int32, int64} = DT_INT32")
             .Shape(ShapeOpShape)
             .NoGradient());
  r->Add(OpDef("Slice")
             .Input("input: T")
             .Input("begin: Index")
             .Input("size: Index")
             .Output("output: T")
             .Attr("T: type")
             .Attr("Index: {int32, int64}")
             .Shape(UnknownShape));
  r->Add(OpDef("Reshape")
             .Input("tensor: T")
             .Input("shape: Tshape")
             .Output("output: T")
             .Attr("T: type")
             .Attr("Tshape: {int32, int64} = DT_INT32")
             .Shape(ReshapeShape));
  r->Add(OpDef("Cast")
             .Input("x: SrcT")
             .Output("y: DstT")
             .Attr("SrcT: type")
             .Attr("DstT: type")
             .Shape(UnchangedShape));
  r->Add(OpDef("GreaterEqual")
             .Input("x: T")
             .Input("y: T")
             .Output("z: bool")
             .Attr("T: type")
             .Shape(BroadcastShape));
  r->Add(OpDef("Assert")
             .Input("condition: bool")
             .Input("data: T")
             .Attr("T: list(type)")
             .Attr("summarize: int = 3")
             .Stateful());
  r->Add(OpDef("Split")
             .Input("split_dim: int32")
             .Input("value: T")
             .Output("output: num_split * T")
             .Attr("num_split: int >= 1")
             .Attr("T: type")
             .Shape(SplitShape));
  r->Add(OpDef("SplitV")
             .Input("value: T")
             .Input("size_splits: Tlen")
             .Input("split_dim: int32")
             .Output("output: num_split * T")
             .Attr("num_split: int >= 1")
             .Attr("T: type")
             .Attr("Tlen: {int32, int64} = DT_INT64")
             .Shape(SplitShape));
  r->Add(OpDef("Unpack")
             .Input("value: T")
             .Output("output: num * T")
             .Attr("num: int >= 0")
             .Attr("T: type")
             .Attr("axis: int = 0")
             .Shape(ScalarShape));
  r->Add(OpDef("NoOp").Shape(NoOutputs));
  r->Add(OpDef("RandomUniform")
             .Input("shape: T")
             .Output("output: dtype")
             .Attr("T: type")
             .Attr("dtype: type")
             .Stateful());
  r->Add(OpDef("VarHandleOp")
             .Output("resource: resource")
             .Attr("dtype: type")
             .Attr("shape: shape")
             .Attr("container: string = ''")
             .Attr("shared_name: string = ''")
             .Stateful()
             .Shape(ScalarShape));
  r->Add(OpDef("ReadVariableOp")
             .Input("resource: resource")
             .Output("value: dtype")
             .Attr("dtype: type")
             .Stateful()
             .Gradient(PassThrough));
  r->Add(OpDef("AssignVariableOp")
             .Input("resource: resource")
             .Input("value: dtype")
             .Attr("dtype: type")
             .Stateful());
}

Value Scalar(double x) { return {{}, {x}, {}}; }

Value FromTensor(const Tensor& tensor) {
  Value value;
  value.dims.assign(tensor.shape().dims().begin(), tensor.shape().dims().end());
  auto fill = [&](auto type) {
    for (auto x : tensor.values<decltype(type)>()) value.data.push_back(static_cast<double>(x));
  };
  switch (tensor.dtype()) {
    case DT_FLOAT:
      fill(float());
      break;
    case DT_DOUBLE:
      fill(double());
      break;
    case DT_INT32:
      fill(int32_t());
      break;
    case DT_INT64:
      fill(int64_t());
      break;
    case DT_STRING:
      value.text = *tensor.strings();
      break;
    default:
      MG_CHECK(false);
  }
  return value;
}

Value Elementwise(const Value& a, const Value& b, double (*f)(double, double)) {
  Value out = a.data.size() >= b.data.size() ? Value{a.dims, {}, {}} : Value{b.dims, {}, {}};
  const size_t n = std::max(a.data.size(), b.data.size());
  for (size_t i = 0; i < n; ++i)
    out.data.push_back(f(a.data[i % a.data.size()], b.data[i % b.data.size()]));
  return out;
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, const FunctionLibrary& library)
      : graph_(graph), library_(library) {}

  Result<Value> Get(Endpoint e) {
    auto found = values_.find(e);
    if (found != values_.end()) return found->second;
    MG_ASSIGN_OR_RETURN(std::vector<Value> outputs, Run(e.node));
    for (size_t i = 0; i < outputs.size(); ++i)
      values_[{e.node, static_cast<int32_t>(i)}] = outputs[i];
    MG_CHECK(values_.contains(e));
    return values_[e];
  }
  void Set(Endpoint e, Value value) { values_[e] = std::move(value); }

 private:
  Result<std::vector<Value>> Run(NodeId node) {
    for (NodeId control : graph_.control_inputs(node)) {
      if (!ran_[control]) MG_RETURN_IF_ERROR(Run(control).ok() ? Status() : Run(control).status());
    }
    ran_[node] = true;
    std::vector<Value> in;
    for (const Endpoint& input : graph_.inputs(node)) {
      MG_ASSIGN_OR_RETURN(Value value, Get(input));
      in.push_back(std::move(value));
    }
    const std::string& op = graph_.op(node).name();
    const Attrs& attrs = graph_.attrs(node);
    using Values = std::vector<Value>;
    if (op == "Const") return Values{FromTensor(attrs.Get<Tensor>("value"))};
    if (op == "Identity" || op == "StopGradient" || op == "Cast") return Values{in[0]};
    if (op == "Add")
      return Values{Elementwise(in[0], in[1], [](double a, double b) { return a + b; })};
    if (op == "Sub")
      return Values{Elementwise(in[0], in[1], [](double a, double b) { return a - b; })};
    if (op == "Mul")
      return Values{Elementwise(in[0], in[1], [](double a, double b) { return a * b; })};
    if (op == "RealDiv")
      return Values{Elementwise(in[0], in[1], [](double a, double b) { return a / b; })};
    if (op == "FloorDiv")
      return Values{
          Elementwise(in[0], in[1], [](double a, double b) { return std::floor(a / b); })};
    if (op == "GreaterEqual")
      return Values{Elementwise(in[0], in[1], [](double a, double b) { return double(a >= b); })};
    if (op == "Square")
      return Values{Elementwise(in[0], in[0], [](double a, double b) { return a * b; })};
    if (op == "AddN") {
      for (size_t i = 1; i < in.size(); ++i)
        in[0] = Elementwise(in[0], in[i], [](double a, double b) { return a + b; });
      return Values{in[0]};
    }
    if (op == "Sum")
      return Values{Scalar(std::accumulate(in[0].data.begin(), in[0].data.end(), 0.0))};
    if (op == "Shape") {
      Value shape{{static_cast<int64_t>(in[0].dims.size())}, {}, {}};
      for (int64_t dim : in[0].dims) shape.data.push_back(static_cast<double>(dim));
      return Values{shape};
    }
    if (op == "Fill") {
      Value filled;
      size_t n = 1;
      for (double dim : in[0].data) {
        filled.dims.push_back(static_cast<int64_t>(dim));
        n *= static_cast<size_t>(dim);
      }
      filled.data.assign(n, in[1].data[0]);
      return Values{filled};
    }
    if (op == "Slice") {  // of a vector
      const auto begin = static_cast<size_t>(in[1].data[0]),
                 size = static_cast<size_t>(in[2].data[0]);
      Value slice{{static_cast<int64_t>(size)}, {}, {}};
      slice.data.assign(in[0].data.begin() + static_cast<ptrdiff_t>(begin),
                        in[0].data.begin() + static_cast<ptrdiff_t>(begin + size));
      return Values{slice};
    }
    if (op == "Reshape") {
      in[0].dims.clear();
      for (double dim : in[1].data) in[0].dims.push_back(static_cast<int64_t>(dim));
      return Values{in[0]};
    }
    if (op == "Assert") {
      if (in[0].data[0] != 0) return Values{};
      std::string text = "assertion failed:";
      for (size_t i = 1; i < in.size(); ++i) {
        text += " [" +
                (in[i].data.empty() ? in[i].text
                                    : std::to_string(static_cast<int64_t>(in[i].data[0]))) +
                "]";
      }
      return InvalidArgument(text);
    }
    if (op == "Split" || op == "SplitV") {
      const Value& value = op == "Split" ? in[1] : in[0];
      const auto parts = static_cast<size_t>(attrs.Get<int64_t>("num_split"));
      const int64_t row =
          value.dims[0] == 0 ? 0 : static_cast<int64_t>(value.data.size()) / value.dims[0];
      Values out;
      int64_t begin = 0;
      for (size_t i = 0; i < parts; ++i) {
        const int64_t rows = op == "Split" ? value.dims[0] / static_cast<int64_t>(parts)
                                           : static_cast<int64_t>(in[1].data[i]);
        if (begin + rows > value.dims[0])
          return InvalidArgument("the parts do not sum to the whole");
        Value part{value.dims, {}, {}};
        part.dims[0] = rows;
        part.data.assign(value.data.begin() + begin * row,
                         value.data.begin() + (begin + rows) * row);
        begin += rows;
        out.push_back(part);
      }
      if (begin != value.dims[0]) return InvalidArgument("the parts do not sum to the whole");
      return out;
    }
    if (op == "Unpack") {
      Values out;
      for (double x : in[0].data) out.push_back(Scalar(x));
      return out;
    }
    if (op == "NoOp") return Values{};
    if (op == "PartitionedCall" || op == "StatefulPartitionedCall") {
      const Function* function = library_.Find(attrs.Get<FunctionName>("f").name);
      MG_CHECK(function != nullptr);
      Interpreter body(*function->body, library_);
      for (size_t i = 0; i < in.size(); ++i) body.Set({function->args[i], 0}, in[i]);
      Values out;
      for (NodeId result : function->results) {
        MG_ASSIGN_OR_RETURN(Value value, body.Get(function->body->inputs(result)[0]));
        out.push_back(std::move(value));
      }
      return out;
    }
    return Unimplemented("the interpreter has no '" + op + "' (node '" +
                         std::string(graph_.name(node)) + "')");
  }

  const Graph& graph_;
  const FunctionLibrary& library_;
  std::map<Endpoint, Value> values_;
  std::map<NodeId, bool> ran_;
};

}  // namespace

const OpRegistry& PassOps() {
  static const OpRegistry* const registry = [] {
    auto* made = new OpRegistry();
    DefineAll(made);
    return made;
  }();
  return *registry;
}

Result<std::vector<Value>> Evaluate(const Graph& graph, const std::map<std::string, Value>& feeds,
                                    const std::vector<Output>& fetches) {
  Interpreter interpreter(graph, graph.functions());
  for (const auto& [name, value] : feeds) {
    MG_ASSIGN_OR_RETURN(const Endpoint endpoint, graph.FindOutput(name));
    interpreter.Set(endpoint, value);
  }
  std::vector<Value> values;
  for (const Output& fetch : fetches) {
    MG_ASSIGN_OR_RETURN(Value value, interpreter.Get(fetch.endpoint));
    values.push_back(std::move(value));
  }
  return values;
}

Output Placeholder(const Scope& scope, const PartialShape& shape, DType dtype) {
  return OpBuilder(scope, "Placeholder").Attr("dtype", dtype).Attr("shape", shape).BuildOutput();
}

Output Constant(const Scope& scope, Tensor value) {
  const DType dtype = value.dtype();
  return OpBuilder(scope, "Const")
      .Attr("value", std::move(value))
      .Attr("dtype", dtype)
      .BuildOutput();
}

Output Op1(const Scope& scope, std::string_view op, const Output& x) {
  return OpBuilder(scope, op).Input(x).BuildOutput();
}

Output Op2(const Scope& scope, std::string_view op, const Output& x, const Output& y) {
  return OpBuilder(scope, op).Input(x).Input(y).BuildOutput();
}

Output Variable(const Scope& scope, const std::string& name, const PartialShape& shape) {
  return OpBuilder(scope.WithOpName(name), "VarHandleOp")
      .Attr("dtype", DT_FLOAT)
      .Attr("shape", shape)
      .BuildOutput();
}

Output Read(const Scope& scope, const Output& handle) {
  return OpBuilder(scope, "ReadVariableOp").Input(handle).Attr("dtype", DT_FLOAT).BuildOutput();
}

Operation Group(const Scope& scope, const std::vector<Operation>& operations) {
  return OpBuilder(scope.WithControlDependencies(operations), "NoOp").Build();
}

DeviceName ParsedDevice(std::string_view text) { return DeviceName::Parse(text).value(); }

}  // namespace monograph
