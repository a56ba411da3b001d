// Pooling over image windows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// The largest, or the mean, of each ksize window. ksize and strides have one entry per dimension of
// data_format; those of batch and channels are 1. padding: "SAME" or "VALID". What lies outside of
// the image takes no part.
Output MaxPool(const Scope& scope, Output input, const std::vector<int64_t>& ksize,
               const std::vector<int64_t>& strides, const std::string& padding,
               const std::string& data_format = "NHWC");
Output AvgPool(const Scope& scope, Output value, const std::vector<int64_t>& ksize,
               const std::vector<int64_t>& strides, const std::string& padding,
               const std::string& data_format = "NHWC");

// The gradient goes to each window's first largest element, row by row.
Output MaxPoolGrad(const Scope& scope, Output orig_input, Output orig_output, Output grad,
                   const std::vector<int64_t>& ksize, const std::vector<int64_t>& strides,
                   const std::string& padding, const std::string& data_format = "NHWC");
// The gradient with regard to MaxPoolGrad's `grad`: from each window the value of `grad`, which has
// the image's shape, at its first largest element.
Output MaxPoolGradGrad(const Scope& scope, Output orig_input, Output orig_output, Output grad,
                       const std::vector<int64_t>& ksize, const std::vector<int64_t>& strides,
                       const std::string& padding, const std::string& data_format = "NHWC");
Output AvgPoolGrad(const Scope& scope, Output orig_input_shape, Output grad,
                   const std::vector<int64_t>& ksize, const std::vector<int64_t>& strides,
                   const std::string& padding, const std::string& data_format = "NHWC");

// Of volumes: ksize and strides have five entries.
Output MaxPool3D(const Scope& scope, Output input, const std::vector<int64_t>& ksize,
                 const std::vector<int64_t>& strides, const std::string& padding,
                 const std::string& data_format = "NDHWC");
Output AvgPool3D(const Scope& scope, Output input, const std::vector<int64_t>& ksize,
                 const std::vector<int64_t>& strides, const std::string& padding,
                 const std::string& data_format = "NDHWC");

struct MaxPoolWithArgmaxOutputs {
  Output output;
  // int64: (y * width + x) * channels + channel of each maximum, in its image.
  Output argmax;
};
// MaxPool of NHWC, and where the maxima are: the first of equal ones, row by row.
MaxPoolWithArgmaxOutputs MaxPoolWithArgmax(const Scope& scope, Output input,
                                           const std::vector<int64_t>& ksize,
                                           const std::vector<int64_t>& strides,
                                           const std::string& padding);

// Pooling over cells of k or k + 1 rows and columns, which are drawn at random (Graham, "Fractional
// Max-Pooling"); k is the whole part of the ratio.
struct FractionalPoolOptions {
  bool pseudo_random = false;  // draws one number for the rows and one for the columns
  bool overlapping = false;    // a cell has the first row and column of the next ones, too
  bool deterministic = false;  // every run has the same cells; a seed needs it
  int64_t seed = 0, seed2 = 0;
};
struct FractionalPoolOutputs {
  Output output;
  // int64: where the rows' and columns' cells begin, and the size of the image behind.
  Output row_pooling_sequence, col_pooling_sequence;
};
// Of images in NHWC; `pooling_ratio` has four numbers, 1 for batch and channels, the others 1 or
// more: image over result, rounded down.
FractionalPoolOutputs FractionalMaxPool(const Scope& scope, const Output& value,
                                        const std::vector<float>& pooling_ratio,
                                        const FractionalPoolOptions& options = {});
FractionalPoolOutputs FractionalAvgPool(const Scope& scope, const Output& value,
                                        const std::vector<float>& pooling_ratio,
                                        const FractionalPoolOptions& options = {});

}  // namespace monograph
