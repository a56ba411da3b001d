// What comes over an edge between devices in place of a tensor, or of a bare signal, when its
// sender is on a branch that was not taken. A message of it has a flag
// (executor/worker/step_message.h).
#pragma once

#include "base/tensor.h"

namespace monograph {

inline char dead_tensor_memory = 0;  // by its address it is known

inline const Tensor& DeadTensor() {
  static const auto* const dead =
      new Tensor(DT_BOOL, Shape{0}, Buffer::Wrap(&dead_tensor_memory, 1, [] {}));
  return *dead;
}
inline bool IsDead(const Tensor& tensor) {
  return tensor.valid() && tensor.raw() == &dead_tensor_memory;
}

}  // namespace monograph
