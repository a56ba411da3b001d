// The geometry of attention: what the kernels for every device check before they compute.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "executor/kernel.h"

namespace monograph::ops::attention {

struct Sizes {
  int64_t n = 0, heads = 0, size = 0;
  int64_t rows = 0, columns = 0;  // tokens that ask; tokens that are asked
  bool causal = false;            // row i sees columns 0 to i
  bool with_lengths = false;      // of sequence i only the first lengths[i] columns are seen

  using Key = std::array<int64_t, 7>;
  Key key() const { return {n, heads, size, rows, columns, causal, with_lengths}; }
  Shape query() const { return {n, rows, heads, size}; }
  Shape value() const { return {n, columns, heads, size}; }
  Shape statistics() const { return {n, heads, rows}; }
  // Of query; from one token to the next are token() elements, from one head to the next size.
  int64_t token() const { return heads * size; }
};

// Inputs 0 to 2 are query, key and value; with `backward` 3 to 5 are the output, its statistics and
// its gradient. The last one are lengths, if there are any.
inline Result<Sizes> SizesOf(const KernelContext& c, bool backward, bool causal) {
  const Shape q = c.input(0).shape(), k = c.input(1).shape(), v = c.input(2).shape();
  if (q.rank() != 4 || k.rank() != 4 || k != v || q[0] != k[0] || q[2] != k[2] || q[3] != k[3]) {
    return InvalidArgument("query " + q.ToString() + ", key " + k.ToString() + " and value " +
                           v.ToString() + " are not [n, rows, heads, size] and twice " +
                           "[n, columns, heads, size]");
  }
  const int others = backward ? 6 : 3;
  const Sizes sizes{.n = q[0],
                    .heads = q[2],
                    .size = q[3],
                    .rows = q[1],
                    .columns = k[1],
                    .causal = causal,
                    .with_lengths = c.num_inputs() > others};
  if (sizes.with_lengths && c.input(others).shape() != Shape{sizes.n}) {
    return InvalidArgument("lengths " + c.input(others).shape().ToString() + " are not " +
                           Shape{sizes.n}.ToString() + ", one for each sequence");
  }
  if (!backward) return sizes;
  if (c.input(3).shape() != q || c.input(5).shape() != q ||
      c.input(4).shape() != sizes.statistics()) {
    return InvalidArgument("output " + c.input(3).shape().ToString() + ", statistics " +
                           c.input(4).shape().ToString() + " and gradient " +
                           c.input(5).shape().ToString() + " are not those of the query " +
                           q.ToString());
  }
  return sizes;
}

}  // namespace monograph::ops::attention
