// Convolutions in cuDNN's words. That the descriptors are right cuDNN says without a GPU; engines
// are looked for where there is one.
#include "ops/conv/cudnn_graph.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace monograph::ops {
namespace {

using conv::CudnnCall;
using conv::Mode;
using cudnn::Choice;

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

TEST(CudnnGraph, TheBestEngineIsFoundAgainByItsName) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) GTEST_SKIP() << "no GPU";
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  for (const CudnnCall& call : Calls()) {
    SCOPED_TRACE(Text(call));
    const auto operations = conv::Describe(handle, call, 16);
    ASSERT_TRUE(operations.ok()) << operations.status();
    const auto configs = cudnn::Configs(operations->graph, {.deterministic = true});
    ASSERT_TRUE(configs.ok()) << configs.status();
    if (call.fused.bias && configs->empty()) continue;  // then it is done in two steps
    ASSERT_FALSE(configs->empty());
    const auto choice = cudnn::ChoiceOf((*configs)[0]);
    ASSERT_TRUE(choice.ok()) << choice.status();
    const auto config = cudnn::ConfigOf(operations->graph, *choice);
    ASSERT_TRUE(config.ok()) << choice->ToString() << ": " << config.status();
    const auto plan = cudnn::MakePlan(handle, *config);
    EXPECT_TRUE(plan.ok()) << choice->ToString() << ": " << plan.status();
  }
  cudnnDestroy(handle);
}

}  // namespace
}  // namespace monograph::ops
