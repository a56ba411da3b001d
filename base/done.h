// Done: the completion callback of asynchronous calls.
//
// The contract that every function taking one keeps: it returns at once; the callback runs exactly
// once, never inside the call, on the thread that the function's header names; what the caller lent
// belongs to the callee until then; after Close everything pending completes with Cancelled.
#pragma once

#include <functional>

#include "base/status.h"

namespace monograph {

using Done = std::function<void(const Status&)>;

}  // namespace monograph
