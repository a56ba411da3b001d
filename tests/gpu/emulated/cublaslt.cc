// The part of cuBLASLt that we use: every product has the algorithms of kWays, which compute on the
// host. The one of the highest rank adds parts of a sum in another order each time, unless the
// caller wants no such reduction. What the real one chooses, and what more it refuses, only a GPU
// tells.
//
// Refused are: types that do not go together, a product that the algorithm was not asked for,
// addresses below the alignment that was promised, a workspace that is smaller than it said or lies
// elsewhere than on the device, and operands that reach beyond the device's memory.
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/emulated_gpu.h"
#include "tests/gpu/emulated/injected_failures.h"
#include "tests/gpu/emulated/numbers.h"

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
struct Operation : Attributes {
  cublasComputeType_t compute;
  cudaDataType_t scale;
};
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
  size_t bytes() const {
    return static_cast<size_t>((count - 1) * stride + (columns - 1) * ld + rows) * DTypeSize(dtype);
  }
};

// By rank.
struct Way {
  cublasLtReductionScheme_t reduction;
  size_t workspace;
};
constexpr Way kWays[] = {{CUBLASLT_REDUCTION_SCHEME_INPLACE, 4 << 20},
                         {CUBLASLT_REDUCTION_SCHEME_NONE, 4 << 20},
                         {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 8 << 20},
                         {CUBLASLT_REDUCTION_SCHEME_NONE, 0}};
constexpr int kNumWays = 4;
constexpr size_t kWorkspaceAlign = 16;

// What lies in cublasLtMatmulAlgo_t: the product that it was found for.
struct Algorithm {
  int32_t way;
  int32_t inner;
  int64_t rows, columns, count;
  uint32_t alignments[4];  // of a, b, c, d, in bytes
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// Ways of a rank below this one are slow.
std::atomic<int> slow_ways = 0;
constexpr std::chrono::milliseconds kSlow{20};

// Types that cuBLASLt's table has, with an output of the inputs' type.
bool TypesFit(const Operation& o, cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F:
      return o.compute == CUBLAS_COMPUTE_64F && o.scale == CUDA_R_64F;
    case CUDA_R_32F:
      return (o.compute == CUBLAS_COMPUTE_32F || o.compute == CUBLAS_COMPUTE_32F_FAST_TF32) &&
             o.scale == CUDA_R_32F;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return o.compute == CUBLAS_COMPUTE_32F && o.scale == CUDA_R_32F;
    default:
      return false;
  }
}

bool Aligned(const void* data, uint32_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// Whether the layouts fit each other; the sizes of the product.
bool Fit(const Operation& o, const Matrix& a, const Matrix& b, const Matrix& d) {
  const bool ta = o.Get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) != CUBLAS_OP_N,
             tb = o.Get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) != CUBLAS_OP_N;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
         (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows) && a.ld >= a.rows &&
         b.ld >= b.rows && d.ld >= d.rows && a.count == d.count && b.count == d.count;
}

int64_t InnerOf(const Operation& o, const Matrix& a) {
  return o.Get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) != CUBLAS_OP_N ? a.rows : a.columns;
}

bool MadeFor(const Algorithm& found, const Operation& o, const Matrix& a, const Matrix& d) {
  return found.way >= 0 && found.way < kNumWays && found.inner == InnerOf(o, a) &&
         found.rows == d.rows && found.columns == d.columns && found.count == d.count;
}

// The sum of term(i), i in [0, count), in parts that come in any order, each sum rounded.
template <typename Term>
double SumInAnyOrder(DType accumulator, int64_t count, const Term& term) {
  int64_t parts[4] = {0, 1, 2, 3};
  std::shuffle(std::begin(parts), std::end(parts), std::minstd_rand(emulated::NextSeed()));
  const auto rounded = [&](double x) {
    return accumulator == DT_DOUBLE ? x : static_cast<double>(static_cast<float>(x));
  };
  double all = 0;
  for (const int64_t part : parts) {
    double sum = 0;
    for (int64_t i = count * part / 4; i < count * (part + 1) / 4; ++i) sum += term(i);
    all = rounded(all + rounded(sum));
  }
  return all;
}

}  // namespace

extern "C" {

void MgEmulatedSlowProducts(int ways) { slow_ways = ways; }

size_t cublasLtGetVersion() { return 139999; }  // of which there is none

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

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation{{}, compute, scale});
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
                                              cublasLtMatrixLayout_t la, cublasLtMatrixLayout_t lb,
                                              cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t ld,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = 0;
  if (const int wanted = emulated::InjectedFailure("cublasLtMatmulAlgoGetHeuristic"); wanted != 0)
    return static_cast<cublasStatus_t>(wanted);
  const Operation& o = As<Operation>(operation);
  const Matrix a(As<Layout>(la)), b(As<Layout>(lb)), d(As<Layout>(ld));
  const cudaDataType_t type = As<Layout>(ld).type;
  if (most < 1 || !Fit(o, a, b, d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!TypesFit(o, type) || As<Layout>(la).type != type || As<Layout>(lb).type != type ||
      As<Layout>(lc).type != type)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const Preference& p = As<Preference>(preference);
  const auto most_workspace = p.Get<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
  const auto reductions =
      p.Get<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_MASK);
  const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t of) {
    return p.Get<uint32_t>(of, 256);
  };
  Algorithm found{0,
                  static_cast<int32_t>(InnerOf(o, a)),
                  d.rows,
                  d.columns,
                  d.count,
                  {alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                   alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
                   alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES),
                   alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)}};
  for (; found.way < kNumWays && *count < most; ++found.way) {
    const Way& way = kWays[found.way];
    if (way.workspace > most_workspace || (way.reduction & ~reductions) != 0) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++] = {};
    std::memcpy(&result.algo, &found, sizeof found);
    result.state = CUBLAS_STATUS_SUCCESS;
    result.workspaceSize = way.workspace;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t la, cublasLtMatrixLayout_t lb,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t ld,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const Operation& o = As<Operation>(operation);
  const Matrix a(As<Layout>(la)), b(As<Layout>(lb)), d(As<Layout>(ld));
  Algorithm found;
  std::memcpy(&found, algorithm, sizeof found);
  if (!Fit(o, a, b, d) || !MadeFor(found, o, a, d)) return CUBLAS_STATUS_INVALID_VALUE;
  *result = {};
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = kWays[found.way].workspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* pa, cublasLtMatrixLayout_t la, const void* pb,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* pc,
                              cublasLtMatrixLayout_t, void* pd, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Operation& o = As<Operation>(operation);
  const Matrix a(As<Layout>(la)), b(As<Layout>(lb)), d(As<Layout>(ld));
  if (!Fit(o, a, b, d) || algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm found;
  std::memcpy(&found, algorithm, sizeof found);
  if (!MadeFor(found, o, a, d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Aligned(pa, found.alignments[0]) || !Aligned(pb, found.alignments[1]) ||
      !Aligned(pc, found.alignments[2]) || !Aligned(pd, found.alignments[3]))
    return CUBLAS_STATUS_INVALID_VALUE;
  const Way& way = kWays[found.way];
  if (workspace_bytes < way.workspace || !Aligned(workspace, kWorkspaceAlign) || pc != pd)
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
  if (biased && bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::vector<emulated::Operand> operands{{pa, a.bytes()}, {pb, b.bytes()}, {pd, d.bytes()}};
  if (way.workspace > 0) operands.push_back({workspace, way.workspace});
  if (biased) operands.push_back({bias, static_cast<size_t>(d.rows) * DTypeSize(d.dtype)});
  const bool in_place = way.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE;
  const auto compute = [=] {
    const int64_t k = ta ? a.rows : a.columns;
    if (found.way < slow_ways) std::this_thread::sleep_for(kSlow);
    for (int32_t n = 0; n < d.count; ++n) {
      for (int64_t column = 0; column < d.columns; ++column) {
        for (int64_t row = 0; row < d.rows; ++row) {
          const auto term = [&](int64_t i) {
            return emulated::Load(a.dtype, pa,
                                  n * a.stride + (ta ? row * a.ld + i : i * a.ld + row)) *
                   emulated::Load(b.dtype, pb,
                                  n * b.stride + (tb ? i * b.ld + column : column * b.ld + i));
          };
          double sum = 0;
          if (in_place) {
            sum = SumInAnyOrder(scale, k, term);
          } else {
            for (int64_t i = 0; i < k; ++i) sum += term(i);
          }
          if (bias != nullptr) sum += emulated::Load(d.dtype, bias, row);
          if (relu && sum < 0) sum = 0;
          emulated::Store(d.dtype, pd, n * d.stride + column * d.ld + row, sum);
        }
      }
    }
  };
  const cudaError_t error =
      emulated::EnqueueOn(stream, "cublasLtMatmul", compute, std::move(operands));
  // What a test wants by name is a code of this library.
  for (const cublasStatus_t refusal :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH}) {
    if (static_cast<int>(error) == static_cast<int>(refusal)) return refusal;
  }
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
