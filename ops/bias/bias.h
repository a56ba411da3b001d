// Adding one value per channel.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// value [..., c] plus bias [c] (data_format "NHWC"), or value [n, c, ...] plus bias [c] ("NCHW").
Output BiasAdd(const Scope& scope, Output value, Output bias,
               const std::string& data_format = "NHWC");
// The sum over all dimensions but the channels'.
Output BiasAddGrad(const Scope& scope, Output out_backprop,
                   const std::string& data_format = "NHWC");

}  // namespace monograph
