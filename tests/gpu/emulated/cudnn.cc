// cuDNN without a GPU: the real library describes, ranks engines and makes plans, for an H200 that
// is described to it; what a plan computes is computed here, on the host.
//
// Refused are: a plan without its workspace, addresses below the alignment that their tensors
// declare, and operands that reach beyond the device's memory. A plan that is destroyed before what
// it does has run, replays included, loses the device: the real one may unload code with it.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/described_gpus.h"
#include "tests/gpu/emulated/emulated_gpu.h"
#include "tests/gpu/emulated/numbers.h"
#include "tests/gpu/emulated/real_cudnn.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using namespace monograph;

constexpr int64_t kEngines = 2;  // that are offered for an operation, of those that there are

// ---- what was set ----

struct Description {
  std::map<int, std::vector<std::byte>> values;

  template <typename T>
  std::vector<T> All(int name) const {
    const auto it = values.find(name);
    if (it == values.end()) return {};
    std::vector<T> all(it->second.size() / sizeof(T));
    std::memcpy(all.data(), it->second.data(), all.size() * sizeof(T));
    return all;
  }
  template <typename T>
  T One(int name) const {
    const auto all = All<T>(name);
    return all.empty() ? T{} : all[0];
  }
};

struct Tensor {
  int64_t id = 0;
  DType dtype = DT_FLOAT;
  int64_t alignment = 1;
  bool passes_by = false;
  std::array<int64_t, 4> dims{}, strides{};
  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  size_t bytes() const {
    int64_t last = 0;
    for (size_t i = 0; i < 4; ++i) last += (dims[i] - 1) * strides[i];
    return static_cast<size_t>(last + 1) * DTypeSize(dtype);
  }
  int64_t at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
};
struct Step {
  enum Kind { kForward, kInput, kFilter, kAdd, kRelu } kind;
  Tensor x, w, y;  // of an addition: y = x + w
  std::array<int64_t, 2> before{}, stride{}, dilation{};
};
using Program = std::vector<Step>;

std::mutex mutex;
std::map<cudnnBackendDescriptor_t, Description>* const descriptions =
    new std::map<cudnnBackendDescriptor_t, Description>;
// Of graphs, and of engines, configurations and plans for them.
std::map<cudnnBackendDescriptor_t, std::shared_ptr<const Program>>* const programs =
    new std::map<cudnnBackendDescriptor_t, std::shared_ptr<const Program>>;
// Of plans that have run: whether they are still there.
std::map<cudnnBackendDescriptor_t, std::shared_ptr<const bool>>* const plans =
    new std::map<cudnnBackendDescriptor_t, std::shared_ptr<const bool>>;

Tensor TensorOf(cudnnBackendDescriptor_t handle) {
  const Description& d = (*descriptions)[handle];
  Tensor t;
  t.id = d.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  t.alignment = d.One<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  t.passes_by = d.One<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
  const auto type = d.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  t.dtype = type == CUDNN_DATA_HALF       ? DT_HALF
            : type == CUDNN_DATA_BFLOAT16 ? DT_BFLOAT16
                                          : DT_FLOAT;
  const auto dims = d.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = d.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  for (size_t i = 0; i < 4; ++i) t.dims[i] = dims[i], t.strides[i] = strides[i];
  return t;
}

Step StepOf(cudnnBackendDescriptor_t handle) {
  const Description& d = (*descriptions)[handle];
  const auto child = [&](int name) { return d.One<cudnnBackendDescriptor_t>(name); };
  Step s{};
  if (child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR) != nullptr) {
    const Description& what = (*descriptions)[child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)];
    s.kind = what.One<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_ADD
                 ? Step::kAdd
                 : Step::kRelu;
    s.x = TensorOf(child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    if (s.kind == Step::kAdd) s.w = TensorOf(child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
    s.y = TensorOf(child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    return s;
  }
  cudnnBackendDescriptor_t convolution = nullptr;
  const auto of = [&](Step::Kind kind, int conv, int x, int w, int y) {
    if (child(conv) == nullptr) return;
    s.kind = kind, convolution = child(conv);
    s.x = TensorOf(child(x)), s.w = TensorOf(child(w)), s.y = TensorOf(child(y));
  };
  of(Step::kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  of(Step::kInput, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
  of(Step::kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  const Description& c = (*descriptions)[convolution];
  const auto before = c.All<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             stride = c.All<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
             dilation = c.All<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  for (size_t i = 0; i < 2; ++i)
    s.before[i] = before[i], s.stride[i] = stride[i], s.dilation[i] = dilation[i];
  return s;
}

// ---- what a plan computes ----

struct Run {
  std::map<int64_t, void*> places;
  std::map<int64_t, std::vector<float>> between;

  void* Place(const Tensor& t) {
    if (!t.passes_by) return places[t.id];
    auto& values = between[t.id];
    values.resize(static_cast<size_t>(t.elements()));
    return values.data();
  }
  // Dense, in the order of dims.
  std::vector<float> Read(const Tensor& t) {
    std::vector<float> all;
    const void* from = Place(t);
    for (int64_t a = 0; a < t.dims[0]; ++a)
      for (int64_t b = 0; b < t.dims[1]; ++b)
        for (int64_t c = 0; c < t.dims[2]; ++c)
          for (int64_t d = 0; d < t.dims[3]; ++d)
            all.push_back(static_cast<float>(emulated::Load(t.dtype, from, t.at(a, b, c, d))));
    return all;
  }
  void Write(const Tensor& t, const std::vector<double>& all) {
    void* to = Place(t);
    size_t i = 0;
    for (int64_t a = 0; a < t.dims[0]; ++a)
      for (int64_t b = 0; b < t.dims[1]; ++b)
        for (int64_t c = 0; c < t.dims[2]; ++c)
          for (int64_t d = 0; d < t.dims[3]; ++d)
            emulated::Store(t.dtype, to, t.at(a, b, c, d), all[i++]);
  }

  void Convolve(const Step& s) {
    const Tensor& result = s.kind == Step::kForward ? s.y : s.kind == Step::kInput ? s.x : s.w;
    std::vector<double> sums(static_cast<size_t>(result.elements()));
    std::vector<float> x, w, y;
    if (s.kind != Step::kInput) x = Read(s.x);
    if (s.kind != Step::kFilter) w = Read(s.w);
    if (s.kind != Step::kForward) y = Read(s.y);
    const auto [n, ic, ih, iw] = s.x.dims;
    const auto [oc, fc, kh, kw] = s.w.dims;
    const int64_t oh = s.y.dims[2], ow = s.y.dims[3];
    const int64_t of_group = oc / (ic / fc);  // a filter sees fc of the channels
    for (int64_t b = 0; b < n; ++b)
      for (int64_t o = 0; o < oc; ++o)
        for (int64_t i = 0; i < fc; ++i)
          for (int64_t r = 0; r < kh; ++r)
            for (int64_t c = 0; c < kw; ++c)
              for (int64_t p = 0; p < oh; ++p) {
                const int64_t h = p * s.stride[0] - s.before[0] + r * s.dilation[0];
                if (h < 0 || h >= ih) continue;
                const int64_t x_row = ((b * ic + o / of_group * fc + i) * ih + h) * iw,
                              y_row = ((b * oc + o) * oh + p) * ow,
                              at_w = ((o * fc + i) * kh + r) * kw + c,
                              from = c * s.dilation[1] - s.before[1], step = s.stride[1];
                // Where the input's column from + q * step is in the picture.
                const int64_t first = std::max<int64_t>(0, (step - 1 - from) / step),
                              past = std::min(ow, (iw - from + step - 1) / step);
                double filter = 0;
                for (int64_t q = first; q < past; ++q) {
                  const auto at_x = static_cast<size_t>(x_row + from + q * step),
                             at_y = static_cast<size_t>(y_row + q);
                  if (s.kind == Step::kForward) {
                    sums[at_y] += static_cast<double>(x[at_x]) * w[static_cast<size_t>(at_w)];
                  } else if (s.kind == Step::kInput) {
                    sums[at_x] += static_cast<double>(y[at_y]) * w[static_cast<size_t>(at_w)];
                  } else {
                    filter += static_cast<double>(x[at_x]) * y[at_y];
                  }
                }
                if (s.kind == Step::kFilter) sums[static_cast<size_t>(at_w)] += filter;
              }
    Write(result, sums);
  }

  void Point(const Step& s) {
    const std::vector<float> x = Read(s.x);
    std::vector<float> bias;
    if (s.kind == Step::kAdd) bias = Read(s.w);
    const int64_t plane = s.y.dims[2] * s.y.dims[3];
    std::vector<double> y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const auto channel = static_cast<size_t>(static_cast<int64_t>(i) / plane % s.y.dims[1]);
      y[i] = s.kind == Step::kAdd ? x[i] + bias[channel] : std::max(x[i], 0.0f);
    }
    Write(s.y, y);
  }
};

cudnnBackendDescriptor_t Gpu() {
  static const cudnnBackendDescriptor_t gpu = [] {
    cudnnBackendDescriptor_t made = nullptr;
    REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    REAL(cudnnBackendSetAttribute)
    (made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
     static_cast<int64_t>(emulated::kH200.size()), emulated::kH200.data());
    if (REAL(cudnnBackendFinalize)(made) != CUDNN_STATUS_SUCCESS) std::abort();
    return made;
  }();
  return gpu;
}

// What is described takes many calls.
#define MAY_FAIL(call)                                                \
  do {                                                                \
    if (const int wanted = emulated::NamedFailure(call); wanted != 0) \
      return static_cast<cudnnStatus_t>(wanted);                      \
  } while (false)

cudnnStatus_t TellGpu(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name) {
  const cudnnBackendDescriptor_t gpu = Gpu();
  return REAL(cudnnBackendSetAttribute)(handle, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return REAL(cudnnGetVersion)(); }
const char* cudnnGetErrorString(cudnnStatus_t status) { return REAL(cudnnGetErrorString)(status); }
void cudnnGetLastErrorString(char* text, size_t bytes) {
  REAL(cudnnGetLastErrorString)(text, bytes);
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  MAY_FAIL("cudnnBackendCreateDescriptor");
  return REAL(cudnnBackendCreateDescriptor)(type, made);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  {
    std::lock_guard lock(mutex);
    descriptions->erase(handle);
    programs->erase(handle);
    plans->erase(handle);
  }
  return REAL(cudnnBackendDestroyDescriptor)(handle);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  MAY_FAIL("cudnnBackendSetAttribute");
  if (type == CUDNN_TYPE_HANDLE)
    return name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE
               ? TellGpu(handle, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)
               : CUDNN_STATUS_SUCCESS;
  {
    std::lock_guard lock(mutex);
    const size_t element = type == CUDNN_TYPE_BOOLEAN ? 1
                           : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR ||
                                   type == CUDNN_TYPE_BACKEND_DESCRIPTOR ||
                                   type == CUDNN_TYPE_DOUBLE
                               ? 8
                               : 4;
    const auto* from = static_cast<const std::byte*>(values);
    (*descriptions)[handle].values[name].assign(from, from + element * static_cast<size_t>(count));
    const auto as = [&](cudnnBackendAttributeName_t whose) {
      if (name != whose) return;
      const auto it = programs->find(*static_cast<const cudnnBackendDescriptor_t*>(values));
      if (it != programs->end()) (*programs)[handle] = it->second;
    };
    as(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    as(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    as(CUDNN_ATTR_ENGINECFG_ENGINE);
    as(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  }
  const cudnnStatus_t status = REAL(cudnnBackendSetAttribute)(handle, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
    return TellGpu(handle, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
    return TellGpu(handle, CUDNN_ATTR_ENGINE_DEVICEPROP);
  return status;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t* count, void* values) {
  MAY_FAIL("cudnnBackendGetAttribute");
  const cudnnStatus_t status =
      REAL(cudnnBackendGetAttribute)(handle, name, type, most, count, values);
  if (status == CUDNN_STATUS_SUCCESS && name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    // All engines compute the same here, and a search of the best one tries each.
    *count = std::min<int64_t>(*count, kEngines);
    std::lock_guard lock(mutex);
    for (int64_t i = 0; values != nullptr && i < std::min(*count, most); ++i)
      (*programs)[static_cast<cudnnBackendDescriptor_t*>(values)[i]] = (*programs)[handle];
  }
  return status;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  MAY_FAIL("cudnnBackendFinalize");
  const cudnnStatus_t status = REAL(cudnnBackendFinalize)(handle);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  std::lock_guard lock(mutex);
  const Description& d = (*descriptions)[handle];
  // What an operation is made of may be gone when the graph is made.
  for (const int name : {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC}) {
    if (d.values.contains(name))
      (*programs)[handle] = std::make_shared<const Program>(Program{StepOf(handle)});
  }
  const auto operations = d.All<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (operations.empty()) return status;
  auto program = std::make_shared<Program>();
  for (const cudnnBackendDescriptor_t operation : operations)
    program->push_back((*programs)[operation]->front());
  (*programs)[handle] = std::move(program);
  return status;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  std::shared_ptr<const Program> program;
  std::map<int64_t, void*> places;
  void* workspace = nullptr;
  std::weak_ptr<const bool> alive;
  {
    std::lock_guard lock(mutex);
    program = (*programs)[plan];
    auto& life = (*plans)[plan];
    if (life == nullptr) life = std::make_shared<const bool>(true);
    alive = life;
    const Description& d = (*descriptions)[pack];
    const auto ids = d.All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = d.All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < ids.size(); ++i) places[ids[i]] = pointers[i];
    workspace = d.One<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  }
  if (program == nullptr) return CUDNN_STATUS_BAD_PARAM;
  std::vector<emulated::Operand> operands;
  for (const Step& step : *program) {
    for (const Tensor* t : {&step.x, &step.w, &step.y}) {
      if (t->id == 0 || t->passes_by) continue;
      const auto place = places.find(t->id);
      if (place == places.end() ||
          reinterpret_cast<uintptr_t>(place->second) % static_cast<uintptr_t>(t->alignment) != 0)
        return CUDNN_STATUS_BAD_PARAM;
      operands.push_back({place->second, t->bytes()});
    }
  }
  int64_t bytes = 0, count = 0;
  const cudnnStatus_t known = REAL(cudnnBackendGetAttribute)(
      plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes);
  if (known != CUDNN_STATUS_SUCCESS) return known;
  if (bytes > 0) operands.push_back({workspace, static_cast<size_t>(bytes)});
  const auto compute = [=] {
    if (alive.expired()) return emulated::Lose("cudnnBackendExecute: its plan was destroyed");
    Run run{.places = places};
    for (const Step& step : *program) {
      if (step.kind == Step::kAdd || step.kind == Step::kRelu) {
        run.Point(step);
      } else {
        run.Convolve(step);
      }
    }
  };
  const cudaError_t error =
      emulated::EnqueueOn(handle->stream, "cudnnBackendExecute", compute, std::move(operands));
  // What a test wants by name is a code of this library.
  if (static_cast<int>(error) == static_cast<int>(CUDNN_STATUS_NOT_SUPPORTED))
    return CUDNN_STATUS_NOT_SUPPORTED;
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
