// ResNet-50 and its smaller kin (K. He and others, "Deep Residual Learning for Image Recognition",
// 2015), with the stride in the 3x3 convolution, as everybody trains it since.
#pragma once

#include <cstdint>
#include <vector>

#include "train/model.h"

namespace monograph::examples {

struct ResNet {
  int64_t side = 224;  // images are [n, side, side, 3], float or uint8
  int64_t classes = 1000;
  int64_t width = 64;                      // channels after the first layer
  std::vector<int> blocks = {3, 4, 6, 3};  // per stage: ResNet-50
  bool bottleneck = true;    // blocks of 1x1, 3x3 and 1x1 convolutions; else of two 3x3 ones, as in
                             // ResNet-18 ({2, 2, 2, 2}) and ResNet-34
  DType compute = DT_FLOAT;  // of what lies between the layers; DT_BFLOAT16, DT_HALF
                             // keep float variables, statistics and loss
  float epsilon = 1e-5f;     // of batch normalisation
  bool channels_first = false;  // between the layers: [n, c, h, w]; images come as they do

  // Builds a replica from {images, labels}: results are loss and accuracy. Normalises by the
  // statistics of the replica's own part of the batch; keeps no moving averages.
  ModelFn Training() const;

  // The logits, float.
  Output Logits(const Scope& scope, const Output& images, ModelVariables& variables) const;
};

}  // namespace monograph::examples
