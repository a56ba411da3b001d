// Convolutions by cuDNN's graph API, where bias and ReLU are operations of the same plan. Describe
// builds the operation graph. ConvPlan then takes the engine that an earlier search found
// (FoundAlgorithms), or searches: it times up to kCandidates of the engines that are allowed,
// unless results must be deterministic or a CUDA graph is being captured, when the first one is
// taken untimed. If there is no memory for the workspace of what was taken, the next one that wants
// less is. Plans are kept by shape, type and alignment.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "executor/gpu/cuda/captured.h"
#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/conv/cudnn_conv.h"
#include "ops/conv/cudnn_graph.h"
#include "ops/gpu/algorithm_search.h"
#include "ops/gpu/found_algorithms.h"
#include "ops/plan_cache.h"

namespace monograph::ops::conv {
namespace {

using cudnn::Builder;
using cudnn::Choice;
using cudnn::Descriptor;

constexpr size_t kCandidates = 8;  // engines that a search times
constexpr int64_t kMaxWorkspaceBytes = int64_t{2} << 30;

Result<cudnnDataType_t> TypeOf(DType dtype) {
  switch (dtype) {
    case DT_FLOAT:
      return CUDNN_DATA_FLOAT;
    case DT_HALF:
      return CUDNN_DATA_HALF;
    case DT_BFLOAT16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return Unimplemented("cuDNN has no convolutions of this type");
  }
}

int64_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<int64_t>(std::min<uintptr_t>(address & -address, 16));
}

// ---- the operation graph ----

struct Tensors {
  int64_t alignment;
  cudnnDataType_t type;
  bool nchw;

  // dims {a, b, c, d}: batch, channels, rows, columns.
  Result<Descriptor> Make(Id id, const std::array<int64_t, 4>& d, bool passes_by = false) const {
    const bool between = passes_by;
    const std::array<int64_t, 4> strides =
        nchw ? std::array<int64_t, 4>{d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}
             : std::array<int64_t, 4>{d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
    Builder tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.Type(CUDNN_ATTR_TENSOR_DATA_TYPE, between ? CUDNN_DATA_FLOAT : type)
        .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d.data())
        .Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data())
        .Ints(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id})
        .Ints(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {between ? int64_t{sizeof(float)} : alignment});
    if (between) tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between);
    return tensor.Finish();
  }
};

struct Attributes {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};
Attributes AttributesOf(Mode mode) {
  switch (mode) {
    case Mode::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Mode::kBackpropInput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Mode::kBackpropFilter:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

Result<Descriptor> Pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                             const Descriptor& y) {
  MG_ASSIGN_OR_RETURN(const Descriptor what,
                      Builder(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                          .Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
                          .Type(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
                          .Finish());
  Builder operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.Of(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what)
      .Of(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) operation.Of(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  return operation.Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).Finish();
}

}  // namespace

Result<cudnn::Operations> Describe(cudnnHandle_t handle, const CudnnCall& call, int64_t alignment) {
  const Geometry& g = call.geometry;
  MG_ASSIGN_OR_RETURN(const cudnnDataType_t type, TypeOf(call.dtype));
  const Tensors tensors{alignment, type, g.nchw};
  const std::array<int64_t, 4> out{g.n, g.oc, g.rows.out, g.columns.out};
  const bool bias = call.fused.bias, relu = call.fused.relu;
  cudnn::Operations made;
  MG_ASSIGN_OR_RETURN(Descriptor x, tensors.Make(kInput, {g.n, g.ic, g.rows.in, g.columns.in}));
  MG_ASSIGN_OR_RETURN(Descriptor w, tensors.Make(kFilter, {g.oc, g.filter_channels(), g.rows.size,
                                                           g.columns.size}));
  MG_ASSIGN_OR_RETURN(Descriptor y, tensors.Make(kOutput, out));
  Descriptor product, sum, b;
  if (bias) {
    MG_ASSIGN_OR_RETURN(product, tensors.Make(kProduct, out, /*passes_by=*/true));
    MG_ASSIGN_OR_RETURN(b, tensors.Make(kBias, {1, g.oc, 1, 1}));
    if (relu) {
      MG_ASSIGN_OR_RETURN(sum, tensors.Make(kSum, out, /*passes_by=*/true));
    }
  }
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  MG_ASSIGN_OR_RETURN(
      const Descriptor convolution,
      Builder(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
          .Type(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
          .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
          .Ints(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2})
          .Ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {g.rows.pad_before, g.columns.pad_before})
          .Ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {g.rows.pad_after, g.columns.pad_after})
          .Ints(CUDNN_ATTR_CONVOLUTION_DILATIONS, {g.rows.dilation, g.columns.dilation})
          .Ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {g.rows.stride, g.columns.stride})
          .Finish());
  const Attributes names = AttributesOf(call.mode);
  MG_ASSIGN_OR_RETURN(Descriptor operation, Builder(names.type)
                                                .Of(names.convolution, convolution)
                                                .Of(names.x, x)
                                                .Of(names.w, w)
                                                .Of(names.y, bias ? product : y)
                                                .Float(names.alpha, 1)
                                                .Float(names.beta, 0)
                                                .Finish());
  made.operations.push_back(std::move(operation));
  if (bias) {
    MG_ASSIGN_OR_RETURN(Descriptor add,
                        Pointwise(CUDNN_POINTWISE_ADD, product, &b, relu ? sum : y));
    made.operations.push_back(std::move(add));
    if (relu) {
      MG_ASSIGN_OR_RETURN(Descriptor cut, Pointwise(CUDNN_POINTWISE_RELU_FWD, sum, nullptr, y));
      made.operations.push_back(std::move(cut));
    }
  }
  Builder graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Of(CUDNN_ATTR_OPERATIONGRAPH_OPS, made.operations);
  if (handle != nullptr) graph.Handle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  MG_ASSIGN_OR_RETURN(made.graph, graph.Finish());
  for (Descriptor* tensor : {&x, &w, &y, &product, &sum, &b})
    made.tensors.push_back(std::move(*tensor));
  return made;
}

namespace {

// The family of keys in FoundAlgorithms, whose values are texts of Choice.
constexpr char kFamily[] = "conv";

struct Bindings {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
};
Bindings Bind(const CudnnCall& call) {
  Bindings all{{kInput, kFilter, kOutput}, {call.input, call.filter, call.output}};
  if (call.fused.bias) {
    all.ids.push_back(kBias);
    all.pointers.push_back(const_cast<void*>(call.bias));
  }
  return all;
}

// A plan for one shape; no engine if cuDNN has none.
class ConvPlan {
 public:
  static Result<std::shared_ptr<ConvPlan>> Make(KernelContext& c, const CudnnCall& call,
                                                const std::string& shape, int64_t alignment) {
    cuda::Stream& stream = cuda::StreamOf(c);
    auto made = std::make_shared<ConvPlan>();
    MG_ASSIGN_OR_RETURN(const std::string what,
                        SearchName(stream, "cudnn", cudnnGetVersion(), shape));
    made->what_ = what;
    auto described = Describe(stream.cudnn(), call, alignment);
    if (!described.ok()) {
      Refused(call, what, described.status());
      return made;
    }
    made->operations_ = std::move(described).value();
    if (const auto kept =
            FoundAlgorithms::Global().Look(stream.options.algorithm_cache, kFamily, what)) {
      const Result<Choice> known = Choice::Parse(*kept);
      if (known.ok() && made->Take(stream, *known).ok()) return made;
    }
    MG_RETURN_IF_ERROR(made->Search(c, stream, call, what));
    return made;
  }

  // An engine whose workspace finds no memory makes way for one that wants less.
  Status Run(KernelContext& c, const CudnnCall& call) {
    if (!plan_.plan.valid()) return Unimplemented("cuDNN has no engine for this convolution");
    cuda::Stream& stream = cuda::StreamOf(c);
    Status status = RunPlan(c, stream, plan_, Bind(call));
    while (status.code() == Code::kResourceExhausted && TakeSmaller(stream, call))
      status = RunPlan(c, stream, plan_, Bind(call));
    if (status.code() == Code::kUnimplemented) {
      Refused(call, what_, status);
      passed_.push_back(std::exchange(plan_, {}));
    }
    return status;
  }

 private:
  // No warning for a convolution with bias and activation: the kernel next tries it without them.
  static void Refused(const CudnnCall& call, const std::string& what, const Status& why) {
    if (call.fused.bias) return;
    LogWarning("cuDNN has no engine for the convolution " + what +
               (why.ok() ? "" : " (" + why.message() + ")") + "; a slower way takes its place");
  }

  static Status RunPlan(KernelContext& c, cuda::Stream& stream, const cudnn::Plan& plan,
                        const Bindings& bindings) {
    Tensor workspace;
    if (plan.workspace_bytes > 0) {
      MG_ASSIGN_OR_RETURN(workspace, c.AllocateTemp(DT_UINT8, Shape{plan.workspace_bytes}));
    }
    return cudnn::Execute(stream.cudnn(), plan, bindings.ids, bindings.pointers,
                          plan.workspace_bytes > 0 ? workspace.raw() : nullptr);
  }

  Status Take(cuda::Stream& stream, const Choice& choice) {
    MG_ASSIGN_OR_RETURN(const Descriptor config, cudnn::ConfigOf(operations_.graph, choice));
    MG_ASSIGN_OR_RETURN(plan_, cudnn::MakePlan(stream.cudnn(), config));
    return Status();
  }

  Result<std::vector<Descriptor>> Configs(const cuda::Stream& stream, const CudnnCall& call) {
    const bool wide = call.dtype == DT_FLOAT && !stream.options.allow_tf32;
    return cudnn::Configs(operations_.graph,
                          {.deterministic = stream.options.deterministic, .tensor_cores = !wide});
  }

  // The engine of the highest rank whose workspace is smaller than that of the present one. False
  // if there is none.
  bool TakeSmaller(cuda::Stream& stream, const CudnnCall& call) {
    const int64_t too_large = plan_.workspace_bytes;
    const auto configs = Configs(stream, call);
    if (too_large == 0 || !configs.ok()) return false;
    for (const Descriptor& config : *configs) {
      auto plan = cudnn::MakePlan(stream.cudnn(), config);
      if (!plan.ok() || plan->workspace_bytes >= too_large) continue;
      LogWarning("no memory for the " + std::to_string(too_large) +
                 " bytes of workspace of cuDNN's engine for the convolution " + what_ +
                 "; one that wants " + std::to_string(plan->workspace_bytes) + " takes its place");
      // A CUDA graph may have been captured with it.
      passed_.push_back(std::exchange(plan_, std::move(plan).value()));
      return true;
    }
    return false;
  }

  Status Search(KernelContext& c, cuda::Stream& stream, const CudnnCall& call,
                const std::string& what) {
    auto found = Configs(stream, call);
    Status why = found.status();
    const std::vector<Descriptor> configs =
        found.ok() ? std::move(found).value() : std::vector<Descriptor>();
    MG_ASSIGN_OR_RETURN(const bool capturing, Capturing(stream));
    const bool timed = !stream.options.deterministic && !capturing;
    Choice best;
    float best_ms = std::numeric_limits<float>::infinity();
    size_t tried = 0;
    for (const Descriptor& config : configs) {
      auto plan = cudnn::MakePlan(stream.cudnn(), config);
      if (!plan.ok()) why = plan.status();
      if (!plan.ok() || plan->workspace_bytes > kMaxWorkspaceBytes) continue;
      float ms = 0;
      if (timed) {
        const Bindings bindings = Bind(call);
        auto time = TimeOnDevice(stream, [&] { return RunPlan(c, stream, *plan, bindings); });
        if (!time.ok()) {
          if (time.status().code() == Code::kUnavailable) return time.status();
          continue;
        }
        ms = *time;
      }
      if (ms < best_ms) {
        MG_ASSIGN_OR_RETURN(best, cudnn::ChoiceOf(config));
        best_ms = ms;
        plan_ = std::move(plan).value();
      }
      if (!timed || ++tried >= kCandidates) break;
    }
    // What was refused may have been refused for a reason that passes, such as a lack of memory.
    if (!plan_.plan.valid()) {
      Refused(call, what, why);
    } else if (timed || stream.options.deterministic) {
      FoundAlgorithms::Global().Keep(stream.options.algorithm_cache, kFamily, what,
                                     best.ToString());
    }
    return Status();
  }

  std::string what_;
  cudnn::Operations operations_;
  cudnn::Plan plan_;
  std::vector<cudnn::Plan> passed_;  // that plan_ was before
};

using Key = std::pair<std::array<int64_t, 5>, Geometry::Key>;

std::string TextOf(const Key& key) {
  std::string text;
  for (int64_t value : key.first) text += std::to_string(value) + " ";
  for (int64_t value : key.second) text += std::to_string(value) + " ";
  text.pop_back();
  return text;
}

}  // namespace

struct CudnnConv::Impl {
  PlanCache<Key, ConvPlan> plans;
};

CudnnConv::CudnnConv() : impl_(std::make_unique<Impl>()) {}
CudnnConv::~CudnnConv() = default;

Status CudnnConv::Run(KernelContext& c, const CudnnCall& call) {
  int64_t alignment =
      std::min({AlignmentOf(call.input), AlignmentOf(call.filter), AlignmentOf(call.output)});
  if (call.fused.bias) alignment = std::min(alignment, AlignmentOf(call.bias));
  const Key key{
      {static_cast<int64_t>(call.mode), call.dtype, call.fused.bias, call.fused.relu, alignment},
      call.geometry.key()};
  MG_ASSIGN_OR_RETURN(std::shared_ptr<ConvPlan> plan, impl_->plans.Get(key, [&] {
    return ConvPlan::Make(c, call, TextOf(key), alignment);
  }));
  MG_RETURN_IF_ERROR(plan->Run(c, call));
  // A CUDA graph that is replayed later runs code that belongs to the plan.
  cuda::KeepForGraph(cuda::StreamOf(c), std::move(plan));
  return Status();
}

}  // namespace monograph::ops::conv
