// Our own kernels for GPUs against the reference cases and against the CPU's kernels, on a
// simulated grid: every thread of every launch, in three orders, with aligned and with shifted
// inputs. The kernels are nvcc's where it is (emulated_gpu_test), else those of the host's compiler
// (simulated_gpu_test): simulated_gpu.h.
#include "tests/gpu/simulated/simulated_gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "executor/resource_manager.h"
#include "graph/attr_proto.h"
#include "graph/graph.pb.h"
#include "graph/graph_def.h"
#include "ops/gpu/device_code.h"
#include "ops/gpu/moves.h"
#include "tests/conformance/ops/evaluator.h"
#include "tests/conformance/ops/golden.h"
#include "tests/conformance/ops/gpu_reasons.h"
#include "tests/conformance/ops/update_cases.h"
#include "tests/executor/run_op.h"

namespace monograph::optest {
namespace {

using ops::simulated::Order;

constexpr char kGpu0[] = "/job:localhost/replica:0/task:0/device:GPU:0";

// Sums whose order is the GPU's own: equal to rounding, not bit by bit.
const std::set<std::string>& OwnOrder() {
  static const std::set<std::string> ops = {"Sum",
                                            "Mean",
                                            "Prod",
                                            "L2Loss",
                                            "AvgPool",
                                            "AvgPoolGrad",
                                            "BatchMatMul",
                                            "BatchMatMulV2",
                                            "BatchMatMulV3",
                                            "BiasAddGrad",
                                            "Conv2D",
                                            "Conv2DBackpropFilter",
                                            "Conv2DBackpropInput",
                                            "DepthwiseConv2dNative",
                                            "DepthwiseConv2dNativeBackpropFilter",
                                            "DepthwiseConv2dNativeBackpropInput",
                                            "Elu",
                                            "FusedBatchNorm",
                                            "FusedBatchNormGrad",
                                            "FusedBatchNormGradV2",
                                            "FusedBatchNormGradV3",
                                            "FusedBatchNormV2",
                                            "FusedBatchNormV3",
                                            "LogSoftmax",
                                            "MatMul",
                                            "MaxPoolGrad",
                                            "Selu",
                                            "Softmax",
                                            "SoftmaxCrossEntropyWithLogits",
                                            "Softplus",
                                            "SparseSoftmaxCrossEntropyWithLogits"};
  return ops;
}
// Whether CUDA's library and the host's compute it, each with errors of its own.
bool OfAnotherLibrary(const std::string& op, DType dtype) {
  static const std::set<std::string> functions = {"Acos",         "Acosh", "Asin",    "Asinh",
                                                  "Atan",         "Atan2", "Atanh",   "Cos",
                                                  "Cosh",         "Elu",   "EluGrad", "Erf",
                                                  "Erfc",         "Expm1", "Log1p",   "Pow",
                                                  "Selu",         "Sin",   "Sinh",    "Softplus",
                                                  "SoftplusGrad", "Tan",   "Xlog1py", "Xlogy"},
                                     of_double = {"Exp", "Log", "Sigmoid", "Tanh"};
  return HasOwnFunctions() &&
         (functions.contains(op) || (dtype == DT_DOUBLE && of_double.contains(op)));
}
// A CPU looks at the indices and fails; a GPU cannot.
const std::set<std::string>& IndicesUnchecked() {
  static const std::set<std::string> ops = {"GatherV2", "SparseSoftmaxCrossEntropyWithLogits",
                                            "UnsortedSegmentSum"};
  return ops;
}

// The same bits; one NaN is as good as another, whose sign is not the same on CPU and GPU.
bool SameBits(const Tensor& got, const Tensor& expected) {
  if (BitEqual(got, expected)) return true;
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape()) return false;
  const auto same = [&](auto zero, auto is_nan) {
    using T = decltype(zero);
    for (int64_t i = 0; i < got.elements(); ++i) {
      const T g = got.data<T>()[i], e = expected.data<T>()[i];
      if (std::memcmp(&g, &e, sizeof(T)) != 0 && !(is_nan(g) && is_nan(e))) return false;
    }
    return true;
  };
  const auto is_nan = [](auto x) { return x != x; };
  switch (got.dtype()) {
    case DT_FLOAT:
      return same(float{}, is_nan);
    case DT_DOUBLE:
      return same(double{}, is_nan);
    case DT_HALF:
      return same(half{}, [](half x) { return std::isnan(static_cast<float>(x)); });
    case DT_BFLOAT16:
      return same(bfloat16{}, [](bfloat16 x) { return std::isnan(static_cast<float>(x)); });
    default:
      return false;
  }
}

struct Variant {
  Order order = Order::kForward;
  int shift = 0;
  bool libraries = false;  // simulated_libraries
};
constexpr Variant kVariants[] = {{Order::kForward, 0},
                                 {Order::kBackward, 0},
                                 {Order::kScattered, 1},
                                 {Order::kForward, 3},
                                 {Order::kForward, 0, true}};
// Ops that call libraries.
bool Calls(const std::string& op) {
  return op.find("Conv2D") != std::string::npos || op.find("MatMul") != std::string::npos ||
         op.find("BatchNorm") != std::string::npos || op.find("Attention") != std::string::npos;
}

std::string Name(const Variant& v) {
  return std::string(v.order == Order::kForward    ? "forward"
                     : v.order == Order::kBackward ? "backward"
                                                   : "scattered") +
         ", shifted by " + std::to_string(v.shift) + (v.libraries ? ", with libraries" : "");
}

class SimulatedGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status can = CanSimulate();
    if (can.code() == Code::kFailedPrecondition) GTEST_SKIP() << can.message();
    ASSERT_TRUE(can.ok()) << can;
  }

  KernelRunner::Options Options(uint64_t step) {
    return {.device = kGpu0, .resources = &resources_, .step_id = step, .memory = &memory_};
  }

  Result<std::vector<Tensor>> Run(const Graph& graph, NodeId node, std::vector<Tensor> inputs,
                                  const Variant& variant, uint64_t step = 1) {
    memory_.set_shift(variant.shift);
    ops::simulated::TheGrid().order = variant.order;
    simulated_libraries = variant.libraries;
    KernelRunner runner(&SimulatedKernels(), Options(step));
    auto outputs = runner.Run(graph, node, std::move(inputs));
    const std::string damage = memory_.Damage();
    if (!damage.empty()) return Internal(damage);
    return outputs;
  }

  // The op alone, on CPU and GPU. `rtol` 0: the same bits.
  void Compare(const std::string& op, const std::vector<Tensor>& inputs, const Attrs& attrs,
               double rtol = 0, double atol = 0) {
    SCOPED_TRACE(op);
    Graph graph(&Ops());
    std::vector<Endpoint> sources;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto source = std::make_shared<const Attrs>(
          Attrs{{"T", inputs[i].dtype()}, {"index", static_cast<int64_t>(i)}});
      auto node = graph.AddNode({.name = "in" + std::to_string(i), .op = "_Arg", .attrs = source});
      ASSERT_TRUE(node.ok()) << node.status();
      sources.push_back({*node, 0});
    }
    auto node = graph.AddNode(
        {.name = "it", .op = op, .inputs = sources, .attrs = std::make_shared<const Attrs>(attrs)});
    ASSERT_TRUE(node.ok()) << node.status();
    KernelRunner cpu(&Kernels());
    const auto expected = cpu.Run(graph, *node, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const Variant& variant : kVariants) {
      if (variant.libraries && !Calls(op)) continue;
      const auto got = Run(graph, *node, inputs, variant);
      ASSERT_TRUE(got.ok()) << Name(variant) << ": " << got.status();
      for (size_t i = 0; i < got->size(); ++i) {
        const Tensor &g = (*got)[i], &e = (*expected)[i];
        if (rtol == 0 && atol == 0) {
          EXPECT_TRUE(SameBits(g, e)) << Name(variant) << ": " << Difference(g, e, 0, 0);
        } else {
          EXPECT_EQ(Difference(g, e, rtol, atol), "") << Name(variant);
        }
      }
    }
  }

  // _FusedBatchNormGradEx where a residual joins, against AddN, ReluGrad and FusedBatchNormGradV3.
  void ExpectBitsOfSeparateOps(const std::vector<Tensor>& in, const Attrs& attrs) {
    const auto run = [&](const char* op, const std::vector<Tensor>& inputs, const Attrs& with) {
      KernelRunner runner(&SimulatedKernels(), Options(1));
      auto outputs = testing::RunOp(runner, Ops(), op, inputs, with);
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      return outputs.ok() ? *outputs : std::vector<Tensor>();
    };
    memory_.set_shift(0);
    simulated_libraries = false;
    ops::simulated::TheGrid().order = Order::kForward;
    const Attrs type{{"T", in[0].dtype()}};
    Attrs sum = type, plain = type;
    sum.Set("N", int64_t{2});
    for (const char* name : {"U", "data_format"}) plain.Set(name, *attrs.Find(name));
    const Tensor dy = in.size() > 8 ? run("AddN", {in[0], in[8]}, sum).at(0) : in[0];
    const Tensor passing = run("ReluGrad", {dy, in[7]}, type).at(0);
    const std::vector<Tensor> expected =
        run("FusedBatchNormGradV3", {passing, in[1], in[2], in[3], in[4], in[5]}, plain);
    const std::vector<Tensor> got = run("_FusedBatchNormGradEx", in, attrs);
    ASSERT_EQ(got.size(), 6u);
    EXPECT_TRUE(SameBits(got[5], passing));
    for (const size_t i : {0, 1, 2}) EXPECT_TRUE(SameBits(got[i], expected.at(i))) << i;
  }

  SimulatedMemory memory_;
  ResourceManager resources_;
};

template <typename T>
T Number(double value) {
  if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Values in [low, high), by `seed`.
Tensor Random(DType dtype, const Shape& shape, int seed, double low = -4, double high = 4) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  std::uniform_real_distribution<double> draw(low, high);
  Tensor tensor = Tensor::Allocate(dtype, shape).value();
  const int64_t n = tensor.elements();
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < n; ++i) tensor.data<T>()[i] = Number<T>(draw(engine));
  };
  switch (dtype) {
    case DT_FLOAT:
      fill(float{});
      break;
    case DT_DOUBLE:
      fill(double{});
      break;
    case DT_HALF:
      fill(half{});
      break;
    case DT_BFLOAT16:
      fill(bfloat16{});
      break;
    case DT_INT32:
      fill(int32_t{});
      break;
    case DT_INT64:
      fill(int64_t{});
      break;
    case DT_UINT8:
      fill(uint8_t{});
      break;
    case DT_INT8:
      fill(int8_t{});
      break;
    case DT_INT16:
      fill(int16_t{});
      break;
    case DT_UINT16:
      fill(uint16_t{});
      break;
    default:
      for (int64_t i = 0; i < n; ++i) tensor.data<bool>()[i] = draw(engine) > 0;
      break;
  }
  return tensor;
}

Tensor Ints(std::initializer_list<int32_t> values) { return Tensor::Vector<int32_t>(values); }

constexpr DType kFloats[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16};

TEST_F(SimulatedGpu, GivesWhatTensorFlowGives) {
  std::map<std::string, int> checked;
  for (const GoldenFamily& family : GoldenFamilies()) {
    for (const OpCase& op_case : family.cases.cases()) {
      GraphDef def;
      std::vector<Tensor> inputs;
      for (int i = 0; i < op_case.inputs_size(); ++i) {
        auto value = TensorFromProto(op_case.inputs(i));
        ASSERT_TRUE(value.ok()) << value.status();
        NodeDef* node = def.add_node();
        node->set_name("in" + std::to_string(i));
        node->set_op("Placeholder");
        (*node->mutable_attr())["dtype"].set_type(op_case.inputs(i).dtype());
        (*node->mutable_attr())["shape"].mutable_shape()->set_unknown_rank(true);
        inputs.push_back(*std::move(value));
      }
      *def.add_node() = op_case.node();
      const auto graph = GraphFromDef(def, &Ops(), {.keep_unknown_ops = false});
      if (!graph.ok()) continue;  // golden_test tells
      const NodeId node = graph->Find(op_case.node().name());
      const std::string& op = op_case.node().op();
      if (!SimulatedKernels().Find(op, kGpu, graph->attrs(node)).ok()) continue;
      ++checked[op];
      KernelRunner cpu(&Kernels());
      const auto on_cpu = cpu.Run(*graph, node, inputs);
      for (const Variant& variant : kVariants) {
        if (variant.libraries && !Calls(op)) continue;
        const auto outputs = Run(*graph, node, inputs, variant);
        const std::string where =
            family.file + ": " + op_case.name() + " (" + Name(variant) + "): ";
        if (!op_case.error().empty()) {
          EXPECT_TRUE(!outputs.ok() || IndicesUnchecked().contains(op)) << where << "succeeds";
          continue;
        }
        ASSERT_TRUE(outputs.ok()) << where << outputs.status();
        ASSERT_EQ(static_cast<int>(outputs->size()), op_case.outputs_size()) << where;
        for (size_t i = 0; i < outputs->size(); ++i) {
          const Tensor expected = TensorFromProto(op_case.outputs(static_cast<int>(i))).value();
          EXPECT_EQ(Difference((*outputs)[i], expected, static_cast<double>(op_case.rtol()),
                               static_cast<double>(op_case.atol())),
                    "")
              << where;
          const bool differs =
              OwnOrder().contains(op) || OfAnotherLibrary(op, (*outputs)[i].dtype());
          if (!differs && on_cpu.ok()) {
            EXPECT_TRUE(SameBits((*outputs)[i], (*on_cpu)[i])) << where << "not the CPU's bits";
          }
        }
      }
    }
  }
  EXPECT_GT(checked.size(), 80u);
}

TEST(SimulatedGpuCoverage, EveryTypeThatAnOpHasOnCpusItHasOnGpusOrAReason) {
  for (const KernelRegistry::Entry* entry : Kernels().All()) {
    const KernelDef& def = entry->def;
    if (def.device != kCpu || !SimulatedKernels().HasOp(def.op, kGpu)) continue;
    Attrs attrs;
    std::string why, types;
    for (const auto& [attr, dtype] : def.types) {
      attrs.Set(attr, dtype);
      types += " " + attr + "=" + std::string(DTypeName(dtype));
      if (why.empty()) why = WithoutGpuKernelOf(def.op, dtype);
    }
    // Kernels of any type on CPUs may be those of all plain types on GPUs.
    if (def.types.empty()) continue;
    EXPECT_EQ(SimulatedKernels().Find(def.op, kGpu, attrs).ok(), why.empty())
        << def.op << types << ": " << why;
  }
}

TEST_F(SimulatedGpu, SmallIntegersHaveTheCpusBits) {
  for (const DType dtype : {DT_INT8, DT_INT16, DT_UINT8, DT_UINT16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const bool is_signed = dtype == DT_INT8 || dtype == DT_INT16;
    const double low = dtype == DT_INT8    ? -128
                       : dtype == DT_INT16 ? -32768
                                           : 0,
                 high = dtype == DT_INT8    ? 127.9
                        : dtype == DT_UINT8 ? 255.9
                        : is_signed         ? 32767.9
                                            : 65535.9;
    const Attrs attrs{{"T", dtype}};
    const Tensor x = Random(dtype, Shape{3, 41}, 1, low, high),
                 y = Random(dtype, Shape{3, 41}, 2, low, high),
                 row = Random(dtype, Shape{41}, 3, low, high),
                 column = Random(dtype, Shape{3, 1}, 4, low, high),
                 divisor = Random(dtype, Shape{41}, 5, 1, high);
    for (const char* op : {"Add", "AddV2", "Sub", "Mul", "Equal", "NotEqual"}) {
      Compare(op, {x, y}, attrs);
      Compare(op, {x, row}, attrs);
      Compare(op, {column, x}, attrs);
      Compare(op, {x, x}, attrs);
    }
    for (const char* op : {"Div", "FloorDiv", "FloorMod"}) Compare(op, {x, divisor}, attrs);
    Compare("Square", {x}, attrs);
    if (dtype != DT_UINT16) {
      for (const char* op : {"Maximum", "Minimum"}) Compare(op, {x, y}, attrs);
    }
    if (is_signed) {
      for (const char* op : {"Less", "LessEqual", "Greater", "GreaterEqual"})
        Compare(op, {x, y}, attrs);
      for (const char* op : {"Neg", "Abs", "Sign"}) Compare(op, {x}, attrs);
    }
  }
  const auto bytes = [](int seed) { return Random(DT_UINT8, Shape{5, 37}, seed, 0, 255.9); };
  Compare("AddN", {bytes(1), bytes(2), bytes(3)}, {{"T", DT_UINT8}, {"N", int64_t{3}}});
  for (const DType dtype : {DT_UINT8, DT_BOOL}) {
    for (const char* op : {"ArgMax", "ArgMin"}) {
      for (const int32_t axis : {0, 1}) {
        for (const DType output : {DT_INT32, DT_INT64}) {
          Compare(op, {Random(dtype, Shape{9, 300}, 7, -1, 3), Tensor::Scalar<int32_t>(axis)},
                  {{"T", dtype}, {"Tidx", DT_INT32}, {"output_type", output}});
        }
      }
    }
  }
}

TEST_F(SimulatedGpu, Int32HasTheCpusBits) {
  const Attrs attrs{{"T", DT_INT32}};
  const Tensor x = Random(DT_INT32, Shape{6, 7}, 1, -2e9, 2e9),
               y = Random(DT_INT32, Shape{7, 5}, 2, -2e9, 2e9),
               batch = Random(DT_INT32, Shape{2, 6, 7}, 3, -2e9, 2e9);
  Compare("MatMul", {x, y}, {{"T", DT_INT32}, {"transpose_a", false}, {"transpose_b", false}});
  Compare("BatchMatMulV2", {batch, y}, {{"T", DT_INT32}, {"adj_x", false}, {"adj_y", false}});
  for (const char* op : {"Relu", "Relu6"}) Compare(op, {x}, attrs);
  for (const char* op : {"ReluGrad", "Relu6Grad"}) Compare(op, {x, x}, attrs);
  const Attrs nhwc{{"T", DT_INT32}, {"data_format", std::string("NHWC")}};
  Compare("BiasAdd", {x, Random(DT_INT32, Shape{7}, 4, -2e9, 2e9)}, nhwc);
  Compare("BiasAddGrad", {x}, nhwc);
}

TEST_F(SimulatedGpu, SumsOfChannelsAreTheCpusToRounding) {
  const Tensor none = Tensor::Vector<float>({});
  for (const Shape& shape : {Shape{3, 5, 7, 8}, Shape{2, 40, 41, 3}, Shape{1, 3, 2, 600},
                             Shape{6, 17, 16, 64}, Shape{2, 2, 2, 1}}) {
    const int64_t channels = shape[3];
    const Tensor scale = Random(DT_FLOAT, Shape{channels}, 3),
                 offset = Random(DT_FLOAT, Shape{channels}, 4),
                 mean = Random(DT_FLOAT, Shape{channels}, 5),
                 variance = Random(DT_FLOAT, Shape{channels}, 6, 0.5, 2);
    for (const DType dtype : {DT_FLOAT, DT_HALF, DT_BFLOAT16}) {
      SCOPED_TRACE(shape.ToString() + " " + std::string(DTypeName(dtype)));
      const double tolerance = dtype == DT_FLOAT ? 2e-5 : dtype == DT_HALF ? 4e-3 : 3e-2;
      const Tensor x = Random(dtype, shape, 1), dy = Random(dtype, shape, 2);
      const auto near = [&](const std::string& op, const std::vector<Tensor>& in, Attrs attrs) {
        attrs.Set("T", dtype);
        Compare(op, in, attrs, tolerance, 40 * tolerance);
      };
      near("BiasAddGrad", {x}, {{"data_format", std::string("NHWC")}});
      for (const char* format : {"NHWC", "NCHW"}) {
        if (format[1] == 'C' && shape[1] != channels) continue;
        const Attrs attrs{{"data_format", std::string(format)}, {"U", DT_FLOAT}};
        near("FusedBatchNormV3", {x, scale, offset, none, none}, attrs);
        near("FusedBatchNormGradV3", {dy, x, scale, mean, variance, none}, attrs);
      }
      const Attrs fused{{"U", DT_FLOAT},
                        {"num_side_inputs", int64_t{1}},
                        {"activation_mode", std::string("Relu")}};
      near("_FusedBatchNormEx", {x, scale, offset, none, none, dy}, fused);
    }
  }
}

TEST_F(SimulatedGpu, ConvolvesAndMultipliesWhateverItsLibrariesRefuse) {
  const Tensor bias = Random(DT_FLOAT, Shape{5}, 3);
  for (const bool nchw : {false, true}) {
    for (const int64_t stride : {1, 2}) {
      for (const int64_t size : {1, 3}) {
        SCOPED_TRACE((nchw ? "NCHW, stride " : "NHWC, stride ") + std::to_string(stride));
        const auto shape = [&](int64_t h, int64_t w, int64_t c) {
          return nchw ? Shape{2, c, h, w} : Shape{2, h, w, c};
        };
        // With a padding of its own on each of the four sides.
        const std::vector<int64_t> pads = nchw ? std::vector<int64_t>{0, 0, 0, 0, 0, 1, 2, 1}
                                               : std::vector<int64_t>{0, 0, 0, 1, 2, 1, 0, 0};
        Attrs attrs{{"T", DT_FLOAT},
                    {"data_format", std::string(nchw ? "NCHW" : "NHWC")},
                    {"padding", std::string(size == 1 ? "VALID" : "EXPLICIT")},
                    {"strides", nchw ? std::vector<int64_t>{1, 1, stride, stride}
                                     : std::vector<int64_t>{1, stride, stride, 1}}};
        if (size != 1) attrs.Set("explicit_paddings", pads);
        const int64_t h = size == 1 ? 8 : 9, w = size == 1 ? 7 : 10;  // with the padding
        const Tensor x = Random(DT_FLOAT, shape(8, 7, 3), 1),
                     filter = Random(DT_FLOAT, Shape{size, size, 3, 5}, 2),
                     dy = Random(DT_FLOAT,
                                 shape((h - size) / stride + 1, (w - size) / stride + 1, 5), 4);
        const Tensor x_sizes = nchw ? Ints({2, 3, 8, 7}) : Ints({2, 8, 7, 3}),
                     filter_sizes = Tensor::Vector<int32_t>(
                         {static_cast<int32_t>(size), static_cast<int32_t>(size), 3, 5});
        Compare("Conv2D", {x, filter}, attrs, 1e-5, 1e-4);
        Compare("Conv2DBackpropInput", {x_sizes, filter, dy}, attrs, 1e-5, 1e-4);
        Compare("Conv2DBackpropFilter", {x, filter_sizes, dy}, attrs, 1e-5, 1e-4);
        Attrs with_bias = attrs;
        with_bias.Set("num_args", int64_t{1});
        with_bias.Set("fused_ops", std::vector<std::string>{"BiasAdd", "Relu"});
        Compare("_FusedConv2D", {x, filter, bias}, with_bias, 1e-5, 1e-4);
      }
    }
  }
  for (const bool relu : {false, true}) {
    const std::vector<std::string> ops =
        relu ? std::vector<std::string>{"BiasAdd", "Relu"} : std::vector<std::string>{"BiasAdd"};
    Compare("_FusedMatMul",
            {Random(DT_FLOAT, Shape{7, 9}, 5), Random(DT_FLOAT, Shape{5, 9}, 6), bias},
            {{"T", DT_FLOAT},
             {"transpose_a", false},
             {"transpose_b", true},
             {"num_args", int64_t{1}},
             {"fused_ops", ops}},
            1e-5, 1e-4);
  }
}

TEST_F(SimulatedGpu, ConvolvesInGroups) {
  for (const DType dtype : kFloats) {
    const double tolerance = dtype == DT_FLOAT || dtype == DT_DOUBLE ? 1e-5
                             : dtype == DT_HALF                      ? 4e-3
                                                                     : 3e-2;
    for (const bool nchw : {false, true}) {
      for (const int64_t groups : {2, 3, 6}) {
        for (const int64_t size : {1, 3}) {
          SCOPED_TRACE(std::string(DTypeName(dtype)) + (nchw ? ", NCHW, " : ", NHWC, ") +
                       std::to_string(groups) + " groups, window " + std::to_string(size));
          const auto shape = [&](int64_t c) {
            return nchw ? Shape{2, c, 5, 6} : Shape{2, 5, 6, c};
          };
          const int64_t channels = 6 / groups;
          const Attrs attrs{{"T", dtype},
                            {"data_format", std::string(nchw ? "NCHW" : "NHWC")},
                            {"padding", std::string("SAME")},
                            {"strides", std::vector<int64_t>{1, 1, 1, 1}}};
          const Tensor x = Random(dtype, shape(6), 1, -1, 1),
                       filter = Random(dtype, Shape{size, size, channels, 12}, 2, -1, 1),
                       dy = Random(dtype, shape(12), 3, -1, 1);
          const Tensor x_sizes = nchw ? Ints({2, 6, 5, 6}) : Ints({2, 5, 6, 6}),
                       filter_sizes = Tensor::Vector<int32_t>({static_cast<int32_t>(size),
                                                               static_cast<int32_t>(size),
                                                               static_cast<int32_t>(channels), 12});
          Compare("Conv2D", {x, filter}, attrs, tolerance, tolerance * 10);
          Compare("Conv2DBackpropInput", {x_sizes, filter, dy}, attrs, tolerance, tolerance * 10);
          Compare("Conv2DBackpropFilter", {x, filter_sizes, dy}, attrs, tolerance, tolerance * 10);
          Attrs with_bias = attrs;
          with_bias.Set("num_args", int64_t{1});
          with_bias.Set("fused_ops", std::vector<std::string>{"BiasAdd", "Relu"});
          Compare("_FusedConv2D", {x, filter, Random(dtype, Shape{12}, 4)}, with_bias, tolerance,
                  tolerance * 10);
        }
      }
    }
  }
}

// The sums of channels as they are to be added on a GPU, `width` channels to a thread: in float
// down a thread's rows and then across the threads of a chunk, in double every 32nd chunk and then
// those 32 sums.
Tensor SumsInOrder(const Tensor& x, int64_t width) {
  const int64_t rows = x.shape()[0], channels = x.shape()[1];
  int64_t lanes = 1;
  while (lanes < 32 && lanes * width < channels) lanes *= 2;
  const int64_t threads = 256 / lanes, tiles = (channels + lanes * width - 1) / (lanes * width);
  const int64_t wanted = std::max<int64_t>(1, 1024 / tiles);
  const int64_t chunk = std::max(std::max<int64_t>(64, 4 * threads), (rows + wanted - 1) / wanted);
  Tensor sums = Tensor::Allocate(DT_FLOAT, Shape{channels}).value();
  for (int64_t k = 0; k < channels; ++k) {
    double groups[32] = {};
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      float of_chunk = 0;
      for (int64_t t = 0; t < threads; ++t) {
        float of_thread = 0;
        for (int64_t row = begin + t; row < std::min(rows, begin + chunk); row += threads)
          of_thread += x.data<float>()[row * channels + k];
        of_chunk += of_thread;
      }
      groups[begin / chunk % 32] += static_cast<double>(of_chunk);
    }
    double sum = 0;
    for (const double group : groups) sum += group;
    sums.data<float>()[k] = static_cast<float>(sum);
  }
  return sums;
}

TEST_F(SimulatedGpu, SumsOfChannelsTakeOneLaunchAndOneOrder) {
  for (const Shape& shape : {Shape{9000, 16}, Shape{2500, 264}, Shape{700, 8}, Shape{3, 40}}) {
    const Tensor x = Random(DT_FLOAT, shape, 7);
    for (const Variant& variant : kVariants) {
      if (variant.libraries) continue;
      SCOPED_TRACE(shape.ToString() + Name(variant));
      memory_.set_shift(variant.shift);
      ops::simulated::TheGrid().order = variant.order;
      KernelRunner gpu(&SimulatedKernels(), Options(1));
      const int64_t launches = ops::simulated::TheGrid().launches;
      const auto sums = testing::RunOp(gpu, Ops(), "BiasAddGrad", {x}, {{"T", DT_FLOAT}});
      ASSERT_TRUE(sums.ok()) << sums.status();
      EXPECT_EQ(ops::simulated::TheGrid().launches - launches, 1);
      EXPECT_TRUE(SameBits((*sums)[0], SumsInOrder(x, variant.shift == 0 ? 4 : 1)));
    }
  }
}

TEST_F(SimulatedGpu, SumsOfChannelsOfWideTypesAreTheCpus) {
  for (const DType dtype : {DT_DOUBLE, DT_INT64, DT_INT32}) {
    for (const char* format : {"NHWC", "NCHW"}) {
      for (const Shape& shape : {Shape{3, 4, 5, 7}, Shape{70, 33, 3, 2}, Shape{600, 5},
                                 Shape{2, 3, 0, 4}, Shape{2, 3, 1, 1}}) {
        SCOPED_TRACE(shape.ToString() + format);
        Compare("BiasAddGrad", {Random(dtype, shape, 1)},
                {{"T", dtype}, {"data_format", std::string(format)}},
                dtype == DT_DOUBLE ? 1e-12 : 0, dtype == DT_DOUBLE ? 1e-12 : 0);
      }
    }
  }
}

TEST_F(SimulatedGpu, BroadcastsLikeTheCpu) {
  const std::pair<Shape, Shape> shapes[] = {{{1000}, {1000}},
                                            {{1001}, {}},
                                            {{}, {37}},
                                            {{13, 32}, {32}},
                                            {{13, 31}, {31}},
                                            {{13, 32}, {13, 1}},
                                            {{5, 1, 8}, {3, 1}},
                                            {{2, 1, 3, 1}, {5, 1, 16}},
                                            {{1, 7}, {64, 1}},
                                            {{4, 3, 2, 8}, {2, 8}},
                                            {{0, 3}, {3}},
                                            {{3, 4}, {1, 1}},
                                            {{2, 3, 4}, {2, 1, 4}}};
  int seed = 0;
  for (const auto& [x, y] : shapes) {
    SCOPED_TRACE(x.ToString() + y.ToString());
    for (DType dtype : kFloats) {
      for (const char* op : {"AddV2", "Sub", "Div", "Maximum"})
        Compare(op, {Random(dtype, x, ++seed), Random(dtype, y, ++seed, 1, 3)}, {{"T", dtype}});
      Compare("Less", {Random(dtype, x, ++seed), Random(dtype, y, ++seed)}, {{"T", dtype}});
    }
    Compare("Mul", {Random(DT_INT64, x, ++seed), Random(DT_INT64, y, ++seed)}, {{"T", DT_INT64}});
    Compare("SelectV2",
            {Random(DT_BOOL, x, ++seed), Random(DT_HALF, y, ++seed), Random(DT_HALF, x, ++seed)},
            {{"T", DT_HALF}});
  }
}

TEST_F(SimulatedGpu, ComputesChainsAsTheirOpsOneByOne) {
  struct Step {
    const char* op;
    int64_t operand;  // of the inputs; -1: none
    bool operand_first;
  };
  struct Chain {
    std::vector<Shape> inputs;
    std::vector<Step> steps;
  };
  const Chain chains[] = {
      {{{1000}, {1000}, {}}, {{"Mul", 1, false}, {"AddV2", 2, false}, {"Relu", -1, false}}},
      {{{37, 24}, {24}, {37, 1}, {37, 24}},
       {{"Sub", 1, true}, {"Div", 2, false}, {"Maximum", 3, false}, {"Square", -1, false}}},
      {{{5, 7, 9}, {7, 1}}, {{"SquaredDifference", 1, false}, {"Sqrt", -1, false}}},
      {{{16}, {3, 1, 16}}, {{"Minimum", 1, false}, {"Neg", -1, false}}},
      {{{33}, {33}},
       {{"Sigmoid", -1, false},
        {"SigmoidGrad", 1, false},
        {"Exp", -1, false},
        {"Tanh", -1, false},
        {"TanhGrad", 1, true},
        {"Abs", -1, false},
        {"Rsqrt", -1, false},
        {"Log", -1, false},
        {"Reciprocal", -1, false},
        {"RealDiv", 1, true},
        {"DivNoNan", 1, false}}},
      {{{0, 3}, {3}}, {{"AddV2", 1, false}, {"Relu", -1, false}}}};
  int seed = 50;
  for (const Chain& chain : chains) {
    SCOPED_TRACE(chain.steps[0].op);
    for (DType dtype : kFloats) {
      std::vector<Tensor> inputs;
      for (const Shape& shape : chain.inputs)
        inputs.push_back(Random(dtype, shape, ++seed, 0.5, 2));
      KernelRunner cpu(&Kernels()), gpu(&SimulatedKernels(), Options(1));
      Tensor value = inputs[0], on_gpu = inputs[0];
      Attrs attrs = {{"T", dtype}, {"N", static_cast<int64_t>(inputs.size())}};
      std::vector<std::string> ops;
      std::vector<int64_t> operand, operand_first;
      for (const Step& step : chain.steps) {
        for (auto [runner, x] : {std::pair(&cpu, &value), std::pair(&gpu, &on_gpu)}) {
          std::vector<Tensor> operands{*x};
          if (step.operand >= 0) {
            const Tensor& other = inputs[static_cast<size_t>(step.operand)];
            operands.insert(step.operand_first ? operands.begin() : operands.end(), other);
          }
          auto next = testing::RunOp(*runner, Ops(), step.op, operands, {{"T", dtype}});
          ASSERT_TRUE(next.ok()) << next.status();
          *x = (*next)[0];
        }
        ops.emplace_back(step.op);
        operand.push_back(step.operand);
        operand_first.push_back(step.operand_first ? 1 : 0);
      }
      attrs.Set("ops", ops);
      attrs.Set("operand", operand);
      attrs.Set("operand_first", operand_first);
      Compare("_FusedElementwise", inputs, attrs, OfAnotherLibrary("Exp", dtype) ? 1e-13 : 0);
      auto fused = testing::RunOp(cpu, Ops(), "_FusedElementwise", inputs, attrs);
      ASSERT_TRUE(fused.ok()) << fused.status();
      EXPECT_TRUE(BitEqual((*fused)[0], value)) << Difference((*fused)[0], value, 0, 0);
      fused = testing::RunOp(gpu, Ops(), "_FusedElementwise", inputs, attrs);
      ASSERT_TRUE(fused.ok()) << fused.status();
      EXPECT_TRUE(BitEqual((*fused)[0], on_gpu)) << Difference((*fused)[0], on_gpu, 0, 0);
    }
  }
}

TEST_F(SimulatedGpu, ReducesInItsOwnOrderToTheSameSums) {
  struct Case {
    Shape shape;
    Tensor axes;
  };
  const Case cases[] = {{{100000}, Ints({0})},        {{33000}, Ints({0})},
                        {{7, 5000}, Ints({1})},       {{3, 70000}, Ints({1})},
                        {{1000, 10}, Ints({1})},      {{1000, 3}, Ints({1})},
                        {{5000, 7}, Ints({0})},       {{100, 33}, Ints({0})},
                        {{3, 700, 33}, Ints({1})},    {{4, 5, 6, 7}, Ints({0, 2})},
                        {{4, 5, 6, 7}, Ints({1, 3})}, {{20000, 2}, Ints({0})},
                        {{2, 0, 3}, Ints({1})},       {{0, 3}, Ints({1})},
                        {{5, 1, 4}, Ints({1})},       {{9}, Ints({})}};
  int seed = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.shape.ToString());
    for (DType dtype : kFloats) {
      const Tensor x = Random(dtype, test.shape, ++seed, 0.5, 2);
      const double rtol = dtype == DT_DOUBLE ? 1e-12 : dtype == DT_FLOAT ? 2e-5 : 1e-2;
      for (const char* op : {"Sum", "Mean"})
        Compare(op, {x, test.axes}, {{"T", dtype}, {"Tidx", DT_INT32}}, rtol, 1e-30);
      for (const char* op : {"Max", "Min"})
        Compare(op, {x, test.axes}, {{"T", dtype}, {"Tidx", DT_INT32}});
    }
    const Tensor whole = Random(DT_INT64, test.shape, ++seed, -1000, 1000);
    for (const char* op : {"Sum", "Prod", "Max"})
      Compare(op, {whole, test.axes}, {{"T", DT_INT64}, {"Tidx", DT_INT32}});
    for (const char* op : {"All", "Any"})
      Compare(op, {Random(DT_BOOL, test.shape, ++seed), test.axes}, {{"Tidx", DT_INT32}});
  }
  for (DType dtype : kFloats)
    Compare("L2Loss", {Random(dtype, {70001}, ++seed)}, {{"T", dtype}}, 1e-6);
}

TEST_F(SimulatedGpu, FindsTheFirstLargestElement) {
  int seed = 100;
  const std::pair<Shape, int32_t> cases[] = {
      {{1000}, 0}, {{50, 10}, 1}, {{3, 5000}, 1}, {{700, 40}, 0}, {{4, 9, 3}, 1}};
  for (const auto& [shape, axis] : cases) {
    for (DType dtype : {DT_FLOAT, DT_HALF, DT_INT64}) {
      // Few distinct values: there are ties.
      Tensor x = Random(dtype, shape, ++seed, 0, 4);
      if (dtype == DT_FLOAT) {
        for (int64_t i = 0; i < x.elements(); i += 3)
          x.data<float>()[i] = i % 2 == 0 ? 3.5f : std::nanf("");
      }
      for (const char* op : {"ArgMax", "ArgMin"}) {
        for (DType to : {DT_INT32, DT_INT64})
          Compare(op, {x, Tensor::Scalar<int32_t>(axis)},
                  {{"T", dtype}, {"Tidx", DT_INT32}, {"output_type", to}});
      }
      if (dtype != DT_FLOAT) {
        Compare("Cumsum", {x, Tensor::Scalar<int32_t>(axis)},
                {{"T", dtype}, {"Tidx", DT_INT32}, {"exclusive", true}, {"reverse", true}});
      }
    }
  }
}

TEST_F(SimulatedGpu, MovesElementsOfEverySize) {
  int seed = 200;
  for (DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_UINT8, DT_INT32}) {
    const Attrs t = {{"T", dtype}, {"Tperm", DT_INT32}};
    const std::pair<Shape, Tensor> permutations[] = {{{70, 45}, Ints({1, 0})},
                                                     {{80, 144}, Ints({1, 0})},
                                                     {{2, 33, 64}, Ints({0, 2, 1})},
                                                     {{3, 8, 9, 40}, Ints({0, 3, 1, 2})},
                                                     {{3, 40, 8, 9}, Ints({0, 2, 3, 1})},
                                                     {{5, 6, 7}, Ints({2, 1, 0})},
                                                     {{4, 3, 16}, Ints({1, 0, 2})},
                                                     {{8, 1, 8}, Ints({2, 1, 0})}};
    for (const auto& [shape, perm] : permutations)
      Compare("Transpose", {Random(dtype, shape, ++seed, 0, 100), perm}, t);
    const Tensor x = Random(dtype, {6, 10, 16}, ++seed, 0, 100);
    Compare("Slice", {x, Ints({1, 2, 4}), Ints({3, 5, 8})}, {{"T", dtype}, {"Index", DT_INT32}});
    Compare("Slice", {x, Ints({1, 2, 3}), Ints({3, 5, 7})}, {{"T", dtype}, {"Index", DT_INT32}});
    const Attrs strided = {{"T", dtype}, {"Index", DT_INT32}};
    Compare("StridedSlice", {x, Ints({5, 0, 1}), Ints({0, 10, 16}), Ints({-2, 3, 2})}, strided);
    Compare("StridedSliceGrad",
            {Ints({6, 10, 16}), Ints({5, 0, 1}), Ints({0, 10, 16}), Ints({-2, 3, 2}),
             Random(dtype, {3, 4, 8}, ++seed, 0, 100)},
            strided);
    Compare("Tile", {x, Ints({2, 1, 3})}, {{"T", dtype}, {"Tmultiples", DT_INT32}});
    Compare("Pad", {x, Tensor::FromValues<int32_t>({3, 2}, {1, 0, 2, 3, 0, 16})},
            {{"T", dtype}, {"Tpaddings", DT_INT32}});
    Compare("PadV2",
            {x, Tensor::FromValues<int32_t>({3, 2}, {1, 0, 2, 3, 0, 1}),
             Random(dtype, {}, ++seed, 0, 100)},
            {{"T", dtype}, {"Tpaddings", DT_INT32}});
    Compare("ReverseV2", {x, Ints({0, 2})}, {{"T", dtype}, {"Tidx", DT_INT32}});
    Compare("BroadcastTo", {Random(dtype, {10, 1}, ++seed), Ints({4, 10, 8})},
            {{"T", dtype}, {"Tidx", DT_INT32}});
    Compare("Fill", {Ints({7, 9}), Random(dtype, {}, ++seed, 0, 100)},
            {{"T", dtype}, {"index_type", DT_INT32}});
    Compare("ZerosLike", {x}, {{"T", dtype}});
    Compare("OnesLike", {x}, {{"T", dtype}});
  }
}

TEST_F(SimulatedGpu, JoinsAndPartsManyTensors) {
  int seed = 300;
  for (DType dtype : {DT_FLOAT, DT_HALF, DT_UINT8}) {
    for (int64_t inner : {1, 3, 16}) {
      std::vector<Tensor> parts;
      for (int64_t i = 0; i < 70; ++i)
        parts.push_back(Random(dtype, {3, i % 5, inner}, ++seed, 0, 100));
      parts.push_back(Tensor::Scalar<int32_t>(1));
      Compare("ConcatV2", parts, {{"N", int64_t{70}}, {"T", dtype}, {"Tidx", DT_INT32}});
      std::vector<Tensor> rows;
      for (int i = 0; i < 40; ++i) rows.push_back(Random(dtype, {4, inner}, ++seed, 0, 100));
      for (int64_t axis : {0, 1, 2})
        Compare("Pack", rows, {{"N", int64_t{40}}, {"T", dtype}, {"axis", axis}});
      const Tensor x = Random(dtype, {4, 40, inner}, ++seed, 0, 100);
      Compare("Split", {Tensor::Scalar<int32_t>(1), x}, {{"num_split", int64_t{40}}, {"T", dtype}});
      Compare("SplitV", {x, Ints({1, 0, 30, 9}), Tensor::Scalar<int32_t>(1)},
              {{"num_split", int64_t{4}}, {"T", dtype}, {"Tlen", DT_INT32}});
      Compare("Unpack", {x}, {{"num", int64_t{40}}, {"T", dtype}, {"axis", int64_t{1}}});
    }
  }
  for (DType dtype : kFloats) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < 40; ++i) inputs.push_back(Random(dtype, {333}, ++seed));
    Compare("AddN", inputs, {{"N", int64_t{40}}, {"T", dtype}});
  }
}

TEST_F(SimulatedGpu, GathersAndAddsRowsInOrder) {
  int seed = 400;
  for (DType index : {DT_INT32, DT_INT64}) {
    for (DType dtype : kFloats) {
      for (int64_t columns : {1, 3, 16}) {
        const Tensor ids = Random(index, {200}, ++seed, 0, 23);
        const Attrs gather = {{"Tparams", dtype}, {"Tindices", index}, {"Taxis", DT_INT32}};
        Compare("GatherV2", {Random(dtype, {23, columns}, ++seed), ids, Tensor::Scalar<int32_t>(0)},
                gather);
        Compare("GatherV2",
                {Random(dtype, {2, 23, columns}, ++seed), ids, Tensor::Scalar<int32_t>(1)}, gather);
        Compare("UnsortedSegmentSum",
                {Random(dtype, {200, columns}, ++seed), Random(index, {200}, ++seed, -3, 23),
                 Tensor::Scalar<int32_t>(25)},
                {{"T", dtype}, {"Tindices", index}, {"Tnumsegments", DT_INT32}});
      }
      Compare("OneHot",
              {Random(index, {5, 7}, ++seed, -2, 9), Tensor::Scalar<int32_t>(8),
               Random(dtype, {}, ++seed), Random(dtype, {}, ++seed)},
              {{"T", dtype}, {"TI", index}, {"axis", int64_t{1}}});
    }
  }
}

TEST_F(SimulatedGpu, ConvertsBetweenAllTypes) {
  constexpr DType kTypes[] = {DT_FLOAT, DT_DOUBLE, DT_HALF,  DT_BFLOAT16, DT_INT32,
                              DT_INT64, DT_UINT8,  DT_INT16, DT_BOOL};
  int seed = 500;
  for (DType from : kTypes) {
    for (DType to : kTypes)
      Compare("Cast", {Random(from, {1003}, ++seed, 0, 100)}, {{"SrcT", from}, {"DstT", to}});
  }
}

Tensor As(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  KernelRunner cpu(&Kernels());
  return testing::RunOp(cpu, Ops(), "Cast", {x}, {{"SrcT", x.dtype()}, {"DstT", dtype}}).value()[0];
}

// [a, .., z] as [z, a, ..].
Tensor LastFirst(const Tensor& x) {
  std::vector<int32_t> order{x.shape().rank() - 1};
  for (int i = 0; i + 1 < x.shape().rank(); ++i) order.push_back(i);
  KernelRunner cpu(&Kernels());
  const Tensor perm = Tensor::FromValues<int32_t>({static_cast<int64_t>(order.size())}, order);
  return testing::RunOp(cpu, Ops(), "Transpose", {x, perm}, {{"T", x.dtype()}, {"Tperm", DT_INT32}})
      .value()[0];
}

TEST_F(SimulatedGpu, CastsManyTensorsInOneLaunch) {
  constexpr DType kTypes[] = {DT_HALF, DT_BFLOAT16, DT_FLOAT};
  int seed = 550;
  for (const int64_t count : {5, 120, 300}) {  // the last: more than a launch takes
    SCOPED_TRACE(count);
    std::vector<Tensor> inputs;
    std::vector<DType> from, types;
    std::vector<bool> last_first;
    for (int64_t i = 0; i < count; ++i) {
      const Shape shape = i % 5 == 0   ? Shape{1 + i * 7 % 40}
                          : i % 5 == 1 ? Shape{3, 1 + i % 3, 5, 2 + 13 * i % 70}
                          : i % 5 == 2 ? Shape{2500 + i}
                          : i % 5 == 3 ? Shape{}
                                       : Shape{7, i % 2 * 33, 16};
      types.push_back(kTypes[i % 3]);
      from.push_back(i % 7 == 1 ? types.back() : DT_FLOAT);
      inputs.push_back(Random(from.back(), shape, ++seed));
      last_first.push_back(i % 4 < 2 && shape.rank() > 1);
    }
    Attrs attrs{{"SrcT", from}, {"DstT", types}, {"last_first", last_first}};
    Compare("_MultiCast", inputs, attrs);
    KernelRunner gpu(&SimulatedKernels(), Options(1));
    const int64_t launches = ops::simulated::TheGrid().launches;
    const auto made = testing::RunOp(gpu, Ops(), "_MultiCast", inputs, attrs);
    ASSERT_TRUE(made.ok()) << made.status();
    const int64_t taken = ops::simulated::TheGrid().launches - launches;
    EXPECT_TRUE(count < 300 ? taken == 1 : taken > 1) << taken;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor x = As(inputs[i], types[i]);
      EXPECT_TRUE(BitEqual((*made)[i], last_first[i] ? LastFirst(x) : x)) << i;
    }
    if (count > 5) continue;
    // And back again.
    attrs.Set("SrcT", types);
    attrs.Set("back", true);
    Compare("_MultiCast", *made, attrs);
    const auto again = testing::RunOp(gpu, Ops(), "_MultiCast", *made, attrs);
    ASSERT_TRUE(again.ok()) << again.status();
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(BitEqual((*again)[i], As(inputs[i], types[i]))) << i;
  }
}

TEST_F(SimulatedGpu, TakesFiltersThatAreTurnedAlready) {
  const Tensor sizes = Ints({2, 9, 8, 6});
  for (const DType dtype : kFloats) {
    for (const char* format : {"NHWC", "NCHW"}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + format);
      const bool first = format[1] == 'C';
      const Tensor x = Random(dtype, first ? Shape{2, 6, 9, 8} : Shape{2, 9, 8, 6}, 1),
                   dy = Random(dtype, first ? Shape{2, 8, 9, 8} : Shape{2, 9, 8, 8}, 2),
                   w = Random(dtype, {3, 2, 6, 8}, 3), bias = Random(dtype, {8}, 4),
                   at = first ? Ints({2, 6, 9, 8}) : sizes;
      Attrs attrs{{"T", dtype},
                  {"strides", std::vector<int64_t>{1, 1, 1, 1}},
                  {"padding", std::string("SAME")},
                  {"data_format", std::string(format)}};
      Attrs fused = attrs;
      fused.Set("num_args", int64_t{1});
      fused.Set("fused_ops", std::vector<std::string>{"BiasAdd", "Relu"});
      for (const char* op : {"_FusedConv2D", "_Conv2DBackpropInput"}) {
        const bool forward = op[1] == 'F';
        const auto in = [&](const Tensor& filter) {
          return forward ? std::vector<Tensor>{x, filter, bias}
                         : std::vector<Tensor>{at, filter, dy};
        };
        Attrs plain = forward ? fused : attrs, turned = plain;
        turned.Set("filter_last_first", true);
        for (const bool libraries : {false, true}) {
          simulated_libraries = libraries;
          KernelRunner gpu(&SimulatedKernels(), Options(1)), cpu(&Kernels());
          for (KernelRunner* runner : {&gpu, &cpu}) {
            const auto expected = testing::RunOp(*runner, Ops(), op, in(w), plain),
                       got = testing::RunOp(*runner, Ops(), op, in(LastFirst(w)), turned);
            ASSERT_TRUE(expected.ok()) << expected.status();
            ASSERT_TRUE(got.ok()) << got.status();
            EXPECT_TRUE(BitEqual((*got)[0], (*expected)[0])) << op << (runner == &cpu);
          }
        }
      }
      Attrs turned = attrs;
      turned.Set("filter_last_first", true);
      for (const bool libraries : {false, true}) {
        simulated_libraries = libraries;
        KernelRunner gpu(&SimulatedKernels(), Options(1)), cpu(&Kernels());
        for (KernelRunner* runner : {&gpu, &cpu}) {
          const std::vector<Tensor> in{x, Ints({3, 2, 6, 8}), dy};
          const auto expected = testing::RunOp(*runner, Ops(), "Conv2DBackpropFilter", in, attrs),
                     got = testing::RunOp(*runner, Ops(), "_Conv2DBackpropFilter", in, turned);
          ASSERT_TRUE(expected.ok()) << expected.status();
          ASSERT_TRUE(got.ok()) << got.status();
          // A library of CPUs computes it for bfloat16 in an order of its own.
          const bool same = BitEqual((*got)[0], LastFirst((*expected)[0]));
          EXPECT_TRUE(same || (runner == &cpu && dtype == DT_BFLOAT16)) << (runner == &cpu);
        }
      }
    }
  }
}

TEST_F(SimulatedGpu, DrawsTheSameRandomNumbers) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    for (DType dtype : kFloats) {
      Compare(op, {Ints({17, 61})},
              {{"dtype", dtype}, {"T", DT_INT32}, {"seed", int64_t{7}}, {"seed2", int64_t{9}}});
    }
  }
  Compare("RandomUniformInt",
          {Ints({1000}), Tensor::Scalar<int64_t>(-5), Tensor::Scalar<int64_t>(int64_t{1} << 60)},
          {{"Tout", DT_INT64}, {"T", DT_INT32}, {"seed", int64_t{7}}, {"seed2", int64_t{9}}});
}

// A variable and its slots on one device, updated by one op.
class Updates {
 public:
  Updates(const KernelRegistry* kernels, DeviceMemory* memory, const char* device)
      : runner_(kernels, {.device = device, .resources = &resources_, .memory = memory}),
        device_(device) {}

  Tensor Handle(const std::string& name) {
    Tensor handle = Tensor::Allocate(DT_RESOURCE, Shape()).value();
    *handle.handles() = {device_, "localhost", name};
    return handle;
  }
  void Make(const std::string& name, const Tensor& value) {
    Graph graph(&Ops());
    auto attrs = std::make_shared<const Attrs>(
        Attrs{{"dtype", value.dtype()}, {"shape", PartialShape(value.shape())}});
    auto node = graph.AddNode({.name = name, .op = "VarHandleOp", .attrs = attrs});
    ASSERT_TRUE(node.ok()) << node.status();
    const auto made = runner_.Run(graph, *node, {});
    ASSERT_TRUE(made.ok()) << made.status();
    Call("AssignVariableOp", {Handle(name), value}, {{"dtype", value.dtype()}});
  }
  std::vector<Tensor> Call(const std::string& op, std::vector<Tensor> inputs, Attrs attrs) {
    auto outputs = Try(op, std::move(inputs), std::move(attrs));
    EXPECT_TRUE(outputs.ok()) << op << ": " << outputs.status();
    return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>();
  }
  Result<std::vector<Tensor>> Try(const std::string& op, std::vector<Tensor> inputs, Attrs attrs) {
    Graph graph(&Ops());
    std::vector<Endpoint> sources;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto source = std::make_shared<const Attrs>(
          Attrs{{"T", inputs[i].dtype()}, {"index", static_cast<int64_t>(i)}});
      sources.push_back(
          {graph.AddNode({.name = "in" + std::to_string(i), .op = "_Arg", .attrs = source}).value(),
           0});
    }
    auto node = graph.AddNode({.name = "it",
                               .op = op,
                               .inputs = sources,
                               .attrs = std::make_shared<const Attrs>(std::move(attrs))});
    MG_RETURN_IF_ERROR(node.status());
    return runner_.Run(graph, *node, std::move(inputs));
  }
  Tensor Read(const std::string& name, DType dtype) {
    auto values = Call("ReadVariableOp", {Handle(name)}, {{"dtype", dtype}});
    return values.empty() ? Tensor() : values[0];
  }
  // The value itself, which an update so may not overwrite.
  Tensor Hold(const std::string& name) {
    const auto variable = resources_.Find<Variable>("localhost", name).value();
    ReaderLock lock(variable->mutex);
    return variable->value;
  }

 private:
  ResourceManager resources_;
  KernelRunner runner_;
  const std::string device_;
};

// Of a variable (0) and its slots: a mean's square (1) is below the mean of squares (2).
Tensor SlotValue(int64_t slot, DType dtype, const Shape& shape, int seed) {
  return slot == 1 ? Random(dtype, shape, seed, 0.1, 0.9) : Random(dtype, shape, seed, 1, 2);
}

TEST_F(SimulatedGpu, UpdatesVariablesLikeTheCpu) {
  int seed = 600;
  for (const UpdateCase& update : kUpdateCases) {
    const std::string op = update.op, kinds = update.inputs;
    for (DType dtype : kFloats) {
      for (bool flag : {false, true}) {
        for (const Variant& variant : kVariants) {
          SCOPED_TRACE(op + " " + std::string(DTypeName(dtype)) + " " + Name(variant));
          memory_.set_shift(variant.shift);
          ops::simulated::TheGrid().order = variant.order;
          Updates cpu(&Kernels(), nullptr, "/job:localhost/replica:0/task:0/device:CPU:0");
          Updates gpu(&SimulatedKernels(), &memory_, kGpu0);
          const bool rows = update.has_rows();
          std::vector<Tensor> on_cpu, on_gpu;
          int variables = 0;
          for (char kind : kinds) {
            if (kind == 'v') {
              const std::string name = "v" + std::to_string(variables++);
              const Tensor value = SlotValue(variables - 1, dtype, {13, 7}, ++seed);
              cpu.Make(name, value);
              gpu.Make(name, value);
              on_cpu.push_back(cpu.Handle(name));
              on_gpu.push_back(gpu.Handle(name));
              continue;
            }
            const Tensor value = kind == 'c'   ? Random(dtype, {}, ++seed, 0.1, 0.9)
                                 : kind == 'i' ? Random(DT_INT64, {50}, ++seed, 0, 13)
                                               : Random(dtype, {rows ? 50 : 13, 7}, ++seed, -1, 1);
            on_cpu.push_back(value);
            on_gpu.push_back(value);
          }
          const Attrs attrs = update.AttrsFor(dtype, flag);
          cpu.Call(op, on_cpu, attrs);
          gpu.Call(op, on_gpu, attrs);
          for (int v = 0; v < variables; ++v) {
            const std::string variable = "v" + std::to_string(v);
            const Tensor e = cpu.Read(variable, dtype), g = gpu.Read(variable, dtype);
            ASSERT_TRUE(e.valid() && g.valid());
            EXPECT_TRUE(BitEqual(g, e)) << variable << " " << Difference(g, e, 0, 0);
          }
          const Attrs gather = {{"dtype", dtype}, {"Tindices", DT_INT32}};
          const auto e =
              cpu.Call("ResourceGather", {cpu.Handle("v0"), Ints({12, 0, 5, 5})}, gather);
          const auto g =
              gpu.Call("ResourceGather", {gpu.Handle("v0"), Ints({12, 0, 5, 5})}, gather);
          ASSERT_TRUE(e.size() == 1 && g.size() == 1);
          EXPECT_TRUE(BitEqual(g[0], e[0]));
          EXPECT_EQ(memory_.Damage(), "");
        }
      }
    }
  }
}

TEST_F(SimulatedGpu, TensorArraysAddUpLikeTheCpus) {
  for (const DType dtype : ops::kDeviceTypes) {
    if (dtype == DT_BOOL) continue;
    const bool wide = dtype == DT_UINT32 || dtype == DT_UINT64;  // which Random does not draw
    const auto add_up = [&](Updates& on) {
      const auto array = on.Call("TensorArrayV3", {Tensor::Scalar<int32_t>(1)}, {{"dtype", dtype}});
      const auto sums =
          on.Call("TensorArrayGradV3", {array[0], array[1]}, {{"source", std::string("g")}});
      for (int seed = 1; seed <= 3; ++seed) {
        Tensor value = Random(wide ? DT_INT64 : dtype, {13, 7}, seed, -100, 100);
        if (wide) value = Tensor(dtype, value.shape(), value.buffer());
        on.Call("TensorArrayWriteV3", {sums[0], Tensor::Scalar<int32_t>(0), value, sums[1]},
                {{"T", dtype}});
      }
      return on.Call("TensorArrayReadV3", {sums[0], Tensor::Scalar<int32_t>(0), sums[1]},
                     {{"dtype", dtype}})[0];
    };
    for (const Variant& variant : kVariants) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + Name(variant));
      memory_.set_shift(variant.shift);
      ops::simulated::TheGrid().order = variant.order;
      Updates cpu(&Kernels(), nullptr, "/job:localhost/replica:0/task:0/device:CPU:0");
      Updates gpu(&SimulatedKernels(), &memory_, kGpu0);
      const Tensor e = add_up(cpu), g = add_up(gpu);
      EXPECT_TRUE(BitEqual(g, e)) << Difference(g, e, 0, 0);
      EXPECT_EQ(memory_.Damage(), "");
    }
  }
}

TEST_F(SimulatedGpu, UpdatesManyVariablesInOneLaunch) {
  struct Kind {
    const char* op;
    std::string inputs;
    int64_t coefficients;
  };
  const Kind kinds[] = {{"ResourceApplyGradientDescent", "vcg", 1},
                        {"ResourceApplyMomentum", "vvcgc", 2},
                        {"ResourceApplyKerasMomentum", "vvcgc", 2},
                        {"ResourceApplyAdamWithAmsgrad", "vvvvccccccg", 6},
                        {"ResourceApplyAdam", "vvvccccccg", 6},
                        {"ResourceApplyAdagrad", "vvcg", 1},
                        {"ResourceApplyAdagradV2", "vvccg", 2},
                        {"ResourceApplyRMSProp", "vvvccccg", 4},
                        {"ResourceApplyCenteredRMSProp", "vvvvccccg", 4}};
  int seed = 800;
  for (const Kind& kind : kinds) {
    for (DType dtype : kFloats) {
      // As many as a large model has; and, once, more than a launch takes.
      std::vector<std::pair<Variant, int64_t>> runs;
      for (const Variant& variant : kVariants) {
        if (dtype == DT_FLOAT || variant.shift == 1 || &variant == kVariants)
          runs.emplace_back(variant, 20 + 100 * variant.shift);
      }
      if (dtype == DT_FLOAT) runs.emplace_back(kVariants[0], 800);
      for (const auto& [variant, updates] : runs) {
        SCOPED_TRACE(std::string(kind.op) + " " + Name(variant) + " " + std::to_string(updates));
        memory_.set_shift(variant.shift);
        ops::simulated::TheGrid().order = variant.order;
        Updates cpu(&Kernels(), nullptr, "/job:localhost/replica:0/task:0/device:CPU:0");
        Updates gpu(&SimulatedKernels(), &memory_, kGpu0);
        const int64_t slots = std::count(kind.inputs.begin(), kind.inputs.end(), 'v');
        std::vector<Tensor> coefficients, gradients, handles;
        std::vector<DType> types;
        for (int64_t i = 0; i < kind.coefficients; ++i)
          coefficients.push_back(Random(dtype, {}, ++seed, 0.1, 0.9));
        for (int64_t i = 0; i < updates; ++i) {
          const Shape shape{1 + i * 7 % 40};
          // Of floats some gradients are not yet widened.
          const DType type = dtype == DT_FLOAT && i % 4 == 1   ? DT_BFLOAT16
                             : dtype == DT_FLOAT && i % 4 == 2 ? DT_HALF
                                                               : dtype;
          gradients.push_back(Random(type, shape, ++seed, -1, 1));
          types.push_back(type);
          std::vector<Tensor> inputs;
          size_t coefficient = 0;
          for (int64_t v = 0; v < slots; ++v) {
            const std::string name = std::to_string(i) + "_" + std::to_string(v);
            const Tensor value = SlotValue(v, dtype, shape, ++seed);
            cpu.Make(name, value);
            gpu.Make(name, value);
            inputs.push_back(cpu.Handle(name));
            handles.push_back(gpu.Handle(name));
          }
          for (char input : kind.inputs) {
            if (input == 'c') inputs.push_back(coefficients[coefficient++]);
            if (input == 'g') inputs.push_back(As(gradients.back(), dtype));
          }
          cpu.Call(kind.op, inputs, {{"T", dtype}});
        }
        std::vector<Tensor> all = handles;
        all.insert(all.end(), coefficients.begin(), coefficients.end());
        all.insert(all.end(), gradients.begin(), gradients.end());
        const int64_t launches = ops::simulated::TheGrid().launches;
        gpu.Call("_MultiResourceApply", all,
                 {{"update", std::string(kind.op)},
                  {"V", updates * slots},
                  {"C", kind.coefficients},
                  {"N", updates},
                  {"G", types},
                  {"flag", std::string(kind.op).find("Adagrad") != std::string::npos},
                  {"T", dtype}});
        const int64_t taken = ops::simulated::TheGrid().launches - launches;
        if (updates < 800) {
          EXPECT_EQ(taken, 1);
        } else {
          EXPECT_GT(taken, 1);
        }
        for (int64_t i = 0; i < updates; ++i) {
          for (int64_t v = 0; v < slots; ++v) {
            const std::string name = std::to_string(i) + "_" + std::to_string(v);
            const Tensor e = cpu.Read(name, dtype), g = gpu.Read(name, dtype);
            ASSERT_TRUE(e.valid() && g.valid() && BitEqual(g, e)) << name;
          }
        }
        EXPECT_EQ(memory_.Damage(), "");
      }
    }
  }
}

// Updates with a variable and a slot each, of which snapshots hold the values.
class HeldUpdates {
 public:
  static constexpr int64_t kUpdates = 5;

  explicit HeldUpdates(DeviceMemory* memory)
      : cpu_(&Kernels(), nullptr, "/job:localhost/replica:0/task:0/device:CPU:0"),
        gpu_(&SimulatedKernels(), memory, kGpu0) {
    for (int64_t i = 0; i < kUpdates; ++i) {
      for (const std::string& name : {"v" + std::to_string(i), "m" + std::to_string(i)}) {
        values_[name] = Random(DT_FLOAT, {13}, static_cast<int>(values_.size()) + 1);
        cpu_.Make(name, values_[name]);
        gpu_.Make(name, values_[name]);
        held_.push_back(gpu_.Hold(name));
      }
      gradients_.push_back(Random(DT_FLOAT, {13}, 100 + static_cast<int>(i)));
    }
  }
  void SetGradient(size_t i, const Tensor& gradient) { gradients_[i] = gradient; }
  // One node; the variables of the last update are those of update `last`.
  Status Run(int64_t last = kUpdates - 1) {
    std::vector<Tensor> inputs;
    for (int64_t i = 0; i < kUpdates; ++i) {
      const std::string of = std::to_string(i == kUpdates - 1 ? last : i);
      inputs.push_back(gpu_.Handle("v" + of));
      inputs.push_back(gpu_.Handle("m" + of));
    }
    inputs.push_back(rate_);
    inputs.push_back(momentum_);
    inputs.insert(inputs.end(), gradients_.begin(), gradients_.end());
    const Attrs attrs = {{"update", std::string("ResourceApplyMomentum")},
                         {"V", 2 * kUpdates},
                         {"C", int64_t{2}},
                         {"N", kUpdates},
                         {"G", std::vector<DType>(kUpdates, DT_FLOAT)},
                         {"flag", false},
                         {"T", DT_FLOAT}};
    return gpu_.Try("_MultiResourceApply", inputs, attrs).status();
  }
  // One after the other, on the CPU.
  void RunOnCpu(int64_t last = kUpdates - 1) {
    for (int64_t i = 0; i < kUpdates; ++i) {
      const std::string of = std::to_string(i == kUpdates - 1 ? last : i);
      cpu_.Call("ResourceApplyMomentum",
                {cpu_.Handle("v" + of), cpu_.Handle("m" + of), rate_,
                 gradients_[static_cast<size_t>(i)], momentum_},
                {{"T", DT_FLOAT}});
    }
  }
  void ExpectValuesOfTheCpu() {
    for (const auto& [name, first] : values_) {
      EXPECT_TRUE(BitEqual(gpu_.Read(name, DT_FLOAT), cpu_.Read(name, DT_FLOAT))) << name;
    }
  }

 private:
  Updates cpu_, gpu_;
  std::map<std::string, Tensor> values_;  // at first
  std::vector<Tensor> held_, gradients_;
  const Tensor rate_ = Tensor::Scalar(0.25f), momentum_ = Tensor::Scalar(0.5f);
};

TEST_F(SimulatedGpu, AnUpdateOfManyVariablesThatFailsLeavesEachAsItWas) {
  int64_t failed = 0;
  for (bool over = false; !over; ++failed) {
    SCOPED_TRACE("without memory for block " + std::to_string(failed));
    HeldUpdates updates(&memory_);
    memory_.RefuseBlock(failed);
    const Status status = updates.Run();
    memory_.RefuseBlock(-1);
    over = status.ok();
    if (over) updates.RunOnCpu();
    updates.ExpectValuesOfTheCpu();
  }
  EXPECT_GT(failed, 2 * HeldUpdates::kUpdates);

  HeldUpdates updates(&memory_);
  updates.SetGradient(HeldUpdates::kUpdates - 1, Random(DT_FLOAT, {14}, 1));
  EXPECT_EQ(updates.Run().code(), Code::kInvalidArgument);
  updates.ExpectValuesOfTheCpu();
}

TEST_F(SimulatedGpu, AVariableThatComesTwiceInOneNodeIsUpdatedTwice) {
  for (const int64_t last : {0, 3}) {
    HeldUpdates updates(&memory_);
    ASSERT_TRUE(updates.Run(last).ok());
    updates.RunOnCpu(last);
    updates.ExpectValuesOfTheCpu();
  }
}

// A type's unit of comparison between functions of two libraries.
double Unit(DType dtype) {
  return dtype == DT_DOUBLE ? 1e-12 : dtype == DT_FLOAT ? 1e-5 : dtype == DT_HALF ? 2e-3 : 1.6e-2;
}

TEST_F(SimulatedGpu, NormalizesPlanesAndGatesGradientsLikeTheCpu) {
  const Tensor none = Tensor::Vector<float>({});
  for (const Shape& shape : {Shape{2, 16, 9, 16}, Shape{1, 3, 4, 3}}) {
    const Shape channels{shape[3]};
    const Tensor scale = Random(DT_FLOAT, channels, 3), offset = Random(DT_FLOAT, channels, 4);
    for (const DType dtype : {DT_FLOAT, DT_HALF, DT_BFLOAT16}) {
      for (const char* format : {"NHWC", "NCHW"}) {
        SCOPED_TRACE(shape.ToString() + " " + std::string(DTypeName(dtype)) + " " + format);
        const double tolerance = 2 * Unit(dtype);
        const Tensor x = Random(dtype, shape, 1), dy = Random(dtype, shape, 2);
        Attrs attrs{{"T", dtype}, {"U", DT_FLOAT}, {"data_format", std::string(format)}};
        const auto near = [&](const std::string& op, const std::vector<Tensor>& in) {
          Compare(op, in, attrs, tolerance, 40 * tolerance);
        };
        const std::vector<Tensor> inputs = {x, scale, offset, none, none};
        near("FusedBatchNormV3", inputs);
        const Tensor average = Random(DT_FLOAT, channels, 5),
                     square = Random(DT_FLOAT, channels, 6, 0.5, 2);
        near("FusedBatchNormGradV3", {dy, x, scale, average, square, none});
        attrs.Set("activation_mode", std::string("Relu"));
        KernelRunner cpu(&Kernels());
        const auto forward = testing::RunOp(cpu, Ops(), "_FusedBatchNormEx", inputs, attrs);
        ASSERT_TRUE(forward.ok()) << forward.status();
        const Tensor &y = (*forward)[0], &mean = (*forward)[3], &variance = (*forward)[4];
        std::vector<Tensor> backward{dy, x, scale, mean, variance, none, offset, y};
        near("_FusedBatchNormGradEx", backward);
        attrs.Set("num_side_inputs", int64_t{1});
        for (const int64_t added : {0, 1}) {
          attrs.Set("num_added", added);
          if (added > 0) backward.push_back(Random(dtype, shape, 7));
          near("_FusedBatchNormGradEx", backward);
          ExpectBitsOfSeparateOps(backward, attrs);
        }
      }
    }
  }
}

TEST_F(SimulatedGpu, AddsBiasesInEveryLayoutAndType) {
  int seed = 900;
  for (const DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT64, DT_INT32}) {
    SCOPED_TRACE(DTypeName(dtype));
    for (const Shape& shape : {Shape{2, 3, 5, 16}, Shape{7, 24}, Shape{4, 3}}) {
      Compare("BiasAdd",
              {Random(dtype, shape, ++seed), Random(dtype, {shape[shape.rank() - 1]}, ++seed)},
              {{"T", dtype}, {"data_format", std::string("NHWC")}});
    }
    for (const Shape& shape : {Shape{2, 6, 5, 3}, Shape{3, 4, 8, 8}}) {
      const Attrs nchw{{"T", dtype}, {"data_format", std::string("NCHW")}};
      const Tensor x = Random(dtype, shape, ++seed);
      Compare("BiasAdd", {x, Random(dtype, {shape[1]}, ++seed)}, nchw);
      Compare("BiasAddGrad", {x}, nchw, Unit(dtype), 10 * Unit(dtype));
    }
    if (dtype == DT_INT64 || dtype == DT_INT32) continue;
    // In place, after a library that has no bias.
    const std::vector<std::string> fused = {"BiasAdd", "Relu"};
    Compare(
        "_FusedMatMul",
        {Random(dtype, {7, 9}, ++seed), Random(dtype, {9, 5}, ++seed), Random(dtype, {5}, ++seed)},
        {{"T", dtype},
         {"transpose_a", false},
         {"transpose_b", false},
         {"num_args", int64_t{1}},
         {"fused_ops", fused}},
        Unit(dtype), 10 * Unit(dtype));
  }
}

TEST_F(SimulatedGpu, AttendsLikeTheCpuWhateverItsLibrariesRefuse) {
  int seed = 950;
  for (const DType dtype : {DT_FLOAT, DT_HALF, DT_BFLOAT16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const Shape rows{3, 5, 3, 8}, columns{3, 7, 3, 8};
    for (const bool masked : {false, true}) {
      const Attrs attrs{{"T", dtype},
                        {"scale", 0.5f},
                        {"num_lengths", int64_t{masked ? 1 : 0}},
                        {"causal", masked}};
      std::vector<Tensor> in = {Random(dtype, rows, ++seed), Random(dtype, columns, ++seed),
                                Random(dtype, columns, ++seed)};
      if (masked) in.push_back(Tensor::Vector<int32_t>({3, 1, 7}));
      Compare("_FusedAttention", in, attrs, 4 * Unit(dtype), 10 * Unit(dtype));
      KernelRunner cpu(&Kernels());
      const auto forward = testing::RunOp(cpu, Ops(), "_FusedAttention", in, attrs);
      ASSERT_TRUE(forward.ok()) << forward.status();
      in.insert(in.begin() + 3, {(*forward)[0], (*forward)[1], Random(dtype, rows, ++seed)});
      Compare("_FusedAttentionGrad", in, attrs, 4 * Unit(dtype), 20 * Unit(dtype));
    }
  }
}

TEST_F(SimulatedGpu, NormalizesRowsLikeTheCpu) {
  int seed = 970;
  for (const DType dtype : {DT_FLOAT, DT_HALF, DT_BFLOAT16}) {
    SCOPED_TRACE(DTypeName(dtype));
    // Packs and single elements; rows of few threads and of many; more blocks than one.
    for (const Shape& shape : {Shape{40, 24}, Shape{3, 7, 13}, Shape{5, 2100}, Shape{0, 8}}) {
      const int64_t width = shape[shape.rank() - 1];
      const std::vector<Tensor> in = {Random(dtype, shape, ++seed),
                                      Random(DT_FLOAT, {width}, ++seed),
                                      Random(DT_FLOAT, {width}, ++seed)};
      const Attrs attrs{{"T", dtype}, {"epsilon", 1e-3f}};
      const double rounding = dtype == DT_FLOAT ? 40 * Unit(dtype) : 4 * Unit(dtype);
      Compare("_FusedLayerNorm", in, attrs, rounding, rounding);
      KernelRunner cpu(&Kernels());
      const auto forward = testing::RunOp(cpu, Ops(), "_FusedLayerNorm", in, attrs);
      ASSERT_TRUE(forward.ok()) << forward.status();
      Compare("_FusedLayerNormGrad",
              {Random(dtype, shape, ++seed), in[0], in[1], (*forward)[1], (*forward)[2]},
              {{"T", dtype}}, rounding, 10 * rounding);
    }
    for (const int64_t n : {37, 64}) {
      const Tensor x = Random(dtype, {n}, ++seed);
      Compare("_Gelu", {x}, {{"T", dtype}}, 4 * Unit(dtype), 4 * Unit(dtype));
      Compare("_GeluGrad", {Random(dtype, {n}, ++seed), x}, {{"T", dtype}}, 4 * Unit(dtype),
              4 * Unit(dtype));
    }
  }
  for (const Tensor& x : {Random(DT_DOUBLE, {37}, 1), Random(DT_DOUBLE, {64}, 2)}) {
    Compare("_Gelu", {x}, {{"T", DT_DOUBLE}}, 1e-14, 1e-14);
    Compare("_GeluGrad", {x, x}, {{"T", DT_DOUBLE}}, 1e-14, 1e-14);
  }
}

TEST_F(SimulatedGpu, PoolsVectorsOfChannelsLikeTheCpu) {
  int seed = 1000;
  for (const DType dtype : kFloats) {
    for (const int64_t channels : {16, 3}) {
      for (const char* padding : {"SAME", "VALID"}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(channels) + padding);
        const Attrs attrs{{"T", dtype},
                          {"ksize", std::vector<int64_t>{1, 3, 2, 1}},
                          {"strides", std::vector<int64_t>{1, 2, 1, 1}},
                          {"padding", std::string(padding)}};
        const Shape shape{2, 7, 6, channels};
        Tensor x = Random(DT_INT32, shape, ++seed, -2, 3);  // few values: there are ties
        KernelRunner cpu(&Kernels());
        auto cast = testing::RunOp(cpu, Ops(), "Cast", {x}, {{"SrcT", DT_INT32}, {"DstT", dtype}});
        ASSERT_TRUE(cast.ok()) << cast.status();
        x = (*cast)[0];
        const auto y = testing::RunOp(cpu, Ops(), "MaxPool", {x}, attrs);
        ASSERT_TRUE(y.ok()) << y.status();
        const Tensor dy = Random(dtype, (*y)[0].shape(), ++seed);
        Compare("MaxPool", {x}, attrs);
        Compare("MaxPoolGrad", {x, (*y)[0], dy}, attrs, Unit(dtype), Unit(dtype));
        Compare("AvgPool", {Random(dtype, shape, ++seed)}, attrs, Unit(dtype), Unit(dtype));
        Compare("AvgPoolGrad", {Ints({2, 7, 6, static_cast<int32_t>(channels)}), dy}, attrs,
                Unit(dtype), Unit(dtype));
      }
    }
  }
}

// Where floats round, end, begin and are none.
Tensor Specials(DType dtype, const Shape& shape) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kValues[] = {0,
                                       -0.0,
                                       1,
                                       -1,
                                       0.5,
                                       -0.5,
                                       1.5,
                                       2.5,
                                       -2.5,
                                       3,
                                       1e-3,
                                       100,
                                       -100,
                                       88.8,
                                       -88.8,
                                       700,
                                       -700,
                                       65504,
                                       -65520,
                                       1e5,
                                       1e30,
                                       -1e30,
                                       1e-30,
                                       1e-38,
                                       1e-40,
                                       1e-45,
                                       6e-8,
                                       -6e-8,
                                       1e300,
                                       -1e300,
                                       1e-310,
                                       3.4e38,
                                       1234567.5,
                                       kInf,
                                       -kInf,
                                       0.999,
                                       3.14159265358979,
                                       16777217,
                                       4503599627370497.5,
                                       std::numeric_limits<double>::quiet_NaN()};
  static_assert(std::size(kValues) == 40);
  Tensor tensor = Tensor::Allocate(dtype, shape).value();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = kValues[i % 40];
    if (dtype == DT_DOUBLE) tensor.data<double>()[i] = value;
    if (dtype == DT_FLOAT) tensor.data<float>()[i] = Number<float>(value);
    if (dtype == DT_HALF) tensor.data<half>()[i] = Number<half>(value);
    if (dtype == DT_BFLOAT16) tensor.data<bfloat16>()[i] = Number<bfloat16>(value);
  }
  return tensor;
}

TEST_F(SimulatedGpu, SpecialValuesGiveWhatTheyGiveOnTheCpu) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(DTypeName(dtype));
    const double least = dtype == DT_DOUBLE ? 1e-307 : dtype == DT_HALF ? 1e-7 : 1e-37;
    const auto compare = [&](const char* op, const std::vector<Tensor>& inputs) {
      const double rtol = OfAnotherLibrary(op, dtype) ? Unit(dtype) : 0;
      Compare(op, inputs, {{"T", dtype}}, rtol, rtol == 0 ? 0 : least);
    };
    const Tensor x = Specials(dtype, {40});
    for (const char* op :
         {"Abs",      "Ceil",  "Cos",    "Elu",   "Exp",     "Floor",     "IsFinite",
          "IsInf",    "IsNan", "Log",    "Log1p", "Neg",     "LeakyRelu", "Reciprocal",
          "Relu",     "Relu6", "Round",  "Rsqrt", "Sigmoid", "Sign",      "Sin",
          "Softplus", "Sqrt",  "Square", "Tanh"})
      compare(op, {x});
    const Tensor column = Specials(dtype, {40, 1});
    for (const char* op : {"AddV2", "Div", "DivNoNan", "Equal", "FloorDiv", "FloorMod", "Greater",
                           "GreaterEqual", "Less", "LessEqual", "Maximum", "Minimum", "Mul",
                           "NotEqual", "Pow", "RealDiv", "SquaredDifference", "Sub"})
      compare(op, {column, x});
    KernelRunner cpu(&Kernels());
    const auto all = [&](const Tensor& values) {
      return testing::RunOp(cpu, Ops(), "BroadcastTo", {values, Ints({40, 40})},
                            {{"T", dtype}, {"Tidx", DT_INT32}})
          .value()[0];
    };
    const Tensor across = all(x), down = all(column);
    for (const char* op : {"EluGrad", "LeakyReluGrad", "ReciprocalGrad", "Relu6Grad", "ReluGrad",
                           "RsqrtGrad", "SigmoidGrad", "SoftplusGrad", "SqrtGrad", "TanhGrad"})
      compare(op, {down, across});
    for (const DType to : kFloats) Compare("Cast", {x}, {{"SrcT", dtype}, {"DstT", to}});
  }
}

TEST_F(SimulatedGpu, WholeNumbersOfEveryTypeGiveTheCpusBits) {
  int seed = 1100;
  KernelRunner cpu(&Kernels());
  const Tensor numbers = Random(DT_INT64, {3, 41}, ++seed, 0, 100);
  const auto of = [&](DType dtype) {
    return testing::RunOp(cpu, Ops(), "Cast", {numbers}, {{"SrcT", DT_INT64}, {"DstT", dtype}})
        .value()[0];
  };
  constexpr DType kTypes[] = {DT_INT8,  DT_UINT8, DT_INT16,  DT_UINT16,
                              DT_INT32, DT_INT64, DT_UINT32, DT_UINT64};
  for (const DType from : kTypes) {
    for (const DType to : {DT_FLOAT, DT_HALF, DT_INT8, DT_INT64})
      Compare("Cast", {of(from)}, {{"SrcT", from}, {"DstT", to}});
  }
  for (const char* op : {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"}) {
    const Tensor bytes = of(DT_UINT8);
    Compare(op, {bytes, Random(DT_UINT8, {41}, ++seed, 0, 100)}, {{"T", DT_UINT8}});
  }
  const Tensor x = Random(DT_INT64, {5, 32}, ++seed, -20, 20);
  for (const char* op : {"Round", "Relu6"}) Compare(op, {x}, {{"T", DT_INT64}});
  Compare("Relu6Grad", {x, Random(DT_INT64, {5, 32}, ++seed, -4, 10)}, {{"T", DT_INT64}});
  Compare("UnsortedSegmentSum",
          {Random(DT_INT32, {200, 3}, ++seed), Random(DT_INT64, {200}, ++seed, -3, 23),
           Tensor::Scalar<int32_t>(25)},
          {{"T", DT_INT32}, {"Tindices", DT_INT64}, {"Tnumsegments", DT_INT32}});
  Compare("RandomUniformInt", {Ints({1000}), Tensor::Scalar<int32_t>(-5), Tensor::Scalar(1 << 30)},
          {{"Tout", DT_INT32}, {"T", DT_INT32}, {"seed", int64_t{7}}, {"seed2", int64_t{9}}});
  for (const DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT64}) {
    for (const char* op : {"Cumsum", "Cumprod"}) {
      Compare(op, {Random(dtype, {4, 9, 3}, ++seed, 1, 3), Tensor::Scalar<int32_t>(1)},
              {{"T", dtype}, {"Tidx", DT_INT32}});
    }
  }
}

TEST_F(SimulatedGpu, CountersCountLikeTheCpus) {
  for (const DType dtype : {DT_INT32, DT_INT64}) {
    Updates cpu(&Kernels(), nullptr, "/job:localhost/replica:0/task:0/device:CPU:0"),
        gpu(&SimulatedKernels(), &memory_, kGpu0);
    for (Updates* device : {&cpu, &gpu}) {
      device->Make("v", Random(dtype, {13}, 1, 0, 1000));
      for (const char* op : {"AssignAddVariableOp", "AssignSubVariableOp"}) {
        device->Call(op, {device->Handle("v"), Random(dtype, {13}, op[6], 0, 1000)},
                     {{"dtype", dtype}});
      }
      device->Call("ResourceScatterAdd",
                   {device->Handle("v"), Ints({3, 12, 3}), Random(dtype, {3}, 2, 0, 1000)},
                   {{"dtype", dtype}, {"Tindices", DT_INT32}});
    }
    EXPECT_TRUE(BitEqual(gpu.Read("v", dtype), cpu.Read("v", dtype)));
  }
}

// Where CUDA graphs look for it.
TEST_F(SimulatedGpu, ASmallVariableStaysWhereItIsUnlessItsValueIsHeld) {
  Updates gpu(&SimulatedKernels(), &memory_, kGpu0);
  const Tensor first = Random(DT_FLOAT, {13}, 1, 0, 1), second = Random(DT_FLOAT, {13}, 2, 0, 1);
  gpu.Make("v", first);
  const auto assign = [&](const Tensor& value) {
    gpu.Call("AssignVariableOp", {gpu.Handle("v"), value}, {{"dtype", DT_FLOAT}});
  };
  const void* const before = gpu.Read("v", DT_FLOAT).buffer().data();
  assign(second);
  EXPECT_EQ(gpu.Read("v", DT_FLOAT).buffer().data(), before);
  EXPECT_TRUE(BitEqual(gpu.Read("v", DT_FLOAT), second));
  const Tensor held = gpu.Read("v", DT_FLOAT);
  assign(first);
  EXPECT_TRUE(BitEqual(held, second));
  EXPECT_TRUE(BitEqual(gpu.Read("v", DT_FLOAT), first));
}

// A copy from the host would wait for the stream.
TEST_F(SimulatedGpu, ConstantsOfAnySizeGoByLaunches) {
  constexpr int64_t kFloatsInALaunch = 31'744 / sizeof(float);
  for (const int64_t n :
       {int64_t{1}, int64_t{512}, int64_t{513}, kFloatsInALaunch, 2 * kFloatsInALaunch + 1}) {
    SCOPED_TRACE(n);
    const int64_t before = ops::simulated::TheGrid().launches;
    Compare("Const", {}, {{"dtype", DT_FLOAT}, {"value", Random(DT_FLOAT, {n}, 1)}});
    const int64_t variants = std::size(kVariants) - 1;  // but for that with libraries
    EXPECT_EQ(ops::simulated::TheGrid().launches - before,
              variants * ((n + kFloatsInALaunch - 1) / kFloatsInALaunch));
  }
}

TEST(DivisorTest, DividesLikeTheMachine) {
  std::mt19937_64 engine(1);
  std::vector<int64_t> divisors = {
      1,   2,     3,     5,     7,          31,         32,         33,
      641, 65535, 65536, 65537, 2147483646, 2147483647, 2147483648, int64_t{1} << 40};
  for (int i = 0; i < 2000; ++i)
    divisors.push_back(1 + static_cast<int64_t>(engine() >> (33 + engine() % 31)));
  for (int64_t d : divisors) {
    const ops::Divisor divisor(d);
    for (int i = 0; i < 200; ++i) {
      const auto n = static_cast<int64_t>(engine() >> (1 + engine() % 63));
      ASSERT_EQ(divisor.Divide(n), n / d) << n << " / " << d;
    }
    for (int64_t q : {int64_t{0}, int64_t{1}, int64_t{2147483647} / d}) {
      for (int64_t n : {q * d - 1, q * d, q * d + d - 1}) {
        if (n < 0) continue;
        ASSERT_EQ(divisor.Divide(n), n / d) << n << " / " << d;
      }
    }
  }
}

}  // namespace
}  // namespace monograph::optest
