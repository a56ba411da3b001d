// The bytes of a GPU's memory that a training step must read and write at least, whoever computes
// it, if products and convolutions are calls of libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace monograph::bench {

// Passes over memory of one kind, together.
struct LeastBytes {
  std::string pass;  // an op; "... (sums)": what must be complete before its first value is known
  int64_t read = 0, written = 0;
};

// `step` as a client has it, without what it does not need: before any rewrite. Kinds in the order
// in which they come first. Ends the program if a shape is not known.
//
// The rules: a convolution or a product reads its inputs and writes its output, and may do what
// follows element by element at the same time. A normalisation needs its input once for its sums
// and once more for its values, a gradient of one likewise; what one of our own passes has just
// made needs not be read for the sums, nor for those of a bias. A normalisation of rows needs its
// input once: a row is short enough to be kept. Pooling, reductions, losses and
// updates are a pass each, and may do what follows, too.
// What is computed element by element costs nothing where it can be a part of these passes: it is
// written if a convolution or a product reads it, or more than one node. What a pass can compute
// anew from what it reads anyway it does not read. Tensors of a number per channel and indices are
// not counted.
std::vector<LeastBytes> ListLeastBytes(const Graph& step);

// What one node of the plan moves beyond each of its tensors once: the second reading of a
// normalisation, or of the gradient of one of rows. `name` is of `step` or not; `bytes` are those
// of its tensors.
int64_t BytesReadAgain(const Graph& step, const std::string& name, const std::string& op,
                       int64_t bytes);

}  // namespace monograph::bench
