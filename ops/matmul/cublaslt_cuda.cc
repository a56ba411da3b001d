// cuBLAS works with columns: a row-major matrix is its transpose there. So
//   out = op(a) op(b)    is computed as    out' = op(b)' op(a)'
// with b first, and the bias runs along the rows of out'. A Plan is a product's description and the
// algorithm that cuBLASLt's heuristic ranks first for it, untimed; plans are kept by shape, strides
// and alignment.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/matmul/cublaslt.h"
#include "ops/plan_cache.h"

namespace monograph::ops::matmul {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

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

// A product as cuBLASLt describes it, and the algorithm chosen for it.
using Key = std::array<int64_t, 15>;

class Plan {
 public:
  ~Plan() {
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
  }

  // The plan has no algorithm if cuBLASLt has none.
  static Result<std::shared_ptr<Plan>> Make(cuda::Stream& stream, const CublasCall& call) {
    auto plan = std::make_shared<Plan>();
    MG_RETURN_IF_ERROR(plan->Describe(stream, call));
    MG_RETURN_IF_ERROR(plan->Choose(stream, call));
    return plan;
  }

  Status Run(KernelContext& c, cuda::Stream& stream, const CublasCall& call) {
    if (!found_) return Unimplemented("cuBLASLt has no algorithm for this product");
    Tensor workspace;
    if (workspace_bytes_ > 0) {
      MG_ASSIGN_OR_RETURN(workspace,
                          c.AllocateTemp(DT_UINT8, Shape{static_cast<int64_t>(workspace_bytes_)}));
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
        call.out, out_.handle, call.out, out_.handle, &algorithm_,
        workspace_bytes_ > 0 ? workspace.raw() : nullptr, workspace_bytes_, stream.stream);
    if (Refuses(status)) {  // what its own heuristic has promised
      found_ = false;
      Refused(call);
      return Unimplemented(cuda::CublasStatus(status, "cublasLtMatmul").message());
    }
    return cuda::CublasStatus(status, "cublasLtMatmul");
  }

 private:
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

  Status Choose(cuda::Stream& stream, const CublasCall& call) {
    cublasLtMatmulPreference_t preference = nullptr;
    MG_CUBLAS_RETURN_IF_ERROR(cublasLtMatmulPreferenceCreate(&preference));
    const Status status = ChooseBy(stream, call, preference);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
  }

  Status ChooseBy(cuda::Stream& stream, const CublasCall& call,
                  cublasLtMatmulPreference_t preference) {
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
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(stream.cublaslt(), operation_, first_.handle, second_.handle,
                                       out_.handle, out_.handle, preference, 1, &result, &count);
    if (!Refuses(status))
      MG_RETURN_IF_ERROR(cuda::CublasStatus(status, "cublasLtMatmulAlgoGetHeuristic"));
    if (Refuses(status) || count == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
      Refused(call);
      return Status();
    }
    algorithm_ = result.algo;
    workspace_bytes_ = result.workspaceSize;
    found_ = true;
    return Status();
  }

  // With a bias the kernel next tries it without.
  static void Refused(const CublasCall& call) {
    if (call.product.fused.bias) return;
    const Product& p = call.product;
    LogWarning("cuBLASLt has no algorithm for " + std::to_string(call.count) + " products of " +
               std::string(DTypeName(call.dtype)) + " [" + std::to_string(p.m) + ", " +
               std::to_string(p.k) + "] and [" + std::to_string(p.k) + ", " + std::to_string(p.n) +
               "]; a slower way takes its place");
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  Layout first_, second_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_bytes_ = 0;
  bool found_ = false;
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
                      impl_->plans.Get(key, [&] { return Plan::Make(stream, call); }));
  return plan->Run(c, stream, call);
}

}  // namespace monograph::ops::matmul
