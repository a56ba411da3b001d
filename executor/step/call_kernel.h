// CallKernel: a function call that is not inlined: each run is a step of the body's own plan. There
// _Arg i stands as recv edge i, _Retval i as send edge i.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "executor/plan/plan.h"

namespace monograph {

std::unique_ptr<Kernel> MakeCallKernel(std::shared_ptr<const Plan> body);

}  // namespace monograph
