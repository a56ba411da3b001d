// A tensor that the session keeps at its task, under a handle, for later steps
// (tf.get_session_handle, tf.get_session_tensor, tf.delete_session_tensor).
#pragma once

#include "graph/scope.h"

namespace monograph {

// A scalar string, the handle of `value`. Each run keeps another tensor, until it is deleted or the
// session is closed.
Output GetSessionHandle(const Scope& scope, const Output& value);
// What `handle` is of. The node must be on the device whose name the handle ends with.
Output GetSessionTensor(const Scope& scope, const Output& handle, DType dtype);
Operation DeleteSessionTensor(const Scope& scope, const Output& handle);

}  // namespace monograph
