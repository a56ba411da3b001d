// Attention by cuDNN's graph API. Forward without masks is one operation, which cuDNN 9.19 has a
// name for. It knows the name of the gradient, too, but refuses a graph of it; the gradient, and
// forward with masks, is described operation by operation, in the form that its engines for it
// recognise, and runs as one kernel with what stands before and behind it:
//
//   sum = sum over size of gradient * output       p = exp(scale * query key^T - statistics)
//   ds = scale * p * (gradient value^T - sum)      dv = p^T gradient   dk = ds^T query   dq = ds key
//
// A mask is two indices that are generated, a comparison of them, or of them and the lengths, and a
// choice between the score and -infinity. With lengths, products are told them, too, and compute
// and write no more than that.
//
// Blocks of columns run side by side, and each has a part of dq. They add it up in float in the
// order in which they come (kWideDq); or, where bits must not change from run to run, ds goes to
// memory and dq is a product of its own. The two forms are two descriptions; engines have no note
// that tells them apart.
#include <cudnn.h>

#include <array>
#include <cstdint>
#include <limits>
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
  const Descriptor* Lowest() {
    return Tensor(kLowest, Dense({1, 1, 1, 1}), CUDNN_DATA_FLOAT, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  }
  // One number for each sequence.
  const Descriptor* Counts(Id id, int64_t n) {
    return Tensor(id, Dense({n, 1, 1, 1}), CUDNN_DATA_INT32, {});
  }
  // What passes by.
  const Descriptor* Between(const Layout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return Tensor(next_++, layout, type, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  }
  const Descriptor* BetweenNarrow(const Layout& layout) { return Between(layout, type_); }

  struct Elementwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;  // that it computes in
    int64_t axis = -1;                        // of an index
    const Descriptor* choice = nullptr;       // where it is true x, else b
  };
  void Pointwise(const Elementwise& e, const Descriptor* x, const Descriptor* b,
                 const Descriptor* y) {
    Builder what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    what.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &e.mode)
        .Type(CUDNN_ATTR_POINTWISE_MATH_PREC, e.type);
    if (e.axis >= 0) what.Ints(CUDNN_ATTR_POINTWISE_AXIS, {e.axis});
    Builder operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    Add(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what,
        {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
         {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
         {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, e.choice},
         {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  }
  // Over the last dimension.
  void Reduce(cudnnReduceTensorOp_t mode, const Descriptor* x, const Descriptor* y) {
    Builder what(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    what.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode)
        .Type(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    Builder operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    Add(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what,
        {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
  }
  // Of how many rows of a, columns of b, and elements of what is added up; nullptr: of all.
  struct Used {
    const Descriptor *rows = nullptr, *columns = nullptr, *inner = nullptr;
  };
  void Product(const Descriptor* a, const Descriptor* b, const Descriptor* c, const Used& used) {
    Builder what(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    what.Type(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    Builder operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    Add(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, what,
        {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
         {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
         {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c},
         {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, used.rows},
         {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, used.columns},
         {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, used.inner}});
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

// What both ways have in common.
struct Common {
  Common(Drawing& drawing, const Sizes& sizes)
      : d(drawing),
        s(sizes),
        rows(Tokens(s, s.rows)),
        columns(Tokens(s, s.columns)),
        one(Dense({s.n, s.heads, s.rows, 1})),
        pairs(Dense({s.n, s.heads, s.rows, s.columns})),
        scale(d.Scale()) {
    if (s.with_lengths) row_counts = d.Counts(kRowCounts, s.n), lengths = d.Counts(kLengths, s.n);
  }

  const Descriptor* Point(const Drawing::Elementwise& e, const Descriptor* x, const Descriptor* b,
                          const Layout& layout) {
    const Descriptor* y = d.Between(layout);
    d.Pointwise(e, x, b, y);
    return y;
  }
  const Descriptor* Compare(cudnnPointwiseMode_t mode, const Descriptor* x, const Descriptor* b) {
    const Descriptor* y = d.Between(pairs, CUDNN_DATA_BOOLEAN);
    d.Pointwise({.mode = mode, .type = CUDNN_DATA_BOOLEAN}, x, b, y);
    return y;
  }
  const Descriptor* Index(const Descriptor* scores, int64_t axis) {
    const Descriptor* y = d.Between(pairs, CUDNN_DATA_INT32);
    d.Pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .type = CUDNN_DATA_INT32, .axis = axis}, scores,
                nullptr, y);
    return y;
  }
  // Of rows by columns, both of which may be shorter than they lie.
  const Descriptor* Scores(const Descriptor* a, const Descriptor* b) {
    const Descriptor* y = d.Between(pairs);
    d.Product(a, b, y, {.rows = row_counts, .columns = lengths});
    return y;
  }
  const Descriptor* Masked(const Descriptor* scores) {
    if (!s.causal && !s.with_lengths) return scores;
    const Descriptor* lowest = d.Lowest();
    const auto where = [&](const Descriptor* x, const Descriptor* seen) {
      return Point({.mode = CUDNN_POINTWISE_BINARY_SELECT, .choice = seen}, x, lowest, pairs);
    };
    if (s.with_lengths) {
      const Descriptor* row = Compare(CUDNN_POINTWISE_CMP_LT, Index(scores, 2), row_counts);
      const Descriptor* column = Compare(CUDNN_POINTWISE_CMP_LT, Index(scores, 3), lengths);
      scores = where(scores, Compare(CUDNN_POINTWISE_LOGICAL_AND, row, column));
    }
    if (!s.causal) return scores;
    return where(scores, Compare(CUDNN_POINTWISE_CMP_GE, Index(scores, 2), Index(scores, 3)));
  }

  Drawing& d;
  const Sizes& s;
  const Layout rows, columns, one, pairs;
  const Descriptor* const scale;
  const Descriptor *row_counts = nullptr, *lengths = nullptr;
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

void DrawMaskedForward(Drawing& d, const Sizes& s) {
  Common parts(d, s);
  const Layout &one = parts.one, &pairs = parts.pairs;
  const Descriptor *q = d.Given(kQuery, parts.rows), *k = d.Given(kKey, parts.columns.Turned()),
                   *v = d.Given(kValue, parts.columns), *o = d.Given(kOutput, parts.rows),
                   *statistics = d.GivenFloat(kStatistics, one);
  const Descriptor* scores =
      parts.Masked(parts.Point({CUDNN_POINTWISE_MUL}, parts.Scores(q, k), parts.scale, pairs));
  const Descriptor* top = d.Between(one);
  d.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, top);
  const Descriptor* weights =
      parts.Point({CUDNN_POINTWISE_EXP}, parts.Point({CUDNN_POINTWISE_SUB}, scores, top, pairs),
                  nullptr, pairs);
  const Descriptor* sum = d.Between(one);
  d.Reduce(CUDNN_REDUCE_TENSOR_ADD, weights, sum);
  d.Pointwise({CUDNN_POINTWISE_ADD}, top, parts.Point({CUDNN_POINTWISE_LOG}, sum, nullptr, one),
              statistics);
  const Descriptor* shares = d.BetweenNarrow(pairs);
  d.Pointwise({CUDNN_POINTWISE_DIV}, weights, sum, shares);
  d.Product(shares, v, o, {.rows = parts.row_counts, .inner = parts.lengths});
}

void DrawBackward(Drawing& d, const Sizes& s, bool deterministic) {
  Common parts(d, s);
  const Layout &rows = parts.rows, &columns = parts.columns, &one = parts.one, &pairs = parts.pairs;
  const Descriptor *q = d.Given(kQuery, rows), *keys = d.Given(kKey, columns.Turned()),
                   *values = d.Given(kValue, columns.Turned()), *o = d.Given(kOutput, rows),
                   *g = d.Given(kGradient, rows), *statistics = d.GivenFloat(kStatistics, one),
                   *sum = d.GivenFloat(kSum, one), *scale = parts.scale;
  const auto turned = [&](const Descriptor* x) {
    const Descriptor* y = d.BetweenNarrow(pairs.Turned());
    d.Reshape(x, y);
    return y;
  };
  // Sums over rows, a row for each column; sums over columns.
  const Drawing::Used by_column{.rows = parts.lengths, .inner = parts.row_counts},
      by_row{.rows = parts.row_counts, .inner = parts.lengths};
  d.Reduce(CUDNN_REDUCE_TENSOR_ADD, parts.Point({CUDNN_POINTWISE_MUL}, g, o, rows), sum);
  const Descriptor* scores =
      parts.Point({CUDNN_POINTWISE_MUL}, parts.Scores(q, keys), scale, pairs);
  const Descriptor* p = parts.Point(
      {CUDNN_POINTWISE_EXP},
      parts.Masked(parts.Point({CUDNN_POINTWISE_SUB}, scores, statistics, pairs)), nullptr, pairs);
  d.Product(turned(p), g, d.Given(kDv, columns), by_column);
  const Descriptor* dp = parts.Point({CUDNN_POINTWISE_SUB}, parts.Scores(g, values), sum, pairs);
  const Descriptor* ds = parts.Point(
      {CUDNN_POINTWISE_MUL}, parts.Point({CUDNN_POINTWISE_MUL}, dp, p, pairs), scale, pairs);
  d.Product(turned(ds), q, d.Given(kDk, columns), by_column);
  const Descriptor* k = d.BetweenNarrow(columns);
  d.Reshape(keys, k);
  const Descriptor* dq = d.Given(kDq, rows);
  if (deterministic) return d.Product(ds, k, dq, by_row);
  const Descriptor* wide = d.GivenFloat(kWideDq, Dense({s.n, s.heads, s.rows, s.size}));
  d.Product(ds, k, wide, by_row);
  d.Pointwise({CUDNN_POINTWISE_IDENTITY}, wide, nullptr, dq);
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
                 s.value().ToString() + (s.with_lengths ? ", with lengths" : "") +
                 (s.causal ? ", causal" : "") + (status.ok() ? "" : " (" + status.message() + ")") +
                 "; a slower way takes its place");
    }
    return made;
  }

  Status Run(KernelContext& c, const CudnnCall& call) const {
    if (!plan_.plan.valid()) return Unimplemented("cuDNN has no engine for this attention");
    const Sizes& s = call.sizes;
    // Both are read by the time that Execute returns.
    float scale = call.scale, lowest = -std::numeric_limits<float>::infinity();
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
    if (s.causal || s.with_lengths) bind(kLowest, &lowest);
    if (s.with_lengths) {
      bind(kRowCounts, call.row_counts);
      bind(kLengths, call.lengths);
    }
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
  } else if (call.sizes.causal || call.sizes.with_lengths) {
    DrawMaskedForward(drawing, call.sizes);
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
