// Losses, and how good predictions are.
#pragma once

#include "graph/scope.h"

namespace monograph {

// Per row, -log softmax(logits)[label]. logits [n, classes], labels [n] (int32 or int64) -> [n].
// A label outside [0, classes) is an InvalidArgument that names its row.
Output SparseSoftmaxCrossEntropyWithLogits(const Scope& scope, Output logits, Output labels);
// Per row, -sum labels * log softmax(logits); labels [n, classes] are probabilities.
Output SoftmaxCrossEntropyWithLogits(const Scope& scope, Output logits, Output labels);
// Element by element, -labels * log(sigmoid(x)) - (1 - labels) * log(1 - sigmoid(x)) of logits x,
// without overflow (tf.nn.sigmoid_cross_entropy_with_logits); labels are probabilities, of the
// logits' shape.
Output SigmoidCrossEntropyWithLogits(const Scope& scope, Output logits, Output labels);
// sum(t^2) / 2
Output L2Loss(const Scope& scope, Output t);
// Whether each row's target is among its k highest predictions.
Output InTopK(const Scope& scope, Output predictions, Output targets, Output k);

}  // namespace monograph
