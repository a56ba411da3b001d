// Parts of ops/image's Define.
#pragma once

#include "graph/op_def.h"

namespace monograph::ops::image {

void DefineBoxes(OpRegistry* registry);    // boxes.cc
void DefineColours(OpRegistry* registry);  // colours.cc

}  // namespace monograph::ops::image
