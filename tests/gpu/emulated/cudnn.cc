// cuDNN without a GPU: the real library describes, ranks engines and makes plans, for an H200 that
// is described to it; what a plan computes is computed here, on the host.
//
// Refused are: a plan without its workspace, addresses below the alignment that their tensors
// declare, and operands that reach beyond the device's memory. A plan that is destroyed before what
// it does has run, replays included, loses the device: the real one may unload code with it.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
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
  bool passes_by = false, by_value = false;  // by value: the host's memory holds it, a float
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
  enum Kind { kForward, kInput, kFilter, kPoint, kReduce, kProduct, kTurn, kAttention } kind;
  Tensor x, w, y;  // of two operands: y = x + w
  std::array<int64_t, 2> before{}, stride{}, dilation{};
  cudnnPointwiseMode_t mode{};
  int64_t axis = 0;  // of an index
  Tensor choice;     // where it is not 0 x, else w
  cudnnReduceTensorOp_t reduction{};
  Tensor rows, columns, inner;      // of a product: how many of them there are, for each matrix
  Tensor value, statistics, scale;  // of attention; its query is x, its key w

  std::array<const Tensor*, 10> tensors() const {
    return {&x, &w, &y, &choice, &rows, &columns, &inner, &value, &statistics, &scale};
  }
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
  t.by_value = d.One<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0;
  const auto type = d.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  t.dtype = type == CUDNN_DATA_HALF       ? DT_HALF
            : type == CUDNN_DATA_BFLOAT16 ? DT_BFLOAT16
            : type == CUDNN_DATA_INT32    ? DT_INT32
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
    s.kind = Step::kPoint;
    s.mode = what.One<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    s.axis = what.One<int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
    s.x = TensorOf(child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    if (const auto other = child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) s.w = TensorOf(other);
    if (const auto other = child(CUDNN_ATTR_OPERATION_POINTWISE_TDESC)) s.choice = TensorOf(other);
    s.y = TensorOf(child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    return s;
  }
  if (child(CUDNN_ATTR_OPERATION_REDUCTION_DESC) != nullptr) {
    s.kind = Step::kReduce;
    s.reduction =
        (*descriptions)[child(CUDNN_ATTR_OPERATION_REDUCTION_DESC)].One<cudnnReduceTensorOp_t>(
            CUDNN_ATTR_REDUCTION_OPERATOR);
    s.x = TensorOf(child(CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    s.y = TensorOf(child(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    return s;
  }
  if (child(CUDNN_ATTR_OPERATION_MATMUL_DESC) != nullptr) {
    s.kind = Step::kProduct;
    s.x = TensorOf(child(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    s.w = TensorOf(child(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    s.y = TensorOf(child(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    for (const auto& [name, counts] :
         {std::pair{CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, &s.rows},
          std::pair{CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, &s.columns},
          std::pair{CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, &s.inner}}) {
      if (const auto other = child(name)) *counts = TensorOf(other);
    }
    return s;
  }
  if (child(CUDNN_ATTR_OPERATION_RESHAPE_XDESC) != nullptr) {
    s.kind = Step::kTurn;
    s.x = TensorOf(child(CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    s.y = TensorOf(child(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    return s;
  }
  if (child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC) != nullptr) {
    s.kind = Step::kAttention;
    s.x = TensorOf(child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC));
    s.w = TensorOf(child(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC));
    s.value = TensorOf(child(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC));
    s.y = TensorOf(child(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC));
    s.statistics = TensorOf(child(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC));
    s.scale = TensorOf(child(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC));
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
    if (!t.passes_by && !t.by_value) return places[t.id];
    auto& values = between[t.id];
    values.resize(static_cast<size_t>(t.elements()));
    return values.data();
  }
  // As what passes by lies: rounded to the type that its description says.
  static double Rounded(const Tensor& t, double value) {
    double room = 0;
    emulated::Store(t.dtype, &room, 0, value);
    return emulated::Load(t.dtype, &room, 0);
  }
  static DType Lies(const Tensor& t) { return t.passes_by || t.by_value ? DT_FLOAT : t.dtype; }
  // Dense, in the order of dims.
  std::vector<float> Read(const Tensor& t) {
    std::vector<float> all;
    const void* from = Place(t);
    for (int64_t a = 0; a < t.dims[0]; ++a)
      for (int64_t b = 0; b < t.dims[1]; ++b)
        for (int64_t c = 0; c < t.dims[2]; ++c)
          for (int64_t d = 0; d < t.dims[3]; ++d)
            all.push_back(static_cast<float>(emulated::Load(Lies(t), from, t.at(a, b, c, d))));
    return all;
  }
  void Write(const Tensor& t, const std::vector<double>& all) {
    void* to = Place(t);
    size_t i = 0;
    for (int64_t a = 0; a < t.dims[0]; ++a)
      for (int64_t b = 0; b < t.dims[1]; ++b)
        for (int64_t c = 0; c < t.dims[2]; ++c)
          for (int64_t d = 0; d < t.dims[3]; ++d)
            emulated::Store(Lies(t), to, t.at(a, b, c, d), Rounded(t, all[i++]));
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

  // fn(a, b, c, d) for each element, in the order of dims; its value.
  template <typename Fn>
  void WriteEach(const Tensor& t, const Fn& fn) {
    std::vector<double> all;
    for (int64_t a = 0; a < t.dims[0]; ++a)
      for (int64_t b = 0; b < t.dims[1]; ++b)
        for (int64_t c = 0; c < t.dims[2]; ++c)
          for (int64_t d = 0; d < t.dims[3]; ++d) all.push_back(fn(a, b, c, d));
    Write(t, all);
  }
  // Of a tensor that was read; dimensions of one element repeat it.
  static double At(const Tensor& t, const std::vector<float>& values, int64_t a, int64_t b,
                   int64_t c, int64_t d) {
    const std::array<int64_t, 4> at{a, b, c, d};
    int64_t index = 0;
    for (size_t i = 0; i < 4; ++i) index = index * t.dims[i] + (t.dims[i] == 1 ? 0 : at[i]);
    return static_cast<double>(values[static_cast<size_t>(index)]);
  }

  void Point(const Step& s) {
    const std::vector<float> x = Read(s.x), w = s.w.id == 0 ? std::vector<float>() : Read(s.w),
                             choice = s.choice.id == 0 ? std::vector<float>() : Read(s.choice);
    WriteEach(s.y, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
      const double left = At(s.x, x, a, b, c, d);
      const double right = w.empty() ? 0 : At(s.w, w, a, b, c, d);
      switch (s.mode) {
        case CUDNN_POINTWISE_ADD:
          return left + right;
        case CUDNN_POINTWISE_SUB:
          return left - right;
        case CUDNN_POINTWISE_MUL:
          return left * right;
        case CUDNN_POINTWISE_DIV:
          return left / right;
        case CUDNN_POINTWISE_LOG:
          return std::log(left);
        case CUDNN_POINTWISE_GEN_INDEX:
          return static_cast<double>(std::array{a, b, c, d}[static_cast<size_t>(s.axis)]);
        case CUDNN_POINTWISE_CMP_LT:
          return left < right ? 1.0 : 0.0;
        case CUDNN_POINTWISE_CMP_GE:
          return left >= right ? 1.0 : 0.0;
        case CUDNN_POINTWISE_LOGICAL_AND:
          return left != 0 && right != 0 ? 1.0 : 0.0;
        case CUDNN_POINTWISE_BINARY_SELECT:
          return At(s.choice, choice, a, b, c, d) != 0 ? left : right;
        case CUDNN_POINTWISE_EXP:
          return std::exp(left);
        case CUDNN_POINTWISE_RELU_FWD:
          return std::max(left, 0.0);
        case CUDNN_POINTWISE_IDENTITY:
          return left;
        default:
          std::abort();
      }
    });
  }
  void Reduce(const Step& s) {  // over the last dimension
    const std::vector<float> x = Read(s.x);
    WriteEach(s.y, [&](int64_t a, int64_t b, int64_t c, int64_t) {
      double sum = 0, most = At(s.x, x, a, b, c, 0);
      for (int64_t d = 0; d < s.x.dims[3]; ++d) {
        const double value = At(s.x, x, a, b, c, d);
        sum += value;
        most = std::max(most, value);
      }
      return s.reduction == CUDNN_REDUCE_TENSOR_MAX ? most : sum;
    });
  }
  // Of matrices with fewer rows or columns than they have room for, only those are written; what
  // passes by is 0 there.
  void Multiply(const Step& s) {
    const auto counts = [&](const Tensor& t, int64_t all) {
      const auto n = static_cast<size_t>(s.y.dims[0]);
      return t.id == 0 ? std::vector<float>(n, static_cast<float>(all)) : Read(t);
    };
    const std::vector<float> x = Read(s.x), w = Read(s.w), before = Read(s.y),
                             rows = counts(s.rows, s.y.dims[2]),
                             columns = counts(s.columns, s.y.dims[3]),
                             inner = counts(s.inner, s.x.dims[3]);
    WriteEach(s.y, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
      const auto matrix = static_cast<size_t>(a);
      if (static_cast<float>(c) >= rows[matrix] || static_cast<float>(d) >= columns[matrix])
        return s.y.passes_by ? 0.0 : At(s.y, before, a, b, c, d);
      double sum = 0;
      for (int64_t k = 0; k < static_cast<int64_t>(inner[matrix]); ++k)
        sum += At(s.x, x, a, b, c, k) * At(s.w, w, a, b, k, d);
      return sum;
    });
  }
  // A reshape whose strides say that it exchanges the last two dimensions.
  void Turn(const Step& s) {
    const std::vector<float> x = Read(s.x);
    WriteEach(s.y,
              [&](int64_t a, int64_t b, int64_t c, int64_t d) { return At(s.x, x, a, b, d, c); });
  }
  void Attend(const Step& s) {
    const std::vector<float> q = Read(s.x), k = Read(s.w), v = Read(s.value);
    const double scale = static_cast<double>(Read(s.scale)[0]);
    const int64_t columns = s.w.dims[2], size = s.x.dims[3];
    std::vector<double> out, statistics;
    for (int64_t n = 0; n < s.x.dims[0]; ++n) {
      for (int64_t h = 0; h < s.x.dims[1]; ++h) {
        for (int64_t i = 0; i < s.x.dims[2]; ++i) {
          std::vector<double> p;
          for (int64_t j = 0; j < columns; ++j) {
            double score = 0;
            for (int64_t d = 0; d < size; ++d)
              score += At(s.x, q, n, h, i, d) * At(s.w, k, n, h, j, d);
            p.push_back(scale * score);
          }
          const double top = *std::max_element(p.begin(), p.end());
          double sum = 0;
          for (double& weight : p) sum += weight = std::exp(weight - top);
          statistics.push_back(top + std::log(sum));
          for (int64_t d = 0; d < size; ++d) {
            double mixed = 0;
            for (int64_t j = 0; j < columns; ++j)
              mixed += p[static_cast<size_t>(j)] / sum * At(s.value, v, n, h, j, d);
            out.push_back(mixed);
          }
        }
      }
    }
    Write(s.y, out);
    Write(s.statistics, statistics);
  }

  void Do(const Step& s) {
    switch (s.kind) {
      case Step::kPoint:
        return Point(s);
      case Step::kReduce:
        return Reduce(s);
      case Step::kProduct:
        return Multiply(s);
      case Step::kTurn:
        return Turn(s);
      case Step::kAttention:
        return Attend(s);
      default:
        return Convolve(s);
    }
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
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                         CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                         CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC}) {
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
  std::map<int64_t, std::vector<float>> values;
  for (const Step& step : *program) {
    for (const Tensor* t : step.tensors()) {
      if (t->id == 0 || t->passes_by) continue;
      const auto place = places.find(t->id);
      if (t->by_value && place != places.end()) {
        values[t->id] = {*static_cast<const float*>(place->second)};
        continue;
      }
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
    Run run{.places = places, .between = values};
    for (const Step& step : *program) run.Do(step);
  };
  const cudaError_t error =
      emulated::EnqueueOn(handle->stream, "cudnnBackendExecute", compute, std::move(operands));
  // What a test wants by name is a code of this library.
  if (static_cast<int>(error) == static_cast<int>(CUDNN_STATUS_NOT_SUPPORTED))
    return CUDNN_STATUS_NOT_SUPPORTED;
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
