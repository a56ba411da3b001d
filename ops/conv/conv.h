// Two-dimensional convolution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct Conv2DOptions {
  std::string data_format = "NHWC";  // or "NCHW"
  std::vector<int64_t> dilations = {1, 1, 1, 1};
  std::vector<int64_t> explicit_paddings =
      {};  // for padding "EXPLICIT": before and after, per dimension of data_format
};

// input [batch, height, width, in_channels], filter [rows, columns, in_channels, out_channels].
// `strides` has one entry per dimension of data_format; those of batch and channels are 1. padding:
// "SAME", "VALID" or "EXPLICIT". A filter of fewer in_channels than the input convolves in groups:
// the first in_channels give the first out_channels / groups, and so on.
Output Conv2D(const Scope& scope, Output input, Output filter, const std::vector<int64_t>& strides,
              const std::string& padding, const Conv2DOptions& options = {});

// The gradients of Conv2D with respect to its input (whose shape is given) and its filter.
Output Conv2DBackpropInput(const Scope& scope, Output input_sizes, Output filter,
                           Output out_backprop, const std::vector<int64_t>& strides,
                           const std::string& padding, const Conv2DOptions& options = {});
Output Conv2DBackpropFilter(const Scope& scope, Output input, Output filter_sizes,
                            Output out_backprop, const std::vector<int64_t>& strides,
                            const std::string& padding, const Conv2DOptions& options = {});

// Each input channel by itself: `filter` is [height, width, in_channels, multiplier], and the
// result has in_channels * multiplier channels.
Output DepthwiseConv2dNative(const Scope& scope, Output input, Output filter,
                             const std::vector<int64_t>& strides, const std::string& padding,
                             const Conv2DOptions& options = {});

struct Conv3DOptions {
  std::string data_format = "NDHWC";  // or "NCDHW"
  std::vector<int64_t> dilations = {1, 1, 1, 1, 1};
};

// Of volumes: `filter` is [depth, height, width, in_channels, out_channels]; strides and dilations
// have one entry per dimension of data_format. padding: "SAME" or "VALID".
Output Conv3D(const Scope& scope, Output input, Output filter, const std::vector<int64_t>& strides,
              const std::string& padding, const Conv3DOptions& options = {});

}  // namespace monograph
