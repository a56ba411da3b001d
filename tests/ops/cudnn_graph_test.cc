// Convolutions in cuDNN's words. Without a GPU: cuDNN says whether the descriptors are right,
// and which engines there are for GPUs that are only described to it; for this machine's own, if it
// has one.
#include "ops/conv/cudnn_graph.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/described_gpus.h"

namespace monograph::ops {
namespace {

using conv::CudnnCall;
using conv::Mode;
using cudnn::Builder;
using cudnn::Choice;
using cudnn::Descriptor;

// A GPU by its properties, as cuDNN writes them for plans that are made without the device; without
// properties this machine's.
struct GpuText {
  const char* name;
  std::string_view json;
};
constexpr GpuText kGpus[] = {
    {"OfThisMachine", ""}, {"H200", emulated::kH200}, {"A100", emulated::kA100}};

Result<Descriptor> Described(const GpuText& gpu) {
  return Builder(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
      .Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
           static_cast<int64_t>(gpu.json.size()), gpu.json.data())
      .Finish();
}

std::vector<CudnnCall> Calls() {
  std::vector<CudnnCall> calls;
  for (const char* format : {"NHWC", "NCHW"}) {
    const bool first = format[1] == 'C';
    for (const int64_t stride : {1, 2}) {
      const std::vector<int64_t> strides = first ? std::vector<int64_t>{1, 1, stride, stride}
                                                 : std::vector<int64_t>{1, stride, stride, 1};
      const Attrs attrs{{"strides", strides},
                        {"dilations", std::vector<int64_t>{1, 1, 1, 1}},
                        {"padding", std::string("SAME")},
                        {"data_format", std::string(format)}};
      const auto geometry = conv::MakeGeometry(
          attrs, first ? Shape{4, 16, 14, 12} : Shape{4, 14, 12, 16}, Shape{3, 3, 16, 32});
      EXPECT_TRUE(geometry.ok()) << geometry.status();
      for (const DType dtype : {DT_FLOAT, DT_HALF, DT_BFLOAT16}) {
        for (const Mode mode : {Mode::kForward, Mode::kBackpropInput, Mode::kBackpropFilter})
          calls.push_back({.mode = mode, .dtype = dtype, .geometry = *geometry});
        for (const bool relu : {false, true}) {
          calls.push_back({.mode = Mode::kForward, .dtype = dtype, .geometry = *geometry});
          calls.back().fused.bias = true;
          calls.back().fused.relu = relu;
        }
      }
    }
  }
  return calls;
}

std::string Text(const CudnnCall& call) {
  return std::string(DTypeName(call.dtype)) + (call.geometry.nchw ? " NCHW" : " NHWC") + ", mode " +
         std::to_string(static_cast<int>(call.mode)) + ", stride " +
         std::to_string(call.geometry.rows.stride) + (call.fused.bias ? ", bias" : "") +
         (call.fused.relu ? ", ReLU" : "");
}

TEST(CudnnGraph, EveryConvolutionIsDescribedAsCudnnWantsIt) {
  for (const CudnnCall& call : Calls()) {
    const auto operations = conv::Describe(nullptr, call, 16);
    EXPECT_TRUE(operations.ok()) << Text(call) << ": " << operations.status();
  }
}

TEST(CudnnGraph, DoublesAreLeftToOthers) {
  CudnnCall call = Calls()[0];
  call.dtype = DT_DOUBLE;
  EXPECT_EQ(conv::Describe(nullptr, call, 16).status().code(), Code::kUnimplemented);
}

TEST(CudnnGraph, AnEngineIsReadAsItWasWritten) {
  Choice choice{.engine = 12, .knobs = {{3, 4}, {7, -1}}};
  EXPECT_EQ(choice.ToString(), "12;3=4,7=-1");
  const auto read = Choice::Parse(choice.ToString());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->engine, choice.engine);
  EXPECT_EQ(read->knobs, choice.knobs);
  EXPECT_EQ(Choice::Parse(Choice().ToString()).value().engine, Choice::kNone);
  for (const char* bad : {"", "x", "1;2", "1;2=", "1;=3", "1;2=3,4"})
    EXPECT_FALSE(Choice::Parse(bad).ok()) << bad;
}

// The convolutions of ResNet-50 and of the MNIST CNN.
std::vector<conv::Geometry> Trained() {
  std::vector<conv::Geometry> all;
  const auto add = [&](int64_t side, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                       int64_t groups = 1) {
    const int64_t pad = kernel / 2;
    const Attrs attrs{{"strides", std::vector<int64_t>{1, stride, stride, 1}},
                      {"dilations", std::vector<int64_t>{1, 1, 1, 1}},
                      {"padding", std::string("EXPLICIT")},
                      {"explicit_paddings", std::vector<int64_t>{0, 0, pad, pad, pad, pad, 0, 0}},
                      {"data_format", std::string("NHWC")}};
    const auto geometry = conv::MakeGeometry(attrs, Shape{64, side, side, in},
                                             Shape{kernel, kernel, in / groups, out});
    EXPECT_TRUE(geometry.ok()) << geometry.status();
    if (geometry.ok()) all.push_back(*geometry);
  };
  add(28, 1, 32, 5, 1);
  add(14, 32, 64, 5, 1);
  add(224, 3, 64, 7, 2);
  add(27, 96, 256, 5, 1, 2);
  add(56, 128, 128, 3, 1, 32);
  int64_t side = 56, in = 64;
  for (const int64_t width : {64, 128, 256, 512}) {
    const int64_t stride = width == 64 ? 1 : 2, out = 4 * width;
    add(side, in, width, 1, 1);
    add(side, width, width, 3, stride);
    add(side, in, out, 1, stride);
    side /= stride, in = out;
    add(side, width, out, 1, 1);
    add(side, out, width, 1, 1);
    add(side, width, width, 3, 1);
  }
  return all;
}

TEST(CudnnGraph, VectorsAtTheAddressesOfTheirElementsAreDescribed) {
  for (const CudnnCall& call : Calls()) {
    const auto alignment = static_cast<int64_t>(DTypeSize(call.dtype));
    const auto operations = conv::Describe(nullptr, call, alignment);
    EXPECT_TRUE(operations.ok()) << Text(call) << ": " << operations.status();
  }
}

class CudnnEngines : public ::testing::TestWithParam<GpuText> {
 protected:
  void SetUp() override {
    if (GetParam().json.empty()) {
      int gpus = 0;
      if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "no GPU";
      ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
      return;
    }
    auto gpu = Described(GetParam());
    if (!gpu.ok()) GTEST_SKIP() << "this cuDNN wants GPUs described otherwise: " << gpu.status();
    described_ = std::move(gpu).value();
    gpu_ = &described_;
  }
  void TearDown() override {
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }
  // The engine that cuDNN ranks first, by its name, once as ranked and once as named; "" if there
  // is none.
  std::string BestEngine(const CudnnCall& call, const cudnn::Allowed& allowed) {
    const auto operations = conv::Describe(handle_, call, 16);
    EXPECT_TRUE(operations.ok()) << operations.status();
    if (!operations.ok()) return "";
    const auto configs = cudnn::Configs(operations->graph, allowed, gpu_);
    EXPECT_TRUE(configs.ok()) << configs.status();
    if (!configs.ok() || configs->empty()) return "";
    const auto choice = cudnn::ChoiceOf((*configs)[0]);
    const auto plan = cudnn::MakePlan(handle_, (*configs)[0], gpu_);
    EXPECT_TRUE(choice.ok()) << choice.status();
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!choice.ok() || !plan.ok()) return "";
    // And by its name.
    const auto config = cudnn::ConfigOf(operations->graph, *choice, gpu_);
    EXPECT_TRUE(config.ok()) << choice->ToString() << ": " << config.status();
    if (!config.ok()) return "";
    const auto read = cudnn::ChoiceOf(*config);
    EXPECT_EQ(read.ok() ? read->ToString() : read.status().ToString(), choice->ToString());
    const auto again = cudnn::MakePlan(handle_, *config, gpu_);
    EXPECT_TRUE(again.ok()) << choice->ToString() << ": " << again.status();
    if (!again.ok()) return "";
    EXPECT_EQ(again->workspace_bytes, plan->workspace_bytes);
    return choice->ToString();
  }

  cudnnHandle_t handle_ = nullptr;
  Descriptor described_;
  const Descriptor* gpu_ = nullptr;
};

TEST_P(CudnnEngines, TheBestOneIsFoundAgainByItsName) {
  for (const CudnnCall& call : Calls()) {
    SCOPED_TRACE(Text(call));
    EXPECT_NE(BestEngine(call, {.deterministic = true}), "");
  }
}

TEST_P(CudnnEngines, AreThereForAllThatIsTrained) {
  for (const conv::Geometry& geometry : Trained()) {
    for (const DType dtype : {DT_FLOAT, DT_BFLOAT16}) {
      for (const Mode mode : {Mode::kForward, Mode::kBackpropInput, Mode::kBackpropFilter}) {
        const CudnnCall call{.mode = mode, .dtype = dtype, .geometry = geometry};
        SCOPED_TRACE(Text(call) + ", " + std::to_string(geometry.rows.in) + " rows, " +
                     std::to_string(geometry.rows.size) + "x" +
                     std::to_string(geometry.columns.size) + ", " + std::to_string(geometry.ic) +
                     " to " + std::to_string(geometry.oc) + " channels");
        // Deterministic, and for float without TF32, is what leaves fewest.
        EXPECT_NE(BestEngine(call, {.deterministic = true, .tensor_cores = dtype != DT_FLOAT}), "");
        EXPECT_NE(BestEngine(call, {}), "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudnnEngines, ::testing::ValuesIn(kGpus),
                         [](const auto& gpu) { return gpu.param.name; });

}  // namespace
}  // namespace monograph::ops
