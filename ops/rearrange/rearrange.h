// Ops that put the elements of a tensor in other places: Roll, ReverseSequence, MirrorPad,
// SpaceToBatch(ND), BatchToSpace(ND), SpaceToDepth, DepthToSpace.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// Element i of dimension axis[k] moves to i + shift[k], around the end. Both are scalars or
// vectors.
Output Roll(const Scope& scope, const Output& input, const Output& shift, const Output& axis);
// For each index b of `batch_dim` the first seq_lengths[b] elements of `seq_dim` in reverse order.
Output ReverseSequence(const Scope& scope, const Output& input, const Output& seq_lengths,
                       int64_t seq_dim, int64_t batch_dim = 0);
// Pads with the input's own elements in a mirror: mode "REFLECT" (without the edge) or "SYMMETRIC".
Output MirrorPad(const Scope& scope, const Output& input, const Output& paddings,
                 const std::string& mode);
// Blocks of the dimensions behind the first become further batches, and back.
Output SpaceToBatchND(const Scope& scope, const Output& input, const Output& block_shape,
                      const Output& paddings);
Output BatchToSpaceND(const Scope& scope, const Output& input, const Output& block_shape,
                      const Output& crops);
// Blocks of height and width become channels, and back.
Output SpaceToDepth(const Scope& scope, const Output& input, int64_t block_size,
                    const std::string& data_format = "NHWC");
Output DepthToSpace(const Scope& scope, const Output& input, int64_t block_size,
                    const std::string& data_format = "NHWC");

}  // namespace monograph
