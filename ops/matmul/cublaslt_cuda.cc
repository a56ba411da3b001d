// cuBLAS works with columns: a row-major matrix is its transpose there. So
//   out = op(a) op(b)    is computed as    out' = op(b)' op(a)'
// with b first, and the bias runs along the rows of out'. A Plan is a product's description and its
// algorithm: the one that an earlier search found (FoundAlgorithms), or the fastest of up to
// kCandidates that cuBLASLt's heuristic offers, or, untimed, the first of these where results must
// be deterministic or a CUDA graph is being captured. If there is no memory for its workspace, the
// next one that wants less takes its place. Plans are kept by shape, strides and alignment.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/gpu/algorithm_search.h"
#include "ops/gpu/found_algorithms.h"
#include "ops/matmul/cublaslt.h"
#include "ops/plan_cache.h"

namespace monograph::ops::matmul {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kCandidates = 8;  // algorithms that a search times
// The family of keys in FoundAlgorithms, whose values are texts of cublasLtMatmulAlgo_t.
constexpr char kFamily[] = "product";

struct Types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};

Result<Types> TypesOf(DType dtype, bool tf32) {
  switch (dtype) {
    case DT_FLOAT:
      return Types{CUDA_R_32F, CUDA_R_32F,
                   tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DT_DOUBLE:
      return Types{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DT_HALF:
      return Types{CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DT_BFLOAT16:
      return Types{CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    default:
      return Unimplemented("cuBLASLt has no products of this type");
  }
}

struct Layout {
  Layout() = default;
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() {
    if (handle != nullptr) cublasLtMatrixLayoutDestroy(handle);
  }
  Status Make(cudaDataType_t type, int64_t rows, int64_t columns, int64_t count, int64_t stride) {
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutCreate(&handle, type, static_cast<uint64_t>(rows),
                                                         static_cast<uint64_t>(columns), rows));
    if (count == 1) return Status();
    const auto batch = static_cast<int32_t>(count);
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutSetAttribute(
        handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatrixLayoutSetAttribute(
        handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return Status();
  }
  cublasLtMatrixLayout_t handle = nullptr;
};

// cuBLASLt reports a limit of its own, as on addresses and strides, as an invalid value.
bool Refuses(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return address == 0 ? 256u : static_cast<uint32_t>(std::min<uintptr_t>(address & -address, 256));
}

// An algorithm is a few words, which the same version of the library takes back.
std::string TextOf(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) {
    char digits[20];
    std::snprintf(digits, sizeof digits, "%s%llx", text.empty() ? "" : " ",
                  static_cast<unsigned long long>(word));
    text += digits;
  }
  return text;
}
std::optional<cublasLtMatmulAlgo_t> AlgorithmOf(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  std::istringstream in(text);
  in >> std::hex;
  for (uint64_t& word : algorithm.data) in >> word;
  if (in.fail() || !in.eof()) return std::nullopt;
  return algorithm;
}

using Key = std::array<int64_t, 15>;

// A product as cuBLASLt describes it, and the algorithm chosen for it.

class Plan {
 public:
  ~Plan() {
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
  }

  // The plan has no algorithm if cuBLASLt has none.
  static Result<std::shared_ptr<Plan>> Make(KernelContext& c, cuda::Stream& stream,
                                            const CublasCall& call, const Key& key) {
    auto plan = std::make_shared<Plan>();
    MG_RETURN_IF_ERROR(plan->Describe(stream, call));
    MG_RETURN_IF_ERROR(plan->Choose(c, stream, call, key));
    return plan;
  }

  // An algorithm whose workspace finds no memory makes way for one that wants less.
  Status Run(KernelContext& c, cuda::Stream& stream, const CublasCall& call) {
    if (!chosen_) return Unimplemented("cuBLASLt has no algorithm for this product");
    Status status = Multiply(c, stream, call, *chosen_);
    while (status.code() == Code::kResourceExhausted && TakeSmaller(stream, call))
      status = Multiply(c, stream, call, *chosen_);
    if (status.code() == Code::kUnimplemented) {  // what its own heuristic has promised
      chosen_.reset();
      Refused(call);
    }
    return status;
  }

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
  };

  // Unimplemented if cuBLASLt refuses.
  Status Multiply(KernelContext& c, cuda::Stream& stream, const CublasCall& call,
                  const Algorithm& by) {
    Tensor workspace;
    if (by.workspace_bytes > 0) {
      MG_ASSIGN_OR_RETURN(
          workspace, c.AllocateTemp(DT_UINT8, Shape{static_cast<int64_t>(by.workspace_bytes)}));
    }
    if (call.product.fused.bias) {
      MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(
          operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias, sizeof call.bias));
    }
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool wide = call.dtype == DT_DOUBLE;
    const cublasStatus_t status = cublasLtMatmul(
        stream.cublaslt(), operation_, wide ? static_cast<const void*>(&wide_one) : &one, call.b,
        first_.handle, call.a, second_.handle, wide ? static_cast<const void*>(&wide_zero) : &zero,
        call.out, out_.handle, call.out, out_.handle, &by.algorithm,
        by.workspace_bytes > 0 ? workspace.raw() : nullptr, by.workspace_bytes, stream.stream);
    if (Refuses(status))
      return Unimplemented(cuda::CublasStatus(status, "cublasLtMatmul").message());
    return cuda::CublasStatus(status, "cublasLtMatmul");
  }

  Status Describe(cuda::Stream& stream, const CublasCall& call) {
    const Product& p = call.product;
    MG_ASSIGN_OR_RETURN(const Types types, TypesOf(call.dtype, stream.options.allow_tf32));
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescCreate(&operation_, types.compute, types.scale));
    const cublasOperation_t first = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(
        operation_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(
        operation_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (p.fused.bias) {
      const cublasLtEpilogue_t epilogue =
          p.fused.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
      MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(
          operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
      MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(
          operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias, sizeof call.bias));
      const auto type = static_cast<int32_t>(types.data);
      MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(
          operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    }
    MG_RETURN_IF_ERROR(
        first_.Make(types.data, p.tb ? p.k : p.n, p.tb ? p.n : p.k, call.count, call.b_stride));
    MG_RETURN_IF_ERROR(
        second_.Make(types.data, p.ta ? p.m : p.k, p.ta ? p.k : p.m, call.count, call.a_stride));
    return out_.Make(types.data, p.n, p.m, call.count, p.m * p.n);
  }

  // Nothing is chosen if cuBLASLt has no algorithm.
  Status Choose(KernelContext& c, cuda::Stream& stream, const CublasCall& call, const Key& key) {
    std::string shape;
    for (const int64_t value : key) shape += (shape.empty() ? "" : " ") + std::to_string(value);
    MG_ASSIGN_OR_RETURN(const std::string what,
                        SearchName(stream, "cublaslt", cublasLtGetVersion(), shape));
    FoundAlgorithms& found = FoundAlgorithms::Global();
    const std::string& file = stream.options.algorithm_cache;
    if (const auto kept = found.Look(file, kFamily, what)) {
      chosen_ = Checked(stream, AlgorithmOf(*kept));
      if (chosen_) return Status();
    }
    MG_ASSIGN_OR_RETURN(const bool capturing, Capturing(stream));
    const bool timed = !stream.options.deterministic && !capturing;
    MG_ASSIGN_OR_RETURN(const std::vector<Algorithm> offered,
                        Offered(stream, call, timed ? kCandidates : 1));
    float best_ms = std::numeric_limits<float>::infinity();
    for (const Algorithm& one : offered) {
      float ms = 0;
      if (timed) {
        const auto time = TimeOnDevice(stream, [&] { return Multiply(c, stream, call, one); });
        if (!time.ok() && time.status().code() == Code::kUnavailable) return time.status();
        if (!time.ok()) continue;
        ms = *time;
      }
      if (ms >= best_ms) continue;
      chosen_ = one;
      best_ms = ms;
    }
    if (!chosen_) {
      Refused(call);
    } else if (timed || stream.options.deterministic) {
      found.Keep(file, kFamily, what, TextOf(chosen_->algorithm));
    }
    return Status();
  }

  // What was kept, if it computes this product on this device.
  std::optional<Algorithm> Checked(cuda::Stream& stream,
                                   const std::optional<cublasLtMatmulAlgo_t>& kept) const {
    cublasLtMatmulHeuristicResult_t result{};
    if (!kept ||
        cublasLtMatmulAlgoCheck(stream.cublaslt(), operation_, first_.handle, second_.handle,
                                out_.handle, out_.handle, &*kept,
                                &result) != CUBLAS_STATUS_SUCCESS ||
        result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes)
      return std::nullopt;
    return Algorithm{*kept, result.workspaceSize};
  }

  // The algorithm of the highest rank whose workspace is smaller than that of the present one.
  // False if there is none.
  bool TakeSmaller(cuda::Stream& stream, const CublasCall& call) {
    const size_t too_large = chosen_->workspace_bytes;
    const auto offered = Offered(stream, call, kCandidates);
    if (!offered.ok()) return false;
    for (const Algorithm& one : *offered) {
      if (one.workspace_bytes >= too_large) continue;
      LogWarning("no memory for the " + std::to_string(too_large) +
                 " bytes of workspace of cuBLASLt's algorithm for " + NameOf(call) +
                 "; one that wants " + std::to_string(one.workspace_bytes) + " takes its place");
      chosen_ = one;
      return true;
    }
    return false;
  }

  // At most `most` algorithms, in the order in which cuBLASLt's heuristic ranks them.
  Result<std::vector<Algorithm>> Offered(cuda::Stream& stream, const CublasCall& call,
                                         int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulPreferenceCreate(&preference));
    auto offered = OfferedBy(stream, call, preference, most);
    cublasLtMatmulPreferenceDestroy(preference);
    return offered;
  }

  Result<std::vector<Algorithm>> OfferedBy(cuda::Stream& stream, const CublasCall& call,
                                           cublasLtMatmulPreference_t preference, int most) const {
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
    };
    MG_CUBLAS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes));
    MG_CUBLAS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(call.b)));
    MG_CUBLAS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(call.a)));
    MG_CUBLAS_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(call.out)));
    MG_CUBLAS_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(call.out)));
    if (stream.options.deterministic) {
      // A sum is either made in one piece, or a last kernel adds its parts in a fixed order.
      MG_CUBLAS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                    static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    }
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        stream.cublaslt(), operation_, first_.handle, second_.handle, out_.handle, out_.handle,
        preference, most, results.data(), &count);
    std::vector<Algorithm> offered;
    if (Refuses(status)) return offered;
    MG_RETURN_IF_ERROR(cuda::CublasStatus(status, "cublasLtMatmulAlgoGetHeuristic"));
    results.resize(static_cast<size_t>(count));
    for (const cublasLtMatmulHeuristicResult_t& result : results) {
      if (result.state == CUBLAS_STATUS_SUCCESS)
        offered.push_back({result.algo, result.workspaceSize});
    }
    return offered;
  }

  static std::string NameOf(const CublasCall& call) {
    const Product& p = call.product;
    return std::to_string(call.count) + " products of " + std::string(DTypeName(call.dtype)) +
           " [" + std::to_string(p.m) + ", " + std::to_string(p.k) + "] and [" +
           std::to_string(p.k) + ", " + std::to_string(p.n) + "]";
  }

  // With a bias the kernel next tries it without.
  static void Refused(const CublasCall& call) {
    if (call.product.fused.bias) return;
    LogWarning("cuBLASLt has no algorithm for " + NameOf(call) + "; a slower way takes its place");
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  Layout first_, second_, out_;
  std::optional<Algorithm> chosen_;
};

}  // namespace

struct Cublas::Impl {
  PlanCache<Key, Plan> plans;
};

Cublas::Cublas() : impl_(std::make_unique<Impl>()) {}
Cublas::~Cublas() = default;

Status Cublas::Run(KernelContext& c, const CublasCall& call) {
  cuda::Stream& stream = cuda::StreamOf(c);
  const Product& p = call.product;
  const Key key{p.m,
                p.k,
                p.n,
                p.ta,
                p.tb,
                p.fused.bias,
                p.fused.relu,
                call.dtype,
                call.count,
                call.a_stride,
                call.b_stride,
                AlignmentOf(call.a),
                AlignmentOf(call.b),
                AlignmentOf(call.out),
                AlignmentOf(call.bias)};
  MG_ASSIGN_OR_RETURN(std::shared_ptr<Plan> plan,
                      impl_->plans.Get(key, [&] { return Plan::Make(c, stream, call, key); }));
  return plan->Run(c, stream, call);
}

}  // namespace monograph::ops::matmul
