// The convolutional network of TensorFlow's MNIST tutorials: conv 5x5x32, max pool, conv 5x5x64,
// max pool, a dense layer, dropout, 10 classes.
#pragma once

#include <cstdint>

#include "train/model.h"

namespace monograph::examples {

struct MnistCnn {
  int64_t side = 28;               // images are [n, side * side], float in [0, 1] or uint8
  int64_t conv1 = 32, conv2 = 64;  // channels
  int64_t fc = 1024;               // units of the dense layer
  int64_t classes = 10;
  double dropout = 0.5;      // fraction of the dense layer's units that a training step drops
  int64_t seed = 0;          // of the dropout
  DType compute = DT_FLOAT;  // of what lies between the layers; DT_BFLOAT16, DT_HALF keep float
                             // variables and loss

  // Builds a replica from {images, labels}: results are loss and accuracy. Without dropout for
  // evaluation.
  ModelFn Training() const;
  ModelFn Evaluation() const;

  // Its two halves, for those who split it over devices. The first gives [n, features()], the
  // second the logits.
  Output Convolutions(const Scope& scope, const Output& images, ModelVariables& variables) const;
  Output Dense(const Scope& scope, const Output& features, ModelVariables& variables,
               bool training) const;
  int64_t features() const;
};

// Mean cross entropy, and the share of rows whose largest logit is the label's.
Outputs LossAndAccuracy(const Scope& scope, const Output& logits, const Output& labels);

}  // namespace monograph::examples
