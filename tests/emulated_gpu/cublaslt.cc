// The part of cuBLASLt that we use: every product has one algorithm, which computes on the host.
// What the real one chooses, and what it refuses, only a GPU tells.
#include <cublasLt.h>

#include <cstring>
#include <map>
#include <vector>

#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/numbers.h"

namespace {

using namespace monograph;

struct Attributes {
  std::map<int, std::vector<std::byte>> values;
  void Set(int name, const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    values[name].assign(from, from + bytes);
  }
  template <typename T>
  T Get(int name, T otherwise) const {
    const auto it = values.find(name);
    if (it == values.end() || it->second.size() != sizeof(T)) return otherwise;
    T value;
    std::memcpy(&value, it->second.data(), sizeof value);
    return value;
  }
};
struct Operation : Attributes {};
struct Layout : Attributes {
  cudaDataType_t type;
  int64_t rows, columns, ld;
};
struct Preference : Attributes {};

template <typename T, typename Handle>
T& As(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

DType TypeOf(cudaDataType_t type) {
  return type == CUDA_R_64F    ? DT_DOUBLE
         : type == CUDA_R_16F  ? DT_HALF
         : type == CUDA_R_16BF ? DT_BFLOAT16
                               : DT_FLOAT;
}

struct Matrix {
  DType dtype;
  int64_t rows, columns, ld, stride;
  int32_t count;
  explicit Matrix(const Layout& l)
      : dtype(TypeOf(l.type)),
        rows(l.rows),
        columns(l.columns),
        ld(l.ld),
        stride(l.Get<int64_t>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0)),
        count(l.Get<int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1)) {}
};

// Whether the layouts fit each other; the sizes of the product.
bool Fit(const Operation& o, const Matrix& a, const Matrix& b, const Matrix& d) {
  const bool ta = o.Get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) != CUBLAS_OP_N,
             tb = o.Get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) != CUBLAS_OP_N;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
         (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows) && a.ld >= a.rows &&
         b.ld >= b.rows && d.ld >= d.rows && a.count == d.count && b.count == d.count;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "emulated"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete &As<Operation>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  As<Operation>(handle).Set(name, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  auto* layout = new Layout;
  layout->type = type, layout->ld = ld;
  layout->rows = static_cast<int64_t>(rows), layout->columns = static_cast<int64_t>(columns);
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete &As<Layout>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t bytes) {
  As<Layout>(handle).Set(name, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete &As<Preference>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  As<Preference>(handle).Set(name, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = 0;
  if (!Fit(As<Operation>(operation), Matrix(As<Layout>(a)), Matrix(As<Layout>(b)),
           Matrix(As<Layout>(d))))
    return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].workspaceSize = 4 << 20;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* pa, cublasLtMatrixLayout_t la, const void* pb,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* pc,
                              cublasLtMatrixLayout_t, void* pd, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Operation& o = As<Operation>(operation);
  const Matrix a(As<Layout>(la)), b(As<Layout>(lb)), d(As<Layout>(ld));
  if (!Fit(o, a, b, d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace == nullptr || workspace_bytes < (4 << 20) || pc != pd)
    return CUBLAS_STATUS_INVALID_VALUE;
  const DType scale = a.dtype == DT_DOUBLE ? DT_DOUBLE : DT_FLOAT;
  if (emulated::Load(scale, alpha, 0) != 1 || emulated::Load(scale, beta, 0) != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool ta = o.Get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) != CUBLAS_OP_N,
             tb = o.Get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) != CUBLAS_OP_N;
  const auto epilogue = o.Get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  const bool relu = epilogue == CUBLASLT_EPILOGUE_RELU_BIAS,
             biased = relu || epilogue == CUBLASLT_EPILOGUE_BIAS;
  const void* bias =
      biased ? o.Get<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr) : nullptr;
  const cudaError_t error = emulated::EnqueueOn(stream, "cublasLtMatmul", [=] {
    const int64_t k = ta ? a.rows : a.columns;
    for (int32_t n = 0; n < d.count; ++n) {
      for (int64_t column = 0; column < d.columns; ++column) {
        for (int64_t row = 0; row < d.rows; ++row) {
          double sum = 0;
          for (int64_t i = 0; i < k; ++i) {
            sum +=
                emulated::Load(a.dtype, pa, n * a.stride + (ta ? row * a.ld + i : i * a.ld + row)) *
                emulated::Load(b.dtype, pb,
                               n * b.stride + (tb ? i * b.ld + column : column * b.ld + i));
          }
          if (bias != nullptr) sum += emulated::Load(d.dtype, bias, row);
          if (relu && sum < 0) sum = 0;
          emulated::Store(d.dtype, pd, n * d.stride + column * d.ld + row, sum);
        }
      }
    }
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
