// Arithmetic of sparse tensors with each other (SparseAdd, SparseSparseMaximum and Minimum) and
// with dense ones (SparseTensorDenseAdd, SparseDenseCwiseAdd, Mul and Div), and SparseSoftmax.
//
// Two sparse tensors are gone through side by side, in the order of their indices; as in
// TensorFlow nobody checks that they are in order: elements that are not are not found together.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "ops/cpu/slices_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/gpu/moves.h"
#include "ops/sparse/sparse_cpu.h"

namespace monograph::ops::sparse {
namespace {

// An element of each of two tensors, at the same place; -1 where one has none there.
struct Pair {
  int64_t a, b;
};

// The elements of inputs 0 to 2 and 3 to 5, two sparse tensors of one shape.
Result<std::vector<Pair>> PairsOf(const KernelContext& c) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "a_shape"));
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> other, DimsOf(c.input(5), "b_shape"));
  if (dims != other) {
    return InvalidArgument("Operands' shapes do not match: got " + c.input(2).ToString() + " and " +
                           c.input(5).ToString());
  }
  if (dims.empty()) return InvalidArgument("a shape without dimensions");
  MG_RETURN_IF_ERROR(CheckSparse(c, c.input(0), &c.input(1), dims));
  MG_RETURN_IF_ERROR(CheckSparse(c, c.input(3), &c.input(4), dims));
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t *a = c.input(0).data<int64_t>(), *b = c.input(3).data<int64_t>();
  const int64_t m = c.input(1).elements(), n = c.input(4).elements();
  std::vector<Pair> pairs;
  Looks looks(c);
  for (int64_t i = 0, k = 0; i < m || k < n;) {
    if (!looks.GoOn(10 + rank)) return StepAborted();
    const int order = i == m ? 1 : k == n ? -1 : CompareRows(a + i * rank, b + k * rank, rank);
    pairs.push_back({order <= 0 ? i++ : -1, order >= 0 ? k++ : -1});
  }
  return pairs;
}

// Outputs 0 and 1: of each pair its place and value(pair).
template <typename T, typename Fn>
Status PutPairs(KernelContext& c, const std::vector<Pair>& pairs, const Fn& value) {
  const auto n = static_cast<int64_t>(pairs.size());
  const int64_t rank = c.input(0).shape()[1];
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(0, Shape{n, rank}));
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(1, Shape{n}));
  const int64_t *a = c.input(0).data<int64_t>(), *b = c.input(3).data<int64_t>();
  Looks looks(c);
  for (int64_t i = 0; i < n && looks.GoOn(10 + rank); ++i) {
    const Pair& pair = pairs[static_cast<size_t>(i)];
    std::copy_n(pair.a >= 0 ? a + pair.a * rank : b + pair.b * rank, rank,
                indices->data<int64_t>() + i * rank);
    values->data<T>()[i] = value(pair);
  }
  return Status();
}

// Of elements at the same place the sum, unless it is smaller than the threshold.
Status AddOf(KernelContext& c, const Attrs&) {
  const Tensor& threshold = c.input(6);
  if (threshold.shape().rank() != 0) {
    return InvalidArgument("The magnitude threshold must be a scalar: got shape " +
                           threshold.shape().ToString());
  }
  if (threshold.dtype() != c.input(1).dtype()) {
    return InvalidArgument("a threshold of type " + std::string(DTypeName(threshold.dtype())) +
                           " for values of type " + std::string(DTypeName(c.input(1).dtype())));
  }
  MG_ASSIGN_OR_RETURN(std::vector<Pair> pairs, PairsOf(c));
  c.set_output(2, c.input(2));
  return WithRealType(threshold.dtype(), [&](auto t) {
    using T = decltype(t);
    const T *a = c.input(1).data<T>(), *b = c.input(4).data<T>(), least = threshold.scalar<T>();
    const auto sum = [a, b](const Pair& pair) {
      return pair.a < 0 ? b[pair.b] : pair.b < 0 ? a[pair.a] : T(a[pair.a] + b[pair.b]);
    };
    size_t kept = 0;
    Looks looks(c);
    for (const Pair& pair : pairs) {
      if (!looks.GoOn(3)) return Status();
      bool keep = pair.a < 0 || pair.b < 0;
      if (!keep) {
        const T value = sum(pair);
        keep = least <= (value < T(0) ? T(0 - value) : value);
      }
      if (keep) pairs[kept++] = pair;
    }
    pairs.resize(kept);
    return PutPairs<T>(c, pairs, sum);
  });
}

// Outputs i: the gradients of elements that are in the sum, 0 for others.
Status AddGradOf(KernelContext& c, const Attrs&) {
  const Tensor &grad = c.input(0), &sum = c.input(3);
  for (int i = 1; i <= 3; ++i) {
    const Shape& shape = c.input(i).shape();
    if (shape.rank() != 2 || shape[1] != c.input(1).shape()[1]) {
      return InvalidArgument("indices must be matrices of as many columns, not of shapes " +
                             c.input(1).shape().ToString() + ", " + c.input(2).shape().ToString() +
                             " and " + sum.shape().ToString());
    }
  }
  if (!(grad.shape() == Shape{sum.shape()[0]})) {
    return InvalidArgument("backprop_val_grad of shape " + grad.shape().ToString() +
                           " does not fit sum_indices of shape " + sum.shape().ToString());
  }
  const int64_t rank = sum.shape()[1], m = grad.elements();
  Looks looks(c);
  for (int side = 0; side < 2; ++side) {
    const Tensor& indices = c.input(1 + side);
    const int64_t n = indices.shape()[0];
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(side, Shape{n}));
    MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
    for (int64_t i = 0, k = 0; i < n && k < m && looks.GoOn(5 + rank);) {
      const int order =
          CompareRows(indices.data<int64_t>() + i * rank, sum.data<int64_t>() + k * rank, rank);
      if (order == 0) CopyElement(c, grad, k, out, i);
      if (order <= 0) ++i;
      if (order >= 0) ++k;
    }
  }
  return Status();
}

// An element that only one tensor has is compared with 0.
template <bool kMaximum>
Status ExtremeOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<Pair> pairs, PairsOf(c));
  return WithRealType(c.output_dtype(1), [&](auto t) {
    using T = decltype(t);
    const T *a = c.input(1).data<T>(), *b = c.input(4).data<T>();
    return PutPairs<T>(c, pairs, [a, b](const Pair& pair) {
      const T x = pair.a < 0 ? T(0) : a[pair.a], y = pair.b < 0 ? T(0) : b[pair.b];
      return (kMaximum ? x < y : y < x) ? y : x;
    });
  });
}

Status DenseAddOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "a_shape"));
  const Tensor &indices = c.input(0), &values = c.input(1), &b = c.input(3);
  if (!std::ranges::equal(dims, b.shape().dims())) {
    return InvalidArgument("a sparse tensor of shape " + c.input(2).ToString() +
                           " and a dense one of shape " + b.shape().ToString() +
                           ", but no broadcasting is supported");
  }
  MG_RETURN_IF_ERROR(CheckSparse(c, indices, &values, dims));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(3, 0, b.shape()));
  if (out->raw() != b.raw()) MG_RETURN_IF_ERROR(HostMoves::Copy(c, out->raw(), b.raw(), b.bytes()));
  const auto rank = static_cast<int64_t>(dims.size());
  const CombineFn add = CombineOf(SliceUpdate::kAdd, b.dtype());
  const size_t bytes = DTypeSize(b.dtype());
  Looks looks(c);
  for (int64_t i = 0; i < values.elements() && looks.GoOn(5 + 3 * rank); ++i) {
    int64_t place = 0;
    for (int64_t d = 0; d < rank; ++d)
      place = place * dims[static_cast<size_t>(d)] + IndexAt(indices, i * rank + d);
    add(out->raw(), &place, 1,
        static_cast<const char*>(values.raw()) + static_cast<size_t>(i) * bytes, 1, 1);
  }
  return Status();
}

enum class Binary : uint8_t { kAdd, kMul, kDiv };

// Each value with the element of the dense tensor at its place, where that is repeated along
// dimensions in which it has one element or none.
template <Binary kBinary>
Status CwiseOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "sp_shape"));
  const Tensor &indices = c.input(0), &values = c.input(1), &dense = c.input(3);
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t missing = rank - dense.shape().rank();
  bool fits = rank > 0 && missing >= 0;
  SmallInts strides;
  for (int64_t d = std::max<int64_t>(missing, 0); fits && d < rank; ++d) {
    const int64_t size = dense.shape()[static_cast<int>(d - missing)];
    fits = size == dims[static_cast<size_t>(d)] || size == 1;
    strides.push_back(0);
  }
  if (!fits) {
    return InvalidArgument("a dense tensor of shape " + dense.shape().ToString() +
                           " does not broadcast to a sparse one of shape " + c.input(2).ToString());
  }
  MG_RETURN_IF_ERROR(CheckSparse(c, indices, &values, dims));
  int64_t stride = 1;
  for (int d = strides.size(); d-- > 0;) {
    strides[d] = dense.shape()[d] == 1 ? 0 : stride;
    stride *= dense.shape()[d];
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(1, 0, values.shape()));
  return WithRealType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    Looks looks(c);
    for (int64_t i = 0; i < values.elements() && looks.GoOn(5 + 3 * strides.size()); ++i) {
      int64_t place = 0;
      for (int d = 0; d < strides.size(); ++d)
        place += strides[d] * indices.data<int64_t>()[i * rank + missing + d];
      const A x = values.data<T>()[i], y = dense.data<T>()[place];
      if constexpr (kBinary == Binary::kAdd) {
        out->data<T>()[i] = T(x + y);
      } else if constexpr (kBinary == Binary::kMul) {
        out->data<T>()[i] = T(x * y);
      } else if constexpr (std::is_integral_v<T>) {
        if (y == 0) return InvalidArgument("Integer division by zero");
        out->data<T>()[i] = std::is_signed_v<T> && y == T(-1) ? T(0 - x) : T(x / y);
      } else {
        out->data<T>()[i] = T(x / y);
      }
    }
    return Status();
  });
}

// Over each row of the last dimension. Results are in the order of indices, as TensorFlow's.
Status SoftmaxOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "sp_shape"));
  const Tensor& values = c.input(1);
  if (dims.size() < 2) {
    return InvalidArgument("Input should have rank >= 2, but received shape: " +
                           c.input(2).ToString());
  }
  MG_RETURN_IF_ERROR(CheckSparse(c, c.input(0), &values, dims));
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t* indices = c.input(0).data<int64_t>();
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> order,
                      Sorted(c, indices, values.elements(), rank));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, values.shape()));
  return WithFloatType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    T* const to = out->data<T>();
    const auto value = [&](size_t k) { return static_cast<A>(values.data<T>()[order[k]]); };
    Looks looks(c);
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      A highest = value(begin), sum = 0;
      for (; end < order.size(); ++end) {
        if (!looks.GoOn(3 + rank)) return Status();
        if (CompareRows(indices + order[begin] * rank, indices + order[end] * rank, rank - 1) != 0)
          break;
        highest = std::max(highest, value(end));
      }
      for (size_t k = begin; k < end; ++k) {
        if (!looks.GoOn(20)) return Status();
        const A power = std::exp(value(k) - highest);
        to[k] = T(power);
        sum += power;
      }
      for (size_t k = begin; k < end && looks.GoOn(2); ++k) to[k] = T(static_cast<A>(to[k]) / sum);
    }
    return Status();
  });
}

}  // namespace

void RegisterArithmetic(KernelRegistry* registry) {
  const auto add = [registry]<typename K>(const char* op) {
    AddForTypes<K>(registry, {.op = op}, "T", kRealTypes);
  };
  add.operator()<FunctionKernel<AddOf>>("SparseAdd");
  add.operator()<FunctionKernel<AddGradOf>>("SparseAddGrad");
  add.operator()<FunctionKernel<ExtremeOf<true>>>("SparseSparseMaximum");
  add.operator()<FunctionKernel<ExtremeOf<false>>>("SparseSparseMinimum");
  add.operator()<FunctionKernel<DenseAddOf>>("SparseTensorDenseAdd");
  add.operator()<FunctionKernel<CwiseOf<Binary::kAdd>>>("SparseDenseCwiseAdd");
  add.operator()<FunctionKernel<CwiseOf<Binary::kMul>>>("SparseDenseCwiseMul");
  add.operator()<FunctionKernel<CwiseOf<Binary::kDiv>>>("SparseDenseCwiseDiv");
  constexpr DType kSoftmaxTypes[] = {DT_FLOAT, DT_DOUBLE, DT_HALF};
  AddForTypes<FunctionKernel<SoftmaxOf>>(registry, {.op = "SparseSoftmax"}, "T", kSoftmaxTypes);
}

}  // namespace monograph::ops::sparse
