// Attention in cuDNN's words: cuDNN says whether the descriptions are right. Which engines there
// are for it only a driver can tell, also for GPUs that are described: gpu_kernels_test asks.
#include "ops/attention/cudnn_attention_graph.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace monograph::ops::attention {
namespace {

TEST(CudnnAttentionGraph, ForwardAndBothWaysBackAreDescribedAsCudnnWantsThem) {
  for (const DType dtype : {DT_HALF, DT_BFLOAT16}) {
    for (const int64_t size : {8, 64, 128}) {
      for (const auto& [causal, with_lengths] :
           {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
        SCOPED_TRACE(std::string(causal ? "causal" : "") + (with_lengths ? " lengths" : ""));
        CudnnCall call{.dtype = dtype,
                       .sizes = {.n = 2,
                                 .heads = 3,
                                 .size = size,
                                 .rows = 20,
                                 .columns = 24,
                                 .causal = causal,
                                 .with_lengths = with_lengths}};
        auto operations = Describe(nullptr, call, true);
        EXPECT_TRUE(operations.ok()) << operations.status();
        call.backward = true;
        for (const bool deterministic : {false, true}) {
          operations = Describe(nullptr, call, deterministic);
          EXPECT_TRUE(operations.ok()) << deterministic << " " << operations.status();
        }
      }
    }
  }
}

TEST(CudnnAttentionGraph, FloatsAreLeftToOthers) {
  EXPECT_EQ(Describe(nullptr, {.dtype = DT_FLOAT, .sizes = {1, 1, 8, 4, 4}}, true).status().code(),
            Code::kUnimplemented);
}

}  // namespace
}  // namespace monograph::ops::attention
