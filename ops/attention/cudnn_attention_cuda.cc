// Attention by cuDNN's graph API. Forward is one operation, which cuDNN 9.19 has a name for. It
// knows the name of the gradient, too, but refuses a graph of it; the gradient is described
// operation by operation, in the form that its engines for it recognise, and runs as one kernel
// with what stands before and behind it:
//
//   sum = sum over size of gradient * output       p = exp(scale * query key^T - statistics)
//   ds = scale * p * (gradient value^T - sum)      dv = p^T gradient   dk = ds^T query   dq = ds key
//
// Blocks of columns run side by side, and each has a part of dq. They add it up in float in the
// order in which they come (kWideDq); or, where bits must not change from run to run, ds goes to
// memory and dq is a product of its own. The two forms are two descriptions; engines have no note
// that tells them apart.
#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "executor/gpu/cuda/captured.h"
#include "executor/gpu/cuda/stream.h"
#include "ops/attention/cudnn_attention_graph.h"
#include "ops/plan_cache.h"

namespace monograph::ops::attention {
namespace {

using cudnn::Builder;
using cudnn::Descriptor;

using Dims = std::array<int64_t, 4>;
// Where the elements of a tensor lie.
struct Layout {
  Dims dims, strides;
  // The last two dimensions exchanged: the same memory, read the other way.
  Layout Turned() const {
    Layout turned = *this;
    std::swap(turned.dims[2], turned.dims[3]);
    std::swap(turned.strides[2], turned.strides[3]);
    return turned;
  }
};
Layout Dense(const Dims& d) { return {d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}}; }
// [n, tokens, heads, size] in memory is [n, heads, tokens, size] to cuDNN.
Layout Tokens(const Sizes& s, int64_t tokens) {
  return {{s.n, s.heads, tokens, s.size}, {tokens * s.token(), s.size, s.token(), 1}};
}

// Tensors and operations as they are described; the first failure stays.
class Drawing {
 public:
  explicit Drawing(cudnnDataType_t type) : type_(type) {}

  const Descriptor* Given(Id id, const Layout& layout) { return Tensor(id, layout, type_, {}); }
  const Descriptor* GivenFloat(Id id, const Layout& layout) {
    return Tensor(id, layout, CUDNN_DATA_FLOAT, {});
  }
  const Descriptor* Scale() {
    return Tensor(kScale, Dense({1, 1, 1, 1}), CUDNN_DATA_FLOAT, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  }
  // What passes by, as floats.
  const Descriptor* Between(const Layout& layout) {
    return Tensor(next_++, layout, CUDNN_DATA_FLOAT, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  }
  const Descriptor* BetweenNarrow(const Layout& layout) {
    return Tensor(next_++, layout, type_, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  }

  void Pointwise(cudnnPointwiseMode_t mode, const Descriptor* x, const Descriptor* b,
                 const Descriptor* y) {
    Builder what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    what.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
        .Type(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    Builder operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    Add(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what,
        {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
         {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
         {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  }
  // Over the last dimension.
  void Sum(const Descriptor* x, const Descriptor* y) {
    const cudnnReduceTensorOp_t mode = CUDNN_REDUCE_TENSOR_ADD;
    Builder what(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    what.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode)
        .Type(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    Builder operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    Add(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what,
        {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
  }
  void Product(const Descriptor* a, const Descriptor* b, const Descriptor* c) {
    Builder what(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    what.Type(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    Builder operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    Add(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, what,
        {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
         {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
         {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}});
  }
  // x's elements with the dimensions of y.
  void Reshape(const Descriptor* x, const Descriptor* y) {
    Builder operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    Finish(operation,
           {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
  }
  using Parts = std::vector<std::pair<cudnnBackendAttributeName_t, const Descriptor*>>;
  void Finish(Builder& operation, const Parts& parts) {
    for (const auto& [name, tensor] : parts) {
      if (tensor != nullptr) operation.Of(name, *tensor);
    }
    Keep(operation.Finish(), &made_.operations);
  }

  Result<cudnn::Operations> Graph(cudnnHandle_t handle) && {
    MG_RETURN_IF_ERROR(status_);
    Builder graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.Of(CUDNN_ATTR_OPERATIONGRAPH_OPS, made_.operations);
    if (handle != nullptr) graph.Handle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    MG_ASSIGN_OR_RETURN(made_.graph, graph.Finish());
    for (std::unique_ptr<Descriptor>& tensor : tensors_)
      made_.tensors.push_back(std::move(*tensor));
    return std::move(made_);
  }

 private:
  // `mark`: an attribute that is set to true.
  const Descriptor* Tensor(int64_t id, const Layout& layout, cudnnDataType_t type,
                           std::optional<cudnnBackendAttributeName_t> mark) {
    const bool yes = true;
    Builder tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.Type(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dims.data())
        .Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.strides.data())
        .Ints(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id})
        .Ints(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {mark ? int64_t{4} : int64_t{16}});
    if (mark) tensor.Set(*mark, CUDNN_TYPE_BOOLEAN, 1, &yes);
    tensors_.push_back(std::make_unique<Descriptor>());
    auto made = tensor.Finish();
    if (!made.ok()) {
      if (status_.ok()) status_ = made.status();
    } else {
      *tensors_.back() = std::move(made).value();
    }
    return tensors_.back().get();
  }
  void Add(Builder& operation, cudnnBackendAttributeName_t name, Builder& what,
           const Parts& parts) {
    auto made = what.Finish();
    if (!made.ok()) {
      if (status_.ok()) status_ = made.status();
      return;
    }
    operation.Of(name, *made);
    Finish(operation, parts);
  }
  void Keep(Result<Descriptor> made, std::vector<Descriptor>* to) {
    if (!made.ok()) {
      if (status_.ok()) status_ = made.status();
      return;
    }
    to->push_back(std::move(made).value());
  }

  const cudnnDataType_t type_;
  int64_t next_ = kFirstBetween;
  std::vector<std::unique_ptr<Descriptor>> tensors_;
  cudnn::Operations made_;
  Status status_;
};

void DrawForward(Drawing& d, const Sizes& s) {
  const Layout rows = Tokens(s, s.rows), columns = Tokens(s, s.columns);
  Builder operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  d.Finish(operation, {{CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, d.Given(kQuery, rows)},
                       {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, d.Given(kKey, columns)},
                       {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, d.Given(kValue, columns)},
                       {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, d.Given(kOutput, rows)},
                       {CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC,
                        d.GivenFloat(kStatistics, Dense({s.n, s.heads, s.rows, 1}))},
                       {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, d.Scale()}});
}

void DrawBackward(Drawing& d, const Sizes& s, bool deterministic) {
  const Layout rows = Tokens(s, s.rows), columns = Tokens(s, s.columns);
  const Layout one = Dense({s.n, s.heads, s.rows, 1}),
               pairs = Dense({s.n, s.heads, s.rows, s.columns});
  const Descriptor *q = d.Given(kQuery, rows), *keys = d.Given(kKey, columns.Turned()),
                   *values = d.Given(kValue, columns.Turned()), *o = d.Given(kOutput, rows),
                   *g = d.Given(kGradient, rows), *statistics = d.GivenFloat(kStatistics, one),
                   *sum = d.GivenFloat(kSum, one), *scale = d.Scale();
  const auto point = [&](cudnnPointwiseMode_t mode, const Descriptor* x, const Descriptor* b,
                         const Layout& layout) {
    const Descriptor* y = d.Between(layout);
    d.Pointwise(mode, x, b, y);
    return y;
  };
  const auto product = [&](const Descriptor* a, const Descriptor* b) {
    const Descriptor* y = d.Between(pairs);
    d.Product(a, b, y);
    return y;
  };
  const auto turned = [&](const Descriptor* x) {
    const Descriptor* y = d.BetweenNarrow(pairs.Turned());
    d.Reshape(x, y);
    return y;
  };
  d.Sum(point(CUDNN_POINTWISE_MUL, g, o, rows), sum);
  const Descriptor* scores = point(CUDNN_POINTWISE_MUL, product(q, keys), scale, pairs);
  const Descriptor* p = point(
      CUDNN_POINTWISE_EXP, point(CUDNN_POINTWISE_SUB, scores, statistics, pairs), nullptr, pairs);
  d.Product(turned(p), g, d.Given(kDv, columns));
  const Descriptor* dp = point(CUDNN_POINTWISE_SUB, product(g, values), sum, pairs);
  const Descriptor* ds =
      point(CUDNN_POINTWISE_MUL, point(CUDNN_POINTWISE_MUL, dp, p, pairs), scale, pairs);
  d.Product(turned(ds), q, d.Given(kDk, columns));
  const Descriptor* k = d.BetweenNarrow(columns);
  d.Reshape(keys, k);
  const Descriptor* dq = d.Given(kDq, rows);
  if (deterministic) return d.Product(ds, k, dq);
  const Descriptor* wide = d.GivenFloat(kWideDq, Dense({s.n, s.heads, s.rows, s.size}));
  d.Product(ds, k, wide);
  d.Pointwise(CUDNN_POINTWISE_IDENTITY, wide, nullptr, dq);
}

bool Aligned(const CudnnCall& call) {
  for (const void* place :
       {call.query, call.key, call.value, static_cast<const void*>(call.output), call.gradient,
        static_cast<const void*>(call.dq), static_cast<const void*>(call.dk),
        static_cast<const void*>(call.dv), static_cast<const void*>(call.statistics)}) {
    if (reinterpret_cast<uintptr_t>(place) % 16 != 0) return false;
  }
  return true;
}

// A plan for one call's sizes; none if cuDNN has no engine.
class AttentionPlan {
 public:
  static std::shared_ptr<AttentionPlan> Make(cuda::Stream& stream, const CudnnCall& call) {
    auto made = std::make_shared<AttentionPlan>();
    made->deterministic_ = stream.options.deterministic;
    if (const Status status = made->Find(stream, call); !made->plan_.plan.valid()) {
      const Sizes& s = call.sizes;
      LogWarning("cuDNN has no engine for attention" +
                 std::string(call.backward ? "'s gradient" : "") + " of " +
                 std::string(DTypeName(call.dtype)) + ", query " + s.query().ToString() + ", key " +
                 s.value().ToString() + (status.ok() ? "" : " (" + status.message() + ")") +
                 "; a slower way takes its place");
    }
    return made;
  }

  Status Run(KernelContext& c, const CudnnCall& call) const {
    if (!plan_.plan.valid()) return Unimplemented("cuDNN has no engine for this attention");
    const Sizes& s = call.sizes;
    float scale = call.scale;  // read by the time that Execute returns
    std::vector<int64_t> ids;
    std::vector<void*> places;
    const auto bind = [&](Id id, const void* place) {
      ids.push_back(id);
      places.push_back(const_cast<void*>(place));
    };
    bind(kQuery, call.query);
    bind(kKey, call.key);
    bind(kValue, call.value);
    bind(kOutput, call.output);
    bind(kStatistics, call.statistics);
    bind(kScale, &scale);
    Tensor sum, wide, workspace;
    if (call.backward) {
      bind(kGradient, call.gradient);
      bind(kDq, call.dq);
      bind(kDk, call.dk);
      bind(kDv, call.dv);
      MG_ASSIGN_OR_RETURN(sum, c.AllocateTemp(DT_FLOAT, s.statistics()));
      bind(kSum, sum.raw());
      if (!deterministic_) {
        MG_ASSIGN_OR_RETURN(wide, c.AllocateTemp(DT_FLOAT, s.query()));
        bind(kWideDq, wide.raw());
      }
    }
    if (plan_.workspace_bytes > 0) {
      MG_ASSIGN_OR_RETURN(workspace, c.AllocateTemp(DT_UINT8, Shape{plan_.workspace_bytes}));
    }
    return cudnn::Execute(cuda::StreamOf(c).cudnn(), plan_, ids, places,
                          plan_.workspace_bytes > 0 ? workspace.raw() : nullptr);
  }

 private:
  // The first engine, as cuDNN ranks them, that makes a plan.
  Status Find(cuda::Stream& stream, const CudnnCall& call) {
    MG_ASSIGN_OR_RETURN(operations_, Describe(stream.cudnn(), call, deterministic_));
    MG_ASSIGN_OR_RETURN(
        const std::vector<Descriptor> configs,
        cudnn::Configs(operations_.graph, {.deterministic = deterministic_, .tensor_cores = true}));
    Status status;
    for (const Descriptor& config : configs) {
      auto plan = cudnn::MakePlan(stream.cudnn(), config);
      if (plan.ok()) {
        plan_ = std::move(plan).value();
        return Status();
      }
      status = plan.status();
    }
    return status;
  }

  bool deterministic_ = true;
  cudnn::Operations operations_;
  cudnn::Plan plan_;
};

}  // namespace

Result<cudnn::Operations> Describe(cudnnHandle_t handle, const CudnnCall& call,
                                   bool deterministic) {
  if (call.dtype != DT_BFLOAT16 && call.dtype != DT_HALF)
    return Unimplemented("cuDNN's attention is of 16-bit floats");
  Drawing drawing(call.dtype == DT_HALF ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16);
  if (call.backward) {
    DrawBackward(drawing, call.sizes, deterministic);
  } else {
    DrawForward(drawing, call.sizes);
  }
  return std::move(drawing).Graph(handle);
}

struct CudnnAttention::Impl {
  PlanCache<Sizes::Key, AttentionPlan> plans;
};

CudnnAttention::CudnnAttention() : impl_(std::make_unique<Impl>()) {}
CudnnAttention::~CudnnAttention() = default;

Status CudnnAttention::Run(KernelContext& c, const CudnnCall& call) {
  if (!Aligned(call)) return Unimplemented("cuDNN's attention wants addresses of 16 bytes");
  cuda::Stream& stream = cuda::StreamOf(c);
  MG_ASSIGN_OR_RETURN(std::shared_ptr<AttentionPlan> plan, impl_->plans.Get(call.sizes.key(), [&] {
    return Result(AttentionPlan::Make(stream, call));
  }));
  MG_RETURN_IF_ERROR(plan->Run(c, call));
  // A CUDA graph that is replayed later runs code that belongs to the plan.
  cuda::KeepForGraph(stream, std::move(plan));
  return Status();
}

}  // namespace monograph::ops::attention
