// Summaries for TensorBoard: strings that hold a Summary message, for SummaryWriter, or
// TensorFlow's FileWriter, to put into an event file.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// A scalar of `values` per tag; both have the same shape.
Output ScalarSummary(const Scope& scope, Output tags, Output values);
// All elements of `values`, in buckets that grow by a tenth.
Output HistogramSummary(const Scope& scope, Output tag, Output values);
// A tensor as it is. `metadata` is a serialised SummaryMetadata.
Output TensorSummary(const Scope& scope, Output tag, Output tensor, Output metadata);
// The values of several summaries in one. A tag that comes twice fails the step.
Output MergeSummary(const Scope& scope, const Outputs& inputs);

}  // namespace monograph
