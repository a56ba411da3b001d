// A model with next to no layers, for measuring all that is not the model: three dense layers, of
// 1 and 4096 units and one per class.
#pragma once

#include <cstdint>

#include "train/model.h"

namespace monograph::examples {

struct TrivialModel {
  int64_t side = 227;  // images are [n, side, side, 3], float
  int64_t classes = 1000;
  DType compute = DT_FLOAT;  // of what lies between the layers

  // The logits, float.
  Output Logits(const Scope& scope, const Output& images, ModelVariables& variables) const;
};

}  // namespace monograph::examples
