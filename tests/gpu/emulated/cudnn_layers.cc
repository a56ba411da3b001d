// cuDNN's functions for layers without a GPU: descriptors are the real library's, arguments are
// checked as its documentation has it, and what is computed is computed on the host.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <vector>

#include "tests/gpu/emulated/emulated_gpu.h"
#include "tests/gpu/emulated/numbers.h"
#include "tests/gpu/emulated/real_cudnn.h"

namespace {

using namespace monograph;

struct Image {
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  cudnnDataType_t type{};
  std::array<int, 4> dims{}, strides{};

  explicit Image(cudnnTensorDescriptor_t d) {
    status = REAL(cudnnGetTensor4dDescriptor)(d, &type, &dims[0], &dims[1], &dims[2], &dims[3],
                                              &strides[0], &strides[1], &strides[2], &strides[3]);
  }
  DType dtype() const {
    return type == CUDNN_DATA_HALF ? DT_HALF : type == CUDNN_DATA_BFLOAT16 ? DT_BFLOAT16 : DT_FLOAT;
  }
  bool known() const {
    return status == CUDNN_STATUS_SUCCESS &&
           (type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16);
  }
  bool operator==(const Image& o) const {
    return type == o.type && dims == o.dims && strides == o.strides;
  }
  int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
  }
  // fn(n, h, w)
  template <typename Fn>
  void ForPixels(const Fn& fn) const {
    for (int64_t n = 0; n < dims[0]; ++n)
      for (int64_t h = 0; h < dims[2]; ++h)
        for (int64_t w = 0; w < dims[3]; ++w) fn(n, h, w);
  }
};

bool Is(const void* scale, float value) { return *static_cast<const float*>(scale) == value; }

bool AllThere(std::initializer_list<const void*> pointers) {
  return std::none_of(pointers.begin(), pointers.end(), [](const void* p) { return p == nullptr; });
}

cudnnStatus_t Enqueue(cudnnHandle_t handle, const char* what, std::function<void()> work) {
  cudaStream_t stream = nullptr;
  if (cudnnGetStream(handle, &stream) != CUDNN_STATUS_SUCCESS) return CUDNN_STATUS_BAD_PARAM;
  return emulated::EnqueueOn(stream, what, std::move(work)) == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_EXECUTION_FAILED;
}

// ---- pooling ----

struct Pool {
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  cudnnPoolingMode_t mode{};
  cudnnNanPropagation_t nan{};
  std::array<int, 2> size{}, pad{}, stride{}, out{};
  int n = 0, c = 0;

  Pool(cudnnPoolingDescriptor_t pool, cudnnTensorDescriptor_t x) {
    status = REAL(cudnnGetPooling2dDescriptor)(pool, &mode, &nan, &size[0], &size[1], &pad[0],
                                               &pad[1], &stride[0], &stride[1]);
    if (status == CUDNN_STATUS_SUCCESS)
      status = REAL(cudnnGetPooling2dForwardOutputDim)(pool, x, &n, &c, &out[0], &out[1]);
  }
  bool Fits(const Image& x, const Image& y) const {
    return status == CUDNN_STATUS_SUCCESS && x.known() && y.type == x.type &&
           y.dims == std::array<int, 4>{x.dims[0], x.dims[1], out[0], out[1]};
  }
  bool average() const { return mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING; }

  // fn(h, w) for the elements of the image under window (oh, ow), row by row.
  template <typename Fn>
  void ForWindow(const Image& x, int64_t oh, int64_t ow, const Fn& fn) const {
    for (int64_t r = 0; r < size[0]; ++r)
      for (int64_t s = 0; s < size[1]; ++s) {
        const int64_t h = oh * stride[0] - pad[0] + r, w = ow * stride[1] - pad[1] + s;
        if (h >= 0 && h < x.dims[2] && w >= 0 && w < x.dims[3]) fn(h, w);
      }
  }
};

// ---- batch normalisation ----

// Checks what both directions share.
bool NormFits(cudnnBatchNormMode_t mode, const Image& x, const Image& vector, double epsilon) {
  return (mode == CUDNN_BATCHNORM_SPATIAL || mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT) &&
         x.known() && vector.status == CUDNN_STATUS_SUCCESS && vector.type == CUDNN_DATA_FLOAT &&
         vector.dims == std::array<int, 4>{1, x.dims[1], 1, 1} && epsilon >= CUDNN_BN_MIN_EPSILON;
}

// ---- activations ----

bool IsRelu(cudnnActivationDescriptor_t activation) {
  cudnnActivationMode_t mode{};
  cudnnNanPropagation_t nan{};
  double coefficient = 0;
  return REAL(cudnnGetActivationDescriptor)(activation, &mode, &nan, &coefficient) ==
             CUDNN_STATUS_SUCCESS &&
         mode == CUDNN_ACTIVATION_RELU && nan == CUDNN_PROPAGATE_NAN;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) {
  return REAL(cudnnCreateTensorDescriptor)(made);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return REAL(cudnnDestroyTensorDescriptor)(descriptor);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnTensorFormat_t format, cudnnDataType_t type, int n,
                                         int c, int h, int w) {
  return REAL(cudnnSetTensor4dDescriptor)(descriptor, format, type, n, c, h, w);
}
cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derived,
                                            const cudnnTensorDescriptor_t x,
                                            cudnnBatchNormMode_t mode) {
  return REAL(cudnnDeriveBNTensorDescriptor)(derived, x, mode);
}
cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* made) {
  return REAL(cudnnCreatePoolingDescriptor)(made);
}
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t descriptor) {
  return REAL(cudnnDestroyPoolingDescriptor)(descriptor);
}
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t descriptor,
                                          cudnnPoolingMode_t mode, cudnnNanPropagation_t nan,
                                          int rows, int columns, int row_pad, int column_pad,
                                          int row_stride, int column_stride) {
  return REAL(cudnnSetPooling2dDescriptor)(descriptor, mode, nan, rows, columns, row_pad,
                                           column_pad, row_stride, column_stride);
}
cudnnStatus_t cudnnGetPooling2dForwardOutputDim(const cudnnPoolingDescriptor_t descriptor,
                                                const cudnnTensorDescriptor_t x, int* n, int* c,
                                                int* h, int* w) {
  return REAL(cudnnGetPooling2dForwardOutputDim)(descriptor, x, n, c, h, w);
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling,
                                  const void* alpha, const cudnnTensorDescriptor_t x_descriptor,
                                  const void* x, const void* beta,
                                  const cudnnTensorDescriptor_t y_descriptor, void* y) {
  const Pool pool(pooling, x_descriptor);
  const Image from(x_descriptor), to(y_descriptor);
  if (!pool.Fits(from, to) || !AllThere({x, y}) || x == y) return CUDNN_STATUS_BAD_PARAM;
  if (!Is(alpha, 1) || !Is(beta, 0)) return CUDNN_STATUS_NOT_SUPPORTED;
  return Enqueue(handle, "cudnnPoolingForward", [=] {
    const DType type = from.dtype();
    to.ForPixels([&](int64_t n, int64_t oh, int64_t ow) {
      for (int64_t c = 0; c < from.dims[1]; ++c) {
        double sum = 0, top = -std::numeric_limits<double>::infinity();
        int count = 0;
        pool.ForWindow(from, oh, ow, [&](int64_t h, int64_t w) {
          const double value = emulated::Load(type, x, from.at(n, c, h, w));
          sum += value, ++count;
          if (std::isnan(value) ? pool.nan == CUDNN_PROPAGATE_NAN : value > top) top = value;
        });
        emulated::Store(type, y, to.at(n, c, oh, ow), pool.average() ? sum / count : top);
      }
    });
  });
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling,
                                   const void* alpha, const cudnnTensorDescriptor_t y_descriptor,
                                   const void* y, const cudnnTensorDescriptor_t dy_descriptor,
                                   const void* dy, const cudnnTensorDescriptor_t x_descriptor,
                                   const void* x, const void* beta,
                                   const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  const Pool pool(pooling, x_descriptor);
  const Image image(x_descriptor), pooled(y_descriptor);
  if (!pool.Fits(image, pooled) || !(Image(dy_descriptor) == pooled) ||
      !(Image(dx_descriptor) == image) || !AllThere({y, dy, x, dx}) || dx == dy ||
      (!pool.average() && (dx == x || dx == y)))
    return CUDNN_STATUS_BAD_PARAM;
  if (!Is(alpha, 1) || !Is(beta, 0)) return CUDNN_STATUS_NOT_SUPPORTED;
  return Enqueue(handle, "cudnnPoolingBackward", [=] {
    const DType type = image.dtype();
    std::vector<double> sums(static_cast<size_t>(image.dims[0]) * image.dims[1] * image.dims[2] *
                             image.dims[3]);
    const auto sum = [&](int64_t n, int64_t c, int64_t h, int64_t w) -> double& {
      return sums[static_cast<size_t>(
          ((n * image.dims[1] + c) * image.dims[2] + h) * image.dims[3] + w)];
    };
    pooled.ForPixels([&](int64_t n, int64_t oh, int64_t ow) {
      for (int64_t c = 0; c < image.dims[1]; ++c) {
        const int64_t at = pooled.at(n, c, oh, ow);
        const double gradient = emulated::Load(type, dy, at);
        int count = 0;
        bool found = false;
        pool.ForWindow(image, oh, ow, [&](int64_t, int64_t) { ++count; });
        pool.ForWindow(image, oh, ow, [&](int64_t h, int64_t w) {
          if (pool.average()) {
            sum(n, c, h, w) += gradient / count;
          } else if (!found &&
                     emulated::Load(type, x, image.at(n, c, h, w)) == emulated::Load(type, y, at)) {
            sum(n, c, h, w) += gradient;
            found = true;
          }
        });
      }
    });
    image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
      for (int64_t c = 0; c < image.dims[1]; ++c)
        emulated::Store(type, dx, image.at(n, c, h, w), sum(n, c, h, w));
    });
  });
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                                  cudnnSoftmaxMode_t mode, const void* alpha,
                                  const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                  const void* beta, const cudnnTensorDescriptor_t y_descriptor,
                                  void* y) {
  const Image image(x_descriptor);
  if (!image.known() || !(Image(y_descriptor) == image) || !AllThere({x, y}))
    return CUDNN_STATUS_BAD_PARAM;
  // Over an instance, or over the channels of a pixel: the same where there is one pixel.
  if (!Is(alpha, 1) || !Is(beta, 0) || image.dims[2] != 1 || image.dims[3] != 1 ||
      (mode != CUDNN_SOFTMAX_MODE_INSTANCE && mode != CUDNN_SOFTMAX_MODE_CHANNEL) ||
      (algorithm != CUDNN_SOFTMAX_ACCURATE && algorithm != CUDNN_SOFTMAX_LOG))
    return CUDNN_STATUS_NOT_SUPPORTED;
  return Enqueue(handle, "cudnnSoftmaxForward", [=] {
    const DType type = image.dtype();
    image.ForPixels([&](int64_t n, int64_t, int64_t) {
      const auto value = [&](int64_t c) { return emulated::Load(type, x, image.at(n, c, 0, 0)); };
      double top = value(0), sum = 0;
      for (int64_t c = 1; c < image.dims[1]; ++c) top = std::max(top, value(c));
      for (int64_t c = 0; c < image.dims[1]; ++c) sum += std::exp(value(c) - top);
      for (int64_t c = 0; c < image.dims[1]; ++c) {
        const double from = value(c) - top;
        emulated::Store(
            type, y, image.at(n, c, 0, 0),
            algorithm == CUDNN_SOFTMAX_LOG ? from - std::log(sum) : std::exp(from) / sum);
      }
    });
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t x_descriptor, const void* x,
    const cudnnTensorDescriptor_t y_descriptor, void* y,
    const cudnnTensorDescriptor_t vector_descriptor, const void* scale, const void* offset,
    double share, void* running_mean, void* running_variance, double epsilon, void* mean,
    void* inverse) {
  const Image image(x_descriptor);
  if (!NormFits(mode, image, Image(vector_descriptor), epsilon) ||
      !(Image(y_descriptor) == image) || !AllThere({x, y, scale, offset}) || x == y ||
      (running_mean == nullptr) != (running_variance == nullptr) ||
      (mean == nullptr) != (inverse == nullptr))
    return CUDNN_STATUS_BAD_PARAM;
  if (!Is(alpha, 1) || !Is(beta, 0) || share != 1 || mean == nullptr)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return Enqueue(handle, "cudnnBatchNormalizationForwardTraining", [=] {
    const DType type = image.dtype();
    for (int64_t c = 0; c < image.dims[1]; ++c) {
      const auto at = [&](int64_t n, int64_t h, int64_t w) { return image.at(n, c, h, w); };
      double count = 0, sum = 0, squares = 0;
      image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
        sum += emulated::Load(type, x, at(n, h, w));
        ++count;
      });
      const double middle = sum / count;
      image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
        const double d = emulated::Load(type, x, at(n, h, w)) - middle;
        squares += d * d;
      });
      const double factor = 1 / std::sqrt(squares / count + epsilon);
      emulated::Store(DT_FLOAT, mean, c, middle);
      emulated::Store(DT_FLOAT, inverse, c, factor);
      if (running_mean != nullptr) {  // of which this batch is all
        emulated::Store(DT_FLOAT, running_mean, c, middle);
        emulated::Store(DT_FLOAT, running_variance, c, squares / (count - 1));
      }
      const double by = factor * emulated::Load(DT_FLOAT, scale, c),
                   plus = emulated::Load(DT_FLOAT, offset, c);
      image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
        const int64_t i = at(n, h, w);
        emulated::Store(type, y, i, (emulated::Load(type, x, i) - middle) * by + plus);
      });
    }
  });
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const void* vector_alpha, const void* vector_beta, const cudnnTensorDescriptor_t x_descriptor,
    const void* x, const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
    const cudnnTensorDescriptor_t dx_descriptor, void* dx,
    const cudnnTensorDescriptor_t vector_descriptor, const void* scale, void* dscale, void* doffset,
    double epsilon, const void* mean, const void* inverse) {
  const Image image(x_descriptor);
  if (!NormFits(mode, image, Image(vector_descriptor), epsilon) ||
      !(Image(dy_descriptor) == image) || !(Image(dx_descriptor) == image) ||
      !AllThere({x, dy, dx, scale, dscale, doffset}) || dx == x || dx == dy ||
      (mean == nullptr) != (inverse == nullptr))
    return CUDNN_STATUS_BAD_PARAM;
  if (!Is(alpha, 1) || !Is(beta, 0) || !Is(vector_alpha, 1) || !Is(vector_beta, 0) ||
      mean == nullptr)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return Enqueue(handle, "cudnnBatchNormalizationBackward", [=] {
    const DType type = image.dtype();
    for (int64_t c = 0; c < image.dims[1]; ++c) {
      const double middle = emulated::Load(DT_FLOAT, mean, c),
                   factor = emulated::Load(DT_FLOAT, inverse, c);
      double count = 0, sum = 0, products = 0;
      const auto normal = [&](int64_t i) { return (emulated::Load(type, x, i) - middle) * factor; };
      image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
        const int64_t i = image.at(n, c, h, w);
        const double gradient = emulated::Load(type, dy, i);
        sum += gradient, products += gradient * normal(i), ++count;
      });
      emulated::Store(DT_FLOAT, doffset, c, sum);
      emulated::Store(DT_FLOAT, dscale, c, products);
      const double by = factor * emulated::Load(DT_FLOAT, scale, c);
      image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
        const int64_t i = image.at(n, c, h, w);
        emulated::Store(
            type, dx, i,
            by * (emulated::Load(type, dy, i) - sum / count - normal(i) * products / count));
      });
    }
  });
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* made) {
  return REAL(cudnnCreateActivationDescriptor)(made);
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t descriptor,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t nan,
                                           double coefficient) {
  return REAL(cudnnSetActivationDescriptor)(descriptor, mode, nan, coefficient);
}

cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                     const void* alpha, const cudnnTensorDescriptor_t x_descriptor,
                                     const void* x, const void* beta,
                                     const cudnnTensorDescriptor_t y_descriptor, void* y) {
  const Image image(x_descriptor);
  if (!image.known() || !(Image(y_descriptor) == image) || !AllThere({x, y}))
    return CUDNN_STATUS_BAD_PARAM;
  if (!Is(alpha, 1) || !Is(beta, 0) || !IsRelu(activation)) return CUDNN_STATUS_NOT_SUPPORTED;
  return Enqueue(handle, "cudnnActivationForward", [=] {
    const DType type = image.dtype();
    image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
      for (int64_t c = 0; c < image.dims[1]; ++c) {
        const int64_t i = image.at(n, c, h, w);
        const double value = emulated::Load(type, x, i);
        emulated::Store(type, y, i, value < 0 ? 0 : value);
      }
    });
  });
}

cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                      const void* alpha, const cudnnTensorDescriptor_t y_descriptor,
                                      const void* y, const cudnnTensorDescriptor_t dy_descriptor,
                                      const void* dy, const cudnnTensorDescriptor_t x_descriptor,
                                      const void* x, const void* beta,
                                      const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  const Image image(x_descriptor);
  if (!image.known() || !(Image(y_descriptor) == image) || !(Image(dy_descriptor) == image) ||
      !(Image(dx_descriptor) == image) || !AllThere({y, dy, x, dx}))
    return CUDNN_STATUS_BAD_PARAM;
  if (!Is(alpha, 1) || !Is(beta, 0) || !IsRelu(activation)) return CUDNN_STATUS_NOT_SUPPORTED;
  return Enqueue(handle, "cudnnActivationBackward", [=] {
    const DType type = image.dtype();
    image.ForPixels([&](int64_t n, int64_t h, int64_t w) {
      for (int64_t c = 0; c < image.dims[1]; ++c) {
        const int64_t i = image.at(n, c, h, w);
        emulated::Store(type, dx, i,
                        emulated::Load(type, x, i) > 0 ? emulated::Load(type, dy, i) : 0);
      }
    });
  });
}

}  // extern "C"
