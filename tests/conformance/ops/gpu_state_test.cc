// What has no reference case, on a GPU against the CPU: variables and their updates, random
// numbers, chains of elementwise ops, TensorArrays, stacks and lists. The same graph runs once on
// each; the results have the same bits. Where there is no GPU each test says why and is skipped.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "executor/gpu/plugin.h"
#include "ops/activation/activation.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "tests/conformance/ops/evaluator.h"
#include "tests/conformance/ops/update_cases.h"

namespace monograph::optest {
namespace {

constexpr char kOneCpu[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kOneGpu[] = "/job:localhost/replica:0/task:0/device:GPU:0";

using Values = std::vector<Tensor>;

// A graph whose nodes lie on one device, but for what is fed.
class OneDevice {
 public:
  explicit OneDevice(const char* device) : device_(device), graph_(NewGraph()) {}

  Graph& graph() { return graph_; }
  Endpoint Add(const std::string& name, const std::string& op, const std::vector<Endpoint>& inputs,
               Attrs attrs, const std::vector<NodeId>& after = {}) {
    return Add(name, op, inputs, std::move(attrs), device_, after);
  }
  Endpoint Feed(const Tensor& value) {
    const std::string name = "feed" + std::to_string(feeds_.size());
    feeds_.emplace_back(name, value);
    return Add(name, "Placeholder", {}, {{"dtype", value.dtype()}, {"shape", PartialShape()}},
               kOneCpu);
  }
  // A variable; `Start` gives it the value.
  Endpoint Variable(const std::string& name, const Tensor& value) {
    const Endpoint handle = Add(name, "VarHandleOp", {},
                                {{"dtype", value.dtype()}, {"shape", PartialShape(value.shape())}});
    Add("assign_" + name, "AssignVariableOp", {handle, Feed(value)}, {{"dtype", value.dtype()}});
    assigns_.push_back("assign_" + name);
    Add("read_" + name, "ReadVariableOp", {handle}, {{"dtype", value.dtype()}});
    return handle;
  }
  void Start() {
    SessionOptions options;
    options.gpu.allow_growth = true;
    auto session = Session::Local(graph_, options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::move(session).value();
  }
  void Assign() { Run({}, assigns_); }
  Values Run(const std::vector<std::string>& fetches,
             const std::vector<std::string>& targets = {}) {
    auto values = session_->RunByName(feeds_, fetches, targets);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : Values();
  }

 private:
  Endpoint Add(const std::string& name, const std::string& op, const std::vector<Endpoint>& inputs,
               Attrs attrs, const char* device, const std::vector<NodeId>& after = {}) {
    auto node = graph_.AddNode({.name = name,
                                .op = op,
                                .inputs = inputs,
                                .control_inputs = after,
                                .attrs = std::make_shared<const Attrs>(std::move(attrs)),
                                .device = device});
    EXPECT_TRUE(node.ok()) << node.status();
    return {node.ok() ? *node : 0, 0};
  }

  const char* const device_;
  Graph graph_;
  std::vector<std::pair<std::string, Tensor>> feeds_;
  std::vector<std::string> assigns_;
  std::unique_ptr<Session> session_;
};

// Numbers in [low, high) that half precision holds, so that each type starts from the same ones.
Tensor Numbers(DType dtype, const Shape& shape, uint32_t seed, double low, double high) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> draw(low, high);
  Tensor tensor = Tensor::Allocate(dtype, shape).value();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const auto value = static_cast<float>(draw(engine));
    switch (dtype) {
      case DT_FLOAT:
        tensor.data<float>()[i] = value;
        break;
      case DT_DOUBLE:
        tensor.data<double>()[i] = static_cast<double>(value);
        break;
      case DT_HALF:
        tensor.data<half>()[i] = half(value);
        break;
      case DT_BFLOAT16:
        tensor.data<bfloat16>()[i] = bfloat16(value);
        break;
      default:
        tensor.data<int64_t>()[i] = static_cast<int64_t>(value);
    }
  }
  return tensor;
}

void ExpectSameBits(const Values& gpu, const Values& cpu) {
  ASSERT_EQ(gpu.size(), cpu.size());
  ASSERT_FALSE(cpu.empty());
  for (size_t i = 0; i < cpu.size(); ++i)
    EXPECT_TRUE(BitEqual(gpu[i], cpu[i]))
        << "result " << i << ": " << Difference(gpu[i], cpu[i], 0, 0);
}

// What `run` gives on each.
void ExpectSameOnBoth(const std::function<Values(OneDevice&)>& run) {
  OneDevice cpu(kOneCpu);
  const Values expected = run(cpu);
  ASSERT_FALSE(expected.empty());
  if (!WhyNoCuda().empty()) return;
  OneDevice gpu(kOneGpu);
  ExpectSameBits(run(gpu), expected);
}

void SkipIfOnlyTheCpuRan() {
  if (const std::string why = WhyNoCuda(); !why.empty()) GTEST_SKIP() << "no GPU: " << why;
}

constexpr DType kFloats[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16};

class GpuUpdate : public ::testing::TestWithParam<UpdateCase> {};

TEST_P(GpuUpdate, GivesTheBitsOfTheCpu) {
  const UpdateCase update = GetParam();
  for (DType dtype : kFloats) {
    for (bool flag : {false, true}) {
      if (flag && !update.has_flag()) continue;
      SCOPED_TRACE(std::string(DTypeName(dtype)) + (flag ? " with its flag" : ""));
      ExpectSameOnBoth([&](OneDevice& device) -> Values {
        uint32_t seed = 1;
        std::vector<Endpoint> inputs;
        std::vector<std::string> reads;
        for (const char kind : std::string(update.inputs)) {
          ++seed;
          if (kind == 'v') {
            // No square of a mean is above a mean of squares: bits of NaNs are each device's own.
            const bool mean = reads.size() == 1;
            const std::string name = "v" + std::to_string(reads.size());
            inputs.push_back(device.Variable(
                name, Numbers(dtype, {13, 7}, seed, mean ? 0.1 : 1, mean ? 0.9 : 2)));
            reads.push_back("read_" + name);
          } else if (kind == 'c') {
            inputs.push_back(device.Feed(Numbers(dtype, {}, seed, 0.1, 0.9)));
          } else if (kind == 'i') {
            inputs.push_back(device.Feed(Numbers(DT_INT64, {50}, seed, 0, 13)));
          } else {
            const Shape shape{update.has_rows() ? 50 : 13, 7};
            inputs.push_back(device.Feed(Numbers(dtype, shape, seed, -1, 1)));
          }
        }
        device.Add("it", update.op, inputs, update.AttrsFor(dtype, flag));
        device.Start();
        device.Assign();
        for (int step = 0; step < 3; ++step) device.Run({}, {"it"});  // the third may be a replay
        return device.Run(reads);
      });
    }
  }
  SkipIfOnlyTheCpuRan();
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuUpdate, ::testing::ValuesIn(kUpdateCases),
                         [](const auto& update) { return std::string(update.param.op); });

TEST(GpuState, VariablesAreReadAndForgottenLikeTheCpus) {
  for (DType dtype : kFloats) {
    SCOPED_TRACE(DTypeName(dtype));
    ExpectSameOnBoth([&](OneDevice& device) -> Values {
      const Endpoint v = device.Variable("v", Numbers(dtype, {13, 7}, 3, 1, 2));
      device.Add("known", "VarIsInitializedOp", {v}, {});
      device.Add("shape", "VariableShape", {v}, {});
      const Endpoint rows = device.Feed(Tensor::Vector<int32_t>({12, 0, 5, 5}));
      device.Add("rows", "ResourceGather", {v, rows}, {{"dtype", dtype}, {"Tindices", DT_INT32}});
      device.Add("forget", "DestroyResourceOp", {v}, {});
      device.Start();
      Values all = device.Run({"known"});
      device.Assign();
      for (Tensor& value : device.Run({"known", "shape", "rows", "read_v"})) all.push_back(value);
      device.Run({}, {"forget"});
      return all;
    });
  }
  SkipIfOnlyTheCpuRan();
}

// What training with float variables and 16-bit values between does in each step: on a GPU one cast
// of all variables, and one update that casts the gradients.
TEST(GpuState, CastsOfVariablesAndGradientsHaveTheBitsOfTheCpus) {
  for (const DType dtype : {DT_HALF, DT_BFLOAT16}) {
    SCOPED_TRACE(DTypeName(dtype));
    ExpectSameOnBoth([&](OneDevice& device) -> Values {
      const Endpoint rate = device.Feed(Tensor::Scalar<float>(0.3f)),
                     momentum = device.Feed(Tensor::Scalar<float>(0.9f));
      std::vector<std::string> reads, updates;
      for (const char* name : {"a", "b", "c"}) {
        const std::string n = name;
        const auto seed = static_cast<uint32_t>(name[0]);
        const Shape shape{13, 5 + name[0] % 3};
        const Endpoint variable = device.Variable(n, Numbers(DT_FLOAT, shape, seed, 1, 2)),
                       slot = device.Variable(n + "_slot", Numbers(DT_FLOAT, shape, seed, 0, 1));
        const Endpoint value =
            device.Add("value_" + n, "ReadVariableOp", {variable}, {{"dtype", DT_FLOAT}});
        const Endpoint narrow =
            device.Add("narrow_" + n, "Cast", {value}, {{"SrcT", DT_FLOAT}, {"DstT", dtype}});
        const Endpoint gradient = device.Add(
            "gradient_" + n, "Mul", {narrow, device.Feed(Numbers(dtype, shape, seed + 9, -1, 1))},
            {{"T", dtype}});
        const Endpoint wide =
            device.Add("wide_" + n, "Cast", {gradient}, {{"SrcT", dtype}, {"DstT", DT_FLOAT}});
        device.Add("it_" + n, "ResourceApplyMomentum", {variable, slot, rate, wide, momentum},
                   {{"T", DT_FLOAT}});
        updates.push_back("it_" + n);
        for (const std::string& read : {"read_" + n, "read_" + n + "_slot"}) reads.push_back(read);
      }
      device.Start();
      device.Assign();
      for (int step = 0; step < 3; ++step) device.Run({}, updates);  // the third may be a replay
      Values all = device.Run({"narrow_b", "narrow_c", "wide_a"}, updates);
      for (Tensor& value : device.Run(reads)) all.push_back(value);
      return all;
    });
  }
  SkipIfOnlyTheCpuRan();
}

// Filters that are variables are laid as cuDNN wants them once for all convolutions of a step.
Values ConvolutionsWithVariables(OneDevice& device) {
  std::vector<std::string> fetches;
  const Endpoint sizes = device.Feed(Tensor::Vector<int32_t>({2, 9, 8, 6}));
  for (const DType dtype : {DT_FLOAT, DT_BFLOAT16}) {
    const std::string n = dtype == DT_FLOAT ? "float" : "narrow";
    const Attrs attrs{{"T", dtype},
                      {"strides", std::vector<int64_t>{1, 1, 1, 1}},
                      {"padding", std::string("SAME")}};
    const Endpoint x = device.Feed(Numbers(dtype, {2, 9, 8, 6}, 1, -1, 1)),
                   dy = device.Feed(Numbers(dtype, {2, 9, 8, 16}, 2, -1, 1)),
                   variable = device.Variable(n, Numbers(DT_FLOAT, {3, 2, 6, 16}, 3, -1, 1));
    Endpoint filter = device.Add("value_" + n, "ReadVariableOp", {variable}, {{"dtype", DT_FLOAT}});
    if (dtype != DT_FLOAT)
      filter = device.Add("cast_" + n, "Cast", {filter}, {{"SrcT", DT_FLOAT}, {"DstT", dtype}});
    device.Add("y_" + n, "Conv2D", {x, filter}, attrs);
    device.Add("dx_" + n, "Conv2DBackpropInput", {sizes, filter, dy}, attrs);
    for (const std::string& fetch : {"y_" + n, "dx_" + n}) fetches.push_back(fetch);
  }
  device.Start();
  device.Assign();
  for (int step = 0; step < 3; ++step) device.Run({}, fetches);  // the third may be a replay
  return device.Run(fetches);
}

TEST(GpuState, ConvolutionsWithVariablesFollowTheCpus) {
  OneDevice cpu(kOneCpu);
  const Values expected = ConvolutionsWithVariables(cpu);
  ASSERT_EQ(expected.size(), 4u);
  if (const std::string why = WhyNoCuda(); !why.empty()) GTEST_SKIP() << "no GPU: " << why;
  OneDevice gpu(kOneGpu);
  const Values got = ConvolutionsWithVariables(gpu);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double tolerance = i < 2 ? 1e-5 : 1e-2;
    EXPECT_EQ(Difference(got[i], expected[i], tolerance, 10 * tolerance), "") << i;
  }
}

TEST(GpuState, RandomNumbersHaveTheBitsOfTheCpus) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    for (DType dtype : kFloats) {
      SCOPED_TRACE(std::string(op) + " " + std::string(DTypeName(dtype)));
      ExpectSameOnBoth([&](OneDevice& device) -> Values {
        const Endpoint shape = device.Feed(Tensor::Vector<int32_t>({1000, 61}));
        device.Add("it", op, {shape},
                   {{"dtype", dtype}, {"seed", int64_t{7}}, {"seed2", int64_t{9}}});
        device.Start();
        Values all = device.Run({"it"});  // the second step draws other numbers
        all.push_back(device.Run({"it"}).at(0));
        return all;
      });
    }
  }
  ExpectSameOnBoth([](OneDevice& device) -> Values {
    const Endpoint shape = device.Feed(Tensor::Vector<int32_t>({100000})),
                   low = device.Feed(Tensor::Scalar<int64_t>(-5)),
                   high = device.Feed(Tensor::Scalar<int64_t>(int64_t{1} << 60));
    device.Add("it", "RandomUniformInt", {shape, low, high},
               {{"seed", int64_t{7}}, {"seed2", int64_t{9}}});
    device.Start();
    return device.Run({"it"});
  });
  SkipIfOnlyTheCpuRan();
}

TEST(GpuState, ChainsOfElementwiseOpsHaveTheBitsOfTheCpus) {
  for (DType dtype : kFloats) {
    SCOPED_TRACE(DTypeName(dtype));
    ExpectSameOnBoth([&](OneDevice& device) -> Values {
      const Attrs t{{"T", dtype}};
      const Endpoint x = device.Feed(Numbers(dtype, {37, 24}, 1, -2, 2)),
                     row = device.Feed(Numbers(dtype, {24}, 2, 1, 2));
      const Endpoint start = device.Add("start", "Identity", {x}, t);
      const Endpoint product = device.Add("product", "Mul", {start, row}, t);
      const Endpoint sum = device.Add("sum", "AddV2", {product, start}, t);
      const Endpoint square = device.Add("square", "Square", {sum}, t);
      const Endpoint root = device.Add("root", "Sqrt", {square}, t);
      device.Add("it", "Relu", {root}, t);
      device.Start();
      device.Run({"it"});
      return device.Run({"it"});
    });
  }
  SkipIfOnlyTheCpuRan();
}

// ---- TensorArrays and stacks

// Any value of the type, whole numbers in all their bits.
Tensor AnyElements(DType dtype, const Shape& shape, uint32_t seed) {
  if (IsFloating(dtype)) return Numbers(dtype, shape, seed, -2, 2);
  std::mt19937 engine(seed);
  Tensor tensor = Tensor::Allocate(dtype, shape).value();
  auto* const bytes = static_cast<uint8_t*>(tensor.raw());
  for (size_t i = 0; i < tensor.bytes(); ++i)
    bytes[i] = static_cast<uint8_t>(dtype == DT_BOOL ? engine() % 2 : engine());
  return tensor;
}

// A graph of TensorArrays or stacks of one type, and what is fetched.
struct Arrays {
  Arrays(OneDevice& on, DType of)
      : device(on), dtype(of), axis(on.Feed(Tensor::Vector<int32_t>({0}))) {
    for (int32_t i = 0; i < 4; ++i) index.push_back(on.Feed(Tensor::Scalar(i)));
  }

  Endpoint Add(const std::string& op, const std::vector<Endpoint>& inputs, Attrs attrs,
               const std::vector<NodeId>& after = {}) {
    return device.Add("n" + std::to_string(count++), op, inputs, std::move(attrs), after);
  }
  Endpoint Feed(const Shape& shape) {
    return device.Feed(AnyElements(dtype, shape, static_cast<uint32_t>(++count)));
  }
  // Four nodes: enough for a graph of their own.
  Endpoint Reversed(Endpoint x) {
    for (int i = 0; i < 4; ++i) x = Add("ReverseV2", {x, axis}, {{"T", dtype}, {"Tidx", DT_INT32}});
    return x;
  }
  void Fetch(Endpoint x) {
    fetches.push_back(std::string(device.graph().name(x.node)) + ":" + std::to_string(x.index));
  }
  void FetchComputed(Endpoint x) {
    Fetch(x);
    Fetch(Reversed(x));
  }

  // Handle and flow of an array.
  using Array = std::pair<Endpoint, Endpoint>;
  Array Make(Endpoint size, bool dynamic, bool clear = false) {
    const Endpoint array = Add("TensorArrayV3", {size},
                               {{"dtype", dtype},
                                {"element_shape", dynamic ? PartialShape() : PartialShape{5, 6}},
                                {"dynamic_size", dynamic},
                                {"clear_after_read", clear}});
    return {array, {array.node, 1}};
  }
  Array Gradient(const Array& array, Endpoint behind) {
    const Endpoint made =
        Add("TensorArrayGradV3", {array.first, behind}, {{"source", std::string("g")}});
    return {made, {made.node, 1}};
  }
  void Write(Array* array, int i, Endpoint value) {
    array->second =
        Add("TensorArrayWriteV3",
            {array->first, index[static_cast<size_t>(i)], value, array->second}, {{"T", dtype}});
  }
  Endpoint Read(const Array& array, int i) {
    return Add("TensorArrayReadV3", {array.first, index[static_cast<size_t>(i)], array.second},
               {{"dtype", dtype}});
  }
  // Of several steps: the first measures memory, the second captures graphs.
  Values Run() {
    device.Start();
    Values all;
    for (int step = 0; step < 5; ++step) {
      for (Tensor& value : device.Run(fetches)) all.push_back(std::move(value));
    }
    return all;
  }

  OneDevice& device;
  const DType dtype;
  const Endpoint axis;
  std::vector<Endpoint> index;
  std::vector<std::string> fetches;
  int count = 0;
};

Values ElementsOfArrays(OneDevice& device, DType dtype) {
  Arrays a(device, dtype);
  const Endpoint x = a.Feed({5, 6}), y = a.Feed({5, 6});
  Arrays::Array array = a.Make(a.index[3], /*dynamic=*/false);
  a.Write(&array, 1, a.Reversed(x));
  a.Write(&array, 0, y);
  a.FetchComputed(a.Read(array, 1));
  a.FetchComputed(a.Read(array, 0));
  a.FetchComputed(a.Read(array, 2));  // zeros
  const Endpoint indices = device.Feed(Tensor::Vector<int32_t>({2, 1, 0, 1}));
  a.FetchComputed(a.Add("TensorArrayGatherV3", {array.first, indices, array.second},
                        {{"dtype", dtype}, {"element_shape", PartialShape()}}));
  a.Fetch(a.Add("TensorArraySizeV3", {array.first, array.second}, {}));

  Arrays::Array once = a.Make(a.index[3], /*dynamic=*/false, /*clear=*/true);
  a.Write(&once, 2, a.Reversed(y));
  a.FetchComputed(a.Read(once, 2));

  Arrays::Array gradient = a.Gradient(array, array.second);
  a.Write(&gradient, 0, a.Reversed(y));
  if (dtype != DT_BOOL) {
    a.Write(&gradient, 0, x);
    a.Write(&gradient, 0, a.Reversed(x));
  }
  a.FetchComputed(a.Read(gradient, 0));
  a.FetchComputed(a.Read(gradient, 2));  // zeros
  const Endpoint longer =
      a.Add("TensorArrayGradWithShape",
            {array.first, array.second, device.Feed(Tensor::Vector<int32_t>({2}))},
            {{"source", std::string("longer")}});
  a.FetchComputed(a.Read({longer, {longer.node, 1}}, 1));
  return a.Run();
}

Values RowsOfArrays(OneDevice& device, DType dtype) {
  Arrays a(device, dtype);
  const Endpoint tall = a.Feed({2, 5, 6}), x = a.Feed({5, 6});
  const Attrs of{{"T", dtype}}, gives{{"dtype", dtype}};
  Arrays::Array rows = a.Make(a.index[0], /*dynamic=*/true);
  rows.second = a.Add(
      "TensorArrayScatterV3",
      {rows.first, device.Feed(Tensor::Vector<int32_t>({1, 0})), a.Reversed(tall), rows.second},
      of);
  const Endpoint joined = a.Add("TensorArrayConcatV3", {rows.first, rows.second}, gives);
  a.FetchComputed(joined);
  a.Fetch({joined.node, 1});
  a.FetchComputed(a.Read(rows, 1));

  Arrays::Array parts = a.Make(a.index[0], /*dynamic=*/true);
  parts.second =
      a.Add("TensorArraySplitV3",
            {parts.first, x, device.Feed(Tensor::Vector<int64_t>({2, 3})), parts.second}, of);
  a.FetchComputed(a.Read(parts, 1));
  const Endpoint again = a.Add("TensorArrayConcatV3", {parts.first, parts.second}, gives);
  a.Fetch({again.node, 1});
  a.FetchComputed(again);

  Arrays::Array all = a.Make(a.index[0], /*dynamic=*/true);
  all.second = a.Add("TensorArrayUnpack", {all.first, a.Reversed(tall), all.second}, of);
  const Endpoint packed = a.Add("TensorArrayPack", {all.first, all.second}, gives);
  a.FetchComputed(packed);
  const Endpoint closed = a.Add("TensorArrayCloseV3", {all.first}, {}, {packed.node});
  a.Fetch(a.Add("Shape", {x}, {{"T", dtype}}, {closed.node}));
  return a.Run();
}

Values Stacks(OneDevice& device, DType dtype) {
  Arrays a(device, dtype);
  const Endpoint x = a.Feed({5, 6}), y = a.Feed({7});
  const Attrs of{{"T", dtype}}, gives{{"elem_type", dtype}};
  for (const bool bounded : {true, false}) {
    const Endpoint stack =
        bounded ? a.Add("StackV2", {a.index[3]}, gives) : a.Add("_Stack", {}, gives);
    const Endpoint first = a.Add("StackPushV2", {stack, a.Reversed(x)}, of);
    const Endpoint second = a.Add("StackPushV2", {stack, y}, of, {first.node});
    a.FetchComputed(first);
    const Endpoint last = a.Add("StackPopV2", {stack}, gives, {second.node});
    a.FetchComputed(last);
    const Endpoint before = a.Add("StackPopV2", {stack}, gives, {last.node});
    a.FetchComputed(before);
    const Endpoint closed = a.Add("StackCloseV2", {stack}, {}, {before.node});
    a.Fetch(a.Add("Shape", {x}, of, {closed.node}));
  }
  return a.Run();
}

Values Lists(OneDevice& device, DType dtype) {
  Arrays a(device, dtype);
  const Endpoint x = a.Feed({5, 6}), y = a.Feed({5, 6}), tall = a.Feed({3, 5, 6});
  const Endpoint shape = device.Feed(Tensor::Vector<int32_t>({5, 6})),
                 any = device.Feed(Tensor::Scalar<int32_t>(-1)),
                 indices = device.Feed(Tensor::Vector<int32_t>({2, 0, 2}));
  const Attrs of{{"element_dtype", dtype}};
  const Attrs with_shape{{"element_dtype", dtype}, {"shape_type", DT_INT32}};
  const auto stacked = [&](Endpoint list) {
    a.FetchComputed(a.Add("TensorListStack", {list, shape}, of));
  };
  Endpoint list = a.Add("TensorListReserve", {shape, a.index[3]}, with_shape);
  list = a.Add("TensorListSetItem", {list, a.index[1], a.Reversed(x)}, of);
  list = a.Add("TensorListSetItem", {list, a.index[0], y}, of);
  for (const int i : {1, 0, 2})  // the last one is zeros
    a.FetchComputed(a.Add("TensorListGetItem", {list, a.index[static_cast<size_t>(i)], shape}, of));
  a.FetchComputed(a.Add("TensorListGather", {list, indices, shape}, of));
  stacked(list);
  a.Fetch(a.Add("TensorListLength", {list}, {}));
  a.Fetch(a.Add("TensorListElementShape", {list}, {{"shape_type", DT_INT32}}));
  stacked(a.Add("TensorListResize", {list, a.index[2]}, {}));

  Endpoint pushed = a.Add("EmptyTensorList", {shape, any}, with_shape);
  pushed = a.Add("TensorListPushBack", {pushed, x}, of);
  pushed = a.Add("TensorListPushBack", {pushed, a.Reversed(y)}, of);
  const Endpoint popped = a.Add("TensorListPopBack", {pushed, shape}, of);
  a.FetchComputed({popped.node, 1});
  const Endpoint joined = a.Add(
      "TensorListConcatV2", {pushed, any, device.Feed(Tensor::Vector<int64_t>({}))}, with_shape);
  a.FetchComputed(joined);
  a.Fetch({joined.node, 1});
  const Attrs lists{{"T", DT_VARIANT}};
  const Endpoint from = a.Add("TensorListFromTensor", {a.Reversed(tall), shape}, with_shape);
  stacked(from);
  stacked(a.Add("TensorListScatterIntoExistingList", {from, tall, indices}, of));
  stacked(a.Add("TensorListScatterV2", {tall, indices, shape, a.index[3]}, with_shape));
  stacked(a.Add("TensorListConcatLists", {pushed, popped}, of));
  stacked(a.Add("ZerosLike", {from}, lists));
  if (dtype != DT_BOOL)
    stacked(a.Add("AddN", {from, list}, {{"N", int64_t{2}}, {"T", DT_VARIANT}}));
  const Endpoint split =
      a.Add("TensorListSplit", {x, any, device.Feed(Tensor::Vector<int64_t>({2, 3}))}, with_shape);
  a.FetchComputed(a.Add("TensorListGetItem", {split, a.index[1], any}, of));

  const Attrs held{{"output_types", std::vector<DType>{dtype}},
                   {"output_shapes", std::vector<PartialShape>{PartialShape{5, 6}}}};
  const Endpoint some =
      a.Add("OptionalFromValue", {a.Reversed(x)}, {{"Toutput_types", std::vector<DType>{dtype}}});
  a.FetchComputed(a.Add("OptionalGetValue", {some}, held));
  a.Fetch(a.Add("OptionalHasValue", {some}, {}));
  a.Fetch(a.Add("OptionalHasValue", {a.Add("OptionalNone", {}, {})}, {}));
  return a.Run();
}

class GpuArrays : public ::testing::TestWithParam<DType> {};

TEST_P(GpuArrays, HaveTheBitsOfTheCpus) {
  for (const auto run : {ElementsOfArrays, RowsOfArrays, Stacks, Lists})
    ExpectSameOnBoth([&](OneDevice& device) { return run(device, GetParam()); });
  SkipIfOnlyTheCpuRan();
}

INSTANTIATE_TEST_SUITE_P(Types, GpuArrays,
                         ::testing::Values(DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT64,
                                           DT_INT32, DT_INT8, DT_INT16, DT_UINT8, DT_UINT16,
                                           DT_UINT32, DT_UINT64, DT_BOOL),
                         [](const auto& type) { return std::string(DTypeName(type.param)); });

}  // namespace
}  // namespace monograph::optest
