// By cuDNN's functions for layers, not by its graph API: there a maximum's gradient wants, channels
// last, the indices that its own forward pass has written, which TensorFlow's op does not have. All
// of them are enqueued on the handle's stream, and need no workspace.
#include <cudnn.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/gpu/algorithm_search.h"
#include "ops/gpu/cudnn_layer.h"
#include "ops/gpu/found_algorithms.h"

namespace monograph::ops {
namespace {

// A descriptor of type T; it is made by Create and ended by Destroy.
template <typename T, cudnnStatus_t (*Create)(T*), cudnnStatus_t (*Destroy)(T)>
class Described {
 public:
  Described() = default;
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  ~Described() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Status Make() {
    MG_CUDNN_RETURN_IF_ERROR(Create(&handle_));
    return Status();
  }
  T get() const { return handle_; }

 private:
  T handle_ = nullptr;
};
using Tensor4d =
    Described<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using Pooling = Described<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
                          cudnnDestroyPoolingDescriptor>;

cudnnDataType_t TypeOf(DType dtype) {
  return dtype == DT_HALF       ? CUDNN_DATA_HALF
         : dtype == DT_BFLOAT16 ? CUDNN_DATA_BFLOAT16
                                : CUDNN_DATA_FLOAT;
}

int Int(int64_t value) { return static_cast<int>(value); }

bool Pools(Layer layer) {
  return layer == Layer::kMaxPool || layer == Layer::kMaxPoolGrad || layer == Layer::kAvgPool ||
         layer == Layer::kAvgPoolGrad;
}
bool Normalizes(Layer layer) {
  return layer == Layer::kBatchNorm || layer == Layer::kBatchNormGrad;
}

Status Describe(const LayerCall& call, const std::array<int64_t, 4>& image, Tensor4d* tensor) {
  MG_RETURN_IF_ERROR(tensor->Make());
  MG_CUDNN_RETURN_IF_ERROR(cudnnSetTensor4dDescriptor(
      tensor->get(), call.nchw ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC, TypeOf(call.dtype),
      Int(image[0]), Int(image[1]), Int(image[2]), Int(image[3])));
  return Status();
}

}  // namespace

struct CudnnLayer::Plan {
  static Result<std::shared_ptr<Plan>> Make(const LayerCall& call, std::string_view way) {
    auto plan = std::make_shared<Plan>();
    MG_RETURN_IF_ERROR(Describe(call, call.image, &plan->x));
    if (Pools(call.layer)) MG_RETURN_IF_ERROR(plan->MakePool(call, way == "cudnn-atomic"));
    if (Normalizes(call.layer)) {
      plan->norm =
          way == "cudnn-persistent" ? CUDNN_BATCHNORM_SPATIAL_PERSISTENT : CUDNN_BATCHNORM_SPATIAL;
      MG_RETURN_IF_ERROR(plan->vector.Make());
      MG_CUDNN_RETURN_IF_ERROR(
          cudnnDeriveBNTensorDescriptor(plan->vector.get(), plan->x.get(), plan->norm));
    }
    if (way == "cudnn-channel") plan->softmax = CUDNN_SOFTMAX_MODE_CHANNEL;
    return plan;
  }

  Status MakePool(const LayerCall& call, bool atomic) {
    const Window &r = call.rows, &c = call.columns;
    const bool average = call.layer == Layer::kAvgPool || call.layer == Layer::kAvgPoolGrad;
    MG_RETURN_IF_ERROR(pool.Make());
    MG_CUDNN_RETURN_IF_ERROR(cudnnSetPooling2dDescriptor(
        pool.get(),
        average  ? CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
        : atomic ? CUDNN_POOLING_MAX
                 : CUDNN_POOLING_MAX_DETERMINISTIC,
        CUDNN_PROPAGATE_NAN, Int(r.size), Int(c.size), Int(r.pad_before), Int(c.pad_before),
        Int(r.stride), Int(c.stride)));
    int image[4];
    MG_CUDNN_RETURN_IF_ERROR(cudnnGetPooling2dForwardOutputDim(pool.get(), x.get(), &image[0],
                                                               &image[1], &image[2], &image[3]));
    if (image[2] != r.out || image[3] != c.out)
      return Unimplemented("cuDNN places these windows otherwise");
    return Describe(call, {call.image[0], call.image[1], r.out, c.out}, &y);
  }

  Tensor4d x, y, vector;  // `vector`: one number per channel
  Pooling pool;
  cudnnBatchNormMode_t norm = CUDNN_BATCHNORM_SPATIAL;
  cudnnSoftmaxMode_t softmax = CUDNN_SOFTMAX_MODE_INSTANCE;
};

bool CudnnLayer::Considered(KernelContext& c, const LayerCall& call) {
  const bool deterministic = cuda::StreamOf(c).options.deterministic;
  if (deterministic && UntimedWay(call.layer) == kOwnWay) return false;
  return !LibraryWays(call, deterministic).empty();
}

Result<std::shared_ptr<CudnnLayer::Plan>> CudnnLayer::Make(
    KernelContext& c, const LayerCall& call, const std::function<Status()>& own,
    const std::function<Status(const Plan&)>& library) {
  const std::shared_ptr<Plan> none;
  if (!Considered(c, call)) return none;
  const cuda::Stream& stream = cuda::StreamOf(c);
  const std::vector<std::string_view> ways = LibraryWays(call, stream.options.deterministic);
  // nullptr where cuDNN refuses.
  const auto take = [&](std::string_view way) {
    auto plan = Plan::Make(call, way);
    return plan.ok() ? *std::move(plan) : none;
  };
  if (stream.options.deterministic) return take(UntimedWay(call.layer));
  const std::string family = FamilyOf(call.layer), &file = stream.options.algorithm_cache;
  MG_ASSIGN_OR_RETURN(const std::string what,
                      SearchName(stream, "cudnn", cudnnGetVersion(), ShapeText(call)));
  FoundAlgorithms& found = FoundAlgorithms::Global();
  for (const std::string& name : {what, std::string("*")}) {
    const std::optional<std::string> way = found.Look(file, family, name);
    if (!way) continue;
    if (*way == kOwnWay) return none;
    if (std::find(ways.begin(), ways.end(), *way) == ways.end()) continue;
    if (std::shared_ptr<Plan> plan = take(*way)) return plan;
  }
  MG_ASSIGN_OR_RETURN(const bool capturing, Capturing(stream));
  if (capturing) return UntimedWay(call.layer) == kOwnWay ? none : take(UntimedWay(call.layer));
  std::string_view best = kOwnWay;
  std::shared_ptr<Plan> fastest;
  MG_ASSIGN_OR_RETURN(float best_ms, TimeOnDevice(stream, own));
  for (const std::string_view way : ways) {
    std::shared_ptr<Plan> plan = take(way);
    if (plan == nullptr) continue;
    const Result<float> ms = TimeOnDevice(stream, [&] { return library(*plan); });
    if (!ms.ok() && ms.status().code() == Code::kUnavailable) return ms.status();
    if (!ms.ok() || *ms >= best_ms) continue;
    best = way, best_ms = *ms;
    fastest = std::move(plan);
  }
  found.Keep(file, family, what, std::string(best));
  return fastest;
}

Status CudnnLayer::Enqueue(KernelContext& c, const Plan& plan, const LayerCall& call) {
  const cudnnHandle_t handle = cuda::StreamOf(c).cudnn();
  const float one = 1, zero = 0;
  const auto& [i0, i1, i2, i3, i4] = call.in;
  const auto& [o0, o1, o2] = call.out;
  const cudnnTensorDescriptor_t x = plan.x.get(), y = plan.y.get(), vector = plan.vector.get();
  switch (call.layer) {
    case Layer::kMaxPool:
    case Layer::kAvgPool:
      MG_CUDNN_RETURN_IF_ERROR(
          cudnnPoolingForward(handle, plan.pool.get(), &one, x, i0, &zero, y, o0));
      return Status();
    case Layer::kMaxPoolGrad:
      MG_CUDNN_RETURN_IF_ERROR(
          cudnnPoolingBackward(handle, plan.pool.get(), &one, y, i0, y, i1, x, i2, &zero, x, o0));
      return Status();
    case Layer::kAvgPoolGrad:  // the averages and their input are asked for, and not read
      MG_CUDNN_RETURN_IF_ERROR(
          cudnnPoolingBackward(handle, plan.pool.get(), &one, y, i0, y, i0, x, o0, &zero, x, o0));
      return Status();
    case Layer::kSoftmax:
    case Layer::kLogSoftmax:
      MG_CUDNN_RETURN_IF_ERROR(cudnnSoftmaxForward(
          handle, call.layer == Layer::kSoftmax ? CUDNN_SOFTMAX_ACCURATE : CUDNN_SOFTMAX_LOG,
          plan.softmax, &one, x, i0, &zero, x, o0));
      return Status();
    case Layer::kBatchNorm:
      MG_CUDNN_RETURN_IF_ERROR(cudnnBatchNormalizationForwardTraining(
          handle, plan.norm, &one, &zero, x, i0, x, o0, vector, i1, i2, 1.0, nullptr, nullptr,
          static_cast<double>(call.epsilon), o1, o2));
      return Status();
    case Layer::kBatchNormGrad:
      MG_CUDNN_RETURN_IF_ERROR(cudnnBatchNormalizationBackward(
          handle, plan.norm, &one, &zero, &one, &zero, x, i0, x, i1, x, o0, vector, i2, o1, o2,
          static_cast<double>(call.epsilon), i3, i4));
      return Status();
  }
  return Internal("no such layer");
}

}  // namespace monograph::ops
