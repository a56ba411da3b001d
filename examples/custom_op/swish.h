// Swish: x * sigmoid(x), element by element.
#pragma once

#include <monograph/monograph.h>

namespace custom_op {

monograph::Output Swish(const monograph::Scope& scope, const monograph::Output& x);

// Makes the op known. A client and its daemons must agree, so both call both before their first
// graph.
void DefineSwish(monograph::OpRegistry* ops);
void RegisterSwishCpu(monograph::KernelRegistry* kernels);

}  // namespace custom_op
