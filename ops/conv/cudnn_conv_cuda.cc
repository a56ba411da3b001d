#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "executor/cuda/captured.h"
#include "executor/cuda/error.h"
#include "executor/cuda/stream.h"
#include "ops/conv/cudnn_conv.h"
#include "ops/conv/cudnn_graph.h"
#include "ops/plan_cache.h"

namespace monograph::ops::conv {
namespace {

using cudnn::Builder;
using cudnn::Choice;
using cudnn::Descriptor;

constexpr size_t kCandidates = 8;  // engines that a search times
constexpr int kTimedRuns = 3;
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

// ---- the operation, in cuDNN's words ----

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

// ---- what was found, for the whole process and on disk ----

// One line of the file: "conv 1 <tab> what <tab> engine". `what` names device, versions and shape.
class Found {
 public:
  static Found& Global() {
    static Found* const found = new Found;
    return *found;
  }

  bool Look(const std::string& file, const std::string& what, Choice* choice) {
    std::lock_guard lock(mutex_);
    Load(file);
    const auto it = choices_.find(what);
    if (it == choices_.end()) return false;
    *choice = it->second;
    return true;
  }
  void Keep(const std::string& file, const std::string& what, const Choice& choice) {
    std::lock_guard lock(mutex_);
    choices_[what] = choice;
    if (file.empty()) return;
    std::ofstream out(file, std::ios::app);
    out << (kMark + what + "\t" + choice.ToString() + "\n") << std::flush;
    if (!out) LogWarning("cannot write the algorithm cache " + file);
  }

 private:
  static inline const std::string kMark = "conv 1\t";

  void Load(const std::string& file) {
    if (file.empty() || !loaded_.insert(file).second) return;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      const size_t tab = line.rfind('\t');
      if (!line.starts_with(kMark) || tab < kMark.size()) continue;
      auto choice = Choice::Parse(line.substr(tab + 1));
      if (choice.ok()) choices_[line.substr(kMark.size(), tab - kMark.size())] = *choice;
    }
  }

  std::mutex mutex_;
  std::map<std::string, Choice> choices_;
  std::set<std::string> loaded_;
};

Result<std::string> DeviceName(int device) {
  static std::mutex mutex;
  static std::map<int, std::string>* const names = new std::map<int, std::string>;
  std::lock_guard lock(mutex);
  std::string& name = (*names)[device];
  if (name.empty()) {
    cudaDeviceProp properties;
    MG_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
    name = properties.name;
  }
  return name;
}

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Status Record(cudaStream_t stream) {
    if (event_ == nullptr) MG_CUDA_RETURN_IF_ERROR(cudaEventCreate(&event_));
    MG_CUDA_RETURN_IF_ERROR(cudaEventRecord(event_, stream));
    return Status();
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

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
    MG_ASSIGN_OR_RETURN(const std::string device, DeviceName(stream.device));
    const std::string what = device + " cudnn " + std::to_string(cudnnGetVersion()) +
                             (stream.options.allow_tf32 ? " tf32" : "") +
                             (stream.options.deterministic ? " deterministic" : "") + " " + shape;
    auto described = Describe(stream.cudnn(), call, alignment);
    if (!described.ok()) {
      Refused(call, what, described.status());
      return made;
    }
    made->operations_ = std::move(described).value();
    Choice known;
    if (Found::Global().Look(stream.options.algorithm_cache, what, &known)) {
      if (known.engine == Choice::kNone) return made;
      if (made->Take(stream, known).ok()) return made;
    }
    MG_RETURN_IF_ERROR(made->Search(c, stream, call, what));
    return made;
  }

  Status Run(KernelContext& c, const CudnnCall& call) {
    if (!plan_.plan.valid()) return Unimplemented("cuDNN has no engine for this convolution");
    return RunPlan(c, cuda::StreamOf(c), plan_, Bind(call));
  }

 private:
  // A convolution with bias and activation is tried without them first.
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

  Status Search(KernelContext& c, cuda::Stream& stream, const CudnnCall& call,
                const std::string& what) {
    const bool wide = call.dtype == DT_FLOAT && !stream.options.allow_tf32;
    auto found = cudnn::Configs(
        operations_.graph, {.deterministic = stream.options.deterministic, .tensor_cores = !wide});
    Status why = found.status();
    const std::vector<Descriptor> configs =
        found.ok() ? std::move(found).value() : std::vector<Descriptor>();
    cudaStreamCaptureStatus capture{};
    MG_CUDA_RETURN_IF_ERROR(cudaStreamIsCapturing(stream.stream, &capture));
    // While a CUDA graph is captured nothing runs that could be timed.
    const bool timed = !stream.options.deterministic && capture == cudaStreamCaptureStatusNone;
    Choice best;
    float best_ms = std::numeric_limits<float>::infinity();
    size_t tried = 0;
    for (const Descriptor& config : configs) {
      auto plan = cudnn::MakePlan(stream.cudnn(), config);
      if (!plan.ok()) why = plan.status();
      if (!plan.ok() || plan->workspace_bytes > kMaxWorkspaceBytes) continue;
      float ms = 0;
      if (timed) {
        auto time = Time(c, stream, *plan, Bind(call));
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
    if (!plan_.plan.valid()) Refused(call, what, why);
    if (timed || stream.options.deterministic)
      Found::Global().Keep(stream.options.algorithm_cache, what, best);
    return Status();
  }

  // Milliseconds per run. Waits for the device.
  static Result<float> Time(KernelContext& c, cuda::Stream& stream, const cudnn::Plan& plan,
                            const Bindings& bindings) {
    Event start, stop;
    MG_RETURN_IF_ERROR(RunPlan(c, stream, plan, bindings));
    MG_RETURN_IF_ERROR(start.Record(stream.stream));
    for (int i = 0; i < kTimedRuns; ++i) MG_RETURN_IF_ERROR(RunPlan(c, stream, plan, bindings));
    MG_RETURN_IF_ERROR(stop.Record(stream.stream));
    MG_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(stop.get()));
    float ms = 0;
    MG_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&ms, start.get(), stop.get()));
    return ms / kTimedRuns;
  }

  cudnn::Operations operations_;
  cudnn::Plan plan_;
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
  // The plan has the code that cuDNN compiled for it.
  cuda::KeepForGraph(cuda::StreamOf(c), std::move(plan));
  return Status();
}

}  // namespace monograph::ops::conv
