// tf.Example messages to tensors: ParseExample, ParseExampleV2, ParseSingleExample.
//
// A dense feature has a fixed shape, or one whose first dimension is open: such rows are as long as
// the longest of the batch, filled up with the default. A sparse one is three tensors (ops/sparse),
// a ragged one values and where rows begin.
#pragma once

#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct DenseFeature {
  std::string key;
  PartialShape shape;
  Output default_value;  // an empty vector of the feature's type: each example must have it
};
// The features of a batch of serialized examples, in this order: [batch] + shape.
Outputs ParseExample(const Scope& scope, const Output& serialized,
                     const std::vector<DenseFeature>& dense);

}  // namespace monograph
