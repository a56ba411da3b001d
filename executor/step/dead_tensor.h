// How an edge between tasks says that there is no tensor: a branch was not taken. In place of a
// tensor comes an invalid one, in place of a bare signal an empty tensor of bools, so that messages
// carry both as they are.
#pragma once

#include "base/tensor.h"
#include "executor/plan/plan.h"

namespace monograph {

inline Tensor DeadTensor(const EdgeInfo& edge) {
  return edge.control ? Tensor::FromValues<bool>(Shape{0}, {}) : Tensor();
}
inline bool IsDead(const EdgeInfo& edge, const Tensor& tensor) {
  return edge.may_be_dead && tensor.valid() == edge.control;
}

}  // namespace monograph
