// The geometry of matrix products: what the kernels for every device check before they compute.
#pragma once

#include <cstdint>
#include <string>

#include "base/tensor.h"
#include "ops/fused_ops.h"

namespace monograph::ops::matmul {

// op(a) [m,k] times op(b) [k,n], row by row.
struct Product {
  int64_t m = 0, k = 0, n = 0;
  bool ta = false, tb = false;
  FusedOps fused;
  friend bool operator==(const Product&, const Product&) = default;
  int64_t flops() const { return 2 * m * k * n; }
};

inline Status CheckInner(const Tensor& a, const Tensor& b, const Product& p, int64_t other) {
  if (p.k == other) return Status();
  return InvalidArgument("matrices " + a.shape().ToString() + " and " + b.shape().ToString() +
                         " do not multiply: inner dimensions " + std::to_string(p.k) + " and " +
                         std::to_string(other) + " differ");
}

// Of MatMul; `bias` is looked at if fused.bias.
inline Result<Product> ProductOf(const Tensor& a, const Tensor& b, bool ta, bool tb,
                                 const FusedOps& fused, const Tensor* bias) {
  if (a.shape().rank() != 2 || b.shape().rank() != 2) {
    return InvalidArgument("MatMul needs two matrices, got " + a.shape().ToString() + " and " +
                           b.shape().ToString());
  }
  const Product p{
      a.shape()[ta ? 1 : 0], a.shape()[ta ? 0 : 1], b.shape()[tb ? 0 : 1], ta, tb, fused};
  MG_RETURN_IF_ERROR(CheckInner(a, b, p, b.shape()[tb ? 1 : 0]));
  if (fused.bias && bias->elements() != p.n) {
    return InvalidArgument("a bias of shape " + bias->shape().ToString() + " does not fit " +
                           std::to_string(p.n) + " columns");
  }
  return p;
}

// Of BatchMatMulV2: a product for each matrix of `batch`.
struct BatchedProduct {
  Product each;
  Shape x_batch, y_batch, batch;  // leading dimensions of the operands and of the result
  Shape out;
};

inline Result<BatchedProduct> BatchedProductOf(const Tensor& a, const Tensor& b, bool ax, bool ay) {
  const Shape x = a.shape(), y = b.shape();
  const int rx = x.rank(), ry = y.rank();
  if (rx < 2 || ry < 2)
    return InvalidArgument("BatchMatMul needs at least matrices, got " + x.ToString() + " and " +
                           y.ToString());
  BatchedProduct p;
  p.each = {x[ax ? rx - 1 : rx - 2], x[ax ? rx - 2 : rx - 1], y[ay ? ry - 2 : ry - 1], ax, ay, {}};
  MG_RETURN_IF_ERROR(CheckInner(a, b, p.each, y[ay ? ry - 1 : ry - 2]));
  p.x_batch = Shape(x.dims().first(static_cast<size_t>(rx - 2)));
  p.y_batch = Shape(y.dims().first(static_cast<size_t>(ry - 2)));
  MG_ASSIGN_OR_RETURN(p.batch, BroadcastShapes(p.x_batch, p.y_batch));
  if (p.batch.rank() + 2 > kMaxRank)
    return InvalidArgument("the result has more than " + std::to_string(kMaxRank) + " dimensions");
  p.out = p.batch;
  p.out.AddDim(p.each.m);
  p.out.AddDim(p.each.n);
  return p;
}

// Which matrix of an operand with leading dimensions `own` belongs to matrix `index` of the
// result.
inline int64_t MatrixOf(int64_t index, const Shape& batch, const Shape& own) {
  int64_t offset = 0, stride = 1;
  for (int d = own.rank() - 1, b = batch.rank() - 1; b >= 0; --b, --d) {
    const int64_t at = index % batch[b];
    index /= batch[b];
    if (d < 0) break;
    if (own[d] != 1) offset += at * stride;
    stride *= own[d];
  }
  return offset;
}

}  // namespace monograph::ops::matmul
