// CPU kernels. Values are only moved, but for sums and products; one thread goes over the elements
// in their order.
#include "ops/sparse/sparse_cpu.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/slices_cpu.h"
#include "ops/dims.h"
#include "ops/gpu/device_code.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::sparse {

Result<std::vector<int64_t>> DimsOf(const Tensor& tensor, const char* name) {
  if (tensor.shape().rank() != 1)
    return InvalidArgument(std::string(name) + " must be a vector, not of shape " +
                           tensor.shape().ToString());
  std::vector<int64_t> dims;
  int64_t product = 1;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    dims.push_back(IndexAt(tensor, i));
    if (dims.back() < 0)
      return InvalidArgument(std::string(name) + "[" + std::to_string(i) +
                             "] = " + std::to_string(dims.back()) + " must be nonnegative");
    if (dims.back() != 0 && __builtin_mul_overflow(product, dims.back(), &product))
      return InvalidArgument(std::string(name) + " has too many elements");
  }
  return dims;
}

Status CheckSparse(const KernelContext& c, const Tensor& indices, const Tensor* values,
                   std::span<const int64_t> dims, bool inside) {
  const auto rank = static_cast<int64_t>(dims.size());
  if (indices.shape().rank() != 2 || indices.shape()[1] != rank) {
    return InvalidArgument("indices of shape " + indices.shape().ToString() +
                           " do not fit a shape of " + std::to_string(rank) + " dimensions");
  }
  if (values != nullptr && !(values->shape() == Shape{indices.shape()[0]})) {
    return InvalidArgument("values of shape " + values->shape().ToString() +
                           " do not fit indices of shape " + indices.shape().ToString());
  }
  Looks looks(c);
  for (int64_t i = 0; inside && i < indices.elements(); ++i) {
    if (!looks.GoOn(3)) return StepAborted();
    const int64_t at = IndexAt(indices, i), limit = dims[static_cast<size_t>(i % rank)];
    if (at >= 0 && at < limit) continue;
    return InvalidArgument("indices[" + std::to_string(i / rank) + ", " + std::to_string(i % rank) +
                           "] = " + std::to_string(at) + " is out of bounds: need 0 <= index < " +
                           std::to_string(limit));
  }
  return Status();
}

void CopyElement(const KernelContext& c, const Tensor& from, int64_t i, Tensor* to, int64_t k) {
  const size_t bytes = DTypeSize(from.dtype());
  CopyElements(c, from.dtype(),
               static_cast<const char*>(from.raw()) + static_cast<size_t>(i) * bytes,
               static_cast<char*>(to->raw()) + static_cast<size_t>(k) * bytes, bytes);
}

Result<std::vector<int64_t>> Sorted(const KernelContext& c, const int64_t* indices, int64_t n,
                                    int64_t rank) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const bool sorted = StableSort(c, &order, [=](int64_t a, int64_t b) {
    return std::lexicographical_compare(indices + a * rank, indices + (a + 1) * rank,
                                        indices + b * rank, indices + (b + 1) * rank);
  });
  if (!sorted) return StepAborted();
  return order;
}

namespace {

Status ReshapeOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> from, DimsOf(c.input(1), "input_shape"));
  MG_RETURN_IF_ERROR(CheckSparse(c, c.input(0), nullptr, from));
  if (from.empty() && c.input(0).shape()[0] > 1) {
    return InvalidArgument("indices of shape " + c.input(0).shape().ToString() +
                           ": a shape without dimensions has one element");
  }
  if (c.input(2).shape().rank() != 1) return InvalidArgument("new_shape must be a vector");
  const auto given = c.input(2).values<int64_t>();
  std::vector<int64_t> to(given.begin(), given.end());
  int64_t elements = 1, product = 1;
  for (int64_t dim : from) elements *= dim;
  auto open = to.end();
  for (auto dim = to.begin(); dim != to.end(); ++dim) {
    if (*dim == -1) {
      if (open != to.end()) return InvalidArgument("only one output dimension may be -1");
      open = dim;
    } else if (*dim < 0 || __builtin_mul_overflow(product, *dim, &product)) {
      return InvalidArgument("size " + std::to_string(*dim) + " must be non-negative");
    }
  }
  if (open != to.end()) {
    if (product == 0 || elements % product != 0) {
      return InvalidArgument("Input to reshape is a SparseTensor with " + std::to_string(elements) +
                             " dense values, but the requested shape requires a multiple of " +
                             std::to_string(product));
    }
    *open = elements / product;
    product = elements;
  }
  if (product != elements) {
    return InvalidArgument("Input to reshape is a tensor with " + std::to_string(elements) +
                           " dense values, but the requested shape has " + std::to_string(product));
  }
  const int64_t n = c.input(0).shape()[0];
  const auto rank = static_cast<int64_t>(to.size());
  MG_ASSIGN_OR_RETURN(Tensor * indices, c.AllocateOutput(0, Shape{n, rank}));
  MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(1, Shape{rank}));
  std::copy(to.begin(), to.end(), shape->data<int64_t>());
  const int64_t* at = c.input(0).data<int64_t>();
  int64_t* out = indices->data<int64_t>();
  Looks looks(c);
  for (int64_t i = 0; i < n && looks.GoOn(5 * (1 + rank)); ++i) {
    int64_t place = 0;
    for (int64_t dim : from) place = place * dim + *at++;
    for (auto d = static_cast<size_t>(rank); d-- > 0;) {
      out[i * rank + static_cast<int64_t>(d)] = place % to[d];
      place /= to[d];
    }
  }
  return Status();
}

// Outputs 0 and 1: the elements in that order.
Status PutOrdered(KernelContext& c, const int64_t* indices, const Tensor& values, int64_t rank,
                  std::span<const int64_t> order) {
  const auto n = static_cast<int64_t>(order.size());
  MG_ASSIGN_OR_RETURN(Tensor * out_indices, c.AllocateOutput(0, Shape{n, rank}));
  MG_ASSIGN_OR_RETURN(Tensor * out_values, c.AllocateOutput(1, Shape{n}));
  Looks looks(c);
  for (int64_t i = 0; i < n && looks.GoOn(10 + rank); ++i) {
    const int64_t from = order[static_cast<size_t>(i)];
    std::copy_n(indices + from * rank, rank, out_indices->data<int64_t>() + i * rank);
    CopyElement(c, values, from, out_values, i);
  }
  return Status();
}

Status ReorderOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "input_shape"));
  MG_RETURN_IF_ERROR(CheckSparse(c, c.input(0), &c.input(1), dims));
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t* indices = c.input(0).data<int64_t>();
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> order,
                      Sorted(c, indices, c.input(1).elements(), rank));
  return PutOrdered(c, indices, c.input(1), rank, order);
}

Status ConcatOf(KernelContext& c, const Attrs& attrs) {
  const int n = c.num_inputs() / 3;
  MG_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(c.input(2 * n), "shapes[0]"));
  const auto rank = static_cast<int64_t>(dims.size());
  int64_t axis = attrs.Get<int64_t>("concat_dim");
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("Concat dimension must be in range [" + std::to_string(-rank) + ", " +
                           std::to_string(rank) + "), got " + std::to_string(axis));
  }
  if (axis < 0) axis += rank;
  std::vector<int64_t> indices;
  Looks looks(c);
  int64_t elements = 0;
  const auto k = static_cast<size_t>(axis);
  for (int i = 0, first = 1; i < n; ++i, first = 0) {
    MG_ASSIGN_OR_RETURN(std::vector<int64_t> own, DimsOf(c.input(2 * n + i), "a shape"));
    if (own.size() != dims.size()) {
      return InvalidArgument("Ranks of all input tensors must match: expected " +
                             std::to_string(rank) + " but got " + std::to_string(own.size()) +
                             " at position " + std::to_string(i));
    }
    MG_RETURN_IF_ERROR(CheckSparse(c, c.input(i), &c.input(n + i), own));
    const int64_t before = first != 0 ? 0 : dims[k], more = first != 0 ? 0 : own[k];
    for (size_t d = 0; d < own.size(); ++d) {
      if (d != k && own[d] != dims[d]) {
        return InvalidArgument("Concat shapes must agree outside of dimension " +
                               std::to_string(axis));
      }
    }
    if (__builtin_add_overflow(dims[k], more, &dims[k]))
      return InvalidArgument("the result is too large");
    const auto rows = c.input(i).values<int64_t>();
    for (size_t e = 0; e < rows.size() && looks.GoOn(3); ++e)
      indices.push_back(rows[e] + (e % own.size() == k ? before : 0));
    elements += c.input(n + i).elements();
  }
  MG_ASSIGN_OR_RETURN(Tensor values, c.AllocateTemp(c.output_dtype(1), Shape{elements}));
  int64_t next = 0;
  for (int i = 0; i < n; ++i) {
    for (int64_t e = 0; e < c.input(n + i).elements() && looks.GoOn(5); ++e)
      CopyElement(c, c.input(n + i), e, &values, next++);
  }
  MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(2, Shape{rank}));
  std::copy(dims.begin(), dims.end(), shape->data<int64_t>());
  if (!looks.GoOn(0)) return Status();
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> order, Sorted(c, indices.data(), elements, rank));
  return PutOrdered(c, indices.data(), values, rank, order);
}

Status SliceOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "shape"));
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> size, DimsOf(c.input(4), "size"));
  MG_RETURN_IF_ERROR(CheckSparse(c, c.input(0), &c.input(1), dims));
  const auto rank = static_cast<int64_t>(dims.size());
  const auto start = c.input(3).values<int64_t>();
  if (c.input(3).shape().rank() != 1 || start.size() != dims.size() || size.size() != dims.size())
    return InvalidArgument("start and size must have an element for each dimension");
  const int64_t* indices = c.input(0).data<int64_t>();
  std::vector<int64_t> kept, moved;
  Looks looks(c);
  for (int64_t i = 0; i < c.input(1).elements(); ++i) {
    if (!looks.GoOn(5 * (1 + rank))) return Status();
    bool inside = true;
    for (int64_t d = 0; d < rank; ++d) {
      const auto k = static_cast<size_t>(d);
      const int64_t at = indices[i * rank + d];
      inside = inside && at >= start[k] && at - start[k] < size[k];
    }
    if (!inside) continue;
    kept.push_back(i);
    for (int64_t d = 0; d < rank; ++d)
      moved.push_back(indices[i * rank + d] - start[static_cast<size_t>(d)]);
  }
  const auto n = static_cast<int64_t>(kept.size());
  MG_ASSIGN_OR_RETURN(Tensor * out_indices, c.AllocateOutput(0, Shape{n, rank}));
  MG_ASSIGN_OR_RETURN(Tensor * out_values, c.AllocateOutput(1, Shape{n}));
  MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(2, Shape{rank}));
  InPieces(c, n * rank, [&](int64_t begin, int64_t end) {
    std::copy(moved.begin() + begin, moved.begin() + end, out_indices->data<int64_t>() + begin);
  });
  for (int64_t i = 0; i < n && looks.GoOn(5); ++i)
    CopyElement(c, c.input(1), kept[static_cast<size_t>(i)], out_values, i);
  for (int64_t d = 0; d < rank; ++d) {
    const auto k = static_cast<size_t>(d);
    shape->data<int64_t>()[d] =
        std::clamp<int64_t>(dims[k] - start[k], 0, std::max<int64_t>(0, size[k]));
  }
  return Status();
}

// Parts of as many indices along one dimension, where that is a multiple; else the first ones have
// one more.
Status SplitOf(KernelContext& c, const Attrs&) {
  const Tensor &axis_of = c.input(0), &indices = c.input(1), &values = c.input(2);
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(3), "shape"));
  MG_RETURN_IF_ERROR(CheckSparse(c, indices, &values, dims));
  MG_ASSIGN_OR_RETURN(int64_t axis, IntOf(axis_of, "split_dim"));
  const auto rank = static_cast<int64_t>(dims.size()), parts = int64_t{c.num_outputs() / 3};
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("Input axis should be in range [" + std::to_string(-rank) + ", " +
                           std::to_string(rank) + "), got " + std::to_string(axis));
  }
  if (axis < 0) axis += rank;
  const int64_t size = dims[static_cast<size_t>(axis)];
  if (parts > size) {
    return InvalidArgument(
        "Input num_split should be between 1 and the splitting dimension size (" +
        std::to_string(size) + "), got " + std::to_string(parts));
  }
  const int64_t least = size / parts, larger = size % parts, turn = larger * (least + 1);
  const auto part_of = [=](int64_t at) {
    return at < turn ? at / (least + 1) : larger + (at - turn) / least;
  };
  const int64_t* rows = indices.data<int64_t>();
  std::vector<int64_t> counts(static_cast<size_t>(parts));
  Looks looks(c);
  for (int64_t i = 0; i < values.elements(); ++i) {
    if (!looks.GoOn(10)) return Status();
    ++counts[static_cast<size_t>(part_of(rows[i * rank + axis]))];
  }
  std::vector<Tensor*> out_indices, out_values;
  for (int64_t part = 0; part < parts; ++part) {
    const auto k = static_cast<int>(part), n = static_cast<int>(parts);
    const int64_t count = counts[static_cast<size_t>(part)];
    MG_ASSIGN_OR_RETURN(out_indices.emplace_back(), c.AllocateOutput(k, Shape{count, rank}));
    MG_ASSIGN_OR_RETURN(out_values.emplace_back(), c.AllocateOutput(n + k, Shape{count}));
    MG_ASSIGN_OR_RETURN(Tensor * shape, c.AllocateOutput(2 * n + k, Shape{rank}));
    std::copy(dims.begin(), dims.end(), shape->data<int64_t>());
    shape->data<int64_t>()[axis] = least + (part < larger ? 1 : 0);
  }
  std::ranges::fill(counts, 0);
  for (int64_t i = 0; i < values.elements() && looks.GoOn(20 + rank); ++i) {
    const int64_t* row = rows + i * rank;
    const int64_t part = part_of(row[axis]);
    const auto k = static_cast<size_t>(part);
    int64_t* to = out_indices[k]->data<int64_t>() + counts[k] * rank;
    std::copy_n(row, rank, to);
    to[axis] -= part * least + std::min(part, larger);
    CopyElement(c, values, i, out_values[k], counts[k]++);
  }
  return Status();
}

// Both lists of indices have the same order.
Status SliceGradOf(KernelContext& c, const Attrs&) {
  const Tensor &grad = c.input(0), &indices = c.input(1), &start = c.input(2), &chosen = c.input(3);
  if (indices.shape().rank() != 2 || chosen.shape().rank() != 2 || grad.shape().rank() != 1 ||
      start.shape().rank() != 1 || indices.shape()[1] != chosen.shape()[1] ||
      start.elements() != indices.shape()[1] || grad.elements() != chosen.shape()[0]) {
    return InvalidArgument(
        "backprop_val_grad, input_indices, input_start and output_indices of "
        "shapes " +
        grad.shape().ToString() + ", " + indices.shape().ToString() + ", " +
        start.shape().ToString() + " and " + chosen.shape().ToString() + " do not fit");
  }
  const int64_t rank = indices.shape()[1], n = indices.shape()[0];
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{n}));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  Looks looks(c);
  for (int64_t i = 0, next = 0; i < n && next < grad.elements() && looks.GoOn(2 + 3 * rank); ++i) {
    bool same = true;
    for (int64_t d = 0; d < rank; ++d) {
      same = same && indices.data<int64_t>()[i * rank + d] ==
                         chosen.data<int64_t>()[next * rank + d] + start.data<int64_t>()[d];
    }
    if (same) CopyElement(c, grad, next++, out, i);
  }
  return Status();
}

Status FillEmptyRowsOf(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "dense_shape"));
  if (dims.empty()) return InvalidArgument("Dense shape cannot be empty.");
  const Tensor &indices = c.input(0), &values = c.input(1);
  MG_RETURN_IF_ERROR(CheckSparse(c, indices, &values, dims, false));
  if (c.input(3).shape().rank() != 0) return InvalidArgument("default_value must be a scalar");
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t n = values.elements(), rows = dims[0];
  // The sizes of rows, and where the next element of each goes.
  MG_ASSIGN_OR_RETURN(Tensor sizes, c.AllocateTemp(DT_INT64, Shape{rows}));
  MG_ASSIGN_OR_RETURN(Tensor places, c.AllocateTemp(DT_INT64, Shape{rows}));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, sizes.raw(), sizes.bytes()));
  if (c.cancelled()) return Status();  // what is not zeroed must not be counted on
  int64_t *const counts = sizes.data<int64_t>(), *const next = places.data<int64_t>();
  Looks looks(c);
  for (int64_t i = 0; i < n; ++i) {
    if (!looks.GoOn(3)) return Status();
    const int64_t row = indices.data<int64_t>()[i * rank];
    if (row < 0 || row >= rows) {
      return InvalidArgument("indices(" + std::to_string(i) + ", 0) is invalid: " +
                             std::to_string(row) + " is not in [0, " + std::to_string(rows) + ")");
    }
    ++counts[row];
  }
  MG_ASSIGN_OR_RETURN(Tensor * empty, c.AllocateOutput(2, Shape{rows}));
  MG_ASSIGN_OR_RETURN(Tensor * map, c.AllocateOutput(3, Shape{n}));
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (!looks.GoOn(2)) return Status();
    empty->data<bool>()[row] = counts[row] == 0;
    next[row] = total;
    total += std::max<int64_t>(1, counts[row]);
  }
  MG_ASSIGN_OR_RETURN(Tensor * out_indices, c.AllocateOutput(0, Shape{total, rank}));
  MG_ASSIGN_OR_RETURN(Tensor * out_values, c.AllocateOutput(1, Shape{total}));
  int64_t* at = out_indices->data<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    if (!looks.GoOn(3 + rank)) return Status();
    if (counts[row] > 0) continue;
    std::fill_n(at + next[row] * rank, rank, 0);
    at[next[row] * rank] = row;
    CopyElement(c, c.input(3), 0, out_values, next[row]);
  }
  for (int64_t i = 0; i < n && looks.GoOn(10 + rank); ++i) {
    const int64_t* index = indices.data<int64_t>() + i * rank;
    const int64_t place = next[*index]++;
    std::copy_n(index, rank, at + place * rank);
    CopyElement(c, values, i, out_values, place);
    map->data<int64_t>()[i] = place;
  }
  return Status();
}

Status FillEmptyRowsGradOf(KernelContext& c, const Attrs&) {
  const Tensor &map = c.input(0), &grad = c.input(1);
  if (map.shape().rank() != 1 || grad.shape().rank() != 1)
    return InvalidArgument("reverse_index_map and grad_values must be vectors");
  const int64_t n = map.elements(), all = grad.elements();
  MG_ASSIGN_OR_RETURN(Tensor * values, c.AllocateOutput(0, Shape{n}));
  MG_ASSIGN_OR_RETURN(Tensor * fill, c.AllocateOutput(1, Shape()));
  std::vector<bool> taken(static_cast<size_t>(all));
  Looks looks(c);
  for (int64_t i = 0; i < n; ++i) {
    if (!looks.GoOn(5)) return Status();
    const int64_t place = map.data<int64_t>()[i];
    if (place < 0 || place >= all) {
      return InvalidArgument("Elements in reverse index must be in [0, " + std::to_string(all) +
                             ") but got " + std::to_string(place));
    }
    CopyElement(c, grad, place, values, i);
    taken[static_cast<size_t>(place)] = true;
  }
  return WithRealType(grad.dtype(), [&](auto t) {
    using T = decltype(t);
    Accumulator<T> sum = 0;
    for (int64_t i = 0; i < all && looks.GoOn(2); ++i) {
      if (!taken[static_cast<size_t>(i)])
        sum = static_cast<Accumulator<T>>(sum + static_cast<Accumulator<T>>(grad.data<T>()[i]));
    }
    *fill->data<T>() = T(sum);
    return Status();
  });
}

Status ToDenseOf(KernelContext& c, const Attrs& attrs) {
  const Tensor &indices = c.input(0), &values = c.input(2), &fill = c.input(3);
  MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(1), "output_shape"));
  if (c.input(1).shape().rank() != 1) return InvalidArgument("output_shape must be rank 1");
  if (indices.shape().rank() > 2)
    return InvalidArgument("sparse_indices should be a scalar, vector, or matrix");
  const int64_t n = indices.shape().rank() > 0 ? indices.shape()[0] : 1;
  const int64_t rank = indices.shape().rank() > 1 ? indices.shape()[1] : 1;
  if (rank != shape.rank()) {
    return InvalidArgument("output_shape has incorrect number of elements: " +
                           std::to_string(shape.rank()) + " should be: " + std::to_string(rank));
  }
  if (rank == 0 && n > 1) {
    return InvalidArgument("sparse_indices of shape " + indices.shape().ToString() +
                           ": a result without dimensions has one element");
  }
  if (fill.shape().rank() != 0) return InvalidArgument("default_value should be a scalar");
  const bool one = values.shape().rank() == 0;
  if (!one && !(values.shape() == Shape{n})) {
    return InvalidArgument("sparse_values has incorrect shape " + values.shape().ToString() +
                           ", should be [] or [" + std::to_string(n) + "]");
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  Looks looks(c);
  if (out->dtype() == DT_STRING) {
    for (int64_t i = 0; i < out->elements(); ++i) {
      if (!AppendText(&looks, *fill.strings(), out->strings() + i)) return Status();
    }
  } else {
    MG_RETURN_IF_ERROR(
        HostMoves::Fill(c, DTypeSize(out->dtype()), fill.raw(), out->raw(), out->elements()));
  }
  const bool ordered = attrs.Get<bool>("validate_indices");
  int64_t last = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (!looks.GoOn(5 * (1 + rank))) return Status();
    int64_t place = 0;
    for (int64_t d = 0; d < rank; ++d) {
      const int64_t at = IndexAt(indices, i * rank + d), limit = shape[static_cast<int>(d)];
      if (at < 0 || at >= limit) {
        return InvalidArgument("indices[" + std::to_string(i) + "] is out of bounds: need 0 <= " +
                               std::to_string(at) + " < " + std::to_string(limit));
      }
      place = place * limit + at;
    }
    if (ordered && place <= last) {
      return InvalidArgument("indices[" + std::to_string(i) + "] is " +
                             (place == last ? "repeated" : "out of order") +
                             ". Many sparse ops require sorted indices. Use SparseReorder to sort "
                             "them, or validate_indices=false");
    }
    last = place;
    CopyElement(c, values, one ? 0 : i, out, place);
  }
  return Status();
}

Status ReduceSumOf(KernelContext& c, const Attrs& attrs) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, DimsOf(c.input(2), "input_shape"));
  const Tensor &indices = c.input(0), &values = c.input(1);
  MG_RETURN_IF_ERROR(CheckSparse(c, indices, &values, dims));
  MG_ASSIGN_OR_RETURN(const SmallInts axes, IntsOf(c.input(3), "reduction_axes"));
  const auto rank = static_cast<int64_t>(dims.size());
  std::vector<bool> reduced(dims.size());
  for (int64_t axis : axes.span()) {
    if (axis < -rank || axis >= rank)
      return InvalidArgument("Invalid reduction dimension " + std::to_string(axis) +
                             ", for input with " + std::to_string(rank) + " dimensions.");
    reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  SmallInts sizes;
  if (rank > kMaxRank) return TooManyDimensions();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!reduced[d]) {
      sizes.push_back(dims[d]);
    } else if (attrs.Get<bool>("keep_dims")) {
      sizes.push_back(1);
    }
  }
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(sizes.span()));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  const CombineFn add = CombineOf(SliceUpdate::kAdd, values.dtype());
  Looks looks(c);
  for (int64_t i = 0; i < values.elements() && looks.GoOn(5 + 3 * rank); ++i) {
    int64_t place = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!reduced[d])
        place = place * dims[d] + indices.data<int64_t>()[i * rank + static_cast<int64_t>(d)];
    }
    add(out->raw(), &place, 1,
        static_cast<const char*>(values.raw()) + static_cast<size_t>(i) * DTypeSize(values.dtype()),
        1, 1);
  }
  return Status();
}

Status MatMulOf(KernelContext& c, const Attrs& attrs) {
  MG_ASSIGN_OR_RETURN(const std::vector<int64_t> a, DimsOf(c.input(2), "a_shape"));
  const Tensor &indices = c.input(0), &values = c.input(1), &b = c.input(3);
  if (a.size() != 2 || b.shape().rank() != 2)
    return InvalidArgument("SparseTensorDenseMatMul multiplies matrices");
  MG_RETURN_IF_ERROR(CheckSparse(c, indices, &values, a));
  const bool adjoint_a = attrs.Get<bool>("adjoint_a"), adjoint_b = attrs.Get<bool>("adjoint_b");
  const int64_t rows = a[adjoint_a ? 1 : 0], inner = a[adjoint_a ? 0 : 1];
  const int64_t columns = b.shape()[adjoint_b ? 0 : 1];
  if (b.shape()[adjoint_b ? 1 : 0] != inner) {
    return InvalidArgument(
        "Cannot multiply A and B because inner dimension does not match: " + std::to_string(inner) +
        " vs. " + std::to_string(b.shape()[adjoint_b ? 1 : 0]));
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{rows, columns}));
  MG_RETURN_IF_ERROR(HostMoves::Zero(c, out->raw(), out->bytes()));
  const int64_t row_step = adjoint_b ? 1 : columns, column_step = adjoint_b ? inner : 1;
  const int64_t n = values.elements();
  if (n == 0 || out->elements() == 0) return Status();
  return WithRealType(out->dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    // Each thread has columns of its own, so that sums do not depend on threads.
    c.ParallelFor(columns, 1 + n, [&](int64_t first, int64_t last) {
      const int64_t piece = std::max<int64_t>(1, kPiece / (last - first));
      InPieces(c, n, piece, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = IndexAt(indices, 2 * i + (adjoint_a ? 1 : 0)),
                        at = IndexAt(indices, 2 * i + (adjoint_a ? 0 : 1));
          const A factor = values.data<T>()[i];
          const T* from = b.data<T>() + at * row_step;
          T* to = out->data<T>() + row * columns;
          for (int64_t k = first; k < last; ++k)
            to[k] = T(static_cast<A>(to[k]) + factor * static_cast<A>(from[k * column_step]));
        }
      });
    });
    return Status();
  });
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<FunctionKernel<ReshapeOf>>({.op = "SparseReshape"});
  AddForCopiedTypes<FunctionKernel<ReorderOf>>(registry, {.op = "SparseReorder"});
  AddForCopiedTypes<FunctionKernel<ConcatOf>>(registry, {.op = "SparseConcat"});
  AddForCopiedTypes<FunctionKernel<SliceOf>>(registry, {.op = "SparseSlice"});
  AddForCopiedTypes<FunctionKernel<SplitOf>>(registry, {.op = "SparseSplit"});
  AddForTypes<FunctionKernel<SliceGradOf>>(registry, {.op = "SparseSliceGrad"}, "T", kRealTypes);
  AddForCopiedTypes<FunctionKernel<FillEmptyRowsOf>>(registry, {.op = "SparseFillEmptyRows"});
  AddForTypes<FunctionKernel<FillEmptyRowsGradOf>>(registry, {.op = "SparseFillEmptyRowsGrad"}, "T",
                                                   kRealTypes);
  AddForCopiedTypes<FunctionKernel<ToDenseOf>>(registry, {.op = "SparseToDense"});
  AddForTypes<FunctionKernel<ReduceSumOf>>(registry, {.op = "SparseReduceSum"}, "T", kRealTypes);
  constexpr DType kFactors[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64};
  AddForTypes<FunctionKernel<MatMulOf>>(registry, {.op = "SparseTensorDenseMatMul"}, "T", kFactors);
  RegisterArithmetic(registry);
  RegisterCrosses(registry);
  RegisterSets(registry);
}

}  // namespace monograph::ops::sparse
