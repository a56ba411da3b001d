// Tensors as the messages of summaries have them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "ops/summary/summary.pb.h"

namespace monograph {

// The elements of a tensor of real numbers. InvalidArgument for another type.
Result<std::vector<double>> Numbers(const Tensor& tensor);

// TensorFlow's histogram of the elements, in buckets that grow by a tenth. InvalidArgument, which
// names `tag`, for another type, and for values that are not finite. `go_on`, if any, is asked now
// and then; once it says no, the rest is left out: Cancelled.
Status FillHistogram(const std::string& tag, const Tensor& values, pb::HistogramProto* histogram,
                     const std::function<bool()>& go_on = nullptr);

}  // namespace monograph
