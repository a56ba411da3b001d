// What ops/gpu/layer.cc says of cuDNN, by cuDNN's own descriptors: they need no GPU.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <string>

#include "ops/gpu/layer.h"

namespace monograph::ops {
namespace {

TEST(CudnnLayers, PlaceTheWindowsOfPoolingAsOursWhereTheyAreAWay) {
  cudnnTensorDescriptor_t image = nullptr;
  cudnnPoolingDescriptor_t pool = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&image), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnCreatePoolingDescriptor(&pool), CUDNN_STATUS_SUCCESS);
  int ways = 0, without = 0;
  for (int side = 1; side <= 14; ++side) {
    for (int size = 1; size <= 4; ++size) {
      for (int stride = 1; stride <= 3; ++stride) {
        for (const char* padding : {"SAME", "VALID", "EXPLICIT"}) {
          LayerCall call{.layer = Layer::kMaxPool, .image = {2, 8, side, side}};
          call.rows = {.in = side, .size = size, .stride = stride};
          if (!PlaceWindow(padding, 1, 1, &call.rows).ok()) continue;
          call.columns = call.rows;
          const int pad = static_cast<int>(call.rows.pad_before);
          SCOPED_TRACE(std::to_string(side) + " in windows of " + std::to_string(size) + " by " +
                       std::to_string(stride) + ", " + padding);
          ASSERT_EQ(cudnnSetTensor4dDescriptor(image, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 8,
                                               side, side),
                    CUDNN_STATUS_SUCCESS);
          const bool set = cudnnSetPooling2dDescriptor(pool, CUDNN_POOLING_MAX_DETERMINISTIC,
                                                       CUDNN_PROPAGATE_NAN, size, size, pad, pad,
                                                       stride, stride) == CUDNN_STATUS_SUCCESS;
          int n = 0, c = 0, h = 0, w = 0;
          const bool placed = set && cudnnGetPooling2dForwardOutputDim(pool, image, &n, &c, &h,
                                                                       &w) == CUDNN_STATUS_SUCCESS;
          if (LibraryWays(call, true).empty()) {
            ++without;
            // Not for nothing: the windows lie otherwise, or the last one sees padding alone.
            EXPECT_TRUE(!placed || h != call.rows.out || pad >= size ||
                        (call.rows.out - 1) * stride - pad >= side);
          } else {
            ++ways;
            EXPECT_TRUE(placed);
            EXPECT_EQ(h, call.rows.out);
            EXPECT_EQ(w, call.columns.out);
          }
        }
      }
    }
  }
  EXPECT_GT(ways, 100);
  EXPECT_GT(without, 10);
  cudnnDestroyPoolingDescriptor(pool);
  cudnnDestroyTensorDescriptor(image);
}

TEST(CudnnLayers, KeepNumbersOfChannelsInFloat) {
  cudnnTensorDescriptor_t image = nullptr, vector = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&image), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnCreateTensorDescriptor(&vector), CUDNN_STATUS_SUCCESS);
  for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    for (const cudnnTensorFormat_t format : {CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW}) {
      for (const cudnnBatchNormMode_t mode :
           {CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_SPATIAL_PERSISTENT}) {
        ASSERT_EQ(cudnnSetTensor4dDescriptor(image, format, type, 4, 24, 7, 5),
                  CUDNN_STATUS_SUCCESS);
        ASSERT_EQ(cudnnDeriveBNTensorDescriptor(vector, image, mode), CUDNN_STATUS_SUCCESS);
        cudnnDataType_t of{};
        int d[4], s[4];
        ASSERT_EQ(cudnnGetTensor4dDescriptor(vector, &of, &d[0], &d[1], &d[2], &d[3], &s[0], &s[1],
                                             &s[2], &s[3]),
                  CUDNN_STATUS_SUCCESS);
        EXPECT_EQ(of, CUDNN_DATA_FLOAT);
        EXPECT_EQ(d[0] * 1000 + d[1], 1024);
        EXPECT_EQ(d[2] * d[3], 1);
      }
    }
  }
  cudnnDestroyTensorDescriptor(vector);
  cudnnDestroyTensorDescriptor(image);
}

}  // namespace
}  // namespace monograph::ops
